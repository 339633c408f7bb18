"""The largest time of a full segment, by which its age is told, after crashes and damage: were it
too small, retention would delete the segment before its time.
"""

from __future__ import annotations

from asyncbroker.log.index import TIME_INDEX
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.crash_disk import synced_only
from asyncbroker.log.tests.crash_files import CrashFiles
from asyncbroker.log.tests.log_harness import (
    NOW_MS,
    append,
    batch,
    crashed,
    open_log,
    overwrite,
    reopened,
    with_config,
)

# The last batch of a segment is not one that the offset index knows.
CONFIG = with_config(index_interval_bytes=250)
BATCHES = 40


def append_over_time(log: PartitionLog, count: int = BATCHES) -> None:
    for _ in range(count):
        append(log, batch(b"x" * 20, timestamps=[NOW_MS + log.end_offset]))


def are_times_known(log: PartitionLog) -> bool:
    """Whether each full segment knows the time of its last batch."""
    full = log.segments[:-1]
    ends = [segment.base_offset for segment in log.segments[1:]]
    return [segment.largest_timestamp() for segment in full] == [NOW_MS + end - 1 for end in ends]


def test_the_largest_time_is_known_after_a_crash_and_a_stop() -> None:
    files = MemoryFiles()
    log = open_log(files, config=CONFIG)
    append_over_time(log)
    assert are_times_known(log)
    log = crashed(log, files, recovery_point=0)
    assert are_times_known(log)
    assert are_times_known(reopened(log, files))


def test_the_largest_time_is_known_after_two_crashes() -> None:
    """The second start does not read what the first has read: there is a snapshot behind it."""
    files = CrashFiles()
    log = open_log(files, config=CONFIG)
    append_over_time(log, 5)
    log = reopened(log, files)
    append_over_time(log)
    log.flush()
    files.sync_directory("data")
    files.sync_directory("")
    for choose in (synced_only, None):
        left = files.killed() if choose is None else files.crashed(choose)
        again = open_log(left, config=CONFIG, is_clean=False)
        point = again.flush()
        left = left.killed() if choose is None else left.crashed(choose)
        assert are_times_known(open_log(left, config=CONFIG, is_clean=False, recovery_point=point))


def test_an_index_that_is_built_anew_ends_with_the_largest_time() -> None:
    files = MemoryFiles()
    log = open_log(files, config=CONFIG)
    append_over_time(log)
    log = reopened(log, files)
    assert are_times_known(log)
    segment = log.segments[1]
    overwrite(files, f"{segment.path}.index", 3, b"\x04")
    segment.close()  # with what it has read of the index
    assert segment.position_of(segment.base_offset + 5, segment.size) is not None
    log = reopened(log, files)
    assert len(log.segments[1].offset_index) == 3
    log = reopened(log, files)
    assert are_times_known(log)


def test_an_index_of_times_that_has_lost_its_end_is_built_anew() -> None:
    files = MemoryFiles()
    log = open_log(files, config=CONFIG)
    append_over_time(log)
    log = reopened(log, files)
    segment = log.segments[1]
    path = f"{segment.path}.timeindex"
    whole = files.read_whole(path)
    for size in range(0, len(whole), TIME_INDEX.entry_bytes):
        files.write_whole(path, whole[:size])
        log = reopened(log, files)
        assert are_times_known(log)
    assert files.read_whole(path) == whole
