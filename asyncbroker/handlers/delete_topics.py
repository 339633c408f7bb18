"""DeleteTopics (key 20), versions 0 to 6.

Behaviour: each topic has its own outcome, given when it is durable and the name is free again.
Waiting fetches of the topic end at once; groups forget its offsets. `delete.topic.enable=false`
refuses the whole request. Internal topics are refused with INVALID_REQUEST: groups would lose their
state under their feet. `timeout_ms` is not obeyed, as a deletion is quick.

v3   TOPIC_DELETION_DISABLED (KIP-322); earlier versions get INVALID_REQUEST for it
v4   flexible (KIP-482)
v5   error messages (KIP-599)
v6   topics by id (KIP-516): an unknown one gets UNKNOWN_TOPIC_ID
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from asyncbroker.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from asyncio import Future

    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext
    from asyncbroker.topic import Topic

DELETION_DISABLED_VERSION: Final = 3
TOPIC_IDS_VERSION: Final = 6


def handle(
    broker: Broker, context: RequestContext, request: DeleteTopicsRequest
) -> Coroutine[Any, Any, DeleteTopicsResponse]:
    """Deletes the topics asked for."""
    asked = request.topics
    if context.api_version < TOPIC_IDS_VERSION:
        asked = [DeleteTopicState(name) for name in request.topic_names]
    if not broker.config.delete_topic_enable:
        if context.api_version < DELETION_DISABLED_VERSION:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    return _delete_all(broker, asked)


async def _delete_all(broker: Broker, asked: list[DeleteTopicState]) -> DeleteTopicsResponse:
    """Begins all deletions before it awaits the first."""
    response = DeleteTopicsResponse()
    deletions: list[tuple[DeletableTopicResult, Future[None]]] = []
    counts = Counter((state.name, state.topic_id) for state in asked)
    # What is named twice has one outcome, as in Kafka.
    for state in {(state.name, state.topic_id): state for state in asked}.values():
        result = DeletableTopicResult(name=state.name, topic_id=state.topic_id)
        response.responses.append(result)
        try:
            if counts[state.name, state.topic_id] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic is named twice")
            topic = _find(broker, state)
            result.name, result.topic_id = topic.name, topic.topic_id
            deletions.append((result, broker.topics.delete(topic)))
        except KafkaError as error:
            _refuse(result, error)
    for result, deletion in deletions:
        try:
            await deletion
        except KafkaError as error:
            _refuse(result, error)
    return response


def _find(broker: Broker, state: DeleteTopicState) -> Topic:
    if state.name is not None:
        if state.topic_id != ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "both a name and an id are given")
        topic = broker.topics.get(state.name)
        if topic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {state.name}"
            )
    else:
        if state.topic_id == ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "neither a name nor an id is given")
        topic = broker.topics.by_id(state.topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic of this id")
    if topic.is_internal:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {topic.name} is internal")
    return topic


def _refuse(result: DeletableTopicResult, error: KafkaError) -> None:
    result.error_code = error.code
    result.error_message = error.message
