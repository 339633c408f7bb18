"""CreatePartitions (key 37), versions 0 to 3.

Behaviour: a topic gets so many partitions in all (KIP-195), and is answered when the new ones are
durable and can be used; those it has stay as they are, and so do their records. A count that is not
more than there are is INVALID_PARTITIONS. Assignments, if there are any, must be one for each new
partition and put it on this broker. Each topic has its own outcome; `validate_only` stops before
the change. `__consumer_offsets` is refused with INVALID_REQUEST: its number of partitions says
where the state of each group is. `timeout_ms` is not obeyed, as a growth is quick.

v2   flexible (KIP-482)
v3   THROTTLING_QUOTA_EXCEEDED (KIP-599): never, there are no quotas
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from asyncio import Future

    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext
    from asyncbroker.topic import Topic


def handle(
    broker: Broker, _context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse | Coroutine[Any, Any, CreatePartitionsResponse]:
    """Adds partitions to the topics, or only says whether that could be done."""
    response = CreatePartitionsResponse()
    growing: list[tuple[CreatePartitionsTopicResult, Future[None]]] = []
    counts = Counter(asked.name for asked in request.topics)
    # A name that comes twice has one outcome, as in Kafka.
    for asked in {asked.name: asked for asked in request.topics}.values():
        result = CreatePartitionsTopicResult(asked.name)
        response.results.append(result)
        try:
            if counts[asked.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic is named twice")
            topic = _check(broker, asked)
            if not request.validate_only:
                growing.append((result, broker.topics.add_partitions(topic, asked.count)))
        except KafkaError as error:
            _refuse(result, error)
    return _await_all(response, growing) if growing else response


async def _await_all(
    response: CreatePartitionsResponse,
    growing: list[tuple[CreatePartitionsTopicResult, Future[None]]],
) -> CreatePartitionsResponse:
    for result, growth in growing:
        try:
            await growth
        except KafkaError as error:
            _refuse(result, error)
    return response


def _check(broker: Broker, asked: CreatePartitionsTopic) -> Topic:
    """The topic, if it can grow as asked."""
    topic = broker.topics.get(asked.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {asked.name}")
    if topic.is_internal:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {topic.name} is internal")
    broker.topics.check_growth(topic, asked.count)
    if asked.assignments is not None:
        added = asked.count - len(topic.partitions)
        if len(asked.assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{len(asked.assignments)} assignments for {added} new partitions",
            )
        for assignment in asked.assignments:
            if assignment.broker_ids != [broker.node_id]:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"a partition is assigned to brokers {assignment.broker_ids}: "
                    f"there is only {broker.node_id}",
                )
    return topic


def _refuse(result: CreatePartitionsTopicResult, error: KafkaError) -> None:
    result.error_code = error.code
    result.error_message = error.message
