"""JoinGroup: who may come in, and what coming in sets off.

Three ways in: a new dynamic member (its id is made here, and from v4 on it has to come back with
it, KIP-394), a static member with a new process (KIP-345), and a known member that joins again.
"""

from __future__ import annotations

from typing import Final

from asyncbroker.coordinator.config import GroupConfig
from asyncbroker.coordinator.deadlines import session_deadline
from asyncbroker.coordinator.effects import Caller, Token
from asyncbroker.coordinator.group import Group, GroupState
from asyncbroker.coordinator.member import Member, protocols_of
from asyncbroker.coordinator.rebalance import (
    complete_join_if_all_are_there,
    join_failed,
    joined,
    prepare_rebalance,
    rebalance_or_complete_join,
    remove_member,
)
from asyncbroker.coordinator.records import group_metadata_record
from asyncbroker.coordinator.subscription import topics_of
from asyncbroker.coordinator.turn import Turn
from asyncbroker.protocol.consumer_protocol import PROTOCOL_TYPE as CONSUMER_PROTOCOL_TYPE
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from asyncbroker.protocol.messages.sync_group import SyncGroupResponse
from asyncbroker.protocol.primitives import STRING_BYTES_MAX

UNKNOWN_MEMBER_ID: Final = ""

# JoinGroup versions from which on the behaviour differs.
REBALANCE_TIMEOUT_FROM: Final = 1
MEMBER_ID_REQUIRED_FROM: Final = 4
SKIP_ASSIGNMENT_FROM: Final = 9


