"""SyncGroup (key 14), versions 0 to 5.

Behaviour: the leader hands in the assignment, byte for byte what it made, and everybody gets his
part of it: followers wait until the leader has come. The assignment is durable before anybody sees
it. Members that the leader left out get an empty one. The rules are in `coordinator/sync.py`.

v3   static members (KIP-345)
v4   flexible (KIP-482)
v5   protocol type and name are mandatory, and have to be the group's (KIP-559): otherwise
     INCONSISTENT_GROUP_PROTOCOL

A group of the consumer protocol (KIP-848) that has members takes members of this protocol in while
it changes over: `coordinator/consumer/classic_members.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext

PROTOCOL_MANDATORY_FROM: Final = 5


def handle(
    broker: Broker, context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    """Brings or fetches an assignment."""
    if context.api_version >= PROTOCOL_MANDATORY_FROM and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return SyncGroupResponse(error_code=int(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    return broker.groups.sync(context, request)
