"""AlterPartitionReassignments (key 45), versions 0 to 1.

Behaviour: no partition ever moves, since there is one broker (KIP-455). A partition that is to be
on this broker is there already: no error, and nothing is done, as in Kafka. To take a reassignment
back (null) is NO_REASSIGNMENT_IN_PROGRESS. Other brokers, none, or one twice are
INVALID_REPLICA_ASSIGNMENT, and partitions that do not exist UNKNOWN_TOPIC_OR_PARTITION.

v1   whether the number of replicas may change (KIP-860), which never does
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext


def handle(
    broker: Broker, _context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Says of each partition whether it is where it is to be."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            ReassignableTopicResponse(
                asked.name, [_outcome(broker, asked.name, wanted) for wanted in asked.partitions]
            )
            for asked in request.topics
        ],
    )


def _outcome(
    broker: Broker, name: str, wanted: ReassignablePartition
) -> ReassignablePartitionResponse:
    outcome = ReassignablePartitionResponse(wanted.partition_index)
    try:
        _check(broker, name, wanted)
    except KafkaError as error:
        outcome.error_code, outcome.error_message = error.code, error.message
    return outcome


def _check(broker: Broker, name: str, wanted: ReassignablePartition) -> None:
    """Raises KafkaError unless the partition is to be where it is."""
    topic = broker.topics.get(name)
    if topic is None or not 0 <= wanted.partition_index < len(topic.partitions):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no partition {name}-{wanted.partition_index}",
        )
    if wanted.replicas is None:
        raise KafkaError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no partition is on its way to another broker"
        )
    if wanted.replicas != [broker.node_id]:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"a partition is on broker {broker.node_id}, the only one, once",
        )
