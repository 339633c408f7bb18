"""ConsumerGroupDescribe (key 69), versions 0 to 1: groups of the consumer protocol (KIP-848).

v1   whether a member speaks the classic protocol (KIP-1099)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import BOOL, INT8, INT16, INT32, STRING, UUID, array, wire

OPERATIONS_NOT_ASKED = -(1 << 31)

MEMBER_TYPE_UNKNOWN = -1
MEMBER_TYPE_CLASSIC = 0
MEMBER_TYPE_CONSUMER = 1


@dataclass(slots=True)
class ConsumerGroupDescribeRequest:
    """The groups to describe."""

    group_ids: list[str] = wire(array(STRING))
    include_authorized_operations: bool = wire(BOOL)


@dataclass(slots=True)
class DescribedTopicPartitions:
    """Some partitions of one topic."""

    topic_id: bytes = wire(UUID)
    topic_name: str = wire(STRING)
    partitions: list[int] = wire(array(INT32))


@dataclass(slots=True)
class DescribedAssignment:
    """What a member has, or is to have."""

    topic_partitions: list[DescribedTopicPartitions] = wire(array(DescribedTopicPartitions))


@dataclass(slots=True)
class DescribedConsumerMember:
    """A member; its subscription is a list of topics, a regular expression, or both."""

    member_id: str = wire(STRING)
    instance_id: str | None = wire(STRING, nullable="0+", default=None)
    rack_id: str | None = wire(STRING, nullable="0+", default=None)
    member_epoch: int = wire(INT32)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: list[str] = wire(array(STRING))
    subscribed_topic_regex: str | None = wire(STRING, nullable="0+", default=None)
    assignment: DescribedAssignment = wire(DescribedAssignment)
    target_assignment: DescribedAssignment = wire(DescribedAssignment)
    member_type: int = wire(INT8, "1+", default=MEMBER_TYPE_UNKNOWN, ignorable=True)


@dataclass(slots=True)
class DescribedConsumerGroup:
    """A group. Its epoch counts its changes, the assignment's epoch is the one that was last
    assigned for."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    group_id: str = wire(STRING)
    group_state: str = wire(STRING)
    group_epoch: int = wire(INT32)
    assignment_epoch: int = wire(INT32)
    assignor_name: str = wire(STRING)
    members: list[DescribedConsumerMember] = wire(array(DescribedConsumerMember))
    authorized_operations: int = wire(INT32, default=OPERATIONS_NOT_ASKED)


@dataclass(slots=True)
class ConsumerGroupDescribeResponse:
    """Each group with an outcome of its own."""

    throttle_time_ms: int = wire(INT32)
    groups: list[DescribedConsumerGroup] = wire(array(DescribedConsumerGroup))
