"""JoinGroup (key 11), versions 0 to 9: enters a group, and waits for its next generation.

v1   the rebalance timeout (KIP-62); in v0 the session timeout stands for it
v2   the throttle time (KIP-124)
v3   on a quota violation the response comes at once and says how long to wait (KIP-219)
v4   a member without id is given one and has to join again with it (KIP-394)
v5   static members (KIP-345)
v6   flexible (KIP-482)
v7   the response has the protocol's type, and its name may be null (KIP-559)
v8   the reason for joining (KIP-800)
v9   the leader may be told to leave the assignment as it is (KIP-814)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import BOOL, BYTES, INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class JoinGroupRequestProtocol:
    """An assignor that the member supports, and what it has to say to it."""

    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


@dataclass(slots=True)
class JoinGroupRequest:
    """A member, new (empty `member_id`) or known, and the protocols it can speak, preferred first.

    `metadata` of a protocol is opaque to the broker; consumers put a `ConsumerProtocolSubscription`
    there.
    """

    group_id: str = wire(STRING)
    session_timeout_ms: int = wire(INT32)
    rebalance_timeout_ms: int = wire(INT32, "1+", default=-1, ignorable=True)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, "5+", nullable="0+", default=None)
    protocol_type: str = wire(STRING)
    protocols: list[JoinGroupRequestProtocol] = wire(array(JoinGroupRequestProtocol))
    reason: str | None = wire(STRING, "8+", nullable="0+", default=None, ignorable=True)


@dataclass(slots=True)
class JoinGroupResponseMember:
    """A member, and its metadata for the protocol that was chosen."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, "5+", nullable="0+", default=None, ignorable=True)
    metadata: bytes = wire(BYTES)


@dataclass(slots=True)
class JoinGroupResponse:
    """The new generation. Only the leader is told the members, and makes the assignment.

    With MEMBER_ID_REQUIRED, `member_id` is the id to join again with.
    """

    throttle_time_ms: int = wire(INT32, "2+", ignorable=True)
    error_code: int = wire(INT16)
    generation_id: int = wire(INT32, default=-1)
    protocol_type: str | None = wire(STRING, "7+", nullable="0+", default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, nullable="7+")
    leader: str = wire(STRING)
    skip_assignment: bool = wire(BOOL, "9+")
    member_id: str = wire(STRING)
    members: list[JoinGroupResponseMember] = wire(array(JoinGroupResponseMember))
