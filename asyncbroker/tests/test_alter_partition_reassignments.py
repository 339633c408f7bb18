"""The AlterPartitionReassignments handler, as Apache Kafka 4.3 answers with one broker."""

from __future__ import annotations

import pytest

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from asyncbroker.tests.data_path_harness import UnderTest, errors_of, under_test


async def reassign(
    test: UnderTest, *wanted: tuple[int, list[int] | None], name: str = "flights", version: int = 1
) -> list[ErrorCode]:
    partitions = [ReassignablePartition(index, replicas) for index, replicas in wanted]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name, partitions)])
    response: AlterPartitionReassignmentsResponse = await test.ask(request, version)
    assert (response.error_code, response.error_message) == (0, None)
    (topic,) = response.responses
    assert topic.name == name
    assert [each.partition_index for each in topic.partitions] == [index for index, _ in wanted]
    for each in topic.partitions:
        assert (each.error_message is None) == (each.error_code == 0)
    return errors_of(topic.partitions)


@pytest.mark.parametrize("version", [0, 1])
async def test_a_partition_that_is_where_it_is_to_be_is_left_there(version: int) -> None:
    async with under_test() as test:
        await test.topic(partitions=2)
        here = [test.broker.node_id]
        assert await reassign(test, (0, here), (1, here), (0, here), version=version) == [0, 0, 0]


async def test_there_is_no_reassignment_to_take_back() -> None:
    async with under_test() as test:
        await test.topic()
        assert await reassign(test, (0, None)) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]


async def test_what_is_no_place_for_a_partition_is_refused() -> None:
    async with under_test() as test:
        await test.topic()
        here = test.broker.node_id
        places: tuple[list[int], ...] = ([], [here + 1], [here, here + 1], [here, here], [-1])
        wanted = [(0, replicas) for replicas in places]
        refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await reassign(test, *wanted) == [refused] * len(wanted)


async def test_partitions_that_do_not_exist_are_unknown() -> None:
    async with under_test() as test:
        await test.topic()
        here = [test.broker.node_id]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await reassign(test, (1, here), (-1, here), (7, None)) == [unknown] * 3
        assert await reassign(test, (0, here), name="missing") == [unknown]
