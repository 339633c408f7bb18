"""ListOffsets (key 2), versions 1 to 10: finds offsets by timestamp, and the ends of partitions.

v1   one offset per partition, with its timestamp, instead of a list (KIP-79)
v2   the isolation level and the throttle time (KIP-98)
v3   on a quota violation the response comes at once and says how long to wait (KIP-219)
v4   leader epochs in request and response (KIP-320)
v5   OFFSET_NOT_AVAILABLE may be answered (KIP-207)
v6   flexible (KIP-482)
v7   timestamp -3: the record with the largest timestamp (KIP-734)
v8   timestamp -4: the start of the local log (KIP-405)
v9   timestamp -5: the end of what is tiered (KIP-1005)
v10  a timeout, for lookups that go to remote storage (KIP-1075)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT8, INT16, INT32, INT64, STRING, array, wire


@dataclass(slots=True)
class ListOffsetsPartition:
    """A timestamp in ms: the first record that is not older is looked for.

    Or one of: -1 latest, -2 earliest, -3 the largest timestamp, -4 earliest local, -5 last tiered.
    """

    partition_index: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, "4+", default=-1, ignorable=True)
    timestamp: int = wire(INT64)


@dataclass(slots=True)
class ListOffsetsTopic:
    """The partitions to look up in one topic."""

    name: str = wire(STRING)
    partitions: list[ListOffsetsPartition] = wire(array(ListOffsetsPartition))


@dataclass(slots=True)
class ListOffsetsRequest:
    """Which offsets to find. `isolation_level` 1 looks only below the last stable offset."""

    replica_id: int = wire(INT32)
    isolation_level: int = wire(INT8, "2+")
    topics: list[ListOffsetsTopic] = wire(array(ListOffsetsTopic))
    timeout_ms: int = wire(INT32, "10+", ignorable=True)


@dataclass(slots=True)
class ListOffsetsPartitionResponse:
    """The offset and timestamp found; both are -1 when nothing was."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    timestamp: int = wire(INT64, default=-1)
    offset: int = wire(INT64, default=-1)
    leader_epoch: int = wire(INT32, "4+", default=-1, ignorable=True)


@dataclass(slots=True)
class ListOffsetsTopicResponse:
    """The offsets of one topic."""

    name: str = wire(STRING)
    partitions: list[ListOffsetsPartitionResponse] = wire(array(ListOffsetsPartitionResponse))


@dataclass(slots=True)
class ListOffsetsResponse:
    """An offset for each partition of the request."""

    throttle_time_ms: int = wire(INT32, "2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = wire(array(ListOffsetsTopicResponse))
