"""The ElectLeaders handler, as Apache Kafka 4.3 answers where nothing can be elected."""

from __future__ import annotations

import pytest

from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from asyncbroker.tests.data_path_harness import UnderTest, errors_of, under_test


async def elect(
    test: UnderTest, topics: list[TopicPartitions] | None, type: int = 0, version: int = 2
) -> dict[str, list[ErrorCode]]:
    request = ElectLeadersRequest(type, topics)
    response: ElectLeadersResponse = await test.ask(request, version)
    assert response.error_code == 0
    return {
        result.topic: errors_of(result.partition_result)
        for result in response.replica_election_results
    }


@pytest.mark.parametrize(("version", "type"), [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)])
async def test_a_partition_needs_no_election_if_it_is_there(version: int, type: int) -> None:
    async with under_test() as test:
        await test.topic(partitions=2)
        asked = [TopicPartitions("flights", [1, 2, -1, 0]), TopicPartitions("missing", [0])]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        not_needed = ErrorCode.ELECTION_NOT_NEEDED
        assert await elect(test, asked, type, version) == {
            "flights": [not_needed, unknown, unknown, not_needed],
            "missing": [unknown],
        }


async def test_of_all_partitions_those_without_need_are_left_out() -> None:
    async with under_test() as test:
        await test.topic(partitions=2)
        assert await elect(test, None) == {}


async def test_another_kind_of_election_is_refused() -> None:
    async with under_test() as test:
        with pytest.raises(KafkaError) as caught:
            await elect(test, None, 2)
        assert caught.value.code is ErrorCode.INVALID_REQUEST
