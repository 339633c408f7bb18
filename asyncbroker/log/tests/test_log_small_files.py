"""A bit flip in, or a truncation of, any file but a `.log`: it costs time, and no record."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from asyncbroker.log.checkpoint_sums import CHECKSUMS, decode_sums, encode_sums
from asyncbroker.log.config import LogConfig
from asyncbroker.log.log_directory import LogDirectory
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.cleaner_harness import COMPACTED, Kept, clean, kept, put, roll
from asyncbroker.log.tests.log_harness import (
    NOW_MS,
    append,
    append_each,
    copied,
    from_producer,
    overwrite,
    read_all,
    with_config,
)
from asyncbroker.protocol.checksums import crc32c

PATH = "data"
CONFIG = with_config(segment_bytes=300, index_interval_bytes=50)
COUNT = 11
FILES = (
    "flights-0/00000000000000000003.index",
    "flights-0/00000000000000000009.index",
    "flights-0/00000000000000000003.timeindex",
    "flights-0/00000000000000000009.timeindex",
    "flights-0/00000000000000000003.txnindex",
    "flights-0/00000000000000000011.snapshot",
    "flights-0/00000000000000000011.producers",
    "flights-0/leader-epoch-checkpoint",
    "flights-0/partition.metadata",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    ".asyncbroker_checksums",
    ".kafka_cleanshutdown",
)


def opened(files: MemoryFiles, config: LogConfig = CONFIG) -> tuple[LogDirectory, PartitionLog]:
    directory = LogDirectory.open(files, PATH, cluster_id="c", node_id=1)
    log = directory.open_partition(
        "flights", 0, topic_id=bytes(16), config=config, leader_epoch=3, now_ms=NOW_MS
    )
    return directory, log


def written() -> MemoryFiles:
    files = MemoryFiles()
    directory, log = opened(files)
    append_each(log, COUNT - 1)
    append(log, from_producer(0, b"x" * 20))
    log.advance_log_start(1)
    directory.close()
    files.write_whole(f"{PATH}/flights-0/{3:020d}.txnindex", bytes(34))
    return files


def flips(size: int) -> list[Callable[[MemoryFiles, str], None]]:
    return [
        lambda files, path, at=at, bit=bit: overwrite(  # type: ignore[misc]
            files, path, at, bytes([files.read_whole(path)[at] ^ bit])
        )
        for at in range(size)
        for bit in (1, 8)
    ]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("is_clean", [True, False])
def test_no_record_is_lost_and_none_comes_back(name: str, is_clean: bool) -> None:
    whole = written()
    if not is_clean:
        whole.remove(f"{PATH}/.kafka_cleanshutdown")
    path = f"{PATH}/{name}"
    if not whole.exists(path):
        return
    data = whole.read_whole(path)
    for damage in flips(len(data)):
        files = copied(whole)
        damage(files, path)
        if name.endswith("partition.metadata"):
            continue  # an id that is another one: see `check_topic_id`
        check(files)
    for size in range(len(data)):
        files = copied(whole)
        files.write_whole(path, data[:size])
        check(files)


def check(files: MemoryFiles) -> None:
    directory, log = opened(files)
    assert log.end_offset == COUNT
    assert [offset for offset, _ in read_all(log)] == list(range(1, COUNT))
    assert append(log, from_producer(0, b"x" * 20)).is_duplicate
    assert append(log).base_offset == COUNT
    assert log.epochs.latest == 3
    directory.close()


def test_a_flipped_digit_is_no_promise_and_no_beginning() -> None:
    for name, digit in (("recovery-point", b"71"), ("log-start", b"7")):
        files = written()
        path = f"{PATH}/{name}-offset-checkpoint"
        data = files.read_whole(path)
        files.write_whole(path, data[: -len(digit) - 1] + digit + b"\n")
        directory, log = opened(files)
        assert (log.end_offset, log.log_start_offset) == (COUNT, 1)
        directory.close()
        assert opened(files)[1].end_offset == COUNT


def test_checkpoints_that_kafka_has_written_meanwhile_are_believed() -> None:
    files = written()
    files.write_whole(f"{PATH}/log-start-offset-checkpoint", b"0\n1\nflights 0 4\n")
    files.write_whole(f"{PATH}/replication-offset-checkpoint", b"0\n1\nflights 0 11\n")
    directory, log = opened(files)
    assert (log.log_start_offset, log.end_offset) == (4, COUNT)
    log.advance_log_start(5)
    directory.close()
    assert opened(files)[1].log_start_offset == 5


def test_a_crash_between_sum_and_checkpoint_leaves_either() -> None:
    files = written()
    directory, log = opened(files)
    log.advance_log_start(5)

    def fail(operation: str, path: str) -> None:
        if operation == "write_atomically" and path.endswith("log-start-offset-checkpoint"):
            raise InterruptedError

    files.on_call = fail
    with pytest.raises(InterruptedError):
        directory.record_log_starts([("flights", 0)])
    files.on_call = None
    directory.close(clean=False)
    assert opened(files)[1].log_start_offset == 1


def test_sums_grow_no_longer_while_the_disk_is_full() -> None:
    files = written()
    directory, log = opened(files)

    def fail(operation: str, path: str) -> None:
        if operation == "write_atomically" and path.endswith("log-start-offset-checkpoint"):
            raise OSError(28, "No space left on device")

    files.on_call = fail
    sizes = set()
    for start in range(2, 7):
        log.advance_log_start(start)
        with pytest.raises(OSError, match="No space"):
            directory.record_log_starts([("flights", 0)])
        sizes.add(len(files.read_whole(f"{PATH}/.asyncbroker_checksums")))
    assert len(sizes) == 1
    directory.close(clean=False)
    files.on_call = None
    assert opened(files)[1].log_start_offset == 1


def test_partitions_in_a_directory_without_anything_else_are_taken_as_they_are() -> None:
    files, expected = compacted()
    for name in files.list_files(PATH):
        files.remove(f"{PATH}/{name}")
    directory, log = opened(files)
    assert kept(log) == expected
    directory.close()
    directory, log = opened(files)
    assert kept(log) == expected
    directory.close()


def compacted(*, is_recorded: bool = True) -> tuple[MemoryFiles, list[Kept]]:
    """A killed process has left a log with gaps between its segments; its records."""
    files = MemoryFiles()
    config = with_config(COMPACTED, segment_bytes=300)
    directory = LogDirectory.open(files, PATH, cluster_id="c", node_id=1)
    log = directory.open_partition(
        "flights", 0, topic_id=bytes(16), config=config, leader_epoch=3, now_ms=NOW_MS
    )
    # Of the first segment's keys none is left at its end.
    for key in (b"stays", *[b"key"] * 20):
        put(log, (key, bytes(60)))
    roll(log)
    directory.checkpoint_partition("flights", 0)
    end_offset = clean(log).end_offset
    if is_recorded:
        directory.record_cleaned("flights", 0, end_offset)
    put(log, (b"new", b"value"))
    assert len(log.segments) > 2
    directory.close(clean=False)
    return files, kept(log)


@pytest.mark.parametrize("is_recorded", [True, False])
@pytest.mark.parametrize("has_copy", [True, False])
def test_what_was_compacted_away_is_no_loss_where_the_recovery_points_are_damaged(
    is_recorded: bool, has_copy: bool
) -> None:
    files, expected = compacted(is_recorded=is_recorded)
    overwrite(files, f"{PATH}/recovery-point-offset-checkpoint", 4, b"#")
    if not has_copy:
        # As an earlier version has left it.
        sums = decode_sums(files.read_whole(f"{PATH}/{CHECKSUMS}"))
        files.write_whole(f"{PATH}/{CHECKSUMS}", encode_sums(sums._replace(copies={})))
    directory, log = opened(files, with_config(COMPACTED, segment_bytes=300))
    assert kept(log) == expected
    directory.close()


def test_what_was_not_promised_is_no_hole_where_the_recovery_points_are_damaged() -> None:
    files, expected = compacted()
    directory, log = opened(files, with_config(COMPACTED, segment_bytes=300))
    end_offset = log.end_offset
    put(log, (b"torn", b"value"))
    roll(log)
    put(log, (b"behind", b"value"))
    directory.close(clean=False)
    # A loss of power has kept the names, and of a batch that nobody was promised only the begin.
    overwrite(files, f"{log.segments[-2].path}.log", log.segments[-2].size - 5, b"\0" * 5)
    overwrite(files, f"{PATH}/recovery-point-offset-checkpoint", 4, b"#")
    directory, log = opened(files, with_config(COMPACTED, segment_bytes=300))
    assert log.end_offset == end_offset
    assert kept(log) == expected
    directory.close()


def test_a_damaged_checkpoint_makes_no_promise_of_a_partition_that_is_made_anew() -> None:
    files = written()
    files.remove(f"{PATH}/.kafka_cleanshutdown")
    overwrite(files, f"{PATH}/recovery-point-offset-checkpoint", 4, b"#")
    directory, _ = opened(files)
    directory.delete_partitions([("flights", 0)])
    log = directory.open_partition(
        "flights", 0, topic_id=b"n" * 16, config=CONFIG, leader_epoch=3, now_ms=NOW_MS, is_new=True
    )
    assert log.end_offset == 0
    directory.close(clean=False)
    overwrite(files, f"{PATH}/recovery-point-offset-checkpoint", 0, b"#")
    directory = LogDirectory.open(files, PATH, cluster_id="c", node_id=1)
    log = directory.open_partition(
        "flights", 0, topic_id=b"n" * 16, config=CONFIG, leader_epoch=3, now_ms=NOW_MS
    )
    assert append(log).base_offset == 0
    directory.close()


def test_sums_without_copies_are_those_of_an_earlier_version() -> None:
    body = b"0\nreplication-offset-checkpoint 00000000\nlog-start-offset-checkpoint 0000001f\n"
    sums = decode_sums(body + f"{crc32c(body):08x}\n".encode())
    assert sums.crcs["log-start-offset-checkpoint"] == [0x1F]
    assert not sums.copies
    copies = {"log-start-offset-checkpoint": b"0\n\nflights 0 4\n\n", "other": b""}
    assert decode_sums(encode_sums(sums._replace(copies=copies))).copies == copies
