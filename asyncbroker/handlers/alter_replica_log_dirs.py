"""AlterReplicaLogDirs (key 34), versions 1 to 2.

Behaviour: nothing ever moves, since this broker has one directory (KIP-113). A partition that is to
be there is there already: no error, and nothing is done, as in Kafka. Any other directory is
LOG_DIR_NOT_FOUND, whatever is to be in it; its name must be that which DescribeLogDirs tells, to
the letter. Partitions that do not exist are UNKNOWN_TOPIC_OR_PARTITION, and those that are offline,
or all in a directory that is, KAFKA_STORAGE_ERROR. Of a partition that is named twice, the last
directory counts.

v2   flexible (KIP-482)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncbroker.handlers.describe_log_dirs import directory_name
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext


def handle(
    broker: Broker, _context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Says of each partition whether it is where it is to be."""
    wanted: dict[str, dict[int, str]] = {}
    for directory in request.dirs:
        for asked in directory.topics:
            of_topic = wanted.setdefault(asked.name, {})
            of_topic.update(dict.fromkeys(asked.partitions, directory.path))
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                name,
                [
                    AlterReplicaLogDirPartitionResult(index, _outcome(broker, name, index, path))
                    for index, path in paths.items()
                ],
            )
            for name, paths in wanted.items()
        ]
    )


def _outcome(broker: Broker, name: str, index: int, path: str) -> ErrorCode:
    if path != directory_name(broker):
        return ErrorCode.LOG_DIR_NOT_FOUND
    topic = broker.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        topic.partitions[index].check_readable()
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
