"""LeaveGroup (key 13), versions 0 to 5: takes members out of a group.

v1   the throttle time (KIP-124)
v2   on a quota violation the response comes at once and says how long to wait (KIP-219)
v3   several members, each by its id or its instance id, each with its own error (KIP-345)
v4   flexible (KIP-482)
v5   the reason for leaving (KIP-800)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class MemberIdentity:
    """A member by its id, or a static one by its instance id and an empty id."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, nullable="0+", default=None)
    reason: str | None = wire(STRING, "5+", nullable="0+", default=None, ignorable=True)


@dataclass(slots=True)
class LeaveGroupRequest:
    """Who leaves: one member up to v2, a list from v3 on."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING, "0-2")
    members: list[MemberIdentity] = wire(array(MemberIdentity), "3+")


@dataclass(slots=True)
class MemberResponse:
    """The outcome for one member."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, nullable="0+", default=None)
    error_code: int = wire(INT16)


@dataclass(slots=True)
class LeaveGroupResponse:
    """The outcome; from v3 on one for each member."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16)
    members: list[MemberResponse] = wire(array(MemberResponse), "3+")
