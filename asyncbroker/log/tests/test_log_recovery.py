"""Opening after a crash: torn tails, holes, promises."""

from __future__ import annotations

import errno
import logging
from random import Random
from typing import Any
from zlib import crc32

import pytest

from asyncbroker.log.config import LogConfig
from asyncbroker.log.errors import CorruptLog
from asyncbroker.log.files import Files
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.crash_files import CrashFiles, Died
from asyncbroker.log.tests.log_harness import (
    DIRECTORY,
    append,
    append_each,
    batch,
    copied,
    crashed,
    flip,
    from_producer,
    names,
    open_log,
    read_all,
    reopened,
    truncate,
    values_of,
    with_config,
)
from asyncbroker.log.unclean_scan import QUARANTINED_SUFFIX

ONE = LogConfig(index_interval_bytes=150)
FIRST = f"{DIRECTORY}/{0:020d}"


def recovered(files: Files, config: LogConfig = ONE, **more: Any) -> PartitionLog:
    return open_log(files, config=config, is_clean=False, **more)


# ---- torn tails


def test_a_log_cut_at_every_byte_keeps_the_whole_batches_before() -> None:
    files = MemoryFiles()
    log = open_log(files, config=ONE)
    values = append_each(log, 5)
    log.flush()
    values += append_each(log, 3)
    log.close(clean=False)
    size = len(files.read_whole(f"{FIRST}.log"))
    batch_size = size // 8
    for cut in range(5 * batch_size, size + 1):
        torn = copied(files)
        truncate(torn, f"{FIRST}.log", cut)
        log = recovered(torn, recovery_point=5)
        whole = cut // batch_size
        assert log.end_offset == whole
        assert values_of(log) == values[:whole]
        assert len(torn.read_whole(f"{FIRST}.log")) == whole * batch_size
        append(log, batch(b"next"))
        log = crashed(log, torn)
        assert values_of(log) == [*values[:whole], b"next"]
        assert not [name for name in names(torn) if "quarantined" in name]


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"\x02" * 5000, bytes(range(256)) * 20])
@pytest.mark.parametrize("whole", [0, 1, 4])
def test_a_tail_of_zeros_or_garbage_is_cut(tail: bytes, whole: int) -> None:
    files = MemoryFiles()
    log = open_log(files, config=ONE)
    values = append_each(log, whole)
    log.close(clean=False)
    file = files.open(f"{FIRST}.log")
    file.pwrite(tail, file.size())
    log = recovered(files)
    assert values_of(log) == values
    assert not [name for name in names(files) if "quarantined" in name]


