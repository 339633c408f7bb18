"""DeleteRecords (key 21), versions 0 to 2.

Behaviour: a partition begins at the offset asked for (KIP-107), -1 meaning its high watermark, and
answers with where it begins now, once that is durable. Readers below get OFFSET_OUT_OF_RANGE at
once; files of segments that are wholly below are removed soon after. An offset below the beginning
changes nothing; one above the high watermark is OFFSET_OUT_OF_RANGE. Only topics whose
`cleanup.policy` has `delete` take part: of a compacted one, POLICY_VIOLATION. Internal topics are
INVALID_TOPIC_EXCEPTION. Each partition has its own outcome. `timeout_ms` is not obeyed: there are
no replicas to wait for.

v2   flexible (KIP-482)
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.config_entries import topic_entry
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext
    from asyncbroker.partition import Partition
    from asyncbroker.topic import Topic

HIGH_WATERMARK: Final = -1
NO_LOW_WATERMARK: Final = -1

Move = tuple[DeleteRecordsPartitionResult, "Partition", int]


def handle(
    broker: Broker, _context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Coroutine[Any, Any, DeleteRecordsResponse]:
    """Deletes the beginnings of partitions."""
    response = DeleteRecordsResponse()
    moves: list[Move] = []
    for asked in request.topics:
        results = DeleteRecordsTopicResult(asked.name)
        response.topics.append(results)
        for wanted in asked.partitions:
            result = DeleteRecordsPartitionResult(wanted.partition_index, NO_LOW_WATERMARK)
            results.partitions.append(result)
            try:
                partition = _find(broker, asked.name, wanted.partition_index)
                moves.append((result, partition, _offset(partition, wanted)))
            except KafkaError as error:
                result.error_code = error.code
    return _advance(broker, response, moves) if moves else response


async def _advance(
    broker: Broker, response: DeleteRecordsResponse, moves: list[Move]
) -> DeleteRecordsResponse:
    outcomes = await broker.log_starts.advance(
        [(partition, offset) for _, partition, offset in moves]
    )
    for (result, _, _), outcome in zip(moves, outcomes, strict=True):
        if isinstance(outcome, KafkaError):
            result.error_code = outcome.code
        else:
            result.low_watermark = outcome
    return response


def _find(broker: Broker, name: str, index: int) -> Partition:
    """The partition, if records of it may be deleted."""
    topic = broker.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.is_internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    topic.partitions[index].check_readable()
    if not _may_delete(broker, topic):
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    return topic.partitions[index]


def _may_delete(broker: Broker, topic: Topic) -> bool:
    policy = topic_entry("cleanup.policy", topic.config.overrides, broker.config).value or ""
    return "delete" in [item.strip() for item in policy.split(",")]


def _offset(partition: Partition, wanted: DeleteRecordsPartition) -> int:
    """Where the partition is to begin."""
    if wanted.offset == HIGH_WATERMARK:
        return partition.high_watermark
    if not 0 <= wanted.offset <= partition.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return wanted.offset
