"""OffsetCommit (key 8), versions 2 to 9.

Behaviour: stores offsets in `__consumer_offsets` and answers when they are durable; commits that
come at the same time share one write. Who may commit when is in `coordinator/offset_requests.py`.
Each partition has its own outcome. What is stored comes back as it was sent: metadata, leader epoch
and offset, even one that goes backwards.

v2   one retention time for the request, honoured unless -1
v5   no more retention time: the broker's `offsets.retention.minutes` (KIP-211)
v6   leader epochs (KIP-320)
v7   static members (KIP-345)
v8   flexible (KIP-482)
v9   GROUP_ID_NOT_FOUND for a member of a group that is not there (KIP-848); before,
     ILLEGAL_GENERATION

Not done: groups of the new consumer protocol, whose members commit with an epoch (v9). Version 10
(topic ids).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from asyncbroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext


def handle(
    broker: Broker, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """Commits the offsets."""
    return broker.groups.commit(context, request)
