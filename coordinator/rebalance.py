"""The two phases of a rebalance, and the deadlines that keep them going.

    change of members -> prepare_rebalance -> all joined, or the join deadline -> complete_join
        -> leader syncs (sync.py) -> Stable
        -> sync deadline with members missing -> prepare_rebalance

The initial rebalance, of a group that was empty, differs: it does not end when all have joined, as
"all" is only those who came so far. It ends when `group.initial.rebalance.delay.ms` passes without
a new member, at the latest after the rebalance timeout (KIP-134).
"""

from __future__ import annotations

from typing import Final

from asyncbroker.coordinator.deadlines import (
    DeadlineKey,
    DeadlineKind,
    join_deadline,
    sync_deadline,
)
from asyncbroker.coordinator.effects import Token
from asyncbroker.coordinator.group import Group, GroupState
from asyncbroker.coordinator.member import Member
from asyncbroker.coordinator.records import group_metadata_record
from asyncbroker.coordinator.turn import Turn, counted
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.join_group import JoinGroupResponse
from asyncbroker.protocol.messages.sync_group import SyncGroupResponse

# How often at most a group of absent static members is looked at; their timeout may be zero.
ABSENT_GROUP_RETRY_MS_MIN: Final = 1_000


def rebalance_or_complete_join(group: Group, reason: str, turn: Turn) -> None:
    """The members changed: starts a rebalance, or goes on with the one that is under way."""
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_join_if_all_are_there(group, turn)
    else:
        prepare_rebalance(group, reason, turn)


def prepare_rebalance(group: Group, reason: str, turn: Turn) -> None:
    """Starts the join phase; ends it at once if nobody is missing."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        _give_up_sync_phase(group, turn)
    turn.cancel_deadline(sync_deadline(group.group_id))
    group.pending_sync_ids.clear()

    group.is_initial_rebalance = group.state is GroupState.EMPTY
    group.move_to(GroupState.PREPARING_REBALANCE, turn.now.wall_ms)
    turn.note(group, f"rebalance of generation {group.generation_id} begins: {reason}")
    if group.is_initial_rebalance:
        delay_ms = turn.config.initial_rebalance_delay_ms
        group.initial_delay_left_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
        turn.set_deadline(join_deadline(group.group_id), delay_ms)
    elif group.have_all_joined():
        complete_join(group, turn)
    else:
        turn.set_deadline(join_deadline(group.group_id), group.rebalance_timeout_ms())


def complete_join_if_all_are_there(group: Group, turn: Turn) -> None:
    """Ends the join phase early; an initial rebalance waits for its delay."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and not group.is_initial_rebalance
        and group.have_all_joined()
    ):
        complete_join(group, turn)


def complete_join(group: Group, turn: Turn) -> None:
    """Ends the join phase: a new generation of those who joined, and of static members, who keep
    their place without (KIP-345)."""
    turn.cancel_deadline(join_deadline(group.group_id))
    missing = [m for m in group.members.values() if not m.has_joined and not m.is_static]
    for member in missing:
        turn.note(group, f"member {member.member_id} is removed: it did not join in time")
        _remove(group, member, turn)

    if group.members and not group.elect_joined_leader():
        # Only static members that are not there. Wait on, until one comes or their sessions end.
        after_ms = max(group.rebalance_timeout_ms(), ABSENT_GROUP_RETRY_MS_MIN)
        turn.set_deadline(join_deadline(group.group_id), after_ms)
        return

    group.start_next_generation(turn.now.wall_ms)
    if group.state is GroupState.EMPTY:
        turn.note(group, f"generation {group.generation_id} is empty")
        turn.append([group_metadata_record(group)])
        return
    turn.note(
        group,
        f"generation {group.generation_id} has {counted(len(group.members), 'member')}, "
        f"protocol {group.protocol_name}, leader {group.leader_id}",
    )
    for member in group.members.values():
        turn.answer(group, member, member.join_token, joined(group, member))
        member.join_token = None
        member.has_joined = False
        member.is_new = False
        member.is_id_known = True
        group.pending_sync_ids.add(member.member_id)
    turn.set_deadline(sync_deadline(group.group_id), group.rebalance_timeout_ms())


