"""The partitions of a data directory: found, made, deleted, put aside."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from asyncbroker.log.files import RealFiles
from asyncbroker.log.log_directory import FoundPartition, LogDirectory
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.tests.directory_harness import (
    PATH,
    RECOVERY_POINTS,
    killed,
    partition,
)
from asyncbroker.log.tests.log_harness import (
    NOW_MS,
    TOPIC_ID,
    append,
    append_each,
    from_producer,
    read_all,
    with_config,
)


def test_partitions_are_found_with_their_topic_ids() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    other = bytes(range(1, 17))
    for topic, index, topic_id in (("a-b.c_d", 12, other), ("flights", 0, TOPIC_ID)):
        partition(directory, topic, index, topic_id=topic_id)
    for name in ("__cluster_metadata-0", "no-number-", "x-1.abc-future", "lost-1"):
        files.make_directory(f"{PATH}/{name}")
    for name in ("flights-00", "old-1"):
        files.make_directory(f"{PATH}/{name}")
        files.write_whole(f"{PATH}/{name}/00000000000000000007.log", b"")
    assert directory.partitions() == [
        FoundPartition("a-b.c_d", 12, other),
        FoundPartition("flights", 0, TOPIC_ID),
        FoundPartition("lost", 1, None, has_log=False),
        FoundPartition("old", 1, None),
    ]


def test_a_partition_that_cannot_be_looked_into_keeps_nobody_from_starting() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    partition(directory)
    files.make_directory(f"{PATH}/locked-0")

    def refuse(operation: str, path: str) -> None:
        if path.startswith(f"{PATH}/locked-0"):
            raise PermissionError(errno.EACCES, "Permission denied", path)

    files.on_call = refuse
    assert directory.partitions() == [
        FoundPartition("flights", 0, TOPIC_ID),
        FoundPartition("locked", 0, None),
    ]
    with pytest.raises(PermissionError):
        directory.partitions(are_all_needed=True)


def test_a_partition_that_may_not_be_written_to_keeps_no_other_from_its_checkpoint() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    for topic in ("flights", "locked"):
        append(partition(directory, topic))
        directory.logs[topic, 0].flush()

    def refuse(operation: str, path: str) -> None:
        if operation == "write_atomically" and path.startswith(f"{PATH}/locked-0"):
            raise PermissionError(errno.EACCES, "Permission denied", path)

    files.on_call = refuse
    directory.checkpoint()
    assert files.read_whole(RECOVERY_POINTS) == b"0\n1\nflights 0 1\n"


def test_a_deleted_partition_leaves_its_name_at_once_and_its_files_later() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    log = partition(directory)
    append_each(log, 9)
    held = log.locate(0, 1000, end_offset=9)
    log.flush()
    directory.checkpoint()
    (doomed,) = directory.delete_partitions([("flights", 0)])
    assert re.fullmatch(rf"{PATH}/flights-0\.[0-9a-f]{{32}}-delete", doomed)
    assert directory.partitions() == []
    assert files.read_whole(RECOVERY_POINTS) == b"0\n0\n"
    assert held is not None
    assert held.read()
    with pytest.raises(OSError, match="closed"):
        append(log)
    directory.remove_some(doomed)
    assert files.list_directories(PATH) == []
    directory.checkpoint()


def test_a_full_disk_lets_partitions_be_deleted_and_none_be_made_under_old_promises() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    log = partition(directory)
    append_each(log, 5)
    log.flush()
    directory.checkpoint()

    def full(operation: str, path: str) -> None:
        if operation == "write_atomically":
            raise OSError(errno.ENOSPC, "no space left")

    files.on_call = full
    for path in directory.delete_partitions([("flights", 0)]):
        directory.remove_some(path)
    assert files.list_directories(PATH) == []
    with pytest.raises(OSError, match="no space"):
        partition(directory)
    files.on_call = None
    append_each(partition(directory), 1)
    directory = killed(files)
    assert len(read_all(partition(directory))) == 1


def test_a_topic_created_again_begins_at_zero_and_remembers_nobody() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    log = partition(directory)
    for sequence in range(5):
        append(log, from_producer(sequence))
    log.flush()
    directory.checkpoint()
    directory.delete_partitions([("flights", 0)])
    log = partition(directory, topic_id=bytes(16))
    assert (log.end_offset, log.log_start_offset) == (0, 0)
    assert not append(log, from_producer(4)).is_duplicate
    # Neither the old promise nor the old state comes back after a crash.
    directory = killed(files)
    assert partition(directory, topic_id=bytes(16)).end_offset == 1


def test_a_deletion_that_a_crash_interrupted_is_finished_by_the_next_start() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    append_each(partition(directory), 5)
    directory.delete_partitions([("flights", 0)])
    directory = killed(files)
    (doomed,) = directory.half_deleted()
    assert not directory.remove_some(doomed)
    assert files.list_directories(PATH) == []
    assert directory.half_deleted() == []
    directory.close()


def test_a_directory_of_many_files_goes_in_steps() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    partition(directory)
    for number in range(150):
        files.write_whole(f"{PATH}/flights-0/{number}", b"")
    (doomed,) = directory.delete_partitions([("flights", 0)])
    left = [len(files.list_files(doomed))]
    while directory.remove_some(doomed):
        left.append(len(files.list_files(doomed)))
    assert left == [152, 88, 24]
    assert not files.exists(doomed)
    assert not directory.remove_some(doomed)


def test_the_name_of_a_deleted_directory_is_never_too_long(tmp_path: Path) -> None:
    files = RealFiles()
    directory = LogDirectory.open(files, str(tmp_path))
    topic = "t" * 249
    partition(directory, topic, 10)
    (doomed,) = directory.delete_partitions([(topic, 10)])
    assert files.exists(doomed)
    directory.remove_some(doomed)
    directory.close()


def test_a_directory_that_is_put_aside_is_kept() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    append_each(partition(directory), 5)
    (stray,) = directory.put_aside([("flights", 0)])
    assert stray.endswith("-stray")
    assert partition(directory, topic_id=bytes(16)).end_offset == 0
    directory.close()
    directory = LogDirectory.open(files, PATH)
    assert f"{0:020d}.log" in files.list_files(stray)
    assert [found.topic for found in directory.partitions()] == ["flights"]


def test_nothing_that_was_recorded_of_a_name_applies_to_a_new_partition() -> None:
    """The promises of a deleted one stay where a full disk and then a crash came in between."""
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    log = partition(directory)
    append_each(log, 5)
    log.flush()
    log.advance_log_start(3)
    directory.checkpoint()
    directory.close(clean=False)
    files.remove_tree(f"{PATH}/flights-0")
    directory = LogDirectory.open(files, PATH)
    log = directory.open_partition(
        "flights",
        0,
        topic_id=bytes(16),
        config=with_config(),
        leader_epoch=1,
        now_ms=NOW_MS,
        is_new=True,
    )
    assert (log.log_start_offset, log.end_offset) == (0, 0)
    directory.close(clean=False)
    directory = LogDirectory.open(files, PATH)
    assert partition(directory, topic_id=bytes(16)).end_offset == 0


def test_deleting_what_is_not_there_is_no_error() -> None:
    directory = LogDirectory.open(MemoryFiles(), PATH)
    assert directory.delete_partitions([("nobody", 3)]) == []


def test_partitions_may_be_closed_ahead_of_the_directory() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    for index in range(4):
        append_each(partition(directory, index=index), 1 + index)
    directory.close_some([("flights", 0), ("flights", 2)])
    directory.close_some([("flights", 1)])
    assert list(directory.logs) == [("flights", 3)]
    directory.close()
    directory = LogDirectory.open(files, PATH)
    assert directory.was_clean
    assert [partition(directory, index=index).durable_end_offset for index in range(4)] == [
        1,
        2,
        3,
        4,
    ]


def test_one_that_cannot_be_closed_ahead_keeps_the_stop_from_being_one_in_order() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    for index in range(3):
        append_each(partition(directory, index=index), 2)

    def refuse(operation: str, path: str) -> None:
        if operation == "datasync" and path.startswith(f"{PATH}/flights-1"):
            raise OSError(errno.EIO, "Input/output error", path)

    files.on_call = refuse
    directory.close_some([("flights", 0), ("flights", 1)])
    with pytest.raises(OSError, match="Input/output error"):
        directory.close()
    files.on_call = None
    directory = LogDirectory.open(files, PATH)
    assert not directory.was_clean
    assert [len(read_all(partition(directory, index=index))) for index in range(3)] == [2, 2, 2]
