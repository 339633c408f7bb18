"""LeaveGroup (key 13), versions 0 to 5.

Behaviour: removes members, which starts a rebalance of the others. Each has its own outcome. An
administrator removes static members by their instance ids alone.

v3   a list of members, by member id or by instance id (KIP-345); before, one member, whose outcome
     is that of the request
v4   flexible (KIP-482)
v5   reasons (KIP-800): they go into the log

A group of the consumer protocol (KIP-848) that has members takes members of this protocol in while
it changes over: `coordinator/consumer/classic_members.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from asyncbroker.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext

LIST_FROM: Final = 3


def handle(
    broker: Broker, context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    """Removes the members named."""
    if context.api_version >= LIST_FROM:
        return broker.groups.leave(request)
    identities = [MemberIdentity(member_id=request.member_id)]
    answer = broker.groups.leave(LeaveGroupRequest(group_id=request.group_id, members=identities))
    if isinstance(answer, LeaveGroupResponse):
        return _of_one(answer)
    return _answer_later(answer)


async def _answer_later(answer: Awaitable[LeaveGroupResponse]) -> LeaveGroupResponse:
    return _of_one(await answer)


def _of_one(response: LeaveGroupResponse) -> LeaveGroupResponse:
    """The outcome of the only member as that of the whole."""
    for member in response.members:
        return LeaveGroupResponse(error_code=member.error_code)
    return response
