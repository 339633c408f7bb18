"""A partition on a real disk with real threads: appends, reads and commit rounds side by side."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from asyncbroker.clock import SystemClock
from asyncbroker.commits import Commits
from asyncbroker.log.appended import Appended
from asyncbroker.log.config import LogConfig
from asyncbroker.log.file_range import FileRange
from asyncbroker.log.files import RealFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.partition import Partition
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.records import batches, check_batch, records_of, verify_crc
from asyncbroker.storage import Storage
from asyncbroker.tests.data_path_harness import batch_of
from asyncbroker.workers import ThreadWorkers

BATCHES = 400
PRODUCERS = 5


def opened(directory: Path, storage: Storage, *, is_clean: bool = True) -> Partition:
    log = PartitionLog.open(
        RealFiles(),
        str(directory / "flights-0"),
        topic_id=bytes(range(16)),
        config=LogConfig(segment_bytes=1 << 20, max_message_bytes=1 << 20),
        leader_epoch=1,
        is_clean=is_clean,
        now_ms=storage.clock.wall_ms(),
    )
    return Partition("flights", 0, bytes(range(16)), log, leader_epoch=1, storage=storage)


def read(partition: Partition, offset: int, records: list[bytes | None]) -> int:
    """Adds the values from `offset` on, up to what is there now; the next offset."""
    while (found := partition.locate(offset, 300_000)) is not None:
        offset = take(found, offset, records)
    return offset


def take(found: FileRange, offset: int, records: list[bytes | None]) -> int:
    """Adds the values of a range; the offset after it."""
    for header, batch in batches(found.read()):
        assert verify_crc(batch, header)
        assert header.base_offset == offset
        records += [record.value for record in records_of(batch, header)]
        offset = header.next_offset
    return offset


async def test_threads_lose_nothing_double_nothing_and_keep_the_order(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    workers = ThreadWorkers(loop, threads_max=4)
    storage = Storage(
        SystemClock(loop), workers, inline_append_bytes_max=2_000, writeback_bytes=64 * 1024
    )
    commits = Commits(storage)
    partition = opened(tmp_path, storage)
    chance = random.Random(11)
    written: dict[int, bytes] = {}
    is_over = False

    async def produce(name: int) -> None:
        last = -1
        for number in range(BATCHES // PRODUCERS):
            value = b"%d %d " % (name, number) + bytes(chance.choice((10, 1_000, 30_000)))
            batch = batch_of(value=value, timestamp=time.time_ns() // 1_000_000)
            outcome = partition.append(memoryview(batch), check_batch(batch))
            appended = outcome if isinstance(outcome, Appended) else await outcome
            assert appended.base_offset > last
            last = appended.base_offset
            assert written.setdefault(last, value) is value
            if chance.random() < 0.3:
                durable = commits.durable(partition, last + 1)
                if durable is not None:
                    await durable
                assert partition.log.durable_end_offset > last
            else:
                await asyncio.sleep(0)

    async def consume() -> list[bytes | None]:
        seen: list[bytes | None] = []
        offset = 0
        while not is_over:
            offset = read(partition, offset, seen)
            await asyncio.sleep(0)
        read(partition, offset, seen)
        return seen

    consuming = asyncio.ensure_future(consume())
    await asyncio.gather(*(produce(name) for name in range(PRODUCERS)))
    is_over = True
    expected = [written[offset] for offset in range(BATCHES)]
    assert await consuming == expected
    await commits.close()
    partition.refuse(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    await partition.drain()
    partition.log.close(clean=False)

    again = opened(tmp_path, storage, is_clean=False)
    recovered: list[bytes | None] = []
    # In threads: the indexes that recovery has written are not in memory.
    offset = 0
    while (found := await again.locate_on_disk(offset, 300_000)) is not None:
        offset = take(found, offset, recovered)
    assert offset == BATCHES
    assert recovered == expected
    again.log.close()
    await workers.close()
