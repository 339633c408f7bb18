"""OffsetForLeaderEpoch (key 23), versions 2 to 4: where a leader epoch ended (KIP-101, KIP-320).

v2   the leader epoch that the client knows, and the throttle time (KIP-320)
v3   the replica id (KIP-392)
v4   flexible (KIP-482)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT16, INT32, INT64, STRING, array, wire


@dataclass(slots=True)
class OffsetForLeaderPartition:
    """The epoch to look up in one partition."""

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32)


@dataclass(slots=True)
class OffsetForLeaderTopic:
    """The partitions to look up in one topic."""

    topic: str = wire(STRING)
    partitions: list[OffsetForLeaderPartition] = wire(array(OffsetForLeaderPartition))


@dataclass(slots=True)
class OffsetForLeaderEpochRequest:
    """The epochs to look up.

    `replica_id` -1 is a consumer, -2 one that may see beyond the high watermark.
    """

    replica_id: int = wire(INT32, "3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = wire(array(OffsetForLeaderTopic))


@dataclass(slots=True)
class EpochEndOffset:
    """The largest epoch not above the asked one, and where it ended; -1 when there is none."""

    error_code: int = wire(INT16)
    partition: int = wire(INT32)
    leader_epoch: int = wire(INT32, default=-1)
    end_offset: int = wire(INT64, default=-1)


@dataclass(slots=True)
class OffsetForLeaderTopicResult:
    """The ends for one topic."""

    topic: str = wire(STRING)
    partitions: list[EpochEndOffset] = wire(array(EpochEndOffset))


@dataclass(slots=True)
class OffsetForLeaderEpochResponse:
    """An end for each partition of the request."""

    throttle_time_ms: int = wire(INT32)
    topics: list[OffsetForLeaderTopicResult] = wire(array(OffsetForLeaderTopicResult))
