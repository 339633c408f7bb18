"""OffsetCommit (key 8), versions 2 to 10.

Behaviour: stores offsets in `__consumer_offsets` and answers when they are durable; commits that
come at the same time share one write. Who may commit when is in `coordinator/offset_requests.py`.
Each partition has its own outcome. What is stored comes back as it was sent: metadata, leader epoch
and offset, even one that goes backwards.

v2   one retention time for the request, honoured unless -1
v5   no more retention time: the broker's `offsets.retention.minutes` (KIP-211)
v6   leader epochs (KIP-320)
v7   static members (KIP-345)
v8   flexible (KIP-482)
v9   members of the consumer protocol commit with their epoch (KIP-848): STALE_MEMBER_EPOCH;
     GROUP_ID_NOT_FOUND for a member of a group that is not there; before, ILLEGAL_GENERATION
v10  topic ids (KIP-848): UNKNOWN_TOPIC_ID
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from asyncbroker.handlers.topic_ids import with_names
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext

TOPIC_IDS_FROM: Final = 10


def handle(
    broker: Broker, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """Commits the offsets."""
    if context.api_version < TOPIC_IDS_FROM:
        return broker.groups.commit(context, request)
    named = with_names(broker, request.topics)
    known = [topic for topic in named if topic.name]
    if request.topics and not known:
        return _with_ids(OffsetCommitResponse(), named)
    answer = broker.groups.commit(context, replace(request, topics=known))
    if isinstance(answer, OffsetCommitResponse):
        return _with_ids(answer, named)
    return _answer_later(answer, named)


async def _answer_later(
    answer: Awaitable[OffsetCommitResponse], named: list[OffsetCommitRequestTopic]
) -> OffsetCommitResponse:
    return _with_ids(await answer, named)


def _with_ids(
    response: OffsetCommitResponse, named: list[OffsetCommitRequestTopic]
) -> OffsetCommitResponse:
    """Each topic by its id again, and those that there are not in their place."""
    answered = iter(response.topics)
    topics = []
    for topic in named:
        if topic.name:
            topics.append(replace(next(answered), topic_id=topic.topic_id))
            continue
        unknown = [
            OffsetCommitResponsePartition(partition.partition_index, ErrorCode.UNKNOWN_TOPIC_ID)
            for partition in topic.partitions
        ]
        topics.append(OffsetCommitResponseTopic(topic_id=topic.topic_id, partitions=unknown))
    return OffsetCommitResponse(topics=topics)