def remove_member(group: Group, member: Member, reason: str, turn: Turn) -> None:
    """Takes a member out, answers what it waits for, and lets the others go on without it."""
    turn.note(group, f"member {member.member_id} is removed: {reason}")
    _remove(group, member, turn)
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_join_if_all_are_there(group, turn)
    else:
        prepare_rebalance(group, f"member {member.member_id} was removed", turn)


def forget_token(group: Group, token: Token, turn: Turn) -> None:
    """The connection of a parked request is gone, so its member is not known to be alive.

    The member still counts as joined or synced, and its session runs from now: a client that lost
    its connection comes back with its id in that time. One that was never told its id cannot.
    """
    for member in group.members.values():
        if member.join_token == token:
            member.join_token = None
            break
        if member.sync_token == token:
            member.sync_token = None
            break
    else:
        return
    if member.is_id_known or member.is_static:
        member.is_new = False
        turn.renew_session(group, member)
    else:
        remove_member(group, member, "its connection was lost before it had an id", turn)


def pass_deadline(group: Group, key: DeadlineKey, turn: Turn) -> None:
    """One of the group's deadlines has passed."""
    if key.kind is DeadlineKind.SESSION:
        _end_of_session(group, key.member_id, turn)
    elif key.kind is DeadlineKind.JOIN:
        _end_of_join_phase(group, turn)
    elif key.kind is DeadlineKind.SYNC:
        _end_of_sync_phase(group, turn)


def joined(group: Group, member: Member) -> JoinGroupResponse:
    """The answer to a member of the current generation; only the leader is told the others."""
    members = []
    if member.member_id == group.leader_id:
        assert group.protocol_name is not None
        members = [m.joined_member(group.protocol_name) for m in group.members.values()]
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=members,
    )


def join_failed(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """A JoinGroup answer that says why not."""
    return JoinGroupResponse(error_code=error, protocol_name=None, member_id=member_id)


def _end_of_session(group: Group, member_id: str, turn: Turn) -> None:
    if member_id in group.pending_member_ids:
        group.remove(member_id)
        turn.note(group, f"member id {member_id} is forgotten: nobody joined with it in time")
        complete_join_if_all_are_there(group, turn)
        return
    member = group.members.get(member_id)
    if member is not None and member.may_expire():
        remove_member(group, member, "its session timed out", turn)


def _end_of_join_phase(group: Group, turn: Turn) -> None:
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.is_initial_rebalance and group.has_grown and group.initial_delay_left_ms > 0:
        group.has_grown = False
        delay_ms = min(turn.config.initial_rebalance_delay_ms, group.initial_delay_left_ms)
        group.initial_delay_left_ms -= delay_ms
        turn.set_deadline(join_deadline(group.group_id), delay_ms)
        return
    complete_join(group, turn)


def _end_of_sync_phase(group: Group, turn: Turn) -> None:
    missing = [m for m in group.members.values() if m.member_id in group.pending_sync_ids]
    if not missing:
        return
    for member in missing:
        turn.note(group, f"member {member.member_id} is removed: it did not sync in time")
        _remove(group, member, turn)
    prepare_rebalance(group, "members did not sync in time", turn)


def _give_up_sync_phase(group: Group, turn: Turn) -> None:
    """The assignment being made is for members that have changed: all have to join again."""
    for member in group.members.values():
        member.assignment = b""
        if member.sync_token is not None:
            turn.reply(
                member.sync_token, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            )
            member.sync_token = None
            turn.renew_session(group, member)


def _remove(group: Group, member: Member, turn: Turn) -> None:
    """Takes a member out. What it waits for is answered with UNKNOWN_MEMBER_ID, so that a client
    that is still there joins anew."""
    turn.reply(member.join_token, join_failed(ErrorCode.UNKNOWN_MEMBER_ID))
    turn.reply(member.sync_token, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    turn.end_session(group, member.member_id)
    group.remove(member.member_id)
