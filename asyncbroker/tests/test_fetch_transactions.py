"""Fetch from a log that has moved in with transactions: who reads committed records is told of
aborted ones, and gets nothing of what is undecided."""

from __future__ import annotations

import pytest

from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.repair import empty_batch
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.batches import batches
from asyncbroker.protocol.errors import ErrorCode
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


def log_path() -> str:
    return f"memory/flights-0/{0:020d}.log"


def flip(files: MemoryFiles, position: int, bit: int = 1) -> None:
    file = files.open(log_path())
    file.pwrite(bytes([file.pread(1, position)[0] ^ bit]), position)


def position_of(files: MemoryFiles, offset: int) -> int:
    """Where the batch with an offset begins."""
    position = 0
    for header, _ in batches(files.read_whole(log_path())):
        if header.base_offset == offset:
            return position
        position += header.size
    raise AssertionError(offset)


# In the marker's batch, behind its beginning: its CRC, its attributes (transactional, control), its
# producer id, its count of records, its kind (COMMIT for ABORT).
@pytest.mark.parametrize(
    ("at", "bit"), [(17, 1), (22, 0x10), (22, 0x20), (50, 3), (60, 1), (69, 1)]
)
@pytest.mark.parametrize("is_seen", [True, False])
async def test_a_damaged_abort_marker_makes_nothing_committed(
    at: int, bit: int, is_seen: bool
) -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    await moved_in(files, metadata, 10)
    flip(files, position_of(files, 2) + at, bit)
    async with under_test(files=files, metadata=metadata) as test:
        if is_seen:
            # The hole is known before anybody asks for what is committed.
            answer = await test.fetch(0, isolation_level=UNCOMMITTED)
            assert offsets_of(answer) == [0, 1]
        # Nobody knows how the transactions of 0 and 1 have ended.
        for offset in (0, 1, 2):
            answer = await test.fetch(offset, isolation_level=COMMITTED)
            assert ErrorCode(answer.error_code) is ErrorCode.CORRUPT_MESSAGE
        answer = await test.fetch(3, isolation_level=COMMITTED)
        assert offsets_of(answer) == [3, 4, 5, 6]
        aborted = answer.aborted_transactions or []
        assert [(each.producer_id, each.first_offset) for each in aborted] == [(2, 5)]


async def test_what_was_decided_before_a_damaged_marker_is_served() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    await moved_in(files, metadata, 10)
    flip(files, position_of(files, 6) + 69)
    async with under_test(files=files, metadata=metadata) as test:
        answer = await test.fetch(0, isolation_level=COMMITTED)
        assert offsets_of(answer) == [0, 1, 2, 3, 4]
        aborted = answer.aborted_transactions or []
        assert [(each.producer_id, each.first_offset) for each in aborted] == [(1, 0)]
        answer = await test.fetch(5, isolation_level=COMMITTED)
        assert ErrorCode(answer.error_code) is ErrorCode.CORRUPT_MESSAGE


async def test_a_repair_of_a_marker_makes_nothing_committed() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    await moved_in(files, metadata, 10)
    data_before = files.read_whole(log_path())
    begin, end = position_of(files, 2), position_of(files, 3)
    files.write_whole(log_path(), data_before[:begin] + empty_batch(2, 3) + data_before[end:])
    for name in (f"{0:020d}.index", f"{0:020d}.timeindex"):
        files.remove(f"memory/flights-0/{name}")
    async with under_test(files=files, metadata=metadata) as test:
        answer = await test.fetch(0, isolation_level=COMMITTED)
        assert ErrorCode(answer.error_code) is ErrorCode.CORRUPT_MESSAGE
        answer = await test.fetch(3, isolation_level=COMMITTED)
        assert offsets_of(answer) == [3, 4, 5, 6]


async def test_a_transaction_in_doubt_behind_a_gap_is_refused_to_who_asks_for_the_gap() -> None:
    """The range that is found for an offset that is gone begins with a later one."""
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    await moved_in(files, metadata, 10)
    begin, marker_at, after = (position_of(files, offset) for offset in (1, 3, 4))
    log = files.read_whole(log_path())
    files.write_whole(log_path(), log[begin:after])
    files.write_whole(f"memory/flights-0/{4:020d}.log", log[after:])
    for name in (f"{0:020d}.index", f"{0:020d}.timeindex"):
        files.remove(f"memory/flights-0/{name}")
    # Nobody knows how the transaction of 1 has ended; 0 was compacted away.
    flip(files, marker_at - begin + 69)
    async with under_test(files=files, metadata=metadata) as test:
        for offset in (0, 1):
            answer = await test.fetch(offset, isolation_level=COMMITTED)
            assert ErrorCode(answer.error_code) is ErrorCode.CORRUPT_MESSAGE
        answer = await test.fetch(0, isolation_level=UNCOMMITTED)
        assert offsets_of(answer) == [1, 2]


async def test_what_lies_before_a_damaged_end_of_the_log_is_served() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as test:
        await test.topic()
        for batch in (data(1), marker(1, ABORT), data(2), marker(2, COMMIT), batch_of()):
            append(test, batch)
    flip(files, position_of(files, 4) + 69)
    async with under_test(files=files, metadata=metadata) as test:
        answer = await test.fetch(0, isolation_level=COMMITTED)
        assert offsets_of(answer) == [0, 1, 2, 3]
        aborted = answer.aborted_transactions or []
        assert [(each.producer_id, each.first_offset) for each in aborted] == [(1, 0)]
        answer = await test.fetch(4, isolation_level=COMMITTED)
        assert ErrorCode(answer.error_code) is ErrorCode.CORRUPT_MESSAGE
