"""ListOffsets (key 2), versions 1 to 10.

Behaviour: for each partition the offset of a timestamp: the first record at or after it, found by
looking inside batches, with that record's own timestamp; or of one of these:

    -1  latest: the high watermark, or for read_committed (v2) the last stable offset
    -2  earliest: the log start offset
    -3  the record with the largest timestamp (v7, KIP-734)
    -4  earliest local (v8, KIP-405): as -2, there is no tiered storage
    -5  latest tiered (v9, KIP-1005): none, offset -1

Nothing found is offset -1 and timestamp -1, without an error; so is what lies beyond the end that
the reader may see. Lookups by time read files, so they run in worker threads, all at once; the
rest is answered at once.

v1   one offset, not a list (KIP-79)
v2   isolation level (KIP-98)
v4   leader epochs (KIP-320): FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH
v6   flexible
v10  timeout for remote storage (KIP-1075): not looked at

A timestamp that the version does not have gets UNSUPPORTED_VERSION, a partition that is asked for
twice INVALID_REQUEST, both times.
Not done: -6, earliest pending upload (v11).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.log.errors import CorruptLog
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext
    from asyncbroker.log.time_search import TimestampOffset
    from asyncbroker.partition import Partition

READ_COMMITTED: Final = 1

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5

# The first version of each timestamp that stands for something else.
VERSION_OF: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
}

# A lookup that is under way, and where its outcome goes.
Search = tuple[ListOffsetsPartitionResponse, "Partition", "asyncio.Future[TimestampOffset | None]"]


def handle(
    broker: Broker, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    """Answers for every partition asked for, waiting only for lookups by time."""
    asked = Counter(
        (topic.name, wanted.partition_index)
        for topic in request.topics
        for wanted in topic.partitions
    )
    response = ListOffsetsResponse()
    searches: list[Search] = []
    for topic in request.topics:
        results: list[ListOffsetsPartitionResponse] = []
        response.topics.append(ListOffsetsTopicResponse(topic.name, results))
        for wanted in topic.partitions:
            result = ListOffsetsPartitionResponse(wanted.partition_index)
            results.append(result)
            try:
                if asked[topic.name, wanted.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                partition = _find(broker, topic.name, wanted)
                end_offset = (
                    partition.last_stable_offset
                    if request.isolation_level == READ_COMMITTED
                    else partition.high_watermark
                )
                search = _look_up(
                    partition, wanted.timestamp, context.api_version, end_offset, result
                )
            except KafkaError as error:
                result.error_code = error.code
                continue
            if search is not None:
                searches.append((result, partition, search))
    return _finish(response, searches) if searches else response


def _find(broker: Broker, topic_name: str, wanted: ListOffsetsPartition) -> Partition:
    topic = broker.topics.get(topic_name)
    if topic is None or not 0 <= wanted.partition_index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = topic.partitions[wanted.partition_index]
    partition.check_readable()
    partition.check_leader_epoch(wanted.current_leader_epoch)
    return partition


def _look_up(
    partition: Partition,
    timestamp: int,
    version: int,
    end_offset: int,
    result: ListOffsetsPartitionResponse,
) -> asyncio.Future[TimestampOffset | None] | None:
    """Fills in `result`, or begins a lookup that will."""
    if timestamp < 0 and version < VERSION_OF.get(timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if timestamp == MAX_TIMESTAMP:
        return partition.read(partition.log.max_timestamp, end_offset)
    if timestamp >= 0:
        return partition.read(partition.log.offset_for_timestamp, timestamp, end_offset)
    if timestamp == LATEST:
        result.offset = end_offset
        result.leader_epoch = partition.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        result.offset = partition.log_start_offset
    return None


async def _finish(response: ListOffsetsResponse, searches: list[Search]) -> ListOffsetsResponse:
    """Fills in what the lookups find."""
    await asyncio.wait([search for _, _, search in searches])
    for result, partition, search in searches:
        try:
            found = search.result()
        except (OSError, CorruptLog) as error:
            result.error_code = partition.read_failed(error).code
            continue
        if found is not None:
            result.offset = found.offset
            result.timestamp = found.timestamp
            result.leader_epoch = found.leader_epoch
    return response
