"""The sparse indexes: Kafka's bytes, zeros at the end, entries in memory and in the file."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncbroker.log.errors import CorruptIndex, WouldBlock
from asyncbroker.log.index import (
    OFFSET_INDEX,
    TIME_INDEX,
    Entries,
    Layout,
    RecentBatches,
    SparseIndex,
)
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.open_segments import OpenSegments

OFFSETS = [(9, 4200), (20, 8400), (31, 12600), (42, 16800)]


def index_of(
    files: MemoryFiles, layout: Layout = OFFSET_INDEX, stored_size: int | None = None
) -> SparseIndex:
    files.make_directory("d")
    return SparseIndex(files, OpenSegments(), layout, "d/s", stored_size)


def stored(files: MemoryFiles, entries: list[tuple[int, int]], padding: int = 0) -> SparseIndex:
    """An index whose entries are all in the file."""
    data = b"".join(struct.pack(">ii", *entry) for entry in entries) + bytes(padding)
    files.make_directory("d")
    files.write_whole("d/s.index", data)
    return index_of(files, stored_size=len(data))


def all_of(index: SparseIndex) -> list[tuple[int, int]]:
    entries = index.tail(1 << 30)
    return [entries[at] for at in range(len(entries))]


def test_the_offset_index_has_kafkas_bytes() -> None:
    files = MemoryFiles()
    index = index_of(files)
    index.append(41, 4100)
    index.append(100, 70_000)
    index.persist(sync=True)
    assert files.read_whole("d/s.index") == bytes.fromhex("00000029 00001004 00000064 00011170")


def test_the_time_index_has_kafkas_bytes() -> None:
    files = MemoryFiles()
    index = index_of(files, TIME_INDEX)
    index.append(1_700_000_000_000, 41)
    index.persist(sync=True)
    assert files.read_whole("d/s.timeindex") == bytes.fromhex("0000018bcfe56800 00000029")


@given(
    st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(1, 2**31 - 1)), max_size=20),
    st.sampled_from([OFFSET_INDEX, TIME_INDEX]),
    st.integers(0, 3),
)
def test_entries_survive_encoding_and_padding(
    pairs: list[tuple[int, int]], layout: Layout, padding: int
) -> None:
    keys, values = sorted({key for key, _ in pairs}), sorted({value for _, value in pairs})
    expected = list(zip(keys, values, strict=False))
    entries = Entries.empty(layout)
    for entry in expected:
        entries.append(*entry)
    data = bytes(entries.encode(layout)) + bytes(padding * layout.entry_bytes)
    if not expected and padding == 1:
        return  # one entry of zeros cannot be told from padding
    decoded = Entries.decode(layout, data)
    assert [decoded[at] for at in range(len(decoded))] == expected


def test_a_first_entry_of_zeros_is_one_when_others_follow_or_nothing_does() -> None:
    for entries in ([(0, 0)], [(0, 0), (5, 3)]):
        data = b"".join(struct.pack(">qi", *entry) for entry in entries)
        assert len(Entries.decode(TIME_INDEX, data)) == len(entries)
    assert len(Entries.decode(TIME_INDEX, bytes(24))) == 0


@pytest.mark.parametrize("padding", [0, 8, 800])
def test_the_floor_is_the_last_entry_that_is_not_above(padding: int) -> None:
    index = stored(MemoryFiles(), OFFSETS, padding)
    for key in range(50):
        expected = [entry for entry in OFFSETS if entry[0] <= key]
        assert index.floor_by_key(key) == (expected[-1] if expected else None)
    for value in range(0, 20_000, 100):
        expected = [entry for entry in OFFSETS if entry[1] <= value]
        assert index.floor_by_value(value) == (expected[-1] if expected else None)


def test_entries_are_found_in_the_file_and_in_memory_alike() -> None:
    files = MemoryFiles()
    index = stored(files, OFFSETS)
    index.append(50, 21_000)
    assert index.floor_by_key(49) == (42, 16800)
    assert index.floor_by_key(50) == (50, 21_000)
    assert index.last() == (50, 21_000)
    index.persist(sync=False)
    assert index.stored_count == 5
    assert index.floor_by_key(50) == (50, 21_000)
    index.drop_cache()
    assert index.floor_by_key(60) == (50, 21_000)
    assert index.cached_bytes == 5 * 8
    assert len(files.read_whole("d/s.index")) == 5 * 8


def test_the_tail_is_read_without_the_rest() -> None:
    files = MemoryFiles()
    index = stored(files, OFFSETS)
    assert list(index.tail(2).keys) == [31, 42]
    assert index.cached_bytes == 0
    index.append(50, 21_000)
    assert list(index.tail(2).keys) == [42, 50]
    assert list(index.tail(1).keys) == [50]
    assert all_of(index) == [*OFFSETS, (50, 21_000)]


@pytest.mark.parametrize("padding", [8, 80])
def test_zeros_at_the_end_are_cut_off_when_the_index_is_written(padding: int) -> None:
    files = MemoryFiles()
    index = stored(files, OFFSETS, padding)
    assert index.last() == OFFSETS[-1]
    assert len(index) == len(OFFSETS)
    index.persist(sync=True)
    assert len(files.read_whole("d/s.index")) == len(OFFSETS) * 8


def test_dropping_entries_shortens_memory_and_then_the_file() -> None:
    files = MemoryFiles()
    index = stored(files, OFFSETS)
    index.append(50, 21_000)
    index.drop_last(1)
    assert all_of(index) == OFFSETS
    index.drop_after_value(8400)
    assert all_of(index) == OFFSETS[:2]
    index.append(25, 9000)
    index.persist(sync=True)
    assert all_of(index) == [*OFFSETS[:2], (25, 9000)]
    assert len(files.read_whole("d/s.index")) == 3 * 8
    index.clear()
    assert all_of(index) == []


def test_dropping_by_value_looks_as_far_back_as_needed() -> None:
    many = [(at, at * 10) for at in range(1, 200)]
    index = stored(MemoryFiles(), many)
    index.drop_after_value(35)
    assert all_of(index) == many[:3]
    index.drop_after_value(0)
    assert all_of(index) == []


def test_an_index_that_was_not_changed_is_not_written() -> None:
    calls: list[str] = []
    files = MemoryFiles(lambda operation, path: calls.append(operation))
    index = stored(files, OFFSETS)
    index.append(50, 21_000)
    index.persist(sync=True)
    calls.clear()
    index.persist(sync=True)
    assert calls == []


def test_an_empty_new_index_is_written_so_that_kafka_finds_one() -> None:
    files = MemoryFiles()
    index = index_of(files)
    index.persist(sync=True)
    assert files.read_whole("d/s.index") == b""


def test_what_was_written_without_sync_is_synced_later() -> None:
    calls: list[str] = []
    files = MemoryFiles(lambda operation, path: calls.append(operation))
    index = index_of(files)
    index.append(1, 1)
    index.persist(sync=False)
    assert "datasync" not in calls
    index.persist(sync=True)
    assert calls.count("datasync") == 1


def test_a_file_that_is_shorter_than_it_was_is_corrupt() -> None:
    files = MemoryFiles()
    index = stored(files, OFFSETS)
    files.write_whole("d/s.index", b"")
    with pytest.raises(CorruptIndex):
        index.floor_by_key(100)
    files.remove("d/s.index")
    with pytest.raises(CorruptIndex):
        index.last()


def test_entries_of_a_file_that_lost_its_end_are_not_used() -> None:
    files = MemoryFiles()
    index = stored(files, OFFSETS, padding=3)
    assert all_of(index) == []
    index.persist(sync=True)
    assert files.read_whole("d/s.index") == b""


def test_an_index_that_must_be_read_is_not_waited_for() -> None:
    index = stored(MemoryFiles(), OFFSETS)
    with pytest.raises(WouldBlock):
        index.floor_by_key(9, may_block=False)
    assert index.floor_by_key(9) == (9, 4200)
    assert index.floor_by_key(9, may_block=False) == (9, 4200)


def test_rebuilt_entries_go_before_those_that_are_not_stored() -> None:
    files = MemoryFiles()
    index = stored(files, [(1, 1)])
    index.append(50, 21_000)
    rebuilt = Entries.empty(OFFSET_INDEX)
    rebuilt.append(9, 4200)
    index.replace_stored(rebuilt)
    assert all_of(index) == [(9, 4200), (50, 21_000)]
    index.persist(sync=True)
    assert len(files.read_whole("d/s.index")) == 16


def test_read_indexes_are_dropped_when_they_take_too_much_memory() -> None:
    open_segments = OpenSegments(index_bytes_max=40)
    files = MemoryFiles()
    indexes = []
    for name in "abc":
        stored(files, OFFSETS)
        files.rename("d/s.index", f"d/{name}.index")
        indexes.append(SparseIndex(files, open_segments, OFFSET_INDEX, f"d/{name}", 32))
    for index in indexes:
        assert index.floor_by_key(9) == (9, 4200)
    assert [index.cached_bytes for index in indexes] == [0, 0, 32]
    assert indexes[0].floor_by_key(9) == (9, 4200)


def test_recent_batches_forget_the_older_half() -> None:
    recent = RecentBatches()
    for at in range(RecentBatches.COUNT_MAX + 1):
        recent.append(at, at * 100)
    offsets, positions = recent.columns
    assert offsets[0] == RecentBatches.COUNT_MAX // 2
    assert len(offsets) == len(positions) == RecentBatches.COUNT_MAX // 2 + 1
    assert positions[-1] == RecentBatches.COUNT_MAX * 100
