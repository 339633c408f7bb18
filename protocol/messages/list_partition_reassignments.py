"""ListPartitionReassignments (key 46), version 0: partitions on their way to other brokers
(KIP-455)."""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class ListPartitionReassignmentsTopics:
    """Partitions of one topic."""

    name: str = wire(STRING)
    partition_indexes: list[int] = wire(array(INT32))


@dataclass(slots=True)
class ListPartitionReassignmentsRequest:
    """The partitions to tell about; null is all."""

    timeout_ms: int = wire(INT32, default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = wire(
        array(ListPartitionReassignmentsTopics), nullable="0+", default=None
    )


@dataclass(slots=True)
class OngoingPartitionReassignment:
    """A partition on its way: who has it, who is to get it, who is to lose it."""

    partition_index: int = wire(INT32)
    replicas: list[int] = wire(array(INT32))
    adding_replicas: list[int] = wire(array(INT32))
    removing_replicas: list[int] = wire(array(INT32))


@dataclass(slots=True)
class OngoingTopicReassignment:
    """Partitions of one topic."""

    name: str = wire(STRING)
    partitions: list[OngoingPartitionReassignment] = wire(array(OngoingPartitionReassignment))


@dataclass(slots=True)
class ListPartitionReassignmentsResponse:
    """The partitions asked for that are on their way."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    topics: list[OngoingTopicReassignment] = wire(array(OngoingTopicReassignment))
