"""Heartbeat (key 12), versions 0 to 4.

Behaviour: keeps a member's session alive, and tells it by REBALANCE_IN_PROGRESS that it has to join
again; that answer keeps the session alive too. It does not wait for the disk: an answer that came
late because the disk is slow would have the member thrown out.

v3   static members (KIP-345): FENCED_INSTANCE_ID
v4   flexible (KIP-482)

Members of the consumer protocol (KIP-848) have an API of their own; this one hears the members of
their groups that speak the classic protocol (`coordinator/consumer/classic_members.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext


def handle(
    broker: Broker, context: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    """Renews the session."""
    return broker.groups.heartbeat(request)
