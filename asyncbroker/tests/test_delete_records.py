"""The DeleteRecords handler, as Apache Kafka 4.3 answers; and what becomes of the records."""

from __future__ import annotations

import asyncio
import errno

import pytest

from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from asyncbroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from asyncbroker.protocol.schema import Buffer
from asyncbroker.tests.data_path_harness import (
    UnderTest,
    batch_of,
    forget_clean_stop,
    offsets_of,
    settle,
    under_test,
)
from asyncbroker.tests.test_partition import LARGE, Fixture

CHECKPOINT = "memory/log-start-offset-checkpoint"
NO_ERROR = ErrorCode.NONE


async def delete(
    test: UnderTest, offset: int, *, topic: str = "flights", index: int = 0, version: int = 2
) -> tuple[int, ErrorCode]:
    """The low watermark and the error of one partition."""
    partitions = [DeleteRecordsPartition(index, offset)]
    request = DeleteRecordsRequest([DeleteRecordsTopic(topic, partitions)], 1000)
    response: DeleteRecordsResponse = await test.ask(request, version)
    (result,) = response.topics[0].partitions
    return result.low_watermark, ErrorCode(result.error_code)


async def filled(test: UnderTest, count: int = 9) -> None:
    """A topic of small segments, with a record in each batch."""
    topic = await test.topic(segment_bytes="1048576")
    for _ in range(count):
        await test.produce(batch_of(1, value=bytes(300_000)))
    assert topic.partitions[0].log.segment_count > 1


async def earliest(test: UnderTest) -> int:
    topic = ListOffsetsTopic("flights", [ListOffsetsPartition(0, timestamp=-2)])
    response = await test.ask(ListOffsetsRequest(-1, 0, [topic]), 5)
    offset: int = response.topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize("version", range(3))
async def test_a_partition_begins_later_at_once(version: int) -> None:
    async with under_test() as test:
        await test.topic()
        for _ in range(5):
            await test.produce(batch_of(1))
        assert await delete(test, 3, version=version) == (3, NO_ERROR)
        assert await earliest(test) == 3
        assert offsets_of(await test.fetch(3)) == [3, 4]
        below = await test.fetch(2)
        assert below.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert below.log_start_offset in (3, -1)


async def test_a_beginning_inside_a_batch_is_kept_as_it_was_asked_for() -> None:
    async with under_test() as test:
        await test.topic()
        await test.produce(batch_of(10))
        assert await delete(test, 7) == (7, NO_ERROR)
        assert await earliest(test) == 7
        assert (await test.fetch(6)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await test.fetch(7)).error_code == 0


async def test_minus_1_is_the_high_watermark_and_appends_go_on_from_there() -> None:
    async with under_test() as test:
        await test.topic()
        await test.produce(batch_of(5))
        assert await delete(test, -1) == (5, NO_ERROR)
        assert offsets_of(await test.fetch(5)) == []
        assert (await test.produce(batch_of(2))).base_offset == 5
        assert offsets_of(await test.fetch(5)) == [5, 6]


async def test_a_beginning_does_not_move_back() -> None:
    async with under_test() as test:
        await test.topic()
        await test.produce(batch_of(5))
        assert await delete(test, 4) == (4, NO_ERROR)
        assert await delete(test, 2) == (4, NO_ERROR)
        assert await delete(test, 4) == (4, NO_ERROR)


