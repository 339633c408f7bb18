"""ElectLeaders (key 43), versions 0 to 2: elects leaders of partitions (KIP-183).

v1   unclean elections, and an error at the top (KIP-460)
v2   flexible (KIP-482)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT8, INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = wire(STRING)
    partitions: list[int] = wire(array(INT32))


@dataclass(slots=True)
class ElectLeadersRequest:
    """The kind of election (0: the preferred leader, 1: any replica) and the partitions; null is
    all."""

    election_type: int = wire(INT8, "1+")
    topic_partitions: list[TopicPartitions] | None = wire(array(TopicPartitions), nullable="0+")
    timeout_ms: int = wire(INT32, default=60000)


@dataclass(slots=True)
class PartitionResult:
    """The outcome for one partition."""

    partition_id: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)


@dataclass(slots=True)
class ReplicaElectionResult:
    """The outcomes for partitions of one topic."""

    topic: str = wire(STRING)
    partition_result: list[PartitionResult] = wire(array(PartitionResult))


@dataclass(slots=True)
class ElectLeadersResponse:
    """An error of the whole request, or an outcome for each partition."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16, "1+")
    replica_election_results: list[ReplicaElectionResult] = wire(array(ReplicaElectionResult))
