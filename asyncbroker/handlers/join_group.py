"""JoinGroup (key 11), versions 0 to 9.

Behaviour: enters a group, or enters it again, and is answered when the next generation is complete;
the leader is told the members, the others nothing of each other. The rules are in
`coordinator/join.py`. When the connection is lost meanwhile, the member has its session timeout to
come back.

v1   rebalance timeout (KIP-62); in v0 the session timeout stands for it
v4   a new dynamic member gets MEMBER_ID_REQUIRED and an id to join with (KIP-394); older versions
     are let in at once, as their clients do not know that error
v5   static members (KIP-345)
v6   flexible (KIP-482)
v7   protocol type, and a null protocol name with errors (KIP-559): before, an empty one
v8   reasons (KIP-800): they go into the log
v9   skip_assignment for a static leader that comes back (KIP-814)

A group of the consumer protocol (KIP-848) that has members takes members of this protocol in while
it changes over: `coordinator/consumer/classic_members.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from asyncbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext

NULL_PROTOCOL_NAME_FROM: Final = 7


def handle(
    broker: Broker, context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    """Joins the group, and waits for it."""
    answer = broker.groups.join(context, request)
    if context.api_version >= NULL_PROTOCOL_NAME_FROM:
        return answer
    if isinstance(answer, JoinGroupResponse):
        return _without_null(answer)
    return _answer_later(answer)


async def _answer_later(answer: Awaitable[JoinGroupResponse]) -> JoinGroupResponse:
    return _without_null(await answer)


def _without_null(response: JoinGroupResponse) -> JoinGroupResponse:
    """Versions before 7 have no null for "no protocol"."""
    if response.protocol_name is None:
        response.protocol_name = ""
    return response
