"""DeleteGroups (key 42), versions 0 to 2.

Behaviour: deletes groups and their offsets for good (KIP-229); answers when that is durable. A
group with members is NON_EMPTY_GROUP, one that nobody knows GROUP_ID_NOT_FOUND. Each group has its
own outcome, and one that is named twice only one.

v2   flexible (KIP-482)
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any

from asyncbroker.handlers.each import each
from asyncbroker.protocol.errors import KafkaError
from asyncbroker.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext


def handle(
    broker: Broker, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse | Coroutine[Any, Any, DeleteGroupsResponse]:
    """Deletes groups."""
    results = each(dict.fromkeys(request.groups_names), broker.groups.delete, _failed)
    if isinstance(results, list):
        return DeleteGroupsResponse(results=results)
    return _answer_later(results)


async def _answer_later(results: Awaitable[list[DeletableGroupResult]]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=await results)


def _failed(group_id: str, error: KafkaError) -> DeletableGroupResult:
    return DeletableGroupResult(group_id, int(error.code))
