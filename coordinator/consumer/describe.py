"""ConsumerGroupDescribe and ListGroups: what a consumer group looks like from outside."""

from __future__ import annotations

from collections.abc import Iterable

from asyncbroker.coordinator.config import GroupConfig
from asyncbroker.coordinator.consumer.assignment import assignor_name
from asyncbroker.coordinator.consumer.group import ConsumerGroup
from asyncbroker.coordinator.consumer.member import ConsumerMember, by_topic
from asyncbroker.coordinator.consumer.topics import TopicPartition, TopicView
from asyncbroker.protocol.consumer_protocol import PROTOCOL_TYPE
from asyncbroker.protocol.messages.consumer_group_describe import (
    MEMBER_TYPE_CLASSIC,
    MEMBER_TYPE_CONSUMER,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedTopicPartitions,
)
from asyncbroker.protocol.messages.list_groups import ListedGroup

CONSUMER_TYPE = "consumer"


def described(
    group: ConsumerGroup, config: GroupConfig, topics: TopicView
) -> DescribedConsumerGroup:
    """The group with all its members."""
    return DescribedConsumerGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor_name(group, config),
        members=[_described_member(group, member, topics) for member in group.members.values()],
    )


def listed(group: ConsumerGroup) -> ListedGroup:
    """The group as ListGroups shows it."""
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=PROTOCOL_TYPE,
        group_state=group.state.value,
        group_type=CONSUMER_TYPE,
    )


def _described_member(
    group: ConsumerGroup, member: ConsumerMember, topics: TopicView
) -> DescribedConsumerMember:
    is_classic = member.classic is not None
    return DescribedConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_described_assignment(member.owns(), topics),
        target_assignment=_described_assignment(group.target_of(member.member_id), topics),
        member_type=MEMBER_TYPE_CLASSIC if is_classic else MEMBER_TYPE_CONSUMER,
    )


def _described_assignment(
    partitions: Iterable[TopicPartition], topics: TopicView
) -> DescribedAssignment:
    """Partitions with the names of their topics; those of a topic that is gone are left out."""
    return DescribedAssignment(
        [
            DescribedTopicPartitions(topic_id, info.name, indexes)
            for topic_id, indexes in by_topic(partitions).items()
            if (info := topics.by_id(topic_id)) is not None
        ]
    )
