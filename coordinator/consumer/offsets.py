"""Who may commit and fetch offsets of a consumer group: its members, in their epoch.

A commit may come a little late. A member's epoch goes up while requests of it are under way, and
then it still counts for the partitions that the member has had since that epoch or longer; nobody
else can have read them meanwhile (KIP-1251). Without an epoch, commits are an administrator's or a
consumer's that assigns itself; they count while the group has no members.
"""

from __future__ import annotations

from asyncbroker.coordinator.consumer.group import ConsumerGroup
from asyncbroker.coordinator.consumer.topics import TopicView
from asyncbroker.coordinator.effects import Caller
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.offset_commit import OffsetCommitRequest
from asyncbroker.protocol.messages.offset_fetch import OffsetFetchRequestGroup

EPOCHS_FROM = 9


def check_commit(
    group: ConsumerGroup, request: OffsetCommitRequest, caller: Caller, topics: TopicView
) -> None:
    """Raises KafkaError unless the sender may commit all that it wants to commit."""
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and not group.members:
        return
    member = group.member(request.member_id)
    if member.classic is None and caller.api_version < EPOCHS_FROM:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if epoch == member.epoch:
        return
    stale = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
    if epoch > member.epoch:
        raise KafkaError(stale)
    for topic in request.topics:
        info = topics.find(topic.name)
        for partition in topic.partitions:
            if info is None or partition.partition_index >= info.partition_count:
                continue
            key = (info.topic_id, partition.partition_index)
            since = member.assigned.get(key, member.pending_revocation.get(key))
            if since is None or epoch < since:
                raise KafkaError(stale)


def check_fetch(group: ConsumerGroup, request: OffsetFetchRequestGroup) -> None:
    """Raises KafkaError for a member that is none, or not in its epoch; who does not say that it is
    a member may fetch."""
    if request.member_id is None and request.member_epoch < 0:
        return
    member = group.member(request.member_id or "")
    if request.member_epoch != member.epoch:
        is_classic = member.classic is not None
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
        )
