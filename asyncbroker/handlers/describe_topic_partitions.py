"""DescribeTopicPartitions (key 75), version 0.

Behaviour: describes topics in the order of their names, and their partitions, up to a limit of
partitions (KIP-966); then the response says where the next page begins, which the next request
brings along as its cursor. No names mean all topics. A page has at most 2000 partitions, Kafka's
`max.request.partition.size.limit`, and at least one. Topics are never created. A name that no topic
has is UNKNOWN_TOPIC_OR_PARTITION, one that no topic can have INVALID_TOPIC_EXCEPTION. This broker
is the leader and only replica of every partition, so that no other is ever eligible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncbroker.authorized_operations import TOPIC_OPERATIONS
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from asyncbroker.topic_names import check_topic_name

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext
    from asyncbroker.partition import Partition
    from asyncbroker.topic import Topic

PARTITIONS_MAX: Final = 2000


def handle(
    broker: Broker, _context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Describes a page of partitions."""
    cursor = request.cursor or Cursor("", 0)
    if cursor.partition_index < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a cursor of a negative partition")
    names = {asked.name for asked in request.topics} or {topic.name for topic in broker.topics}
    room = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    response = DescribeTopicPartitionsResponse()
    for name in sorted(name for name in names if name >= cursor.topic_name):
        if not room:
            response.next_cursor = Cursor(name, 0)
            break
        topic = broker.topics.get(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        first = cursor.partition_index if name == cursor.topic_name else 0
        partitions = topic.partitions[first : first + room]
        response.topics.append(_describe(broker, topic, partitions))
        room -= len(partitions)
        if first + len(partitions) < len(topic.partitions):
            response.next_cursor = Cursor(name, first + len(partitions))
            break
    return response


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except KafkaError as error:
        error_code = error.code
    return DescribeTopicPartitionsResponseTopic(error_code, name)


def _describe(
    broker: Broker, topic: Topic, partitions: list[Partition]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=partition.index,
                leader_id=broker.node_id,
                leader_epoch=partition.leader_epoch,
                replica_nodes=[broker.node_id],
                isr_nodes=[broker.node_id],
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            for partition in partitions
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
