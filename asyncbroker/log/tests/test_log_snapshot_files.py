"""What a log knows of its producers outlives the segments that told it, and every crash after."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.producers import ProducerState
from asyncbroker.log.tests.crash_disk import everything, sampled, synced_only
from asyncbroker.log.tests.crash_files import CHANGES, CrashFiles
from asyncbroker.log.tests.log_harness import (
    DIRECTORY,
    NOW_MS,
    append,
    append_each,
    flip,
    from_producer,
    open_log,
    with_config,
)
from asyncbroker.protocol.errors import KafkaError

CONFIG = with_config(segment_bytes=300)
BATCHES = 5


def written(files: CrashFiles) -> PartitionLog:
    """A log of several segments, whose producer is in the first two only."""
    log = open_log(files, config=CONFIG)
    for sequence in range(BATCHES):
        append(log, from_producer(sequence))
    append_each(log, 9)
    log.flush()
    files.sync_directory("data")
    files.sync_directory("")
    return log


def without_beginning(log: PartitionLog) -> PartitionLog:
    """All but the newest segment is deleted."""
    log.delete_segments(log.advance_log_start(log.active_base_offset))
    return log


def check(files: CrashFiles, log: PartitionLog) -> None:
    """The next start after a crash knows the producer."""
    start = log.log_start_offset
    log = open_log(files, config=CONFIG, is_clean=False, log_start_offset=start)
    assert log.log_start_offset == start > BATCHES
    for sequence in range(BATCHES):
        repeated = append(log, from_producer(sequence))
        assert (repeated.base_offset, repeated.is_duplicate) == (sequence, True)


def recovered(files: CrashFiles) -> tuple[CrashFiles, PartitionLog]:
    """A log that was opened after a loss of power, and has no snapshots of before."""
    written(files)
    files = files.crashed(synced_only)
    assert not [name for name in files.contents() if name.endswith(".snapshot")]
    return files, open_log(files, config=CONFIG, is_clean=False)


def checkpointed(files: CrashFiles) -> tuple[CrashFiles, PartitionLog]:
    """A log whose snapshots were written without a sync."""
    log = written(files)
    log.checkpoint()
    return files, log


@pytest.mark.parametrize("made", [recovered, checkpointed])
@pytest.mark.parametrize("seed", range(5))
def test_a_producer_is_known_after_its_segments_are_deleted(
    made: Callable[[CrashFiles], tuple[CrashFiles, PartitionLog]], seed: int
) -> None:
    files, log = made(CrashFiles(sector_bytes=64))
    log = without_beginning(log)
    check(files.crashed(sampled(Random(seed)) if seed else synced_only), log)


def test_a_full_disk_keeps_no_log_from_being_opened() -> None:
    def fail(operation: str, path: str) -> None:
        if operation in ("create", "pwrite"):
            raise OSError(errno.ENOSPC, "full")

    files = CrashFiles(sector_bytes=64)
    written(files)
    files = files.crashed(synced_only)
    files.on_call = fail
    log = open_log(files, config=CONFIG, is_clean=False)
    files.on_call = None
    assert log.end_offset == BATCHES + 9
    check(files, without_beginning(log))


def test_a_snapshot_that_a_crash_has_torn_is_written_again() -> None:
    files, log = checkpointed(CrashFiles(sector_bytes=64))
    snapshot = f"{DIRECTORY}/{log.active_base_offset:020d}.snapshot"
    files = files.killed()
    files.open(snapshot).truncate(3)
    log = without_beginning(open_log(files, config=CONFIG, is_clean=False))
    check(files.crashed(synced_only), log)


@pytest.mark.parametrize("seed", range(16))
def test_no_start_takes_a_snapshot_back_that_is_durable(seed: int) -> None:
    """Simulation seeds 711782 and 712136: a crash has brought back a segment that was deleted, and
    so the start goes over the beginning of the newest one."""
    files = CrashFiles(sector_bytes=64)
    log = written(files)
    path = f"{DIRECTORY}/{0:020d}.log"
    first = files.read_whole(path)
    log = without_beginning(log)
    files.write_atomically(path, first)
    start = log.log_start_offset
    files = files.crashed(synced_only)
    open_log(files, config=CONFIG, is_clean=False, log_start_offset=start)
    check(files.crashed(sampled(Random(seed)) if seed else synced_only), log)


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_is_left_before_the_beginning_of_a_log_is_not_all_that_was_there(
    is_clean: bool,
) -> None:
    """Simulation seeds 711782 and 712136: a crash has brought back the first of the segments that
    were deleted, and no other one, and taken the newest sidecar."""
    files = MemoryFiles()
    log = open_log(files)
    append(log, from_producer(0))
    log.roll(NOW_MS)
    first = files.read_whole(f"{DIRECTORY}/{0:020d}.log")
    append(log, from_producer(1))
    log.roll(NOW_MS)
    append_each(log, 1)
    log.flush()
    log.checkpoint()
    without_beginning(log).close()
    files.write_whole(f"{DIRECTORY}/{0:020d}.log", first)
    files.write_whole(f"{DIRECTORY}/{1:020d}.snapshot", ProducerState().snapshot().kafka)
    for offset in (2, 3):
        files.remove(f"{DIRECTORY}/{offset:020d}.producers")
    log = open_log(
        files, is_clean=is_clean, recovery_point=3 if is_clean else 2, log_start_offset=2
    )
    assert append(log, from_producer(1)).is_duplicate
    assert append(log, from_producer(2)).base_offset == 3


def test_a_producer_whose_newest_snapshots_are_damaged_goes_on() -> None:
    """Simulation seed 637082: the segment that told of its last batches is deleted."""
    files = MemoryFiles()
    log = open_log(files)
    append(log, from_producer(0))
    log.close()
    log = open_log(files, recovery_point=1)
    for sequence in (1, 2):
        append(log, from_producer(sequence))
    log.roll(NOW_MS)
    append_each(log, 2)
    log.flush()
    without_beginning(log).close()
    for offset in (3, 5):
        path = f"{DIRECTORY}/{offset:020d}.snapshot"
        flip(files, path, len(files.read_whole(path)) - 1)
    log = open_log(files, recovery_point=5, log_start_offset=3)
    with pytest.raises(KafkaError, match="expected 1"):
        # Two offsets are missing, and no more.
        append(log, from_producer(4))
    append(log, from_producer(3))


def two_epochs(files: CrashFiles) -> tuple[CrashFiles, PartitionLog]:
    """A log whose epoch 3 begins at offset 3, in a directory that says of epoch 2 that it began at
    5: a crash has taken what was before that."""
    log = open_log(files, config=CONFIG)
    append_each(log, 3)
    log.flush()
    append_each(log, 2)
    files.sync_directory("data")
    files.sync_directory("")
    files = files.killed()
    log = open_log(files, config=CONFIG, is_clean=False, recovery_point=3, leader_epoch=2)
    append_each(log, 1)
    log.checkpoint()
    files = files.crashed(synced_only)
    log = open_log(files, config=CONFIG, is_clean=False, recovery_point=3, leader_epoch=3)
    assert log.end_offset == 3
    append_each(log, 9)
    log.flush()
    return files, log


def in_a_recovery(files: CrashFiles, log: PartitionLog) -> None:
    """A start reads the log."""
    open_log(files, config=CONFIG, is_clean=False, recovery_point=12, leader_epoch=4)


def in_a_checkpoint(files: CrashFiles, log: PartitionLog) -> None:
    log.checkpoint()


@pytest.mark.parametrize("work", [in_a_recovery, in_a_checkpoint])
def test_no_snapshot_is_there_before_the_leader_epochs_that_it_spares_reading(
    work: Callable[[CrashFiles, PartitionLog], None],
) -> None:
    files, log = two_epochs(CrashFiles(sector_bytes=64))
    left: list[CrashFiles] = []

    def keep(operation: str, _path: str) -> None:
        if operation in CHANGES:
            left.append(files.crashed(everything))

    files.on_call = keep
    work(files, log)
    files.on_call = None
    for after in (*left, files.crashed(everything)):
        again = open_log(after, config=CONFIG, is_clean=False, recovery_point=12, leader_epoch=5)
        assert again.epochs.end_offset_of(2, again.end_offset) == (1, 3)


@pytest.mark.parametrize("start", [8, 12])
def test_a_start_that_a_crash_takes_back_makes_no_older_epoch_longer(start: int) -> None:
    files, log = two_epochs(CrashFiles(sector_bytes=64))
    log.advance_log_start(start)
    log.checkpoint()
    log = open_log(
        files.crashed(synced_only), config=CONFIG, is_clean=False, recovery_point=12, leader_epoch=4
    )
    assert log.log_start_offset == 0
    assert log.epochs.end_offset_of(2, log.end_offset)[1] <= 3


def test_no_snapshot_goes_before_a_later_one_is_durable() -> None:
    files = CrashFiles(sector_bytes=64)
    log = written(files)
    start = log.segments[-2].base_offset
    log.delete_segments(log.advance_log_start(start))
    append_each(log, 9)
    log.flush()
    log.advance_log_start(log.active_base_offset)
    left: list[CrashFiles] = []

    def keep(operation: str, _path: str) -> None:
        if operation in CHANGES:
            left.append(files.crashed(synced_only))

    files.on_call = keep
    log.checkpoint()
    files.sync_directory(DIRECTORY)
    files.on_call = None
    for after in (*left, files.crashed(synced_only)):
        again = open_log(after, config=CONFIG, is_clean=False, log_start_offset=start)
        assert all(append(again, from_producer(each)).is_duplicate for each in range(BATCHES))


def test_a_snapshot_of_what_a_crash_has_taken_is_not_believed_later() -> None:
    """The log was longer, loses that and grows again, with other batches; and a second crash takes
    back that the snapshot was removed."""
    longer = CrashFiles()
    log = open_log(longer, config=CONFIG)
    append(log, from_producer(0))
    append(log, from_producer(1))
    log.close()
    taken = {name: data for name, data in longer.contents().items() if "0002." in name}
    assert len(taken) == 2
    files = CrashFiles()
    log = open_log(files, config=CONFIG)
    append(log, from_producer(0))
    point = log.flush()
    append_each(log, 2)
    for name, data in taken.items():
        files.write_whole(name, data)
    files = files.killed()
    point = open_log(files, config=CONFIG, is_clean=False, recovery_point=point).flush()
    log = open_log(files.killed(), config=CONFIG, is_clean=False, recovery_point=point)
    assert not append(log, from_producer(1)).is_duplicate


def test_no_snapshot_is_ahead_of_what_is_durable() -> None:
    files = CrashFiles()
    log = written(files)
    grown: list[int] = []

    def grow(operation: str, path: str) -> None:
        if operation == "datasync" and path.endswith(".log") and not grown:
            grown.append(log.end_offset)
            append_each(log, 9)

    append_each(log, 9)
    files.on_call = grow
    point = log.checkpoint()
    files.on_call = None
    assert grown == [point]
    names = [name for name in files.contents() if name.endswith(".snapshot")]
    assert max(int(name.rpartition("/")[2][:20]) for name in names) <= point
    log.checkpoint()
    assert len([name for name in files.contents() if name.endswith(".snapshot")]) > len(names)
