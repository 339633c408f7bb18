"""ConsumerGroupHeartbeat: joining, staying and leaving.

    epoch 0    joins, or begins anew with nothing
    epoch > 0  stays; the epoch must be what the coordinator knows, or the one before if the answer
               that brought a new one may have been lost
    epoch -1   leaves for good: its partitions are free
    epoch -2   a static member leaves for a while: its partitions stay its own until its session
               ends or a process with its instance id takes its place (KIP-345)

A member that is fenced has to give up all it has, and begins anew with epoch 0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from asyncbroker.coordinator.config import GroupConfig
from asyncbroker.coordinator.consumer.assignment import update_epoch, update_target
from asyncbroker.coordinator.consumer.changes import Changes
from asyncbroker.coordinator.consumer.group import ConsumerGroup
from asyncbroker.coordinator.consumer.member import ConsumerMember, MemberState, by_topic
from asyncbroker.coordinator.consumer.reconcile import Reported, check_state, reconciled
from asyncbroker.coordinator.consumer.regex import check_regex
from asyncbroker.coordinator.consumer.topics import TopicView
from asyncbroker.coordinator.deadlines import revocation_deadline, session_deadline
from asyncbroker.coordinator.effects import Caller
from asyncbroker.coordinator.turn import Turn
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.consumer_group_heartbeat import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)

NOT_GIVEN: Final = -1
OWN_MEMBER_ID_FROM: Final = 1


def check_request(
    request: ConsumerGroupHeartbeatRequest, api_version: int, config: GroupConfig
) -> None:
    """Raises KafkaError for a request that makes no sense, whatever the group."""
    epoch = request.member_epoch
    needs_id = api_version >= OWN_MEMBER_ID_FROM or epoch > 0 or epoch == LEAVE_EPOCH
    texts = {
        "MemberId": request.member_id if needs_id else None,
        "GroupId": request.group_id,
        "InstanceId": request.instance_id,
        "RackId": request.rack_id,
    }
    for name, text in texts.items():
        if text is not None and not text.strip():
            raise _invalid(f"{name} can't be empty.")
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == NOT_GIVEN:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in config.consumer_assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: "
            f"{', '.join(config.consumer_assignors)}.",
        )


def check_room(member_count: int, is_member: bool, config: GroupConfig) -> None:
    """Raises GROUP_MAX_SIZE_REACHED for a new member of a group that is full."""
    count_max = config.consumer_member_count_max
    if member_count >= count_max and not is_member:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {count_max} members.",
        )


def heartbeat(
    changes: Changes,
    request: ConsumerGroupHeartbeatRequest,
    caller: Caller,
    topics: TopicView,
    turn: Turn,
) -> ConsumerGroupHeartbeatResponse:
    """Serves a member that joins or stays. Raises KafkaError, and then nothing has changed."""
    group = changes.group
    is_joining = request.member_epoch == JOIN_EPOCH
    reported = reported_of(request)
    member_id = request.member_id or caller.unique
    before = _find(group, request, member_id, reported)
    if before is not None:
        check_state(before, reported)
    if request.subscribed_topic_regex and request.subscribed_topic_regex != (
        before.topic_regex if before is not None else None
    ):
        check_regex(request.subscribed_topic_regex)

    if before is None:
        before = ConsumerMember(member_id)
        turn.note(group, f"member {member_id} joins")
    elif is_joining and request.instance_id is not None:
        before = take_place(changes, before, member_id, turn)
    member = _updated(before, request, caller)
    has_changed = before.subscription != member.subscription
    if member != before or member_id not in group.members:
        changes.put_member(member)
    reason = f"member {member_id} reads other topics than before"
    update_epoch(changes, topics, turn, has_changed=has_changed, reason=reason)
    update_target(changes, topics, turn)
    after = follow_target(
        changes, member_id, reported, topics, turn, has_changed_subscription=has_changed
    )
    config = turn.config.of(group.group_id)
    key = session_deadline(group.group_id, member_id)
    turn.set_deadline(key, config.consumer_session_timeout_ms)

    response = ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=config.consumer_heartbeat_interval_ms,
    )
    if is_joining or _is_full(request) or before.assigned.keys() != after.assigned.keys():
        response.assignment = HeartbeatAssignment(
            [HeartbeatTopicPartitions(*topic) for topic in by_topic(after.assigned).items()]
        )
    return response


def follow_target(
    changes: Changes,
    member_id: str,
    reported: Reported,
    topics: TopicView,
    turn: Turn,
    *,
    has_changed_subscription: bool,
) -> ConsumerMember:
    """Gives a member what it has next, and until when it has to give up what it must."""
    group = changes.group
    before = group.members[member_id]
    after = reconciled(
        group, before, reported, topics, has_changed_subscription=has_changed_subscription
    )
    if after != before:
        changes.put_current(after)
        if after.classic is None:
            key = revocation_deadline(group.group_id, member_id)
            if after.state is MemberState.UNREVOKED_PARTITIONS:
                turn.set_deadline(key, after.rebalance_timeout_ms)
            else:
                turn.cancel_deadline(key)
    return after


def take_place(changes: Changes, old: ConsumerMember, member_id: str, turn: Turn) -> ConsumerMember:
    """A new process has the instance id of a static member: it gets all that the old one had."""
    group = changes.group
    new = replace(old, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    changes.replace_member(old, new)
    turn.cancel_member_deadlines(group.group_id, old.member_id)
    turn.note(group, f"static member {old.member_id} is now {member_id}")
    return new


def leave_for_a_while(changes: Changes, member: ConsumerMember, turn: Turn) -> None:
    """A static member stops, and is to come back: it keeps what it has, as if it had it from the
    start, so that its next process may commit for it. What it was to give up it has given up."""
    group = changes.group
    turn.note(group, f"static member {member.member_id} left for a while")
    turn.cancel_deadline(revocation_deadline(group.group_id, member.member_id))
    changes.put_current(
        replace(
            member,
            epoch=LEAVE_STATIC_EPOCH,
            assigned=dict.fromkeys(member.assigned, 0),
            pending_revocation={},
        )
    )


def reported_of(request: ConsumerGroupHeartbeatRequest) -> Reported:
    """What the member says that it owns; None when it does not say."""
    if request.topic_partitions is None:
        return None
    return frozenset(
        (topic.topic_id, index) for topic in request.topic_partitions for index in topic.partitions
    )


def _find(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    member_id: str,
    reported: Reported,
) -> ConsumerMember | None:
    """The member that the request comes from, or whose place it takes; None for a new one."""
    is_joining = request.member_epoch == JOIN_EPOCH
    if request.instance_id is None:
        member = group.members.get(member_id) if is_joining else group.member(member_id)
    elif is_joining:
        member = group.static_member(request.instance_id)
        if member is not None and member.classic is None and member.epoch != LEAVE_STATIC_EPOCH:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {request.instance_id} cannot join the "
                f"group because the instance id is owned by {member.member_id} member.",
            )
        return member
    else:
        member = group.known_static_member(request.instance_id, member_id)
    if member is not None and not is_joining:
        _check_epoch(member, request.member_epoch, reported)
    return member


def _check_epoch(member: ConsumerMember, epoch: int, reported: Reported) -> None:
    """Fences a member that is not where the coordinator knows it to be."""
    if epoch == member.epoch:
        return
    if (
        epoch == member.previous_epoch
        and epoch < member.epoch
        and reported is not None
        and reported <= member.assigned.keys()
    ):
        return
    relation = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by "
        f"the group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def _updated(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> ConsumerMember:
    """The member with what the request says of it; what is null has not changed."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=request.instance_id if request.instance_id is not None else member.instance_id,
        rack_id=request.rack_id if request.rack_id is not None else member.rack_id,
        rebalance_timeout_ms=(
            timeout_ms if timeout_ms != NOT_GIVEN else member.rebalance_timeout_ms
        ),
        server_assignor=(
            request.server_assignor
            if request.server_assignor is not None
            else member.server_assignor
        ),
        topic_names=frozenset(names) if names is not None else member.topic_names,
        topic_regex=regex if regex is not None else member.topic_regex,
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=None,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member tells all about itself, as it does when it is not sure of its state."""
    return (
        request.rebalance_timeout_ms != NOT_GIVEN
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
