"""Finding batches by offset: whole ones, within limits, from memory or from damaged indexes."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncbroker.log.config import LogConfig
from asyncbroker.log.errors import WouldBlock
from asyncbroker.log.files import RealFiles
from asyncbroker.log.memory_files import MemoryFile, MemoryFiles
from asyncbroker.log.open_segments import OpenSegments
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.log_harness import (
    DIRECTORY,
    append,
    append_each,
    batch,
    flip,
    open_log,
    overwrite,
    read_all,
    reopened,
    values_of,
    with_config,
)
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.records import batches

LARGE = LogConfig(index_interval_bytes=300)


def offsets_at(log: PartitionLog, offset: int, bytes_max: int, **more: int | bool) -> list[int]:
    """The base offsets of the batches that one `locate` gives."""
    end_offset = int(more.pop("end_offset", log.end_offset))
    located = log.locate(offset, bytes_max, end_offset=end_offset, **more)  # type: ignore[arg-type]
    if located is None:
        return []
    data = located.read()
    assert data == located.read_nowait()
    found = [(header.base_offset, header.size) for header, _ in batches(data)]
    assert sum(size for _, size in found) == located.size == len(data)
    return [base for base, _ in found]


def test_outside_of_the_log_is_out_of_range_and_its_end_is_empty() -> None:
    log = open_log()
    append_each(log, 20)
    log.advance_log_start(5)
    for offset in (-1, 4, 21, 1 << 40):
        with pytest.raises(KafkaError) as caught:
            log.locate(offset, 100, end_offset=20)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.locate(20, 100, end_offset=20) is None
    assert log.locate(10, 100, end_offset=10) is None
    assert log.locate(10, 100, end_offset=5) is None


@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize("config", [LARGE, with_config()])
def test_the_first_batch_is_the_one_that_contains_the_offset(
    config: LogConfig, is_reopened: bool
) -> None:
    files = MemoryFiles()
    log = open_log(files, config=config)
    for _ in range(400):
        append(log, batch(b"a", b"b", b"c"))
    if is_reopened:
        log = reopened(log, files)
    for offset in range(0, 1200, 7):
        assert offsets_at(log, offset, 1)[0] == offset // 3 * 3


@pytest.mark.parametrize("is_reopened", [False, True])
def test_as_many_batches_are_given_as_fit_into_the_limit(is_reopened: bool) -> None:
    files = MemoryFiles()
    log = open_log(files, config=LARGE)
    append_each(log, 500)
    size = log.size // 500
    if is_reopened:
        log = reopened(log, files)
    for first in (0, 1, 100, 250, 495):
        for count in (1, 2, 3, 10, 100):
            there = min(count, 500 - first)
            for bytes_max in (count * size, count * size + size - 1):
                found = offsets_at(log, first, bytes_max)
                # The index may stand in for the last eighth.
                assert there - there // 8 <= len(found) <= there
                assert found == list(range(first, first + len(found)))


def test_the_first_batch_comes_whole_even_above_the_limit() -> None:
    log = open_log(config=LARGE)
    append_each(log, 300)
    for offset in (0, 100, 299):
        assert offsets_at(log, offset, 0) == [offset]
        assert offsets_at(log, offset, 1) == [offset]
        assert offsets_at(log, offset, 1, always_one=False) == []


@pytest.mark.parametrize("is_reopened", [False, True])
def test_nothing_at_or_after_the_end_offset_is_given(is_reopened: bool) -> None:
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_bytes=2000))
    append_each(log, 60)
    if is_reopened:
        log = reopened(log, files)
    for end_offset in (1, 17, 30, 45, 58, 59, 60, 100):
        for offset in range(max(0, end_offset - 12), min(end_offset, 60)):
            found = offsets_at(log, offset, 1 << 20, end_offset=end_offset)
            assert found[0] == offset
            assert found[-1] < end_offset


def test_an_end_within_a_batch_leaves_the_batch_out() -> None:
    log = open_log(config=LARGE)
    append(log, batch(b"a", b"b", b"c"))
    append(log, batch(b"d", b"e", b"f"))
    assert offsets_at(log, 0, 1 << 20, end_offset=4) == [0]
    assert offsets_at(log, 3, 1 << 20, end_offset=4) == []


def test_a_range_ends_with_its_segment() -> None:
    log = open_log(config=with_config(segment_bytes=300))
    append_each(log, 9)
    assert offsets_at(log, 1, 1 << 20) == [1, 2]
    assert offsets_at(log, 3, 1 << 20) == [3, 4, 5]


def test_gaps_that_compaction_left_are_stepped_over() -> None:
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_bytes=300))
    append_each(log, 12)
    log.close()
    # Segment 3 loses its last batch, segment 6 all but its file.
    path = f"{DIRECTORY}/{3:020d}"
    size = files.list_files(DIRECTORY)[f"{3:020d}.log"] // 3
    for name, length in ((path, 2 * size), (f"{DIRECTORY}/{6:020d}", 0)):
        files.write_whole(f"{name}.log", files.read_whole(f"{name}.log")[:length])
        files.remove(f"{name}.index")
        files.remove(f"{name}.timeindex")
    log = open_log(files, config=log.config, recovery_point=12)
    for offset in (5, 6, 8, 9):
        assert offsets_at(log, offset, 1 << 20) == [9, 10, 11]
    assert offsets_at(log, 4, 1 << 20) == [4]


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(0, 600), min_size=1, max_size=60),
    start=st.integers(0, 59),
    bytes_max=st.integers(0, 5000),
    interval=st.sampled_from([0, 200, 4096]),
    is_reopened=st.booleans(),
)
def test_any_range_is_whole_batches_within_the_limit(
    sizes: list[int], start: int, bytes_max: int, interval: int, is_reopened: bool
) -> None:
    files = MemoryFiles()
    log = open_log(files, config=LogConfig(index_interval_bytes=interval, segment_bytes=8000))
    batch_sizes = []
    for size in sizes:
        data = batch(b"x" * size)
        batch_sizes.append(len(data))
        append(log, data)
    if is_reopened:
        log = reopened(log, files)
    offset = min(start, len(sizes) - 1)
    found = offsets_at(log, offset, bytes_max)
    assert found == list(range(offset, offset + len(found)))
    assert found
    assert len(found) == 1 or sum(batch_sizes[offset : offset + len(found)]) <= bytes_max


# ---- indexes that lie


def damaged(how: str, files: MemoryFiles, base: int) -> None:
    path = f"{DIRECTORY}/{base:020d}"
    index = files.read_whole(f"{path}.index")
    if how == "missing":
        files.remove(f"{path}.index")
    elif how == "empty":
        files.write_whole(f"{path}.index", b"")
    elif how == "zeros":
        files.write_whole(f"{path}.index", bytes(len(index)))
    elif how == "garbage":
        files.write_whole(f"{path}.index", b"\x13\x57\x9b\xdf" * (len(index) // 4))
    elif how == "odd size":
        files.write_whole(f"{path}.index", index[:-3])
    elif how == "preallocated":
        files.write_whole(f"{path}.index", index + bytes(8 * 1000))
    elif how == "another log's":
        files.write_whole(f"{path}.index", index[:4] + index[8:] + index[4:8])
    elif how == "positions beyond the end":
        overwrite(files, f"{path}.index", len(index) - 4, b"\x7f\xff\xff\xff")


DAMAGE = [
    "missing",
    "empty",
    "zeros",
    "garbage",
    "odd size",
    "preallocated",
    "another log's",
    "positions beyond the end",
]


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("is_active", [True, False])
def test_a_damaged_index_changes_no_answer(how: str, is_active: bool) -> None:
    files = MemoryFiles()
    log = open_log(files, config=LogConfig(index_interval_bytes=300, segment_bytes=6000))
    append_each(log, 100)
    expected = read_all(log)
    log.close()
    damaged(how, files, log.active_base_offset if is_active else 0)
    log = open_log(files, config=log.config, recovery_point=100)
    assert read_all(log) == expected
    for offset in range(100):
        assert offsets_at(log, offset, 500)[0] == offset
    # What was mended is written, so the next start finds nothing to mend.
    log.close()
    log = open_log(files, config=log.config, recovery_point=100)
    assert read_all(log) == expected


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_no_flipped_byte_of_an_index_changes_an_answer(data: st.DataObject) -> None:
    files = MemoryFiles()
    log = open_log(files, config=LogConfig(index_interval_bytes=300, segment_bytes=3000))
    append_each(log, 60)
    expected = read_all(log)
    log.close()
    base = data.draw(st.sampled_from([0, log.active_base_offset]))
    path = f"{DIRECTORY}/{base:020d}.index"
    size = len(files.read_whole(path))
    for position in data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=3)):
        flip(files, path, position)
    log = open_log(files, config=log.config, recovery_point=60)
    for bytes_max in (1, 500, 5000):
        assert read_all(log, bytes_max=bytes_max) == expected


def test_where_no_batch_is_readers_are_refused_and_others_read_on() -> None:
    files = MemoryFiles()
    log = open_log(files, config=LARGE)
    append_each(log, 100)
    log = reopened(log, files)
    size = log.size // 100
    overwrite(files, f"{DIRECTORY}/{0:020d}.log", 50 * size, bytes(size))
    # On the event loop nobody looks into it.
    with pytest.raises(WouldBlock):
        log.locate(51, 100, end_offset=100, may_block=False)
    assert offsets_at(log, 51, 1) == [51]
    assert offsets_at(log, 20, 1) == [20]
    with pytest.raises(KafkaError) as caught:
        log.locate(50, 100, end_offset=100)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


# ---- without waiting


class ColdFile(MemoryFile):
    """A file none of whose bytes are in memory."""

    def pread_nowait(self, size: int, position: int) -> None:
        return None


@pytest.mark.parametrize("config", [LARGE, with_config()])
def test_the_newest_batches_are_found_without_any_file(
    config: LogConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncbroker.log.memory_files.MemoryFile", ColdFile)
    log = open_log(config=config)
    append_each(log, 500)
    for offset in range(max(440, log.active_base_offset), 500):
        located = log.locate(offset, 400, end_offset=500, may_block=False)
        assert located is not None
        assert located.read_nowait() is None
        assert located.read()


def test_what_is_not_in_memory_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncbroker.log.memory_files.MemoryFile", ColdFile)
    files = MemoryFiles()
    log = open_log(files)
    append_each(log, 500)
    log = reopened(log, files)
    for offset in (0, 100, 499):
        with pytest.raises(WouldBlock):
            log.locate(offset, 400, end_offset=500, may_block=False)
        assert log.locate(offset, 400, end_offset=500) is not None


def test_an_index_is_not_rebuilt_on_the_event_loop() -> None:
    files = MemoryFiles()
    log = open_log(files, config=LogConfig(index_interval_bytes=300, segment_bytes=6000))
    append_each(log, 100)
    log.close()
    damaged("positions beyond the end", files, 0)
    log = open_log(files, config=log.config, recovery_point=100)
    last = log.segments[1].base_offset - 1
    with pytest.raises(WouldBlock):
        log.locate(last, 400, end_offset=100, may_block=False)
    assert log.locate(last, 400, end_offset=100) is not None
    assert log.locate(last, 400, end_offset=100, may_block=False) is not None


def test_a_file_is_not_opened_on_the_event_loop() -> None:
    files = MemoryFiles()
    log = open_log(files)
    append_each(log, 500)
    log.flush()
    opened: list[str] = []
    files.on_call = lambda operation, path: opened.append(path) if operation == "open" else None
    for offset, segment in ((0, log.segments[0]), (499, log.segments[-1])):
        segment.file = None
        with pytest.raises(WouldBlock):
            log.locate(offset, 400, end_offset=500, may_block=False)
        assert not opened
        assert log.locate(offset, 400, end_offset=500) is not None
        opened.clear()


# ---- beside deletion


def test_a_segment_that_is_deleted_while_it_is_looked_into_is_out_of_range() -> None:
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_bytes=300))
    append_each(log, 30)
    log = reopened(log, files)

    def delete(operation: str, path: str) -> None:
        if operation == "open":
            files.on_call = None
            log.delete_segments(log.advance_log_start(15))

    files.on_call = delete
    with pytest.raises(KafkaError) as caught:
        log.locate(2, 100, end_offset=30)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert offsets_at(log, 15, 1) == [15]


def test_times_are_looked_for_again_when_the_beginning_is_deleted() -> None:
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_bytes=300))
    append_each(log, 30)
    log = reopened(log, files)

    def delete(operation: str, path: str) -> None:
        if operation == "open":
            files.on_call = None
            log.delete_segments(log.advance_log_start(15))

    files.on_call = delete
    found = log.offset_for_timestamp(0, 30)
    assert found is not None
    assert found.offset == 15


# ---- descriptors


def test_few_files_stay_open_and_readers_keep_theirs(tmp_path: object) -> None:
    open_segments = OpenSegments(files_max=3)
    log = open_log(
        RealFiles(),
        directory=f"{tmp_path}/flights-0",
        config=with_config(segment_bytes=300),
        open_segments=open_segments,
    )
    append_each(log, 60)
    log.flush()
    assert log.segment_count == 20
    held = log.locate(0, 1000, end_offset=60)
    assert held is not None
    append_each(log, 3)
    assert log.segments[0].file is None
    assert [header.base_offset for header, _ in batches(held.read())] == [0, 1, 2]
    assert held.fileno() is not None
    assert len(read_all(log)) == 63
    assert sum(segment.file is not None for segment in log.segments) <= 3
    log.close()


def test_a_segment_that_is_not_durable_keeps_its_descriptor(tmp_path: object) -> None:
    log = open_log(
        RealFiles(),
        directory=f"{tmp_path}/flights-0",
        config=with_config(segment_bytes=300),
        open_segments=OpenSegments(files_max=2),
    )
    append_each(log, 15)
    assert all(segment.file is not None for segment in log.segments)
    log.flush()
    append_each(log, 3)
    assert sum(segment.file is not None for segment in log.segments) <= 2
    log.close()


def test_a_file_that_was_just_opened_is_not_closed_for_want_of_another(tmp_path: object) -> None:
    open_segments = OpenSegments(files_max=2)
    logs = [
        open_log(RealFiles(), directory=f"{tmp_path}/flights-{at}", open_segments=open_segments)
        for at in range(5)
    ]
    for log in logs:
        append_each(log, 1)
    assert all(log.segments[-1].file is not None for log in logs)


def test_a_checkpoint_makes_durable_what_keeps_too_many_files_open(tmp_path: object) -> None:
    open_segments = OpenSegments(files_max=2)
    logs = [
        open_log(RealFiles(), directory=f"{tmp_path}/flights-{at}", open_segments=open_segments)
        for at in range(5)
    ]
    for log in logs:
        append_each(log, 1)
    assert open_segments.is_crowded
    assert [log.checkpoint() for log in logs] == [1, 1, 1, 0, 0]
    assert not open_segments.is_crowded
    assert sum(log.segments[-1].file is not None for log in logs) == 2
    assert [values_of(log)[0] for log in logs] == [b"0-".ljust(20, b"x")] * 5


def test_a_file_is_closed_also_when_no_descriptor_is_left_for_its_directory() -> None:
    open_segments = OpenSegments(files_max=1)
    files = MemoryFiles()
    logs = [
        open_log(files, directory=f"data/flights-{at}", open_segments=open_segments)
        for at in range(3)
    ]
    for log in logs:
        append_each(log, 1)

    def no_descriptor(operation: str, path: str) -> None:
        if operation == "sync_directory":
            raise OSError(errno.EMFILE, "too many open files")

    files.on_call = no_descriptor
    with pytest.raises(OSError, match="too many"):
        logs[0].checkpoint()
    assert logs[0].segments[-1].file is None
    files.on_call = None
    assert logs[0].flush() == 1
