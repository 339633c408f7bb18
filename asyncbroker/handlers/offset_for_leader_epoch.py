"""OffsetForLeaderEpoch (key 23), versions 2 to 4.

Behaviour: for each partition the largest leader epoch that is not above the one asked for, and the
offset at which it ended: what a consumer needs to find out whether the log was cut under it
(KIP-320). For the current epoch that is the end of the log. An epoch older than all that the log
knows gives -1 and -1, without an error.

v2   current leader epoch: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH (KIP-320)
v3   replica id (KIP-392): not looked at, there are no followers
v4   flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext


def handle(
    broker: Broker, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Answers from memory."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic, [_look_up(broker, topic.topic, wanted) for wanted in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _look_up(broker: Broker, topic_name: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    result = EpochEndOffset(partition=wanted.partition)
    try:
        topic = broker.topics.get(topic_name)
        if topic is None or not 0 <= wanted.partition < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition = topic.partitions[wanted.partition]
        partition.check_readable()
        partition.check_leader_epoch(wanted.current_leader_epoch)
        result.leader_epoch, result.end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
    except KafkaError as error:
        result.error_code = error.code
    return result
