"""The N-th call to the disk fails, for every N: nothing durable is lost, nothing false is read."""

from __future__ import annotations

import errno
from random import Random

import pytest

from asyncbroker.log.log_directory import LogDirectory
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.crash_disk import everything
from asyncbroker.log.tests.crash_files import CrashFiles, PartialWrite
from asyncbroker.log.tests.log_harness import (
    NOW_MS,
    TOPIC_ID,
    append,
    append_each,
    batch,
    from_producer,
    open_log,
    read_all,
    with_config,
)


class FailingOnce:
    """Counts the calls, and fails one of them."""

    def __init__(self, fail_at: int, code: int) -> None:
        self.fail_at = fail_at
        self.code = code
        self.count = 0
        self.has_failed = False

    def __call__(self, operation: str, path: str) -> None:
        self.count += 1
        if self.count == self.fail_at:
            self.has_failed = True
            raise OSError(self.code, f"{operation} of {path} fails")


class History:
    """What was asked of the log, and what it answered."""

    def __init__(self) -> None:
        self.appended: list[bytes] = []
        self.durable = 0
        self.errors: list[OSError] = []

    def attempt(self, log: PartitionLog) -> None:
        """Appends the next batch of a producer, which tries again until it is taken."""
        sequence = len(self.appended)
        value = str(sequence).encode()
        for _ in range(3):
            try:
                appended = append(log, from_producer(sequence, value))
            except OSError as error:
                self.errors.append(error)
                if log.failure is not None:
                    return
                continue
            assert appended.base_offset == sequence
            self.appended.append(value)
            return
        raise AssertionError("one failure passes")

    def flush(self, log: PartitionLog) -> None:
        try:
            self.durable = log.flush()
        except OSError as error:
            self.errors.append(error)


def opened(files: MemoryFiles) -> tuple[LogDirectory, PartitionLog]:
    directory = LogDirectory.open(files, "data")
    return directory, directory.open_partition(
        "flights",
        0,
        topic_id=TOPIC_ID,
        config=with_config(segment_bytes=400),
        leader_epoch=1,
        now_ms=NOW_MS,
    )


def life(files: MemoryFiles, history: History) -> None:
    """Start, append, flush, checkpoint, roll, drop the beginning, stop."""
    directory, log = opened(files)
    for step in range(14):
        history.attempt(log)
        if step % 4 == 1:
            history.flush(log)
        if step % 5 == 3:
            try:
                directory.checkpoint()
            except OSError as error:
                history.errors.append(error)
    try:
        log.delete_segments(log.advance_log_start(min(4, history.durable)))
    except OSError as error:
        history.errors.append(error)
    directory.close()


def check(files: MemoryFiles, history: History) -> None:
    """After a crash: what was durable is there, and every record where it was put."""
    files.on_call = None
    files._locks.clear()
    _, log = opened(files)
    found = dict(read_all(log))
    assert log.end_offset >= history.durable
    assert list(found) == list(range(log.log_start_offset, log.end_offset))
    for offset, value in found.items():
        assert value == str(offset).encode()
    # Whoever got no answer sends again: the batch is there once, or now.
    sequence = log.end_offset
    if sequence:
        assert append(log, from_producer(sequence - 1, str(sequence - 1).encode())).is_duplicate
    assert append(log, from_producer(sequence, str(sequence).encode())).base_offset == sequence


class PartOnly:
    """Once `is_full`, the next write is made in part; and is not taken back if `is_stuck`."""

    def __init__(self, is_stuck: bool) -> None:
        self.is_full = False
        self.is_stuck = is_stuck

    def __call__(self, operation: str, path: str) -> None:
        if self.is_full and operation == "pwrite":
            raise PartialWrite(errno.ENOSPC, 0.6)
        if self.is_full and self.is_stuck and operation == "truncate":
            raise OSError(errno.EIO, "the part stays")


