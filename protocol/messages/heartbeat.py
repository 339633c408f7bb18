"""Heartbeat (key 12), versions 0 to 4: a group member says that it is alive.

v1   the throttle time (KIP-124)
v2   on a quota violation the response comes at once and says how long to wait (KIP-219)
v3   static members (KIP-345)
v4   flexible (KIP-482)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT16, INT32, STRING, wire


@dataclass(slots=True)
class HeartbeatRequest:
    """A member and the generation it believes in."""

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, "3+", nullable="0+", default=None)


@dataclass(slots=True)
class HeartbeatResponse:
    """REBALANCE_IN_PROGRESS tells the member to join again."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16)
