"""DeleteRecords (key 21), versions 0 to 2: deletes the beginning of partitions (KIP-107).

v1   on a quota violation the response comes at once and says how long to wait (KIP-219)
v2   flexible (KIP-482)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT16, INT32, INT64, STRING, array, wire


@dataclass(slots=True)
class DeleteRecordsPartition:
    """The offset below which all goes; -1 is the high watermark."""

    partition_index: int = wire(INT32)
    offset: int = wire(INT64)


@dataclass(slots=True)
class DeleteRecordsTopic:
    """Partitions of one topic."""

    name: str = wire(STRING)
    partitions: list[DeleteRecordsPartition] = wire(array(DeleteRecordsPartition))


@dataclass(slots=True)
class DeleteRecordsRequest:
    """The partitions whose beginning is to go."""

    topics: list[DeleteRecordsTopic] = wire(array(DeleteRecordsTopic))
    timeout_ms: int = wire(INT32)


@dataclass(slots=True)
class DeleteRecordsPartitionResult:
    """Where the partition begins now."""

    partition_index: int = wire(INT32)
    low_watermark: int = wire(INT64)
    error_code: int = wire(INT16)


@dataclass(slots=True)
class DeleteRecordsTopicResult:
    """The outcomes for partitions of one topic."""

    name: str = wire(STRING)
    partitions: list[DeleteRecordsPartitionResult] = wire(array(DeleteRecordsPartitionResult))


@dataclass(slots=True)
class DeleteRecordsResponse:
    """An outcome for each partition of the request."""

    throttle_time_ms: int = wire(INT32, ignorable=True)
    topics: list[DeleteRecordsTopicResult] = wire(array(DeleteRecordsTopicResult))
