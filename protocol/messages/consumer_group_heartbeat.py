"""ConsumerGroupHeartbeat (key 68), versions 0 to 1: joins, keeps and leaves a group (KIP-848).

One request does what JoinGroup, SyncGroup, Heartbeat and LeaveGroup do for groups of the classic
protocol. A field that is null (or -1) has not changed since the member's last request.

v1   the topics may be given as a regular expression, and the member makes its own id (KIP-1082)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT16, INT32, STRING, UUID, array, wire

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


@dataclass(slots=True)
class HeartbeatTopicPartitions:
    """Some partitions of one topic."""

    topic_id: bytes = wire(UUID)
    partitions: list[int] = wire(array(INT32))


@dataclass(slots=True)
class ConsumerGroupHeartbeatRequest:
    """What a member is, wants and owns. Its epoch is 0 when it joins, -1 when it leaves for good,
    and -2 when a static member leaves for a while."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)
    member_epoch: int = wire(INT32)
    instance_id: str | None = wire(STRING, nullable="0+", default=None)
    rack_id: str | None = wire(STRING, nullable="0+", default=None)
    rebalance_timeout_ms: int = wire(INT32, default=-1)
    subscribed_topic_names: list[str] | None = wire(array(STRING), nullable="0+", default=None)
    subscribed_topic_regex: str | None = wire(STRING, "1+", nullable="1+", default=None)
    server_assignor: str | None = wire(STRING, nullable="0+", default=None)
    topic_partitions: list[HeartbeatTopicPartitions] | None = wire(
        array(HeartbeatTopicPartitions), nullable="0+", default=None
    )


@dataclass(slots=True)
class HeartbeatAssignment:
    """All that the member may read from now on."""

    topic_partitions: list[HeartbeatTopicPartitions] = wire(array(HeartbeatTopicPartitions))


@dataclass(slots=True)
class ConsumerGroupHeartbeatResponse:
    """The epoch that the member is in, and its assignment if that is news."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    member_id: str | None = wire(STRING, nullable="0+", default=None)
    member_epoch: int = wire(INT32)
    heartbeat_interval_ms: int = wire(INT32)
    assignment: HeartbeatAssignment | None = wire(HeartbeatAssignment, nullable="0+", default=None)
