"""Offsets by time: the first record at or after, inside batches, in any order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncbroker.log.config import INT64_MAX, LogConfig
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.log_harness import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    crashed,
    flip,
    open_log,
    reopened,
    with_config,
)
from asyncbroker.protocol.records import Compression, read_header

SMALL = LogConfig(
    segment_bytes=1500, index_interval_bytes=200, message_timestamp_after_max_ms=INT64_MAX
)


def filled(batches_of: list[list[int]], config: LogConfig = SMALL) -> PartitionLog:
    log = open_log(config=config)
    for timestamps in batches_of:
        append(log, batch(*[b"value"] * len(timestamps), timestamps=timestamps))
    return log


def first_at(log: PartitionLog, timestamp: int, end_offset: int | None = None) -> tuple[int, int]:
    found = log.offset_for_timestamp(
        timestamp, log.end_offset if end_offset is None else end_offset
    )
    return (-1, -1) if found is None else (found.offset, found.timestamp)


def expected(
    times: list[int], timestamp: int, start: int = 0, end: int = 1 << 30
) -> tuple[int, int]:
    found = [
        (offset, time)
        for offset, time in enumerate(times)
        if time >= timestamp and start <= offset < end
    ]
    return found[0] if found else (-1, -1)


def test_the_first_record_at_or_after_a_time_is_found_inside_its_batch() -> None:
    log = filled([[10, 20, 30], [40, 50]])
    assert [first_at(log, time) for time in (0, 10, 11, 25, 30, 31, 50, 51)] == [
        (0, 10),
        (0, 10),
        (1, 20),
        (2, 30),
        (2, 30),
        (3, 40),
        (4, 50),
        (-1, -1),
    ]


@pytest.mark.parametrize("compression", list(Compression))
def test_compressed_batches_are_looked_into(compression: Compression) -> None:
    log = open_log(config=SMALL)
    for first in range(0, 100, 10):
        times = range(first, first + 10)
        append(log, batch(*[b"value"] * 10, timestamps=times, compression=compression))
    assert [first_at(log, time)[0] for time in range(100)] == list(range(100))


def test_times_that_do_not_ascend_are_found_all_the_same() -> None:
    times = [[50], [10], [90], [20, 95, 5], [30]]
    flat = [time for each in times for time in each]
    log = filled(times)
    for timestamp in range(100):
        assert first_at(log, timestamp) == expected(flat, timestamp)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.integers(-1, 40), min_size=1, max_size=4), max_size=40),
    st.integers(0, 60),
    st.integers(0, 100),
    st.sampled_from(["open", "reopened", "crashed"]),
)
def test_any_times_in_any_order(
    batches_of: list[list[int]], start: int, end: int, restart: str
) -> None:
    files = MemoryFiles()
    log = open_log(files, config=SMALL)
    for timestamps in batches_of:
        append(log, batch(*[b"value"] * len(timestamps), timestamps=timestamps))
    flat = [time for each in batches_of for time in each]
    start = min(start, len(flat))
    log.advance_log_start(start)
    if restart == "reopened":
        log = reopened(log, files, log_start_offset=start)
    elif restart == "crashed":
        log = crashed(log, files, log_start_offset=start)
    for timestamp in range(42):
        assert first_at(log, timestamp, end) == expected(flat, timestamp, start, end)
    found = log.max_timestamp(len(flat))
    largest = max(flat[start:], default=-1)
    if largest >= 0:
        assert found is not None
        assert (found.offset, found.timestamp) == expected(flat, largest, start)
    else:
        assert found is None


def test_the_leader_epoch_is_that_of_the_record() -> None:
    log = filled([[10]])
    append(log, batch(timestamps=[20]), leader_epoch=5)
    for timestamp, epoch in ((10, 1), (20, 5)):
        found = log.offset_for_timestamp(timestamp, 2)
        assert found is not None
        assert found.leader_epoch == epoch


def test_an_empty_log_has_no_times() -> None:
    log = open_log()
    assert log.offset_for_timestamp(0, 0) is None
    assert log.max_timestamp(0) is None


def test_records_at_or_beyond_the_end_offset_are_not_found() -> None:
    log = filled([[10, 20, 30], [40]])
    assert first_at(log, 15, end_offset=3) == (1, 20)
    assert first_at(log, 30, end_offset=2) == (-1, -1)
    assert first_at(log, 40, end_offset=3) == (-1, -1)
    assert log.max_timestamp(3) is None


def test_log_append_time_counts_and_not_the_producers_time() -> None:
    log = open_log(config=with_config(is_log_append_time=True))
    append(log, batch(b"a", b"b", timestamps=[5, 6]), now_ms=1000)
    append(log, batch(b"a", timestamps=[7]), now_ms=2000)
    assert first_at(log, 1) == (0, 1000)
    assert first_at(log, 1001) == (2, 2000)


def test_the_first_of_the_largest_times_is_the_max_timestamp() -> None:
    log = filled([[10, 90, 20], [90], [30]])
    found = log.max_timestamp(5)
    assert found is not None
    assert (found.offset, found.timestamp) == (1, 90)


def test_a_deleted_record_is_not_the_one_with_the_largest_time() -> None:
    log = filled([[10, 90, 20, 30], [25]])
    log.advance_log_start(2)
    found = log.max_timestamp(5)
    assert found is not None
    assert (found.offset, found.timestamp) == (3, 30)


def test_a_batch_that_cannot_be_decoded_is_found_by_its_header() -> None:
    log = filled([[10]])
    data = batch(b"a", b"b", timestamps=[20, 30], compression=Compression.GZIP)
    data[61:65] = b"junk"
    append(log, data, is_client=False)
    assert first_at(log, 20) == (1, 30)


@pytest.mark.parametrize("damage", ["missing", "empty", "zeros", "odd size"])
@pytest.mark.parametrize("restart", [reopened, crashed])
def test_a_damaged_time_index_changes_no_answer(damage: str, restart: object) -> None:
    files = MemoryFiles()
    log = open_log(files, config=SMALL)
    times = [(at * 37) % 100 for at in range(100)]
    for time in times:
        append(log, batch(timestamps=[time]))
    log.flush()
    log.close(clean=restart is reopened)
    for name in list(files.list_files(DIRECTORY)):
        path = f"{DIRECTORY}/{name}"
        if name.endswith(".timeindex"):
            index = files.read_whole(path)
            if damage == "missing":
                files.remove(path)
            elif damage == "empty":
                files.write_whole(path, b"")
            elif damage == "zeros":
                files.write_whole(path, bytes(len(index)))
            else:
                files.write_whole(path, index[:-5])
    log = open_log(files, config=SMALL, is_clean=restart is reopened, recovery_point=100)
    for timestamp in range(102):
        assert first_at(log, timestamp) == expected(times, timestamp)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_no_flipped_byte_of_a_time_index_hides_a_record(data: st.DataObject) -> None:
    files = MemoryFiles()
    log = open_log(files, config=SMALL)
    for time in range(1000, 1060):
        append(log, batch(timestamps=[time]))
    log.close()
    base = data.draw(st.sampled_from([0, log.active_base_offset]))
    path = f"{DIRECTORY}/{base:020d}.timeindex"
    size = len(files.read_whole(path))
    # The last entry of a segment tells whether it is looked at at all; it is held against the log.
    flip(files, path, data.draw(st.integers(0, size - 1)))
    log = open_log(files, config=SMALL, recovery_point=60)
    for timestamp in range(990, 1065):
        first = max(1000, timestamp)
        assert first_at(log, timestamp) == ((first - 1000, first) if first < 1060 else (-1, -1))


def test_timestamps_of_zero_are_found_after_a_restart() -> None:
    files = MemoryFiles()
    log = open_log(files, config=SMALL)
    for _ in range(60):
        append(log, batch(timestamps=[0]))
    log = reopened(log, files)
    assert first_at(log, 0) == (0, 0)
    found = log.max_timestamp(60)
    assert found is not None
    assert found.offset == 0


def test_the_index_spares_reading_the_log() -> None:
    files = MemoryFiles()
    log = open_log(files, config=LogConfig())
    for time in range(2000):
        append(log, batch(b"x" * 1000, timestamps=[NOW_MS + time]))
    log = reopened(log, files)
    bytes_read = 0
    count_from = files.open(f"{DIRECTORY}/{0:020d}.log").size() // 2000

    def count(operation: str, path: str) -> None:
        nonlocal bytes_read
        bytes_read += operation == "pread"

    files.on_call = count
    assert first_at(log, NOW_MS + 1900) == (1900, NOW_MS + 1900)
    assert bytes_read < 20
    assert count_from == len(batch(b"x" * 1000))
    assert read_header(batch()).size < count_from
