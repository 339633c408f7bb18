"""The ListPartitionReassignments handler: no partition is ever on its way."""

from __future__ import annotations

import pytest

from asyncbroker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from asyncbroker.tests.data_path_harness import under_test


@pytest.mark.parametrize(
    "topics",
    [
        None,
        [],
        [ListPartitionReassignmentsTopics("flights", [0, 5])],
        [ListPartitionReassignmentsTopics("missing", [0])],
    ],
)
async def test_nothing_is_on_its_way(
    topics: list[ListPartitionReassignmentsTopics] | None,
) -> None:
    async with under_test() as test:
        await test.topic()
        response = await test.ask(ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (response.error_code, response.error_message, response.topics) == (0, None, [])
