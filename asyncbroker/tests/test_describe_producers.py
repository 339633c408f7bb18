"""The DescribeProducers handler, as Apache Kafka 4.3 answers."""

from __future__ import annotations

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.describe_producers import (
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersState,
    DescribeProducersTopicRequest,
)
from asyncbroker.tests.data_path_harness import (
    NOW_MS,
    UnderTest,
    batch_of,
    errors_of,
    idempotent,
    under_test,
)


async def describe(
    test: UnderTest, *topics: tuple[str, list[int]]
) -> dict[str, list[DescribeProducersPartitionResponse]]:
    asked = [DescribeProducersTopicRequest(name, indexes) for name, indexes in topics]
    response = await test.ask(DescribeProducersRequest(asked), 0)
    return {topic.name: topic.partitions for topic in response.topics}


def state(
    producer_id: int, epoch: int, last_sequence: int, last_timestamp: int = NOW_MS
) -> DescribeProducersState:
    return DescribeProducersState(producer_id, epoch, last_sequence, last_timestamp, -1, -1)


async def test_what_each_producer_wrote_last_is_told() -> None:
    async with under_test() as test:
        await test.topic(partitions=2)
        await test.produce(batch_of(3))
        await test.produce(idempotent(0, 3))
        await test.produce(idempotent(3, 2))
        await test.produce(idempotent(0, 1, producer_id=8, epoch=4))
        of_topic = (await describe(test, ("flights", [0, 1])))["flights"]
        assert [each.partition_index for each in of_topic] == [0, 1]
        assert errors_of(of_topic) == [0, 0]
        assert of_topic[0].active_producers == [
            state(7, 0, 4, NOW_MS + 1),
            state(8, 4, 0),
        ]
        assert of_topic[1].active_producers == []


async def test_a_producer_that_was_silent_for_long_is_not_told() -> None:
    async with under_test() as test:
        topic = await test.topic()
        await test.produce(idempotent(0))
        for now_ms in (NOW_MS, NOW_MS + 86_400_000):
            topic.partitions[0].log.expire_producers(now_ms)
        (partition,) = (await describe(test, ("flights", [0])))["flights"]
        assert (partition.error_code, partition.active_producers) == (0, [])


async def test_a_partition_that_is_asked_for_twice_is_told_once() -> None:
    async with under_test() as test:
        await test.topic()
        await test.produce(idempotent(0))
        of_topic = (await describe(test, ("flights", [0, 0]), ("flights", [0])))["flights"]
        assert len(of_topic) == 1


async def test_what_does_not_exist_and_what_cannot_is_told_apart() -> None:
    async with under_test() as test:
        await test.topic()
        asked = [("flights", [1, -1]), ("missing", [0]), ("in/valid", [0]), ("", [0])]
        told = await describe(test, *asked)
        unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION
        assert {name: errors_of(partitions) for name, partitions in told.items()} == {
            "flights": [unknown, unknown],
            "missing": [unknown],
            "in/valid": [invalid],
            "": [invalid],
        }


async def test_a_directory_that_is_offline_says_so() -> None:
    async with under_test() as test:
        await test.topic()
        test.broker.storage.fail(OSError(5, "made up"))
        told = await describe(test, ("flights", [0]))
        assert errors_of(told["flights"]) == [ErrorCode.KAFKA_STORAGE_ERROR]
        test.broker.storage.error = None
