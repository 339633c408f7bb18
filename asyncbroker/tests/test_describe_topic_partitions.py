"""The DescribeTopicPartitions handler, as Apache Kafka 4.3 answers: pages of topics by name."""

from __future__ import annotations

import pytest

from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from asyncbroker.tests.data_path_harness import UnderTest, under_test

Page = list[tuple[str | None, list[int]]]


async def ask(
    test: UnderTest, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        [TopicRequest(name) for name in names], limit, None if cursor is None else Cursor(*cursor)
    )
    response: DescribeTopicPartitionsResponse = await test.ask(request, 0)
    return response


def page(response: DescribeTopicPartitionsResponse) -> Page:
    return [
        (topic.name, [partition.partition_index for partition in topic.partitions])
        for topic in response.topics
    ]


async def three_topics(test: UnderTest) -> None:
    for name, partitions in (("b", 3), ("a", 2), ("c", 1)):
        await test.topic(name, partitions=partitions)


async def test_a_topic_is_described_with_its_only_replica() -> None:
    async with under_test(node_id="7") as test:
        topic = await test.topic("t")
        (described,) = (await ask(test, "t")).topics
        assert (described.error_code, described.name) == (0, "t")
        assert (described.topic_id, described.is_internal) == (topic.topic_id, False)
        assert described.topic_authorized_operations == 0b110111111000
        (partition,) = described.partitions
        assert (partition.error_code, partition.leader_id) == (0, 7)
        assert partition.leader_epoch == topic.partitions[0].leader_epoch
        assert partition.replica_nodes == partition.isr_nodes == [7]
        assert partition.eligible_leader_replicas == partition.last_known_elr == []
        assert partition.offline_replicas == []


async def test_no_names_are_all_topics_in_order() -> None:
    async with under_test() as test:
        await three_topics(test)
        response = await ask(test)
        assert page(response) == [("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]
        assert response.next_cursor is None
        assert page(await ask(test, "c", "a", "c")) == [("a", [0, 1]), ("c", [0])]


@pytest.mark.parametrize("limit", [-1, 0, 1, 2, 3, 4, 5, 6, 7])
async def test_pages_together_are_everything_once(limit: int) -> None:
    async with under_test() as test:
        await three_topics(test)
        seen: list[tuple[str | None, int]] = []
        cursor: tuple[str, int] | None = None
        while True:
            response = await ask(test, limit=limit, cursor=cursor)
            found = [(name, index) for name, indexes in page(response) for index in indexes]
            assert 0 < len(found) <= max(1, limit)
            seen += found
            if response.next_cursor is None:
                break
            cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
        assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]


async def test_a_page_that_ends_with_a_topic_leads_to_the_next_topic() -> None:
    async with under_test() as test:
        await three_topics(test)
        assert (await ask(test, limit=2)).next_cursor == Cursor("b", 0)
        assert (await ask(test, limit=6)).next_cursor is None


async def test_a_cursor_whose_topic_is_gone_goes_on_with_the_next() -> None:
    async with under_test() as test:
        await three_topics(test)
        assert page(await ask(test, cursor=("aa", 5))) == [("b", [0, 1, 2]), ("c", [0])]
        assert page(await ask(test, cursor=("c", 5))) == [("c", [])]


async def test_a_page_has_2000_partitions_at_most() -> None:
    async with under_test() as test:
        topic = await test.topic("t")
        topic.partitions = topic.partitions * 2001
        response = await ask(test, "t", limit=5000)
        assert len(response.topics[0].partitions) == 2000
        assert response.next_cursor == Cursor("t", 2000)
        del topic.partitions[1:]


async def test_missing_topics_have_an_error_and_are_not_created() -> None:
    async with under_test() as test:
        await three_topics(test)
        response = await ask(test, "nope", "a", "bad name")
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("a", 0),
            ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert test.broker.topics.get("nope") is None


async def test_a_cursor_of_a_negative_partition_is_refused() -> None:
    async with under_test() as test:
        with pytest.raises(KafkaError) as caught:
            await ask(test, cursor=("a", -1))
        assert caught.value.code is ErrorCode.INVALID_REQUEST
