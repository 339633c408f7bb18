"""ListOffsets and OffsetForLeaderEpoch: offsets by time, by name and by epoch."""

from __future__ import annotations

import asyncio
import errno

import pytest

from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from asyncbroker.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from asyncbroker.protocol.records import Compression, Record, build_batch
from asyncbroker.tests.data_path_harness import (
    CODECS,
    NOW_MS,
    UnderTest,
    batch_of,
    forget_clean_stop,
    under_test,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING = -1, -2, -3, -4, -5, -6


def asking(
    *timestamps: int,
    topic: str = "flights",
    index: int = 0,
    isolation_level: int = 0,
    current_leader_epoch: int = -1,
) -> ListOffsetsRequest:
    wanted = [
        ListOffsetsPartition(index, current_leader_epoch, timestamp) for timestamp in timestamps
    ]
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, topics=[ListOffsetsTopic(topic, wanted)]
    )


def results_of(response: ListOffsetsResponse) -> list[ListOffsetsPartitionResponse]:
    return [result for topic in response.topics for result in topic.partitions]


async def look_up(
    test: UnderTest, timestamp: int, version: int = 7, **fields: int | str
) -> ListOffsetsPartitionResponse:
    """Asks for one partition."""
    request = asking(timestamp, **fields)  # type: ignore[arg-type]
    [result] = results_of(await test.ask(request, version))
    return result


async def flights(test: UnderTest, *timestamps: list[int], codec: Compression) -> None:
    """A topic with a batch for each list of timestamps."""
    await test.topic()
    for times in timestamps:
        made = [Record(0, NOW_MS + time, None, b"value") for time in times]
        await test.produce(build_batch(made, compression=codec))


async def test_latest_is_the_end_and_earliest_the_start() -> None:
    """Both without a timestamp."""
    async with under_test() as test:
        topic = await test.topic()
        await test.produce(batch_of(5))
        epoch = topic.partitions[0].leader_epoch
        for version in range(1, 11):
            latest = await look_up(test, LATEST, version, isolation_level=1)
            assert (latest.offset, latest.timestamp, latest.leader_epoch) == (5, -1, epoch)
            earliest = await look_up(test, EARLIEST, version)
            assert (earliest.offset, earliest.timestamp) == (0, -1)


async def test_ends_are_answered_at_once() -> None:
    async with under_test() as test:
        await test.topic()
        assert isinstance(test.begin(asking(LATEST), 7), ListOffsetsResponse)
        assert isinstance(test.begin(asking(EARLIEST), 7), ListOffsetsResponse)
        assert isinstance(test.begin(asking(NOW_MS), 7), asyncio.Future)


@pytest.mark.parametrize("codec", CODECS)
async def test_a_time_finds_the_first_record_that_is_not_older_inside_its_batch(
    codec: Compression,
) -> None:
    async with under_test() as test:
        await flights(test, [0, 10, 20], [30, 40, 50], codec=codec)
        for time, offset, found in ((0, 0, 0), (1, 1, 10), (20, 2, 20), (21, 3, 30), (45, 5, 50)):
            result = await look_up(test, NOW_MS + time)
            assert (result.offset, result.timestamp) == (offset, NOW_MS + found)
            assert result.error_code == 0


async def test_times_that_do_not_ascend_are_searched_as_they_lie() -> None:
    """No assumption of sorted time, inside a batch or between batches."""
    async with under_test() as test:
        await flights(test, [5, 50, 1], [2, 3], [70, 60], codec=Compression.NONE)
        for time, offset in ((0, 0), (6, 1), (50, 1), (51, 5), (65, 5), (70, 5)):
            assert (await look_up(test, NOW_MS + time)).offset == offset


async def test_nothing_found_is_minus_1_without_an_error() -> None:
    async with under_test() as test:
        await test.topic()
        for timestamp in (0, NOW_MS, MAX_TIMESTAMP):
            result = await look_up(test, timestamp)
            assert (result.error_code, result.offset, result.timestamp) == (0, -1, -1)
        await test.produce(batch_of())
        assert (await look_up(test, NOW_MS + 1)).offset == -1


