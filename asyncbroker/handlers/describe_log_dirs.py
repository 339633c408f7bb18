"""DescribeLogDirs (key 35), versions 1 to 4.

Behaviour: tells about the one directory of this broker, with the bytes that each partition asked
for has in its segments (KIP-113); null means all partitions, and unknown ones are left out. Those
that could not be opened are left out too. A directory that is offline has KAFKA_STORAGE_ERROR and
no partitions. `offset_lag` is always 0, since nobody follows; there are no future replicas.

v2   flexible (KIP-482)
v3   an error at the top (KIP-784): never
v4   size and free bytes of the volume (KIP-827); -1 for a broker that is in memory
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from asyncbroker.broker import MEMORY_DIRECTORY
from asyncbroker.damaged_log import DamagedLog
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext
    from asyncbroker.partition import Partition


def handle(
    broker: Broker, _context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse | Awaitable[DescribeLogDirsResponse]:
    """Tells about the directory."""
    path = broker.config.data_directory
    result = DescribeLogDirsResult(log_dir=directory_name(broker))
    response = DescribeLogDirsResponse(results=[result])
    if broker.storage.error is not None:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return response
    result.topics = [
        DescribeLogDirsTopic(name, [_describe(partition) for partition in partitions])
        for name, partitions in _asked(broker, request)
    ]
    return response if path is None else _with_volume(broker, path, response)


def directory_name(broker: Broker) -> str:
    """What clients are told that the one directory is called."""
    path = broker.config.data_directory
    return MEMORY_DIRECTORY if path is None else os.path.abspath(path)


def _asked(
    broker: Broker, request: DescribeLogDirsRequest
) -> Iterable[tuple[str, list[Partition]]]:
    """The topics that have partitions to tell about, each once."""
    wanted: dict[str, set[int]] | None = None
    if request.topics is not None:
        wanted = {}
        for asked in request.topics:
            wanted.setdefault(asked.topic, set()).update(asked.partitions)
    for topic in broker.topics:
        if wanted is not None and topic.name not in wanted:
            continue
        partitions = [
            partition
            for partition in topic.partitions
            if (wanted is None or partition.index in wanted[topic.name])
            and not isinstance(partition.log, DamagedLog)
        ]
        if partitions:
            yield topic.name, partitions


def _describe(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(partition.index, partition.log.size, 0, False)


async def _with_volume(
    broker: Broker, path: str, response: DescribeLogDirsResponse
) -> DescribeLogDirsResponse:
    (result,) = response.results
    # The sizes of the partitions are what was asked for; -1 says that these are not known.
    with suppress(OSError):
        result.total_bytes, result.usable_bytes = await broker.workers.run(_volume, path)
    return response


def _volume(path: str) -> tuple[int, int]:
    """In a worker: the size of the volume, and what a process that is not root can still write."""
    import shutil  # Takes a while, and only this needs it.

    total, _, usable = shutil.disk_usage(path)
    return total, usable