def test_a_flipped_byte_in_the_last_batch_cuts_just_that_batch() -> None:
    files = MemoryFiles()
    log = open_log(files, config=ONE)
    values = append_each(log, 4)
    log.close(clean=False)
    size = len(files.read_whole(f"{FIRST}.log"))
    for position in range(size * 3 // 4, size):
        torn = copied(files)
        flip(torn, f"{FIRST}.log", position)
        if (size * 3 // 4) + 12 <= position < (size * 3 // 4) + 16:
            continue  # the leader epoch is not under the CRC
        assert values_of(recovered(torn)) == values[:3]


def test_what_is_cut_does_not_come_back_behind_new_batches() -> None:
    calls: list[str] = []
    files = MemoryFiles()
    log = open_log(files, config=ONE)
    append_each(log, 4)
    log.close(clean=False)
    truncate(files, f"{FIRST}.log", len(files.read_whole(f"{FIRST}.log")) - 1)
    files.on_call = lambda operation, path: calls.append(operation)
    recovered(files)
    assert calls.index("truncate") < calls.index("datasync")


def test_a_torn_first_batch_leaves_an_empty_log() -> None:
    files = MemoryFiles()
    log = open_log(files, config=ONE)
    append(log)
    log.close(clean=False)
    truncate(files, f"{FIRST}.log", 30)
    log = recovered(files)
    assert log.end_offset == 0
    assert append(log).base_offset == 0


# ---- batches behind the damage


def quarantined(files: Files) -> dict[str, int]:
    sizes = files.list_files(DIRECTORY)
    return {name: size for name, size in sizes.items() if name.endswith(".quarantined")}


def test_later_batches_behind_unpromised_damage_are_cut_but_kept_aside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = MemoryFiles()
    log = open_log(files, config=ONE)
    values = append_each(log, 10)
    log.close(clean=False)
    size = len(files.read_whole(f"{FIRST}.log")) // 10
    flip(files, f"{FIRST}.log", 4 * size + 70)
    with caplog.at_level(logging.WARNING):
        log = recovered(files, recovery_point=2)
    assert values_of(log) == values[:4]
    assert quarantined(files) == {f"{0:020d}.{4 * size}.quarantined": 6 * size}
    assert "cutting the log at offset 4" in caplog.text


def test_what_is_kept_aside_takes_the_place_of_nothing_that_is() -> None:
    """The same damage at the same place, of other records; and a crash in the middle of it."""
    files = MemoryFiles()
    config = with_config(segment_bytes=300)
    kept: set[bytes] = set()
    for life in range(3):
        log = open_log(files, config=config, is_clean=False)
        for offset in range(log.end_offset, 9):
            append(log, batch(b"%d of life %d" % (offset, life)))
        log.close(clean=False)
        size = len(files.read_whole(f"{FIRST}.log")) // 3
        flip(files, f"{FIRST}.log", size + 70)
        kept |= {
            files.read_whole(f"{FIRST}.log")[size:],
            *(files.read_whole(f"{DIRECTORY}/{base:020d}.log") for base in (3, 6)),
        }
        # A crash comes when the first one is copied, and before it is cut.
        files.on_call = fail_truncate
        with pytest.raises(OSError, match="crash"):
            open_log(files, config=config, is_clean=False)
        files.on_call = None
        assert open_log(files, config=config, is_clean=False).end_offset == 1
    aside = quarantined(files)
    assert {files.read_whole(f"{DIRECTORY}/{name}") for name in aside} == kept
    assert len(aside) == len(kept) == 9


def test_what_is_kept_aside_is_so_for_good_before_it_is_cut() -> None:
    files = CrashFiles()
    files.make_directory("data")
    files.sync_directory("")
    log = open_log(files, config=ONE)
    append_each(log, 3)
    size = len(files.read_whole(f"{FIRST}.log")) // 3
    flip(files, f"{FIRST}.log", size + 70)
    log.flush()
    opened, tail = files.killed(), files.read_whole(f"{FIRST}.log")[size:]
    assert recovered(opened).end_offset == 1
    for die_in in range(opened.change_count):
        dying = files.killed()
        dying.die_in = die_in
        with pytest.raises(Died):
            recovered(dying)
        for state in dying.states(20, Random(die_in)):
            assert any(tail in data for data in state.contents().values())


def fail_truncate(operation: str, path: str) -> None:
    if operation == "truncate" and path.endswith(".log"):
        raise OSError(errno.EIO, "crash")


def test_later_segments_behind_unpromised_damage_are_kept_aside() -> None:
    files = MemoryFiles()
    config = with_config(segment_bytes=300)
    log = open_log(files, config=config)
    values = append_each(log, 9)
    log.close(clean=False)
    size = len(batch(b"x" * 20))
    truncate(files, f"{FIRST}.log", 2 * size + 10)
    log = recovered(files, config)
    assert values_of(log) == values[:2]
    assert quarantined(files) == {
        f"{0:020d}.{2 * size}.quarantined": 10,
        f"{3:020d}.log.quarantined": 3 * size,
        f"{6:020d}.log.quarantined": 3 * size,
    }
    append_each(log, 3)
    assert len(read_all(crashed(log, files))) == 5


@pytest.mark.parametrize("recovery_point", [0, 2, 3, 5, 9])
@pytest.mark.parametrize("is_checked", [False, True])
def test_bytes_behind_the_last_offset_of_a_full_segment_are_no_damage(
    recovery_point: int, is_checked: bool
) -> None:
    files = MemoryFiles()
    config = with_config(segment_bytes=300)
    log = open_log(files, config=config)
    values = append_each(log, 9)
    log.close(clean=False)
    path = f"{FIRST}.log"
    size = len(files.read_whole(path))
    files.open(path).pwrite(batch(b"a batch that did not fit")[:50], size)
    if is_checked:
        files.write_whole(f"{DIRECTORY}/damaged-ranges", b"nobody knows")
    log = recovered(files, config, recovery_point=recovery_point)
    assert values_of(log) == values
    assert not quarantined(files)
    if recovery_point <= 3 or is_checked:
        assert len(files.read_whole(path)) == size
    assert "damaged-ranges" not in names(files)


def with_a_gap(is_removed: bool) -> MemoryFiles:
    """Three segments of three batches, of which the second is gone, or empty."""
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_bytes=300))
    append_each(log, 9)
    log.close(clean=False)
    second = f"{DIRECTORY}/{3:020d}.log"
    if is_removed:
        files.remove(second)
    else:
        truncate(files, second, 0)
    return files


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_promised_segment_that_is_gone_between_others_is_told(
    is_removed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = recovered(with_a_gap(is_removed), recovery_point=9)
    assert "offsets 3 to 5 are in no segment" in caplog.text
    assert (log.log_start_offset, log.end_offset) == (0, 9)


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_reader_that_passes_over_a_segment_that_is_gone_is_told_of(
    is_removed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A stop in order leaves no reason to look at older segments."""
    log = open_log(with_a_gap(is_removed), is_clean=True, recovery_point=9)
    assert not caplog.text
    assert [offset for offset, _ in read_all(log)] == [0, 1, 2, 6, 7, 8]
    assert "offsets 3 to 5 are in no segment, and a reader passes over them" in caplog.text
    caplog.clear()
    log.set_config(with_config(is_compacted=True))
    read_all(log)
    assert not caplog.text


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_log_ends_where_a_power_cut_left_a_gap_and_keeps_the_rest_aside(
    is_removed: bool,
) -> None:
    files = with_a_gap(is_removed)
    log = recovered(files)
    assert (log.log_start_offset, log.end_offset) == (0, 3)
    aside = quarantined(files)
    assert f"{6:020d}.log.quarantined" in aside
    assert 0 not in aside.values()
    append_each(log, 3)
    log = recovered(files)
    assert [offset for offset, _ in read_all(log)] == list(range(6))


def test_a_log_of_which_no_segment_is_left_is_an_error() -> None:
    for is_clean in (True, False):
        files = MemoryFiles()
        log = open_log(files, config=ONE)
        append_each(log, 5)
        log.close()
        files.remove(f"{FIRST}.log")
        with pytest.raises(CorruptLog, match="no segment is left"):
            open_log(files, config=ONE, is_clean=is_clean, recovery_point=5)
        assert f"{0:020d}.log" not in names(files)


def message_of_format_1(offset: int, value: bytes) -> bytes:
    """offset, size, CRC-32, magic, attributes, timestamp, null key, value"""
    body = b"\1\0" + bytes(8) + b"\xff" * 4 + len(value).to_bytes(4, "big") + value
    message = crc32(body).to_bytes(4, "big") + body
    return offset.to_bytes(8, "big") + len(message).to_bytes(4, "big") + message


def test_an_old_message_format_is_named_and_left_alone() -> None:
    files = MemoryFiles()
    open_log(files, config=ONE).close()
    data = b"".join(message_of_format_1(offset, b"value" * 20) for offset in range(9))
    for is_clean, recovery_point in ((True, 9), (False, 9), (False, 0)):
        files.write_whole(f"{FIRST}.log", data)
        with pytest.raises(CorruptLog, match=r"older message format|magic 1"):
            open_log(files, config=ONE, is_clean=is_clean, recovery_point=recovery_point)
        assert files.read_whole(f"{FIRST}.log") == data


def test_a_clean_stop_with_a_torn_log_is_not_believed() -> None:
    files = MemoryFiles()
    log = open_log(files, config=ONE)
    values = append_each(log, 5)
    log.close()
    truncate(files, f"{FIRST}.log", len(files.read_whole(f"{FIRST}.log")) - 1)
    log = open_log(files, config=ONE, is_clean=True, recovery_point=4)
    assert values_of(log) == values[:4]
    assert log.durable_end_offset == 4


# ---- how much is read


def test_after_a_crash_only_what_follows_the_recovery_point_is_read_whole() -> None:
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_bytes=100_000))
    append_each(log, 500, size=1000)
    log.flush()
    log.checkpoint()
    append_each(log, 5, size=1000)
    log.close(clean=False)
    touched: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation == "pread" and path.endswith(".log"):
            touched.append(path)

    files.on_call = note
    log = recovered(files, log.config, recovery_point=500)
    assert log.end_offset == 505
    assert len(set(touched)) <= 2
    assert log.durable_end_offset == 500
    assert log.segments[-1].is_dirty
    assert log.flush() == 505


def test_after_a_clean_stop_only_the_end_of_the_newest_segment_is_read() -> None:
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_bytes=100_000))
    append_each(log, 500, size=1000)
    log.close()
    touched: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation.startswith("pread"):
            touched.append(path)

    files.on_call = note
    log = open_log(files, config=log.config, recovery_point=500)
    assert log.end_offset == log.durable_end_offset == 500
    active = f"{DIRECTORY}/{log.active_base_offset:020d}"
    assert {path.rpartition(".")[0] for path in touched} == {active}
    assert len(touched) < 12


def test_indexes_after_a_crash_equal_those_of_a_log_that_had_none() -> None:
    files, calm = MemoryFiles(), MemoryFiles()
    config = with_config(segment_bytes=4000)
    log, other = open_log(files, config=config), open_log(calm, config=config)
    for count in (20, 30, 7, 60):
        append_each(other, count)
        append_each(log, count)
        log.flush()
        log.checkpoint()
        append_each(other, 3)
        append_each(log, 3)
        log = crashed(log, files, leader_epoch=1)
    log.close()
    other.close()
    for name in names(calm):
        if name.endswith((".log", ".index", ".timeindex")):
            path = f"{DIRECTORY}/{name}"
            assert files.read_whole(path) == calm.read_whole(path), name


def test_zero_padded_indexes_of_a_crashed_kafka_are_understood() -> None:
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_bytes=100_000))
    append_each(log, 100)
    log.close()
    for suffix, entry_bytes in ((".index", 8), (".timeindex", 12)):
        data = files.read_whole(FIRST + suffix)
        files.write_whole(FIRST + suffix, data + bytes((10 << 20) // entry_bytes * entry_bytes))
    for is_clean in (True, False):
        copy = copied(files)
        log = open_log(copy, config=log.config, is_clean=is_clean, recovery_point=100)
        assert len(read_all(log)) == 100
        append_each(log, 10)
        log.close()
        assert len(copy.read_whole(f"{FIRST}.index")) < 1000


def test_index_files_that_a_crash_left_too_long_or_stale_do_no_harm() -> None:
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_bytes=100_000))
    append_each(log, 200, size=50)
    log.close()
    # The log lost its end; the index still has it.
    truncate(files, f"{FIRST}.log", len(files.read_whole(f"{FIRST}.log")) // 2 + 5)
    log = open_log(files, config=log.config, is_clean=False, recovery_point=50)
    count = log.end_offset
    assert 90 < count < 110
    append_each(log, 100, size=33)
    assert [offset for offset, _ in read_all(log)] == list(range(count + 100))
    log = reopened(log, files)
    assert [offset for offset, _ in read_all(log)] == list(range(count + 100))


# ---- log start


def test_a_start_beyond_the_end_empties_the_log_and_gives_no_offset_twice() -> None:
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_bytes=300))
    append_each(log, 8)
    log.close(clean=False)
    whole = copied(files)
    log = recovered(files, log.config, log_start_offset=20)
    assert (log.log_start_offset, log.end_offset) == (20, 20)
    # Nothing of ours says so before it is true, so the beginning may be what is wrong.
    for name in (each for each in names(whole) if each.endswith(".log")):
        kept = files.read_whole(f"{DIRECTORY}/{name}.quarantined")
        assert kept == whole.read_whole(f"{DIRECTORY}/{name}")
    assert append(log).base_offset == 20
    log = reopened(log, files, log_start_offset=20)
    assert [offset for offset, _ in read_all(log)] == [20]


def test_a_log_that_is_emptied_so_opens_after_a_crash_in_the_middle_of_it() -> None:
    def prepare() -> tuple[CrashFiles, LogConfig]:
        files = CrashFiles(sector_bytes=128)
        files.make_directory("data")
        files.sync_directory("")
        log = open_log(files, config=with_config(segment_bytes=300))
        append_each(log, 8)
        log.flush()
        return files, log.config

    def reopen(files: CrashFiles, config: LogConfig) -> PartitionLog:
        return recovered(files, config, recovery_point=8, log_start_offset=20)

    random = Random(5)
    files, config = prepare()
    before = files.change_count
    reopen(files, config)
    for die_in in range(files.change_count - before):
        files, config = prepare()
        whole = files.contents()
        files.die_in = die_in
        with pytest.raises(Died):
            reopen(files, config)
        for state in [*files.states(5, random), files.killed()]:
            log = reopen(state, config)
            assert (log.log_start_offset, log.end_offset) == (20, 20)
            kept = {
                data for path, data in state.contents().items() if path.endswith(QUARANTINED_SUFFIX)
            }
            assert kept >= {data for path, data in whole.items() if path.endswith(".log")}
            assert append(log).base_offset == 20


# ---- recovery itself


def test_opening_twice_after_a_crash_gives_the_same() -> None:
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_bytes=500))
    for sequence in range(20):
        append(log, from_producer(sequence))
    log.close(clean=False)
    truncate(files, f"{DIRECTORY}/{log.active_base_offset:020d}.log", 50)
    first = recovered(files, log.config)
    expected = read_all(first)
    first.close(clean=False)
    second = recovered(files, log.config)
    assert read_all(second) == expected
    assert second.end_offset == first.end_offset
    append(second, from_producer(second.end_offset))
