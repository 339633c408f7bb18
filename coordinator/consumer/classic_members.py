"""Members of a consumer group that speak the classic protocol, while the group changes over.

To them the group looks like a classic group whose leader is somebody else: JoinGroup brings a
generation, which is the member's epoch, SyncGroup the partitions, and a Heartbeat says
REBALANCE_IN_PROGRESS when the member had better join again. None of these waits for other members:
what is not free yet the member gets when it joins another time.

    the group is assigned anew            -> join again, and give up what is not to be kept
    the member has something to give up   -> join again, without it
    something that it waited for is free  -> join again, and get it
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from asyncbroker.coordinator.consumer.assignment import update_epoch, update_target
from asyncbroker.coordinator.consumer.changes import Changes
from asyncbroker.coordinator.consumer.group import ConsumerGroup
from asyncbroker.coordinator.consumer.heartbeat import follow_target, take_place
from asyncbroker.coordinator.consumer.member import (
    ClassicPart,
    ConsumerMember,
    MemberState,
    by_topic,
)
from asyncbroker.coordinator.consumer.reconcile import Reported, is_waiting_for_others
from asyncbroker.coordinator.consumer.topics import TopicPartition, TopicView
from asyncbroker.coordinator.deadlines import (
    member_sync_deadline,
    rejoin_deadline,
    session_deadline,
)
from asyncbroker.coordinator.effects import Caller
from asyncbroker.coordinator.member import protocols_of
from asyncbroker.coordinator.turn import Turn
from asyncbroker.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
    decode_subscription,
    encode_assignment,
    subscription_version,
)
from asyncbroker.protocol.errors import ErrorCode, KafkaError, ProtocolError
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from asyncbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from asyncbroker.protocol.messages.leave_group import MemberIdentity
from asyncbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

REBALANCE_TIMEOUT_FROM = 1


def check_protocols(group: ConsumerGroup, request: JoinGroupRequest) -> None:
    """Raises INCONSISTENT_GROUP_PROTOCOL for a member that does not fit in."""
    names = {protocol.name for protocol in request.protocols}
    if request.protocol_type != PROTOCOL_TYPE or not names or not group.supports_classic(names):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def find_member(group: ConsumerGroup, request: JoinGroupRequest) -> ConsumerMember | None:
    """The member that joins again, or whose place is taken; None for a new one."""
    if request.group_instance_id is None:
        return group.members.get(request.member_id)
    if request.member_id:
        return group.known_static_member(request.group_instance_id, request.member_id)
    return group.static_member(request.group_instance_id)


def subscription_of(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """What the member wants by the protocol that it prefers. Raises UNKNOWN_SERVER_ERROR for bytes
    that are none, as Kafka does."""
    try:
        return decode_subscription(request.protocols[0].metadata)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error


def join(
    changes: Changes,
    before: ConsumerMember | None,
    member_id: str,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
    caller: Caller,
    topics: TopicView,
    turn: Turn,
) -> JoinGroupResponse:
    """JoinGroup of a member that was `before` until now: it gets what it has next. Everything that
    may fail has been checked."""
    group = changes.group
    if before is None:
        before = ConsumerMember(member_id)
        turn.note(group, f"member {member_id} joins by the classic protocol")
    elif request.group_instance_id is not None and not request.member_id:
        before = take_place(changes, before, member_id, turn)
    timeout_ms = request.rebalance_timeout_ms
    if caller.api_version < REBALANCE_TIMEOUT_FROM:
        timeout_ms = request.session_timeout_ms
    protocols = tuple(protocols_of(request.protocols).items())
    member = replace(
        before,
        instance_id=request.group_instance_id or before.instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        rebalance_timeout_ms=timeout_ms if timeout_ms >= 0 else before.rebalance_timeout_ms,
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=ClassicPart(request.session_timeout_ms, protocols),
    )
    if member != before or member_id not in group.members:
        changes.put_member(member)
    has_changed = before.subscription != member.subscription
    reason = f"member {member_id} reads other topics than before"
    update_epoch(changes, topics, turn, has_changed=has_changed, reason=reason)
    update_target(changes, topics, turn)
    member = follow_target(
        changes,
        member_id,
        reported_of(subscription, topics),
        topics,
        turn,
        has_changed_subscription=has_changed,
    )
    turn.cancel_deadline(rejoin_deadline(group.group_id, member_id))
    turn.set_deadline(session_deadline(group.group_id, member_id), request.session_timeout_ms)
    turn.set_deadline(member_sync_deadline(group.group_id, member_id), member.rebalance_timeout_ms)
    return joined(member)


def joined(member: ConsumerMember) -> JoinGroupResponse:
    """The answer to a member that has joined: nobody it hears of leads."""
    return JoinGroupResponse(
        generation_id=member.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=_protocol_name(member),
        member_id=member.member_id,
    )


def sync(
    group: ConsumerGroup, request: SyncGroupRequest, topics: TopicView, turn: Turn
) -> SyncGroupResponse:
    """The member's partitions. Raises KafkaError."""
    member = _classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    if request.protocol_type not in (None, PROTOCOL_TYPE):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.protocol_name not in (None, _protocol_name(member)):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if (
        group.assignment_epoch > member.epoch
        and member.state is not MemberState.UNREVOKED_PARTITIONS
    ):
        _expect_rejoin(group, member, turn)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    turn.cancel_deadline(member_sync_deadline(group.group_id, member.member_id))
    _renew_session(group, member, turn)
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=assignment_of(member, member.assigned, topics),
    )


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest, turn: Turn) -> HeartbeatResponse:
    """Keeps a member's session alive, and tells it when it had better join again."""
    try:
        member = _classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
    except KafkaError as error:
        return HeartbeatResponse(error_code=error.code)
    _renew_session(group, member, turn)
    if (
        member.epoch < group.assignment_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (
            member.state is MemberState.UNRELEASED_PARTITIONS
            and not is_waiting_for_others(group, member)
        )
    ):
        _expect_rejoin(group, member, turn)
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    return HeartbeatResponse()


def leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    """The member that LeaveGroup names, by its instance id alone if an administrator sent it.
    Members of both protocols may be named. Raises KafkaError."""
    if identity.group_instance_id is None:
        return group.member(identity.member_id)
    return group.known_static_member(identity.group_instance_id, identity.member_id)


def assignment_of(
    member: ConsumerMember, partitions: Iterable[TopicPartition], topics: TopicView
) -> bytes:
    """Partitions in the form in which members of the classic protocol get them."""
    assert member.classic is not None
    assigned = [
        ConsumerProtocolTopicPartition(info.name, indexes)
        for topic_id, indexes in by_topic(partitions).items()
        if (info := topics.by_id(topic_id)) is not None
    ]
    version = subscription_version(member.classic.protocols[0][1])
    return encode_assignment(ConsumerProtocolAssignment(assigned), version)


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> ConsumerMember:
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = group.known_static_member(instance_id, member_id)
        if member.member_id != member_id:
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
    _check_classic(member)
    return member


def _check_classic(member: ConsumerMember) -> None:
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)


def _check_generation(member: ConsumerMember, generation_id: int) -> None:
    if generation_id != member.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)


def _protocol_name(member: ConsumerMember) -> str:
    """The protocol that the member prefers: what the assignors of clients do, none of them does."""
    assert member.classic is not None
    return member.classic.protocols[0][0]


def _renew_session(group: ConsumerGroup, member: ConsumerMember, turn: Turn) -> None:
    assert member.classic is not None
    key = session_deadline(group.group_id, member.member_id)
    turn.set_deadline(key, member.classic.session_timeout_ms)


def _expect_rejoin(group: ConsumerGroup, member: ConsumerMember, turn: Turn) -> None:
    key = rejoin_deadline(group.group_id, member.member_id)
    turn.set_deadline_if_unset(key, member.rebalance_timeout_ms)


def reported_of(subscription: ConsumerProtocolSubscription, topics: TopicView) -> Reported:
    """What the member says that it still has. One that gives everything up before it joins (the
    eager protocol) says nothing, and has nothing."""
    return frozenset(
        (info.topic_id, index)
        for owned in subscription.owned_partitions
        if (info := topics.find(owned.topic)) is not None
        for index in owned.partitions
    )
