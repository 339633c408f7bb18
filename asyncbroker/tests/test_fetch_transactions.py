"""Fetch from a log that has moved in with transactions: who reads committed records is told of
aborted ones, and gets nothing of what is undecided."""

from __future__ import annotations

import pytest

from asyncbroker.log.files import MemoryFiles
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from asyncbroker.protocol.records import Record, build_batch, read_header
from asyncbroker.tests.data_path_harness import (
    NOW_MS,
    UnderTest,
    batch_of,
    forget_clean_stop,
    offsets_of,
    under_test,
)

COMMITTED, UNCOMMITTED = 1, 0
ABORT, COMMIT = 0, 1


def append(test: UnderTest, batch: bytearray) -> None:
    topic = test.broker.topics.get("flights")
    assert topic is not None
    topic.partitions[0].append(batch, read_header(batch), is_client=False)


def data(producer_id: int, size: int = 10) -> bytearray:
    record = Record(0, NOW_MS, None, bytes(size))
    return build_batch([record], producer_id=producer_id, producer_epoch=0, is_transactional=True)


def marker(producer_id: int, kind: int) -> bytearray:
    record = Record(0, NOW_MS, bytes([0, 0, 0, kind]), bytes(6))
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=0, is_transactional=True, is_control=True
    )


async def moved_in(files: MemoryFiles, metadata: MemoryMetadataStore, size: int) -> None:
    async with under_test(files=files, metadata=metadata) as test:
        await test.topic()
        # 0: aborted, 1: committed; 2, 3 their ends; 4 is nobody's; 5, 6: aborted; 7: undecided.
        for batch in (data(1, size), data(2, size), marker(1, ABORT), marker(2, COMMIT)):
            append(test, batch)
        await test.produce(batch_of(value=bytes(size)))
        for batch in (data(2, size), marker(2, ABORT), data(1, size), data(3, size)):
            append(test, batch)
        append(test, marker(3, COMMIT))


@pytest.mark.parametrize("size", [10, 50_000])
@pytest.mark.parametrize("is_clean", [True, False])
async def test_aborted_transactions_are_told_and_undecided_ones_kept_back(
    size: int, is_clean: bool
) -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    await moved_in(files, metadata, size)
    if not is_clean:
        forget_clean_stop(files)
        # What Kafka kept of it is not believed.
        files.write_whole(f"memory/flights-0/{0:020d}.txnindex", b"damaged")
    async with under_test(files=files, metadata=metadata) as test:
        for _ in range(2):
            answer = await test.fetch(0, isolation_level=COMMITTED)
            assert (answer.last_stable_offset, answer.high_watermark) == (7, 10)
            assert offsets_of(answer) == list(range(7))
            aborted = answer.aborted_transactions or []
            assert [(each.producer_id, each.first_offset) for each in aborted] == [(1, 0), (2, 5)]
            answer = await test.fetch(3, isolation_level=COMMITTED)
            aborted = answer.aborted_transactions or []
            assert [(each.producer_id, each.first_offset) for each in aborted] == [(2, 5)]
            answer = await test.fetch(0, isolation_level=UNCOMMITTED)
            assert offsets_of(answer) == list(range(10))
            assert answer.aborted_transactions is None
            # There is nothing to be had for now, and nothing to be told.
            answer = await test.fetch(7, isolation_level=COMMITTED)
            assert (answer.error_code, answer.records) == (0, b"")
            answer = await test.fetch(8, isolation_level=COMMITTED)
            assert (answer.error_code, answer.records) == (0, b"")


async def test_the_latest_offset_of_committed_records_is_the_last_stable_one() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    await moved_in(files, metadata, 10)
    async with under_test(files=files, metadata=metadata) as test:
        for level, offset in ((COMMITTED, 7), (UNCOMMITTED, 10)):
            wanted = ListOffsetsTopic("flights", [ListOffsetsPartition(0, timestamp=-1)])
            request = ListOffsetsRequest(isolation_level=level, topics=[wanted])
            [topic] = (await test.ask(request, 7)).topics
            assert topic.partitions[0].offset == offset


async def test_other_logs_are_not_read_for_it() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as test:
        await test.topic()
        await test.produce(batch_of())
    async with under_test(files=files, metadata=metadata) as test:
        answer = await test.fetch(0, isolation_level=COMMITTED)
        assert answer.aborted_transactions == []
        topic = test.broker.topics.get("flights")
        assert topic is not None
        assert not topic.partitions[0].log.has_transactions
