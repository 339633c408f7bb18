"""ElectLeaders (key 43), versions 0 to 2.

Behaviour: nothing is ever elected, because every partition has one replica, which leads: a
partition asked for is ELECTION_NOT_NEEDED, one that does not exist UNKNOWN_TOPIC_OR_PARTITION
(KIP-183). When all partitions are asked for (null), those that need no election are left out, as in
Kafka, so that nothing is answered.

v1   unclean elections (KIP-460), which are not needed either
v2   flexible (KIP-482)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext

PREFERRED, UNCLEAN = 0, 1
ELECTION_TYPES: Final = (PREFERRED, UNCLEAN)


def handle(
    broker: Broker, _context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """Says of each partition that it has its leader."""
    if request.election_type not in ELECTION_TYPES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"no election type {request.election_type}")
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                asked.topic, [_elect(broker, asked.topic, index) for index in asked.partitions]
            )
            for asked in request.topic_partitions or ()
        ]
    )


def _elect(broker: Broker, name: str, index: int) -> PartitionResult:
    topic = broker.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return PartitionResult(
            index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}"
        )
    return PartitionResult(
        index, ErrorCode.ELECTION_NOT_NEEDED, "the only replica is the leader already"
    )
