"""DescribeLogDirs (key 35), versions 1 to 4: what lies in the log directories (KIP-113).

v2   flexible (KIP-482)
v3   an error at the top (KIP-784)
v4   how large the volumes are, and how much of them is left (KIP-827)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import BOOL, INT16, INT32, INT64, STRING, array, wire


@dataclass(slots=True)
class DescribableLogDirTopic:
    """Partitions of one topic."""

    topic: str = wire(STRING)
    partitions: list[int] = wire(array(INT32))


@dataclass(slots=True)
class DescribeLogDirsRequest:
    """The partitions to tell about; null is all."""

    topics: list[DescribableLogDirTopic] | None = wire(array(DescribableLogDirTopic), nullable="0+")


@dataclass(slots=True)
class DescribeLogDirsPartition:
    """How many bytes a partition has, and how far it is behind its leader."""

    partition_index: int = wire(INT32)
    partition_size: int = wire(INT64)
    offset_lag: int = wire(INT64)
    is_future_key: bool = wire(BOOL)


@dataclass(slots=True)
class DescribeLogDirsTopic:
    """Partitions of one topic."""

    name: str = wire(STRING)
    partitions: list[DescribeLogDirsPartition] = wire(array(DescribeLogDirsPartition))


@dataclass(slots=True)
class DescribeLogDirsResult:
    """One directory; -1 bytes when nobody knows."""

    error_code: int = wire(INT16)
    log_dir: str = wire(STRING)
    topics: list[DescribeLogDirsTopic] = wire(array(DescribeLogDirsTopic))
    total_bytes: int = wire(INT64, "4+", default=-1, ignorable=True)
    usable_bytes: int = wire(INT64, "4+", default=-1, ignorable=True)


@dataclass(slots=True)
class DescribeLogDirsResponse:
    """The directories of the broker that was asked."""

    throttle_time_ms: int = wire(INT32, ignorable=True)
    error_code: int = wire(INT16, "3+", ignorable=True)
    results: list[DescribeLogDirsResult] = wire(array(DescribeLogDirsResult))
