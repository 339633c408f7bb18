"""OffsetDelete (key 47), version 0: deletes offsets that a group has committed (KIP-496)."""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class OffsetDeleteRequestPartition:
    """A partition whose offset is to go."""

    partition_index: int = wire(INT32)


@dataclass(slots=True)
class OffsetDeleteRequestTopic:
    """Partitions of one topic."""

    name: str = wire(STRING)
    partitions: list[OffsetDeleteRequestPartition] = wire(array(OffsetDeleteRequestPartition))


@dataclass(slots=True)
class OffsetDeleteRequest:
    """The group, and the partitions that it is to forget."""

    group_id: str = wire(STRING)
    topics: list[OffsetDeleteRequestTopic] = wire(array(OffsetDeleteRequestTopic))


@dataclass(slots=True)
class OffsetDeleteResponsePartition:
    """The outcome for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@dataclass(slots=True)
class OffsetDeleteResponseTopic:
    """The outcomes for partitions of one topic."""

    name: str = wire(STRING)
    partitions: list[OffsetDeleteResponsePartition] = wire(array(OffsetDeleteResponsePartition))


@dataclass(slots=True)
class OffsetDeleteResponse:
    """An error of the group, and then no topics; or an outcome for each partition."""

    error_code: int = wire(INT16)
    throttle_time_ms: int = wire(INT32, ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = wire(array(OffsetDeleteResponseTopic))
