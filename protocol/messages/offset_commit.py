"""OffsetCommit (key 8), versions 2 to 10: stores the offsets of a group.

v2   a retention time for the whole request, and no more timestamp per partition
v3   the throttle time (KIP-124)
v4   on a quota violation the response comes at once and says how long to wait (KIP-219)
v5   no more retention time: it is the broker's setting (KIP-211)
v6   leader epochs of the committed offsets (KIP-320)
v7   static members (KIP-345)
v8   flexible (KIP-482)
v9   members of the new consumer protocol commit with their epoch (KIP-848)
v10  topics by their ids instead of their names (KIP-848)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT16, INT32, INT64, STRING, UUID, array, wire


@dataclass(slots=True)
class OffsetCommitRequestPartition:
    """The next offset that the group will read of a partition."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, "6+", default=-1, ignorable=True)
    committed_metadata: str | None = wire(STRING, nullable="0+")


@dataclass(slots=True)
class OffsetCommitRequestTopic:
    """The offsets of one topic."""

    name: str = wire(STRING, "2-9", ignorable=True)
    topic_id: bytes = wire(UUID, "10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = wire(array(OffsetCommitRequestPartition))


@dataclass(slots=True)
class OffsetCommitRequest:
    """The offsets to store, from a member of the group or from nobody in particular.

    The latter has generation -1 and an empty member id, and is heard only while the group is empty.
    """

    group_id: str = wire(STRING)
    generation_id_or_member_epoch: int = wire(INT32, default=-1)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, "7+", nullable="0+", default=None)
    retention_time_ms: int = wire(INT64, "2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = wire(array(OffsetCommitRequestTopic))


@dataclass(slots=True)
class OffsetCommitResponsePartition:
    """The outcome for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@dataclass(slots=True)
class OffsetCommitResponseTopic:
    """The outcomes for one topic."""

    name: str = wire(STRING, "2-9", ignorable=True)
    topic_id: bytes = wire(UUID, "10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = wire(array(OffsetCommitResponsePartition))


@dataclass(slots=True)
class OffsetCommitResponse:
    """An outcome for each partition of the request."""

    throttle_time_ms: int = wire(INT32, "3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = wire(array(OffsetCommitResponseTopic))
