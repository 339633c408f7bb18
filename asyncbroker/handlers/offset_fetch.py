"""OffsetFetch (key 9), versions 1 to 10.

Behaviour: the committed offset of each partition asked for, or of all that the group has. A
partition without one is answered all the same, with offset -1, leader epoch -1, metadata "" and no
error, and so is a group that nobody knows.

v2   null topics stand for all, and there is an error for the group as a whole (KIP-88)
v5   leader epochs (KIP-320)
v6   flexible (KIP-482)
v7   require_stable (KIP-447): UNSTABLE_OFFSET_COMMIT while a transaction has an offset pending
v8   several groups (KIP-709), each with an error of its own
v9   member id and epoch (KIP-848): STALE_MEMBER_EPOCH and UNKNOWN_MEMBER_ID for members of the
     consumer protocol
v10  topic ids (KIP-848): UNKNOWN_TOPIC_ID; of all that a group has, what is of no topic any more is
     left out
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.handlers.each import each
from asyncbroker.handlers.topic_ids import with_names
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext

GROUPS_FROM: Final = 8
TOPIC_IDS_FROM: Final = 10

NO_OFFSET: Final = -1


def handle(
    broker: Broker, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | Coroutine[Any, Any, OffsetFetchResponse]:
    """Fetches offsets. Raises KafkaError when the one group of an old version cannot be asked."""

    def serve(
        group: OffsetFetchRequestGroup,
    ) -> OffsetFetchResponseGroup | Awaitable[OffsetFetchResponseGroup]:
        if context.api_version >= TOPIC_IDS_FROM:
            return _fetch_by_ids(broker, group, require_stable=request.require_stable)
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


def _fetch_by_ids(
    broker: Broker, group: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup | Awaitable[OffsetFetchResponseGroup]:
    """One group by the ids of topics."""
    named = with_names(broker, group.topics) if group.topics is not None else None
    known = [topic for topic in named if topic.name] if named is not None else None
    answer = broker.groups.fetch(replace(group, topics=known), require_stable=require_stable)
    if isinstance(answer, OffsetFetchResponseGroup):
        return _with_ids(broker, answer, named)
    return _with_ids_later(broker, answer, named)


async def _with_ids_later(
    broker: Broker,
    answer: Awaitable[OffsetFetchResponseGroup],
    named: list[OffsetFetchRequestTopics] | None,
) -> OffsetFetchResponseGroup:
    return _with_ids(broker, await answer, named)


def _with_ids(
    broker: Broker,
    answer: OffsetFetchResponseGroup,
    named: list[OffsetFetchRequestTopics] | None,
) -> OffsetFetchResponseGroup:
    """The answer with ids, and an error for each topic that was asked for and is not there."""
    if answer.error_code:
        return answer
    if named is None:
        found = ((broker.topics.get(topic.name), topic) for topic in answer.topics)
        answer.topics = [
            replace(topic, topic_id=known.topic_id) for known, topic in found if known is not None
        ]
    else:
        answered = iter(answer.topics)
        answer.topics = [
            replace(next(answered), topic_id=topic.topic_id) if topic.name else _unknown(topic)
            for topic in named
        ]
    return answer


def _unknown(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=NO_OFFSET,
                metadata="",
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            )
            for index in topic.partition_indexes
        ],
    )


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
            OffsetFetchRequestTopics(topic.name, partition_indexes=topic.partition_indexes)
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
