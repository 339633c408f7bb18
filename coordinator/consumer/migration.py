"""A group changes from one protocol to the other while its members are at work (KIP-848).

classic -> consumer   a member of the consumer protocol joins a classic group. The classic members
                      stay what they are (`classic_members.py` serves them), with the partitions
                      that they had by the last generation
consumer -> classic   the last member of the consumer protocol leaves, or a process of the classic
                      protocol takes its place. The rest rebalance as a classic group

Nobody has two owners on the way: a partition stays its owner's until that has given it up, and a
new classic group starts with a rebalance unless every member has what it is to have.
"""

from __future__ import annotations

from collections.abc import Collection

from asyncbroker.coordinator.config import GroupConfig
from asyncbroker.coordinator.consumer.changes import Changes
from asyncbroker.coordinator.consumer.classic_members import assignment_of
from asyncbroker.coordinator.consumer.group import ConsumerGroup
from asyncbroker.coordinator.consumer.member import ClassicPart, ConsumerMember
from asyncbroker.coordinator.consumer.topics import TopicView
from asyncbroker.coordinator.deadlines import join_deadline, session_deadline, sync_deadline
from asyncbroker.coordinator.group import Group, GroupState
from asyncbroker.coordinator.member import Member
from asyncbroker.coordinator.rebalance import join_failed, prepare_rebalance
from asyncbroker.coordinator.records import group_metadata_record, group_tombstone
from asyncbroker.coordinator.turn import Turn
from asyncbroker.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    decode_subscription,
)
from asyncbroker.protocol.errors import ErrorCode, KafkaError, ProtocolError
from asyncbroker.protocol.messages.sync_group import SyncGroupResponse


def upgraded_members(group: Group, config: GroupConfig, topics: TopicView) -> list[ConsumerMember]:
    """The members of a classic group as members of a consumer group. Raises GROUP_ID_NOT_FOUND,
    with the reason, for a group that cannot become one."""
    prefix = f"Cannot upgrade classic group {group.group_id} to consumer group because"
    if not config.migration_policy.allows_upgrade:
        raise _not_found(f"{prefix} online upgrade is disabled.")
    if group.protocol_type != PROTOCOL_TYPE:
        raise _not_found(f"{prefix} the group does not use the consumer embedded protocol.")
    if len(group.members) > config.consumer_member_count_max:
        raise _not_found(f"{prefix} the group size exceeds the consumer group maximum size.")
    protocol_name = group.protocol_name or group.select_protocol()
    members = []
    for member in group.members.values():
        try:
            subscription = decode_subscription(member.protocols[protocol_name])
            assignment = decode_assignment(member.assignment)
        except ProtocolError:
            message = f"{prefix} the embedded consumer protocol is malformed."
            raise _not_found(message) from None
        if assignment.user_data:
            raise _not_found(
                f"{prefix} an unsupported custom assignor is in use. Please refer to the "
                "documentation or switch to a default assignor before re-attempting the upgrade."
            )
        members.append(_upgraded(group, member, subscription, assignment, topics))
    return members


def upgrade(group: Group, members: list[ConsumerMember], turn: Turn) -> Changes:
    """Makes a consumer group of a classic one. Who waits is told to join again. One without members
    leaves only its offsets behind: the consumer group begins as if it had not been."""
    turn.note(group, "becomes a consumer group: a member of that protocol joins")
    for classic in group.members.values():
        turn.reply(
            classic.join_token,
            join_failed(ErrorCode.REBALANCE_IN_PROGRESS, classic.member_id),
        )
        turn.reply(
            classic.sync_token, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        )
    for member_id in group.pending_member_ids:
        turn.end_session(group, member_id)
    turn.cancel_deadline(join_deadline(group.group_id))
    turn.cancel_deadline(sync_deadline(group.group_id))

    changes = Changes(ConsumerGroup(group.group_id))
    changes.records.append(group_tombstone(group.group_id))
    if not members:
        return changes
    for member in members:
        changes.put_member(member)
    changes.put_epoch(group.generation_id, 0)
    for member in members:
        changes.put_target(member.member_id, frozenset(member.assigned))
    # Without a time: the member for whom all this happens is to be assigned something at once.
    changes.put_assignment_epoch(group.generation_id, 0)
    for member in members:
        changes.put_current(member)
        assert member.classic is not None
        turn.set_deadline(
            session_deadline(group.group_id, member.member_id), member.classic.session_timeout_ms
        )
    return changes


def can_downgrade(
    group: ConsumerGroup, without: Collection[ConsumerMember], config: GroupConfig, *, adding: int
) -> bool:
    """Whether the group is a classic one when these members are gone: nobody else speaks the
    consumer protocol, and there is somebody else, or somebody who comes."""
    rest = [member for member in group.members.values() if member not in without]
    return (
        config.migration_policy.allows_downgrade
        and any(member.classic is None for member in without)
        and all(member.classic is not None for member in rest)
        and 0 < len(rest) + adding <= config.member_count_max
    )


def downgrade(
    changes: Changes, topics: TopicView, reason: str, turn: Turn, *, has_lost_members: bool
) -> Group:
    """Makes a classic group of a consumer group all of whose members speak the classic protocol."""
    group = changes.group
    turn.note(group, f"becomes a classic group: {reason}")
    is_settled = (
        not has_lost_members
        and group.epoch == group.assignment_epoch
        and all(member.is_reconciled_to(group.epoch) for member in group.members.values())
    )
    classic = Group(group.group_id, turn.now.wall_ms)
    classic.generation_id = group.epoch
    for member in group.members.values():
        assert member.classic is not None
        target = group.target_of(member.member_id)
        downgraded = _downgraded(member, member.classic, assignment_of(member, target, topics))
        classic.add(downgraded, PROTOCOL_TYPE)
    classic.protocol_name = classic.select_protocol()
    # Not along the table: it describes what a group lives through, not how it comes to be.
    classic.state = GroupState.STABLE
    classic.refresh_subscribed_topics()
    for member in group.members.values():
        turn.cancel_member_deadlines(group.group_id, member.member_id)
    changes.remove_all()
    turn.append([*changes.records, group_metadata_record(classic)])
    changes.records.clear()
    for downgraded in classic.members.values():
        turn.renew_session(classic, downgraded)
    if not is_settled:
        prepare_rebalance(classic, "it was a consumer group", turn)
    return classic


def _upgraded(
    group: Group,
    member: Member,
    subscription: ConsumerProtocolSubscription,
    assignment: ConsumerProtocolAssignment,
    topics: TopicView,
) -> ConsumerMember:
    epoch = group.generation_id
    return ConsumerMember(
        member.member_id,
        epoch=epoch,
        previous_epoch=epoch,
        assigned={
            (info.topic_id, index): epoch
            for part in assignment.assigned_partitions
            if (info := topics.find(part.topic)) is not None
            for index in part.partitions
        },
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicPart(member.session_timeout_ms, tuple(member.protocols.items())),
    )


def _downgraded(member: ConsumerMember, classic: ClassicPart, assignment: bytes) -> Member:
    return Member(
        member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=dict(classic.protocols),
        assignment=assignment,
    )


def _not_found(message: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