@pytest.mark.parametrize("is_stuck", [False, True])
def test_a_part_of_a_batch_does_not_come_back_in_front_of_a_newer_segment(is_stuck: bool) -> None:
    disk = PartOnly(is_stuck)
    files = CrashFiles(disk, sector_bytes=32)
    files.make_directory("data")
    files.sync_directory("")
    log = open_log(files)
    append_each(log, 3)
    log.flush()
    first = f"{log.directory}/{0:020d}.log"
    whole = files.read_whole(first)
    disk.is_full = True
    with pytest.raises(OSError, match="No space"):
        append(log, batch(b"x" * 400))
    disk.is_full = False
    log.roll(NOW_MS)
    append_each(log, 2)
    durable = log.flush()
    assert files.read_whole(first) == whole
    for state in files.states(50, Random(1)):
        assert state.read_whole(first) == whole
        found = open_log(state, is_clean=False, recovery_point=3)
        assert [offset for offset, _ in read_all(found)] == list(range(durable))


def test_what_is_newer_is_not_promised_before_what_a_crash_may_bring_back() -> None:
    files = CrashFiles(sector_bytes=32)
    files.make_directory("data")
    files.sync_directory("")
    log = open_log(files)
    append_each(log, 3)
    log.roll(NOW_MS)
    # The log begins later now, but nothing on the disk says so yet.
    leaving = log.advance_log_start(3)
    append_each(log, 2)
    durable = log.flush()
    for state in files.states(50, Random(1)):
        found = open_log(state, is_clean=False, recovery_point=durable)
        assert [offset for offset, _ in read_all(found)] == list(range(durable))
    log.delete_segments(leaving)
    append_each(log, 1)
    assert log.flush() == durable + 1


@pytest.mark.parametrize("tail", [b"", b"torn"])
def test_what_a_failed_sync_left_in_memory_only_is_written_before_it_is_promised(
    tail: bytes,
) -> None:
    """Also where the kill came in the middle of an append, which is cut."""

    def fail(operation: str, path: str) -> None:
        if operation == "datasync":
            raise OSError(errno.EIO, "not written")

    files = CrashFiles(sector_bytes=32)
    files.make_directory("data")
    files.sync_directory("")
    log = open_log(files)
    append_each(log, 3)
    log.flush()
    append_each(log, 4)
    files.on_call = fail
    with pytest.raises(OSError, match="not written"):
        log.flush()
    path = f"data/flights-0/{log.active_base_offset:020d}.log"
    files.open(path).pwrite(tail, log.active_size)
    killed = files.killed(everything)
    log = open_log(killed, is_clean=False, recovery_point=3)
    assert log.end_offset == 7
    append_each(log, 2)
    assert log.flush() == 9
    for state in killed.states(50, Random(1)):
        found = open_log(state, is_clean=False, recovery_point=3)
        assert [offset for offset, _ in read_all(found)] == list(range(9))


def test_a_disk_too_full_to_write_again_fails_a_sync_and_not_the_log() -> None:
    disk = PartOnly(is_stuck=False)
    files = CrashFiles(disk)
    log = open_log(files)
    append_each(log, 3)
    log = open_log(files.killed(), is_clean=False)
    log.files.on_call = disk  # type: ignore[attr-defined]
    disk.is_full = True
    with pytest.raises(OSError, match="No space"):
        log.flush()
    assert log.failure is None
    disk.is_full = False
    assert log.flush() == 3


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_any_call_may_fail(code: int) -> None:
    calls = FailingOnce(0, code)
    life(MemoryFiles(calls), History())
    failed = 0
    for fail_at in range(1, calls.count + 1):
        failing = FailingOnce(fail_at, code)
        files, history = MemoryFiles(failing), History()
        try:
            life(files, history)
        except OSError as error:
            history.errors.append(error)
        failed += failing.has_failed
        check(files, history)
    assert failed == calls.count


def test_recovery_may_fail_at_any_call_and_be_tried_again() -> None:
    def crashed_files() -> MemoryFiles:
        files = MemoryFiles()
        _, log = opened(files)
        history = History()
        for _ in range(10):
            history.attempt(log)
        log.flush()
        file = files.open(f"data/flights-0/{log.active_base_offset:020d}.log")
        file.pwrite(b"torn", file.size())
        files._locks.clear()
        return files

    fail_at = 0
    failing = FailingOnce(0, errno.EIO)
    while fail_at <= failing.count:
        fail_at += 1
        failing = FailingOnce(fail_at, errno.EIO)
        files = crashed_files()
        files.on_call = failing
        try:
            opened(files)
        except OSError:
            assert failing.has_failed
        history = History()
        history.durable = 10
        check(files, history)
    assert fail_at > 10
