"""AlterReplicaLogDirs (key 34), versions 1 to 2: in which log directory of a broker a partition is
to be (KIP-113).

v2   flexible (KIP-482)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class AlterReplicaLogDirTopic:
    """Partitions of one topic."""

    name: str = wire(STRING)
    partitions: list[int] = wire(array(INT32))


@dataclass(slots=True)
class AlterReplicaLogDir:
    """A directory, and what is to be in it."""

    path: str = wire(STRING)
    topics: list[AlterReplicaLogDirTopic] = wire(array(AlterReplicaLogDirTopic))


@dataclass(slots=True)
class AlterReplicaLogDirsRequest:
    """The directories that are to have partitions."""

    dirs: list[AlterReplicaLogDir] = wire(array(AlterReplicaLogDir))


@dataclass(slots=True)
class AlterReplicaLogDirPartitionResult:
    """What became of one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@dataclass(slots=True)
class AlterReplicaLogDirTopicResult:
    """Partitions of one topic."""

    topic_name: str = wire(STRING)
    partitions: list[AlterReplicaLogDirPartitionResult] = wire(
        array(AlterReplicaLogDirPartitionResult)
    )


@dataclass(slots=True)
class AlterReplicaLogDirsResponse:
    """What became of each partition."""

    throttle_time_ms: int = wire(INT32)
    results: list[AlterReplicaLogDirTopicResult] = wire(array(AlterReplicaLogDirTopicResult))
