"""Room that is kept back for what must work on a full disk."""

from __future__ import annotations

import errno

import pytest

from asyncbroker.log.log_directory import LogDirectory
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.reserve import RESERVE, Reserve
from asyncbroker.log.tests.full_disk import BLOCK_BYTES, FullDisk
from asyncbroker.log.tests.log_harness import NOW_MS, SMALL, TOPIC_ID, append

SIZE = 256 << 10


def full() -> tuple[FullDisk, Reserve]:
    """A full disk with a whole reserve."""
    disk = FullDisk("data")
    disk.files.make_directory("data")
    reserve = Reserve(disk.files, "data", SIZE)
    reserve.refill()
    assert reserve.is_whole
    assert disk.reserve_size == SIZE
    disk.fill()
    return disk, reserve


def write(disk: FullDisk, blocks: int = 1) -> None:
    for block in range(blocks):
        disk.files.write_whole(f"data/{block}", b"x")


def test_work_that_finds_the_disk_full_gets_room_and_the_rest_is_kept_back_again() -> None:
    disk, reserve = full()
    with pytest.raises(OSError, match="No space"):
        write(disk)
    reserve.with_room(lambda: write(disk))
    assert 0 < disk.reserve_size < SIZE
    assert reserve.is_short
    with pytest.raises(OSError, match="No space"):
        write(disk, 30)


def test_the_reserve_is_whole_again_when_there_is_room() -> None:
    disk, reserve = full()
    reserve.with_room(lambda: write(disk))
    reserve.refill()
    assert reserve.is_short
    disk.free()
    reserve.refill()
    assert (reserve.is_short, reserve.is_whole, disk.reserve_size) == (False, True, SIZE)


def test_what_is_not_vital_gets_half_and_leaves_the_rest_to_deletions() -> None:
    disk, reserve = full()
    blocks = SIZE // BLOCK_BYTES
    with pytest.raises(OSError, match="No space"):
        reserve.with_room(lambda: write(disk, blocks // 2 + 1), is_vital=False)

    def take_all() -> None:
        for _ in range(blocks):
            reserve.with_room(lambda: write(disk), is_vital=False)

    with pytest.raises(OSError, match="No space"):
        take_all()
    reserve.with_room(lambda: write(disk, blocks // 4))


def test_work_that_fails_for_another_reason_or_twice_fails() -> None:
    disk, reserve = full()

    def fail() -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input"):
        reserve.with_room(fail)
    assert not reserve.is_short
    with pytest.raises(OSError, match="No space"):
        reserve.with_room(lambda: write(disk, 1000))


def test_where_there_can_be_no_more_files_the_one_of_the_reserve_is_given() -> None:
    files = MemoryFiles()
    files.make_directory("data")
    reserve = Reserve(files, "data", SIZE)
    reserve.refill()
    files.write_whole("data/checkpoint", b"old")

    def replace() -> None:
        if len(files.list_files("data")) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        files.write_atomically("data/checkpoint", b"new")

    reserve.with_room(replace)
    assert files.read_whole("data/checkpoint") == b"new"
    assert reserve.is_whole


def test_without_a_reserve_nothing_is_written_and_nobody_is_refused() -> None:
    disk = FullDisk("data")
    disk.files.make_directory("data")
    reserve = Reserve(disk.files, "data", 0)
    reserve.refill()
    disk.fill()
    with pytest.raises(OSError, match="No space"):
        reserve.with_room(lambda: write(disk))
    assert not reserve.is_short
    assert RESERVE not in disk.files.list_files("data")


def test_a_reserve_of_another_size_or_a_torn_one_is_made_anew() -> None:
    files = MemoryFiles()
    files.make_directory("data")
    for size in (SIZE, SIZE // 2, 0, SIZE):
        Reserve(files, "data", size).refill()
        assert files.list_files("data")[RESERVE] == (size or SIZE // 2)


def test_a_directory_is_opened_deleted_from_and_left_in_order_on_a_full_disk() -> None:
    disk, reserve = full()
    disk.free()

    def opened() -> LogDirectory:
        return LogDirectory.open(disk.files, "data", cluster_id="c", node_id=1, reserve=reserve)

    def open_log(directory: LogDirectory, topic: str) -> None:
        directory.open_partition(
            topic, 0, topic_id=TOPIC_ID, config=SMALL, leader_epoch=0, now_ms=NOW_MS
        )

    directory = opened()
    for topic in ("flights", "trains"):
        open_log(directory, topic)
        for _ in range(20):
            append(directory.logs[topic, 0])
        directory.checkpoint_partition(topic, 0)
    directory.close(clean=False)
    disk.fill()
    directory = opened()
    for topic in ("flights", "trains"):
        open_log(directory, topic)
        assert directory.logs[topic, 0].end_offset == 20
    [gone] = directory.delete_partitions([("trains", 0)])
    while directory.remove_some(gone):
        pass
    log = directory.logs["flights", 0]
    segments = log.advance_log_start(15)
    directory.record_log_starts([("flights", 0)])
    assert directory.delete_segments(log, segments)
    directory.close()
    directory = opened()
    assert directory.was_clean
    open_log(directory, "flights")
    assert directory.logs["flights", 0].log_start_offset == 15
