"""ListPartitionReassignments (key 46), version 0.

Behaviour: the list is empty, whatever is asked for: there is one broker, and no partition is on its
way from one to another (KIP-455). `kafka-topics --describe` asks this of every cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncbroker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext


def handle(
    _broker: Broker, _context: RequestContext, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Lists nothing."""
    return ListPartitionReassignmentsResponse()
