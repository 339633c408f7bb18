"""Fetch (key 1), versions 4 to 17: reads record batches from partitions, waiting for them if asked.

v4   the isolation level, the last stable offset and the aborted transactions (KIP-98)
v5   the log start offset (KIP-107)
v6   KAFKA_STORAGE_ERROR may be answered (KIP-112)
v7   incremental fetch sessions (KIP-227)
v8   on a quota violation the response comes at once and says how long to wait (KIP-219)
v9   the leader epoch that the client knows (KIP-320)
v10  batches may be compressed with zstd (KIP-110)
v11  the consumer's rack and the preferred read replica (KIP-392)
v12  flexible (KIP-482); the epoch of the last fetched record, diverging epoch and current
     leader (KIP-595)
v13  topic ids instead of topic names (KIP-516)
v14  OFFSET_MOVED_TO_TIERED_STORAGE may be answered (KIP-405)
v15  the replica id moves into the tagged replica state (KIP-903)
v16  the response may carry endpoints of current leaders (KIP-951)
v17  a follower may say which of its directories it fetches for (KIP-853)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    RecordBytes,
    array,
    wire,
)


@dataclass(slots=True)
class ReplicaState:
    """Who fetches: a follower, or a consumer (-1)."""

    replica_id: int = wire(INT32, default=-1)
    replica_epoch: int = wire(INT64, default=-1)


@dataclass(slots=True)
class FetchPartition:
    """Where to read in one partition, and at most how many bytes."""

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, "9+", default=-1, ignorable=True)
    fetch_offset: int = wire(INT64)
    last_fetched_epoch: int = wire(INT32, "12+", default=-1)
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)
    partition_max_bytes: int = wire(INT32)
    replica_directory_id: bytes = wire(UUID, "17+", tag=0, ignorable=True)


@dataclass(slots=True)
class FetchTopic:
    """The partitions to read of one topic."""

    topic: str = wire(STRING, "4-12", ignorable=True)
    topic_id: bytes = wire(UUID, "13+", ignorable=True)
    partitions: list[FetchPartition] = wire(array(FetchPartition))


@dataclass(slots=True)
class ForgottenTopic:
    """Partitions to take out of the fetch session."""

    topic: str = wire(STRING, "7-12", ignorable=True)
    topic_id: bytes = wire(UUID, "13+", ignorable=True)
    partitions: list[int] = wire(array(INT32))


@dataclass(slots=True)
class FetchRequest:
    """What to read, and how long to wait for it.

    `session_id` 0 with `session_epoch` 0 opens a session, epoch -1 reads without one.
    """

    cluster_id: str | None = wire(STRING, "12+", nullable="0+", default=None, tag=0, ignorable=True)
    replica_id: int = wire(INT32, "4-14", default=-1)
    replica_state: ReplicaState | None = wire(ReplicaState, "15+", default=None, tag=1)
    max_wait_ms: int = wire(INT32)
    min_bytes: int = wire(INT32)
    max_bytes: int = wire(INT32, default=0x7FFFFFFF)
    isolation_level: int = wire(INT8)
    session_id: int = wire(INT32, "7+", ignorable=True)
    session_epoch: int = wire(INT32, "7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = wire(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = wire(array(ForgottenTopic), "7+")
    rack_id: str = wire(STRING, "11+", ignorable=True)


@dataclass(slots=True)
class FetchEpochEndOffset:
    """The largest epoch not above the asked one, and its end: the client's log diverges."""

    epoch: int = wire(INT32, default=-1)
    end_offset: int = wire(INT64, default=-1)


@dataclass(slots=True)
class FetchLeaderIdAndEpoch:
    """The leader to go to; -1 when unknown."""

    leader_id: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32, default=-1)


@dataclass(slots=True)
class SnapshotId:
    """The snapshot that a follower of the metadata log has to fetch first."""

    end_offset: int = wire(INT64, default=-1)
    epoch: int = wire(INT32, default=-1)


@dataclass(slots=True)
class AbortedTransaction:
    """A producer, and the first offset of a transaction of its that was aborted."""

    producer_id: int = wire(INT64)
    first_offset: int = wire(INT64)


@dataclass(slots=True)
class PartitionData:
    """What was read of one partition.

    `records` are whole batches, from the one that contains the asked offset. Nothing to read is an
    empty value and never null, on which librdkafka fails (KAFKA-18646).
    """

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    high_watermark: int = wire(INT64)
    last_stable_offset: int = wire(INT64, default=-1)
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)
    diverging_epoch: FetchEpochEndOffset | None = wire(
        FetchEpochEndOffset, "12+", default=None, tag=0
    )
    current_leader: FetchLeaderIdAndEpoch | None = wire(
        FetchLeaderIdAndEpoch, "12+", default=None, tag=1
    )
    snapshot_id: SnapshotId | None = wire(SnapshotId, "12+", default=None, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = wire(
        array(AbortedTransaction), nullable="0+", default=None
    )
    preferred_read_replica: int = wire(INT32, "11+", default=-1)
    records: RecordBytes = wire(RECORDS, nullable="0+", default=b"")


@dataclass(slots=True)
class FetchableTopicResponse:
    """What was read of one topic."""

    topic: str = wire(STRING, "4-12", ignorable=True)
    topic_id: bytes = wire(UUID, "13+", ignorable=True)
    partitions: list[PartitionData] = wire(array(PartitionData))


@dataclass(slots=True)
class FetchNodeEndpoint:
    """The address of a leader that the response names."""

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, nullable="0+", default=None)


@dataclass(slots=True)
class FetchResponse:
    """The batches that were there; in a session only the partitions that changed."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16, "7+", ignorable=True)
    session_id: int = wire(INT32, "7+")
    responses: list[FetchableTopicResponse] = wire(array(FetchableTopicResponse))
    node_endpoints: list[FetchNodeEndpoint] = wire(array(FetchNodeEndpoint), "16+", tag=0)
