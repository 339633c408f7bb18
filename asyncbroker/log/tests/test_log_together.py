"""Batches that are appended with one write come to what they come to one by one: the same files,
the same producers, the same log. What is unusual is left to be appended one by one, untouched."""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from asyncbroker.log import persistence
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.log_harness import (
    DIRECTORY,
    NOW_MS,
    SMALL,
    append,
    append_each,
    batch,
    crashed,
    fill_up,
    from_producer,
    names,
    open_log,
    read_all,
    reopened,
    values_of,
    with_config,
)
from asyncbroker.protocol.records import BatchHeader, check_batch

HOUR_MS = 3_600_000
LARGE = with_config(segment_bytes=1 << 20)


@dataclass
class Sent:
    batch: bytearray
    header: BatchHeader = field(init=False)

    def __post_init__(self) -> None:
        self.header = check_batch(self.batch)


def together(log: PartitionLog, *data: bytearray, **changes: Any) -> bytes | None:
    options = {"leader_epoch": log.leader_epoch, "now_ms": NOW_MS, "bytes_max": 1 << 20, **changes}
    return log.append_together([Sent(each) for each in data], **options)


def state_of(log: PartitionLog, files: MemoryFiles) -> tuple[Any, ...]:
    """What is in memory, and then what a clean stop leaves of it."""
    memory = (log.end, log.size, log.end_offset, log.producers.snapshot())
    end_offset, segment, size, recent = memory[0]
    log.close()
    contents = {name: files.read_whole(f"{DIRECTORY}/{name}") for name in names(files)}
    return end_offset, segment.base_offset, size, recent.columns, memory[1:], contents


def random_batch(rng: random.Random, sequences: dict[int, int], timestamp: int) -> bytearray:
    values = [rng.randbytes(rng.randrange(40)) for _ in range(rng.randrange(1, 4))]
    times = [timestamp - rng.randrange(1000) for _ in values]
    if rng.random() < 0.5:
        return batch(*values, timestamps=times)
    producer_id = rng.randrange(8)
    sequence = sequences.get(producer_id, 0)
    sequences[producer_id] = sequence + len(values)
    return batch(
        *values,
        timestamps=times,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )


@pytest.mark.parametrize("seed", range(30))
def test_they_come_to_what_they_come_to_one_by_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots of producers in the middle of a segment too."""
    monkeypatch.setattr(persistence, "SNAPSHOT_BYTES", 500)
    rng = random.Random(seed)
    config = rng.choice([SMALL, LARGE, with_config(segment_bytes=1 << 20, segment_index_bytes=60)])
    files, twin_files = MemoryFiles(), MemoryFiles()
    log, twin = open_log(files, config=config), open_log(twin_files, config=config)
    sequences: dict[int, int] = {}
    written_count = 0
    for step in range(60):
        data = [random_batch(rng, sequences, NOW_MS + step) for _ in range(rng.randrange(1, 6))]
        for each in data:
            append(twin, each[:])
        written = together(log, *data)
        if written is None:
            for each in data:
                append(log, each)
        else:
            written_count += 1
            assert written == b"".join(data)
    assert written_count > 3
    assert read_all(log) == read_all(twin)
    assert state_of(log, files) == state_of(twin, twin_files)


def test_readers_see_them_and_a_start_finds_them() -> None:
    files = MemoryFiles()
    log = open_log(files, config=LARGE)
    append_each(log, 1)
    assert together(log, batch(b"a", b"b"), from_producer(0, b"c"), batch(b"d"))
    assert values_of(log)[1:] == [b"a", b"b", b"c", b"d"]
    log = crashed(log, files)
    assert values_of(log)[1:] == [b"a", b"b", b"c", b"d"]
    assert append(log, from_producer(0, b"c")).is_duplicate
    assert values_of(reopened(log, files))[1:] == [b"a", b"b", b"c", b"d"]


UNUSUAL: dict[str, tuple[list[bytearray], dict[str, Any], dict[str, Any]]] = {
    "a retry": ([batch(), from_producer(0, b"known")], {}, {}),
    "one out of order": ([from_producer(9)], {}, {}),
    "two of one producer": ([from_producer(1), from_producer(2)], {}, {}),
    "one of a new producer twice": ([from_producer(0, producer_id=8)] * 2, {}, {}),
    "too large for the topic": ([batch(bytes(300))], {"max_message_bytes": 200}, {}),
    "more than a segment takes": ([batch(bytes(300))] * 3, {"segment_bytes": 800}, {}),
    "more than may be written here": ([batch(bytes(300))] * 3, {}, {"bytes_max": 800}),
    "a time that is far ahead": ([batch(timestamps=[NOW_MS + 2 * HOUR_MS])], {}, {}),
    "one that ends a segment": ([batch(timestamps=[NOW_MS + 5000])], {"segment_ms": 1000}, {}),
    "no room in the index": ([batch(), batch()], {"segment_index_bytes": 16}, {}),
    "attributes": ([batch(is_transactional=True, producer_id=3, base_sequence=0)], {}, {}),
    "times of the log": ([batch()], {"is_log_append_time": True}, {}),
    "a limit on the past": ([batch()], {"message_timestamp_before_max_ms": HOUR_MS}, {}),
    "another leader epoch": ([batch()], {}, {"leader_epoch": 2}),
}


@pytest.mark.parametrize("case", UNUSUAL)
def test_what_is_unusual_is_left_alone(case: str) -> None:
    data, config, changes = UNUSUAL[case]
    files = MemoryFiles()
    log = open_log(files, config=with_config(LARGE, **config))
    append(log, from_producer(0, b"known"))
    copies = [each[:] for each in data]
    before = files.read_whole(f"{DIRECTORY}/{0:020d}.log")
    assert together(log, *copies, **changes) is None
    assert copies == data
    assert files.read_whole(f"{DIRECTORY}/{0:020d}.log") == before
    assert log.end_offset == 1


def test_the_first_ones_of_a_segment_are_left_alone() -> None:
    log = open_log()
    assert together(log, batch()) is None
    assert log.end_offset == 0


def test_a_disk_that_refuses_them_has_none_of_them() -> None:
    files = MemoryFiles()
    log = open_log(files, config=LARGE)
    append_each(log, 1)
    log.flush()
    append_each(log, 1)
    size = log.size
    assert log.stretch_for_journal(0, 1 << 20) is not None
    fill_up(files)
    with pytest.raises(OSError, match="full"):
        together(log, from_producer(0), batch())
    assert files.list_files(DIRECTORY)[f"{0:020d}.log"] == size
    assert (log.end_offset, log.size, len(log.producers)) == (2, size, 0)
    # What the disk may have of it must not come back: the journal waits for an fsync.
    assert log.stretch_for_journal(0, 1 << 20) is None
    assert together(log, from_producer(0), batch())
    assert [offset for offset, _ in read_all(log)] == [0, 1, 2, 3]


def test_a_log_that_has_failed_takes_none() -> None:
    files = MemoryFiles()
    log = open_log(files, config=LARGE)
    append_each(log, 1)

    def fail(operation: str, path: str) -> None:
        if operation == "datasync":
            raise OSError(errno.EIO, "made up")

    files.on_call = fail
    with pytest.raises(OSError, match="made up"):
        log.flush()
    assert together(log, batch()) is None
