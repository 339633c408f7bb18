"""OffsetFetch (key 9), versions 1 to 9.

Behaviour: the committed offset of each partition asked for, or of all that the group has. A
partition without one is answered all the same, with offset -1, leader epoch -1, metadata "" and no
error, and so is a group that nobody knows.

v2   null topics stand for all, and there is an error for the group as a whole (KIP-88)
v5   leader epochs (KIP-320)
v6   flexible (KIP-482)
v7   require_stable (KIP-447): UNSTABLE_OFFSET_COMMIT while a transaction has an offset pending
v8   several groups (KIP-709), each with an error of its own
v9   member id and epoch (KIP-848): not looked at, as there are no groups that have them

Not done: version 10 (topic ids).
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.handlers.each import each
from asyncbroker.protocol.errors import KafkaError
from asyncbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext

GROUPS_FROM: Final = 8


def handle(
    broker: Broker, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | Coroutine[Any, Any, OffsetFetchResponse]:
    """Fetches offsets. Raises KafkaError when the one group of an old version cannot be asked."""

    def serve(
        group: OffsetFetchRequestGroup,
    ) -> OffsetFetchResponseGroup | Awaitable[OffsetFetchResponseGroup]:
        return broker.groups.fetch(group, require_stable=request.require_stable)

    if context.api_version < GROUPS_FROM:
        fetched = serve(_only_group(request))
        if isinstance(fetched, OffsetFetchResponseGroup):
            return _response_of_one(fetched)
        return _answer_one_later(fetched)
    groups = each(request.groups, serve, _failed)
    if isinstance(groups, list):
        return OffsetFetchResponse(groups=groups)
    return _answer_later(groups)


async def _answer_later(groups: Awaitable[list[OffsetFetchResponseGroup]]) -> OffsetFetchResponse:
    return OffsetFetchResponse(groups=await groups)


async def _answer_one_later(group: Awaitable[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
    return _response_of_one(await group)


def _failed(group: OffsetFetchRequestGroup, error: KafkaError) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=int(error.code))


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """The request of an old version in the form of the new ones."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(topic.name, topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _response_of_one(group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    """The response in the form of old versions."""
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