def error_of(request: JoinGroupRequest, config: GroupConfig) -> ErrorCode:
    """What is wrong with a request, whatever the group; NONE if nothing is."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    shortest, longest = config.session_timeout_ms_min, config.session_timeout_ms_max
    if not shortest <= request.session_timeout_ms <= longest:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def join(group: Group, request: JoinGroupRequest, caller: Caller, token: Token, turn: Turn) -> None:
    """Serves a JoinGroup whose group id and session timeout have been checked."""
    if not _has_room(group, request.member_id, turn.config.member_count_max):
        _refuse_for_size(group, request.member_id, token, turn)
    elif not group.supports(request.protocol_type, protocols_of(request.protocols)):
        turn.reply(token, join_failed(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
    elif request.member_id != UNKNOWN_MEMBER_ID:
        _join_with_id(group, request, caller, token, turn)
    elif request.group_instance_id is not None:
        _join_as_instance(group, request, caller, token, turn)
    else:
        _join_without_id(group, request, caller, token, turn)


def _has_room(group: Group, member_id: str, member_count_max: int) -> bool:
    """Whether group.max.size allows one more. While members rejoin, those who have are counted, so
    that lowering the limit turns away the last to rejoin."""
    if group.state is GroupState.EMPTY:
        return True
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        if member is not None and member.has_joined:
            return True
        return sum(m.has_joined for m in group.members.values()) < member_count_max
    return member is not None or len(group.members) < member_count_max


def _refuse_for_size(group: Group, member_id: str, token: Token, turn: Turn) -> None:
    turn.reply(token, join_failed(ErrorCode.GROUP_MAX_SIZE_REACHED))
    if member_id in group.pending_member_ids:
        group.remove(member_id)
        turn.end_session(group, member_id)
        complete_join_if_all_are_there(group, turn)
    elif (member := group.members.get(member_id)) is not None:
        remove_member(group, member, "the group is full", turn)


def _join_without_id(
    group: Group, request: JoinGroupRequest, caller: Caller, token: Token, turn: Turn
) -> None:
    """A new dynamic member. Old versions are let in at once: their clients do not know the error
    MEMBER_ID_REQUIRED, and would hang."""
    member_id = _new_member_id(caller.client_id, caller.unique)
    if caller.api_version < MEMBER_ID_REQUIRED_FROM:
        _add_member(group, request, caller, token, turn, member_id=member_id)
        return
    group.pending_member_ids.add(member_id)
    turn.set_deadline(session_deadline(group.group_id, member_id), request.session_timeout_ms)
    turn.reply(token, join_failed(ErrorCode.MEMBER_ID_REQUIRED, member_id))


def _new_member_id(name: str, unique: str) -> str:
    """A name that nobody else has. As much of the given one as fits into a string of the protocol
    with what makes it unique."""
    room = STRING_BYTES_MAX - len(unique) - 1
    if len(name) * 4 > room:
        name = name.encode()[:room].decode(errors="ignore")
    return f"{name}-{unique}"


def _join_as_instance(
    group: Group, request: JoinGroupRequest, caller: Caller, token: Token, turn: Turn
) -> None:
    """A static member whose process is new: it takes its old place, or a new one."""
    assert request.group_instance_id is not None
    member_id = _new_member_id(request.group_instance_id, caller.unique)
    old_member_id = group.static_member_ids.get(request.group_instance_id)
    if old_member_id is None:
        _add_member(group, request, caller, token, turn, member_id=member_id)
    else:
        _replace_static_member(group, request, caller, token, turn, old_member_id, member_id)


def _join_with_id(
    group: Group, request: JoinGroupRequest, caller: Caller, token: Token, turn: Turn
) -> None:
    """A member that has an id: it was given one just now, or is in the group already."""
    member_id = request.member_id
    if member_id in group.pending_member_ids and request.group_instance_id is None:
        _add_member(group, request, caller, token, turn, member_id=member_id)
        return
    try:
        member = group.check_member(member_id, request.group_instance_id)
    except KafkaError as error:
        turn.reply(token, join_failed(error.code, member_id))
        return

    is_unchanged = member.has_same_protocols(protocols_of(request.protocols))
    if group.state is GroupState.PREPARING_REBALANCE:
        reason = f"member {member_id} joined again"
    elif group.state is GroupState.COMPLETING_REBALANCE and is_unchanged:
        # It has not seen the answer to its first JoinGroup: give it again.
        turn.answer(group, member, token, joined(group, member))
        return
    elif group.state is GroupState.STABLE and is_unchanged and member_id != group.leader_id:
        turn.answer(group, member, token, joined(group, member))
        return
    elif member_id == group.leader_id:
        # Leaders join again when partitions of their topics were added: assign anew.
        reason = f"leader {member_id} joined again{_because(request)}"
    else:
        reason = f"member {member_id} joined again with new metadata{_because(request)}"
    _park(group, member, request, caller, token, turn)
    rebalance_or_complete_join(group, reason, turn)


def _add_member(
    group: Group,
    request: JoinGroupRequest,
    caller: Caller,
    token: Token,
    turn: Turn,
    *,
    member_id: str,
) -> None:
    """Takes a new member in and parks it until the generation is complete."""
    member = Member(
        member_id,
        group_instance_id=request.group_instance_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout_ms(request, caller),
        protocols=protocols_of(request.protocols),
    )
    member.is_new = True
    member.is_id_known = request.member_id != UNKNOWN_MEMBER_ID
    member.has_joined = True
    member.join_token = token
    if group.is_initial_rebalance:
        group.has_grown = True
    group.add(member, request.protocol_type)

    # It does not send heartbeats while it waits, so its session does not run, but it does not wait
    # for ever either: a client that gave up and tried again has left a member behind.
    turn.set_deadline(
        session_deadline(group.group_id, member_id), turn.config.new_member_join_timeout_ms
    )
    rebalance_or_complete_join(group, f"member {member_id} is new{_because(request)}", turn)


def _replace_static_member(
    group: Group,
    request: JoinGroupRequest,
    caller: Caller,
    token: Token,
    turn: Turn,
    old_member_id: str,
    new_member_id: str,
) -> None:
    """Puts a new process in the place of a static member, and fences the old one."""
    old_leader_id = group.leader_id
    member = group.members[old_member_id]
    turn.reply(member.join_token, join_failed(ErrorCode.FENCED_INSTANCE_ID, old_member_id))
    turn.reply(member.sync_token, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
    member.join_token = member.sync_token = None
    member.is_new = False
    turn.end_session(group, old_member_id)

    old_topics = _consumer_topics(group, member)
    group.rename_static_member(old_member_id, new_member_id)
    turn.note(group, f"static member {old_member_id} is now {new_member_id}")
    _park(group, member, request, caller, token, turn)
    turn.renew_session(group, member)

    if group.state is not GroupState.STABLE:
        # In the sync phase the leader may have the old id in its assignment: start over.
        rebalance_or_complete_join(group, f"static member {new_member_id} is new", turn)
    elif group.select_protocol() != group.protocol_name:
        reason = f"static member {new_member_id} changes the selected protocol{_because(request)}"
        prepare_rebalance(group, reason, turn)
    elif _consumer_topics(group, member) != old_topics:
        reason = f"static member {new_member_id} reads other topics{_because(request)}"
        prepare_rebalance(group, reason, turn)
    else:
        member.has_joined = False
        member.join_token = None
        turn.append([group_metadata_record(group)])
        response = _rejoined_in_place(group, member, caller, old_leader_id)
        turn.answer(group, member, token, response)


def _rejoined_in_place(
    group: Group, member: Member, caller: Caller, old_leader_id: str | None
) -> JoinGroupResponse:
    """The answer to a static member that took its place back without a rebalance.

    A leader must not make a new assignment now. From v9 on it can be told so, and gets the members
    to watch their topics (KIP-814). Before, it is told that its old id leads: it takes itself for a
    follower and asks for its assignment.
    """
    response = joined(group, member)
    if caller.api_version >= SKIP_ASSIGNMENT_FROM:
        response.skip_assignment = member.member_id == group.leader_id
    else:
        response.leader = old_leader_id or ""
        response.members = []
    return response


def _park(
    group: Group,
    member: Member,
    request: JoinGroupRequest,
    caller: Caller,
    token: Token,
    turn: Turn,
) -> None:
    """Takes over what a member says of itself now, and keeps its request for the answer."""
    # The client has given up on an older request, which nobody else would ever answer.
    turn.reply(member.join_token, join_failed(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    member.client_id = caller.client_id
    member.client_host = caller.client_host
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = _rebalance_timeout_ms(request, caller)
    member.protocols = protocols_of(request.protocols)
    member.has_joined = True
    member.join_token = token


def _consumer_topics(group: Group, member: Member) -> frozenset[str] | None:
    """The topics that a consumer reads by its metadata. Its metadata as a whole is no measure of
    change: it also holds the partitions owned, which a new process has none of."""
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE or group.protocol_name is None:
        return None
    return topics_of(member.protocols.get(group.protocol_name, b""))


def _rebalance_timeout_ms(request: JoinGroupRequest, caller: Caller) -> int:
    """Version 0 has none of its own (KIP-62)."""
    if caller.api_version < REBALANCE_TIMEOUT_FROM:
        return request.session_timeout_ms
    return max(request.rebalance_timeout_ms, 0)


def _because(request: JoinGroupRequest) -> str:
    """The client's own reason (KIP-800), in a form fit for a log line."""
    return f" ({request.reason[:255]})" if request.reason else ""