async def test_the_largest_timestamp_is_found_wherever_it_lies() -> None:
    """-3, from version 7 on."""
    async with under_test() as test:
        await flights(test, [5, 50, 1], [2, 3], [49], codec=Compression.GZIP)
        result = await look_up(test, MAX_TIMESTAMP)
        assert (result.offset, result.timestamp) == (1, NOW_MS + 50)


async def test_local_and_tiered_ends_without_a_tier() -> None:
    """-4 is the earliest offset, -5 none."""
    async with under_test() as test:
        await test.topic()
        await test.produce(batch_of(3))
        assert (await look_up(test, EARLIEST_LOCAL, 8)).offset == 0
        result = await look_up(test, LATEST_TIERED, 9)
        assert (result.error_code, result.offset, result.timestamp) == (0, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (PENDING, 10), (-7, 10)],
)
async def test_what_a_version_does_not_have_is_unsupported(timestamp: int, version: int) -> None:
    async with under_test() as test:
        await test.topic()
        result = await look_up(test, timestamp, version)
        assert (result.error_code, result.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)


async def test_a_partition_asked_for_twice_is_an_invalid_request_both_times() -> None:
    async with under_test() as test:
        await test.topic()
        results = results_of(await test.ask(asking(LATEST, EARLIEST), 7))
        assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2


async def test_unknown_partitions_and_epochs_are_errors_of_their_own() -> None:
    async with under_test() as test:
        topic = await test.topic()
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await look_up(test, LATEST, topic="nowhere")).error_code == unknown
        assert (await look_up(test, LATEST, index=1)).error_code == unknown
        newer = topic.partitions[0].leader_epoch + 1
        result = await look_up(test, LATEST, current_leader_epoch=newer)
        assert result.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_disk_that_cannot_be_read_is_an_error_of_that_partition() -> None:
    broken = False

    def called(operation: str, path: str) -> None:
        if broken and operation == "pread" and "flights-0" in path:
            raise OSError(errno.EIO, "Input/output error")

    async with under_test(files=MemoryFiles(called)) as test:
        await test.topic()
        await test.produce(batch_of())
        broken = True
        assert (await look_up(test, NOW_MS)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await look_up(test, LATEST)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


# ---- OffsetForLeaderEpoch


async def epoch_end(test: UnderTest, epoch: int, **fields: int) -> EpochEndOffset:
    request = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                "flights", [OffsetForLeaderPartition(partition=0, leader_epoch=epoch, **fields)]
            )
        ]
    )
    response = await test.ask(request, 4)
    result: EpochEndOffset = response.topics[0].partitions[0]
    return result


async def test_the_largest_epoch_not_above_the_asked_one_and_where_it_ended() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    epochs = []
    for count in (3, 2):
        async with under_test(files=files, metadata=metadata) as test:
            topic = test.broker.topics.get("flights") or await test.topic()
            epochs.append(topic.partitions[0].leader_epoch)
            await test.produce(batch_of(count))
        forget_clean_stop(files)
    async with under_test(files=files, metadata=metadata) as test:
        first, second = epochs
        current = test.broker.topics.get("flights").partitions[0].leader_epoch  # type: ignore[union-attr]
        for asked, epoch, end in ((first, first, 3), (second, second, 5), (current, current, 5)):
            result = await epoch_end(test, asked)
            assert (result.error_code, result.leader_epoch, result.end_offset) == (0, epoch, end)
        unknown = await epoch_end(test, current + 1)
        assert (unknown.error_code, unknown.leader_epoch, unknown.end_offset) == (0, -1, -1)
        fenced = await epoch_end(test, first, current_leader_epoch=first)
        assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_an_unknown_topic_is_an_error_of_its_own() -> None:
    async with under_test() as test:
        result = await epoch_end(test, 0)
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (result.leader_epoch, result.end_offset) == (-1, -1)
