"""SyncGroup, Heartbeat and LeaveGroup: what members ask of a group once they are in it."""

from __future__ import annotations

from asyncbroker.coordinator.deadlines import session_deadline, sync_deadline
from asyncbroker.coordinator.effects import Token
from asyncbroker.coordinator.group import Group, GroupState
from asyncbroker.coordinator.member import Member
from asyncbroker.coordinator.rebalance import complete_join_if_all_are_there, remove_member
from asyncbroker.coordinator.records import group_metadata_record
from asyncbroker.coordinator.turn import Turn, counted
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from asyncbroker.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from asyncbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def sync(group: Group, request: SyncGroupRequest, token: Token, turn: Turn) -> None:
    """Parks a follower until the leader has synced; the leader's assignment answers all."""
    try:
        member = _check_sync(group, request)
    except KafkaError as error:
        turn.reply(token, SyncGroupResponse(error_code=error.code))
        return

    if group.state is GroupState.STABLE:
        _has_synced(group, member, turn)
        turn.answer(group, member, token, _assigned(group, member))
        return

    # The client has given up on an older request, which nobody else would ever answer.
    turn.reply(member.sync_token, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_token = token
    _has_synced(group, member, turn)
    if member.member_id == group.leader_id:
        _take_assignment(group, request, turn)


def heartbeat(group: Group, request: HeartbeatRequest, turn: Turn) -> HeartbeatResponse:
    """Keeps a member's session alive, and tells it when it has to join again."""
    try:
        member = group.check_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        return HeartbeatResponse(error_code=error.code)
    if request.generation_id != group.generation_id:
        return HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION)
    turn.renew_session(group, member)
    if group.state is GroupState.PREPARING_REBALANCE:
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    return HeartbeatResponse()


def leave(group: Group, request: LeaveGroupRequest, turn: Turn) -> LeaveGroupResponse:
    """Removes members, each with its own outcome. A static member is named by its instance id alone
    when an administrator removes it (KIP-345)."""
    return LeaveGroupResponse(
        members=[_left(identity, _leave_one(group, identity, turn)) for identity in request.members]
    )


def unknown_members(request: LeaveGroupRequest) -> LeaveGroupResponse:
    """The answer to LeaveGroup for a group that is not there."""
    return LeaveGroupResponse(
        members=[_left(identity, ErrorCode.UNKNOWN_MEMBER_ID) for identity in request.members]
    )


def _check_sync(group: Group, request: SyncGroupRequest) -> Member:
    """The syncing member, if it may sync now."""
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation_id:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    # Old versions do not say which protocol they mean (KIP-559).
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.protocol_name is not None and request.protocol_name != group.protocol_name:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is GroupState.PREPARING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    return member


def _has_synced(group: Group, member: Member, turn: Turn) -> None:
    """One member less to wait for; without any, the sync phase has no deadline."""
    group.pending_sync_ids.discard(member.member_id)
    if not group.pending_sync_ids:
        turn.cancel_deadline(sync_deadline(group.group_id))


def _take_assignment(group: Group, request: SyncGroupRequest, turn: Turn) -> None:
    """Stores what the leader assigned, byte for byte, and answers all who wait for it. Members that
    the leader left out get an empty assignment, as in Kafka."""
    assignments = {part.member_id: part.assignment for part in request.assignments}
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
    group.move_to(GroupState.STABLE, turn.now.wall_ms)
    left_out = sum(member_id not in assignments for member_id in group.members)
    turn.note(
        group,
        f"generation {group.generation_id} is stable"
        + (f"; {counted(left_out, 'member')} got no assignment" if left_out else ""),
    )
    turn.append([group_metadata_record(group)])
    for member in group.members.values():
        if member.sync_token is not None:
            turn.answer(group, member, member.sync_token, _assigned(group, member))
            member.sync_token = None


def _assigned(group: Group, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def _leave_one(group: Group, identity: MemberIdentity, turn: Turn) -> ErrorCode:
    """Removes one member, or a member id that has not been used yet."""
    member_id = identity.member_id
    if not member_id and identity.group_instance_id is not None:
        member_id = group.static_member_ids.get(identity.group_instance_id, "")
    elif member_id in group.pending_member_ids:
        group.remove(member_id)
        turn.cancel_deadline(session_deadline(group.group_id, member_id))
        turn.note(group, f"member id {member_id} is given back{_because(identity)}")
        complete_join_if_all_are_there(group, turn)
        return ErrorCode.NONE
    try:
        member = group.check_member(member_id, identity.group_instance_id)
    except KafkaError as error:
        return error.code
    remove_member(group, member, f"it left{_because(identity)}", turn)
    return ErrorCode.NONE


def _left(identity: MemberIdentity, error: ErrorCode) -> MemberResponse:
    return MemberResponse(
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        error_code=error,
    )


def _because(identity: MemberIdentity) -> str:
    """The client's own reason (KIP-800), in a form fit for a log line."""
    return f" ({identity.reason[:255]})" if identity.reason else ""
