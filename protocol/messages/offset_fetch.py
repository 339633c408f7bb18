"""OffsetFetch (key 9), versions 1 to 10: reads the committed offsets of groups.

v1   the offsets in `__consumer_offsets` (v0 was ZooKeeper)
v2   null for all topics, and an error for the whole group (KIP-88)
v3   the throttle time (KIP-124)
v4   on a quota violation the response comes at once and says how long to wait (KIP-219)
v5   leader epochs of the committed offsets (KIP-320)
v6   flexible (KIP-482)
v7   the client may insist on stable offsets (KIP-447)
v8   a list of groups in request and response instead of one (KIP-709)
v9   members of the new consumer protocol send their id and epoch (KIP-848)
v10  topics by their ids instead of their names (KIP-848)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import BOOL, INT16, INT32, INT64, STRING, UUID, array, wire


@dataclass(slots=True)
class OffsetFetchRequestTopic:
    """The partitions to read of one topic (up to v7)."""

    name: str = wire(STRING)
    partition_indexes: list[int] = wire(array(INT32))


@dataclass(slots=True)
class OffsetFetchRequestTopics:
    """The partitions to read of one topic (from v8 on)."""

    name: str = wire(STRING, "8-9", ignorable=True)
    topic_id: bytes = wire(UUID, "10+", ignorable=True)
    partition_indexes: list[int] = wire(array(INT32))


@dataclass(slots=True)
class OffsetFetchRequestGroup:
    """The offsets to read of one group (from v8 on); null topics means all."""

    group_id: str = wire(STRING)
    member_id: str | None = wire(STRING, "9+", nullable="0+", default=None, ignorable=True)
    member_epoch: int = wire(INT32, "9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = wire(
        array(OffsetFetchRequestTopics), nullable="0+"
    )


@dataclass(slots=True)
class OffsetFetchRequest:
    """The offsets to read: of one group up to v7, of a list of groups from v8 on."""

    group_id: str = wire(STRING, "1-7")
    topics: list[OffsetFetchRequestTopic] | None = wire(
        array(OffsetFetchRequestTopic), "1-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = wire(array(OffsetFetchRequestGroup), "8+")
    require_stable: bool = wire(BOOL, "7+")


@dataclass(slots=True)
class OffsetFetchResponsePartition:
    """A committed offset (up to v7); -1 when there is none."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, "5-7", default=-1, ignorable=True)
    metadata: str | None = wire(STRING, nullable="0+")
    error_code: int = wire(INT16)


@dataclass(slots=True)
class OffsetFetchResponseTopic:
    """The offsets of one topic (up to v7)."""

    name: str = wire(STRING)
    partitions: list[OffsetFetchResponsePartition] = wire(array(OffsetFetchResponsePartition))


@dataclass(slots=True)
class OffsetFetchResponsePartitions:
    """A committed offset (from v8 on); -1 when there is none."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, default=-1)
    metadata: str | None = wire(STRING, nullable="0+")
    error_code: int = wire(INT16)


@dataclass(slots=True)
class OffsetFetchResponseTopics:
    """The offsets of one topic (from v8 on)."""

    name: str = wire(STRING, "8-9", ignorable=True)
    topic_id: bytes = wire(UUID, "10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = wire(array(OffsetFetchResponsePartitions))


@dataclass(slots=True)
class OffsetFetchResponseGroup:
    """The offsets of one group (from v8 on)."""

    group_id: str = wire(STRING)
    topics: list[OffsetFetchResponseTopics] = wire(array(OffsetFetchResponseTopics))
    error_code: int = wire(INT16)


@dataclass(slots=True)
class OffsetFetchResponse:
    """The committed offsets: of one group up to v7, of a list of groups from v8 on."""

    throttle_time_ms: int = wire(INT32, "3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = wire(array(OffsetFetchResponseTopic), "1-7")
    error_code: int = wire(INT16, "2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = wire(array(OffsetFetchResponseGroup), "8+")