@pytest.mark.parametrize(
    ("topic", "index", "offset", "code"),
    [
        ("missing", 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("flights", 1, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("flights", -1, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("flights", 0, 6, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("flights", 0, -2, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("compacted", 0, 0, ErrorCode.POLICY_VIOLATION),
        ("__consumer_offsets", 0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
async def test_what_cannot_be_deleted(topic: str, index: int, offset: int, code: ErrorCode) -> None:
    async with under_test() as test:
        await test.topic()
        await test.produce(batch_of(5))
        await test.topic("compacted", cleanup_policy="compact")
        await test.topic("__consumer_offsets", cleanup_policy="compact")
        assert await delete(test, offset, topic=topic, index=index) == (-1, code)
        assert await earliest(test) == 0


async def test_compacted_topics_that_also_delete_take_part() -> None:
    async with under_test() as test:
        await test.topic(cleanup_policy="compact, delete")
        await test.produce(batch_of(5))
        assert await delete(test, 5) == (5, NO_ERROR)


async def test_each_partition_has_its_own_outcome_and_all_share_one_write() -> None:
    async with under_test() as test:
        await test.topic(partitions=3)
        for index in range(3):
            await test.produce(batch_of(4), index=index)
        writes = 0
        write = test.files.write_atomically

        def counted(path: str, data: Buffer) -> None:
            nonlocal writes
            writes += path == CHECKPOINT
            write(path, data)

        test.files.write_atomically = counted  # type: ignore[method-assign]
        asked = [DeleteRecordsPartition(0, 1), DeleteRecordsPartition(1, 9)]
        asked.append(DeleteRecordsPartition(2, 3))
        request = DeleteRecordsRequest([DeleteRecordsTopic("flights", asked)], 1000)
        (topic,) = (await test.ask(request, 2)).topics
        assert topic.partitions == [
            DeleteRecordsPartitionResult(0, 1, 0),
            DeleteRecordsPartitionResult(1, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
            DeleteRecordsPartitionResult(2, 3, 0),
        ]
        assert writes == 1


async def test_the_files_of_whole_segments_go() -> None:
    async with under_test() as test:
        await filled(test)
        topic = test.broker.topics.get("flights")
        assert topic is not None
        log = topic.partitions[0].log
        before = log.size
        assert await delete(test, 8) == (8, NO_ERROR)
        await settle()
        names = [name for name in test.files.list_files("memory/flights-0") if ".log" in name]
        assert [name.partition(".")[2] for name in names].count("log.deleted") == 2
        test.clock.advance(60)  # file.delete.delay.ms
        await settle()
        names = [name for name in test.files.list_files("memory/flights-0") if ".log" in name]
        assert names == [f"{log.active_base_offset:020}.log"]
        assert log.size == log.active_size < before
        assert offsets_of(await test.fetch(8)) == [8]


async def test_what_is_deleted_does_not_come_back_after_a_crash() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as test:
        await filled(test)
        await delete(test, 8)
        # It was durable before it was answered.
        assert b"flights 0 8" in files.read_whole(CHECKPOINT)
    forget_clean_stop(files)
    async with under_test(files=files, metadata=metadata) as test:
        assert await earliest(test) == 8
        assert (await test.fetch(7)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert offsets_of(await test.fetch(8)) == [8]
        assert (await test.produce(batch_of(1))).base_offset == 9


async def test_a_start_that_cannot_be_recorded_is_not_promised() -> None:
    async with under_test() as test:
        await test.topic()
        await test.produce(batch_of(5))
        write = test.files.write_atomically

        def full(path: str, data: Buffer) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        test.files.write_atomically = full  # type: ignore[method-assign]
        assert await delete(test, 3) == (-1, ErrorCode.KAFKA_STORAGE_ERROR)
        test.files.write_atomically = write  # type: ignore[method-assign]
        assert await delete(test, 3) == (3, NO_ERROR)
        assert b"flights 0 3" in test.files.read_whole(CHECKPOINT)


async def test_a_start_that_moves_on_while_one_is_recorded_is_not_promised() -> None:
    async with under_test() as test:
        topic = await test.topic()
        await test.produce(batch_of(5))
        write = test.files.write_atomically

        def write_and_move(path: str, data: Buffer) -> None:
            write(path, data)
            # As retention does, which has yet to record it.
            topic.partitions[0].log.advance_log_start(5)

        test.files.write_atomically = write_and_move  # type: ignore[method-assign]
        assert await delete(test, 3) == (3, NO_ERROR)
        assert b"flights 0 3" in test.files.read_whole(CHECKPOINT)
        assert await earliest(test) == 5


async def test_it_happens_also_when_the_client_is_gone() -> None:
    async with under_test() as test:
        await test.topic()
        await test.produce(batch_of(5))
        partitions = [DeleteRecordsPartition(0, 3)]
        request = DeleteRecordsRequest([DeleteRecordsTopic("flights", partitions)], 1000)
        asking = test.begin(request, 2)
        await asyncio.sleep(0)
        asking.cancel()
        await settle()
        assert b"flights 0 3" in test.files.read_whole(CHECKPOINT)


async def test_a_start_moves_when_a_worker_is_done_with_the_log() -> None:
    made = Fixture()
    made.append(LARGE)
    starts: list[int] = []
    made.partition.between_appends(lambda: starts.append(made.partition.log.end_offset))
    made.append(LARGE)
    assert starts == []
    await made.workers.step()
    assert starts == [1]
    await made.workers.step()
    made.partition.between_appends(lambda: starts.append(made.partition.log.end_offset))
    assert starts == [1, 2]
