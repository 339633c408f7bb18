"""OffsetDelete (key 47), version 0.

Behaviour: forgets offsets that a group has committed (KIP-496), and answers when that is durable.
While a consumer group has members, a topic that one of them reads is GROUP_SUBSCRIBED_TO_TOPIC; a
group of another kind with members is NON_EMPTY_GROUP, since nobody knows what they read. A group
that nobody knows is GROUP_ID_NOT_FOUND. Each partition has its own outcome; an offset that was
never committed is deleted already.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from asyncbroker.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext


def handle(
    broker: Broker, _context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    """Deletes the offsets."""
    return broker.groups.delete_offsets(request)
