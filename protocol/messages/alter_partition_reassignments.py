"""AlterPartitionReassignments (key 45), versions 0 to 1: which brokers are to have a partition
(KIP-455).

v1   whether the number of replicas may change (KIP-860)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import BOOL, INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class ReassignablePartition:
    """The brokers that are to have a partition; null takes a reassignment back."""

    partition_index: int = wire(INT32)
    replicas: list[int] | None = wire(array(INT32), nullable="0+", default=None)


@dataclass(slots=True)
class ReassignableTopic:
    """Partitions of one topic."""

    name: str = wire(STRING)
    partitions: list[ReassignablePartition] = wire(array(ReassignablePartition))


@dataclass(slots=True)
class AlterPartitionReassignmentsRequest:
    """The partitions to move."""

    timeout_ms: int = wire(INT32, default=60000)
    allow_replication_factor_change: bool = wire(BOOL, "1+", default=True)
    topics: list[ReassignableTopic] = wire(array(ReassignableTopic))


@dataclass(slots=True)
class ReassignablePartitionResponse:
    """What became of one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)


@dataclass(slots=True)
class ReassignableTopicResponse:
    """Partitions of one topic."""

    name: str = wire(STRING)
    partitions: list[ReassignablePartitionResponse] = wire(array(ReassignablePartitionResponse))


@dataclass(slots=True)
class AlterPartitionReassignmentsResponse:
    """What became of each partition."""

    throttle_time_ms: int = wire(INT32)
    allow_replication_factor_change: bool = wire(BOOL, "1+", default=True, ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    responses: list[ReassignableTopicResponse] = wire(array(ReassignableTopicResponse))
