"""SyncGroup (key 14), versions 0 to 5: the leader hands in the assignment, each gets its part.

v1   the throttle time (KIP-124)
v2   on a quota violation the response comes at once and says how long to wait (KIP-219)
v3   static members (KIP-345)
v4   flexible (KIP-482)
v5   the protocol's type and name, which have to be the group's (KIP-559)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import BYTES, INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class SyncGroupRequestAssignment:
    """A member's part, opaque to the broker."""

    member_id: str = wire(STRING)
    assignment: bytes = wire(BYTES)


@dataclass(slots=True)
class SyncGroupRequest:
    """A member of the new generation; only its leader sends assignments."""

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, "3+", nullable="0+", default=None)
    protocol_type: str | None = wire(STRING, "5+", nullable="0+", default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, "5+", nullable="0+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = wire(array(SyncGroupRequestAssignment))


@dataclass(slots=True)
class SyncGroupResponse:
    """The member's own part; consumers put a ConsumerProtocolAssignment there."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16)
    protocol_type: str | None = wire(STRING, "5+", nullable="0+", default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, "5+", nullable="0+", default=None, ignorable=True)
    assignment: bytes = wire(BYTES)
