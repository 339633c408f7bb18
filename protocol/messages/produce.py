"""Produce (key 0), versions 3 to 11: appends record batches to partitions.

A request with `acks` 0 has no response at all.

v3   the transactional id, and record batches of format v2 (KIP-98)
v4   KAFKA_STORAGE_ERROR may be answered (KIP-112)
v5   the response has the log start offset (KIP-107)
v7   batches may be compressed with zstd (KIP-110)
v8   the response has record errors and an error message (KIP-467)
v9   flexible (KIP-482)
v10  the response may name the current leader (KIP-951)
v11  TRANSACTION_ABORTABLE may be answered (KIP-890)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    RecordBytes,
    array,
    wire,
)


@dataclass(slots=True)
class PartitionProduceData:
    """One record batch for one partition; null records are an error."""

    index: int = wire(INT32)
    records: RecordBytes = wire(RECORDS, nullable="0+")


@dataclass(slots=True)
class TopicProduceData:
    """The batches for one topic."""

    name: str = wire(STRING)
    partition_data: list[PartitionProduceData] = wire(array(PartitionProduceData))


@dataclass(slots=True)
class ProduceRequest:
    """The batches of all partitions. `acks` is 0, 1 or -1 (all in-sync replicas)."""

    transactional_id: str | None = wire(STRING, nullable="0+", default=None)
    acks: int = wire(INT16)
    timeout_ms: int = wire(INT32)
    topic_data: list[TopicProduceData] = wire(array(TopicProduceData))


@dataclass(slots=True)
class BatchIndexAndErrorMessage:
    """A record because of which the whole batch was refused."""

    batch_index: int = wire(INT32)
    batch_index_error_message: str | None = wire(STRING, nullable="0+", default=None)


@dataclass(slots=True)
class ProduceLeaderIdAndEpoch:
    """The leader to go to, with NOT_LEADER_OR_FOLLOWER; -1 when unknown."""

    leader_id: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32, default=-1)


@dataclass(slots=True)
class PartitionProduceResponse:
    """Where the batch went, or why it was refused."""

    index: int = wire(INT32)
    error_code: int = wire(INT16)
    base_offset: int = wire(INT64)
    log_append_time_ms: int = wire(INT64, default=-1)
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = wire(
        array(BatchIndexAndErrorMessage), "8+", ignorable=True
    )
    error_message: str | None = wire(STRING, "8+", nullable="0+", default=None, ignorable=True)
    current_leader: ProduceLeaderIdAndEpoch | None = wire(
        ProduceLeaderIdAndEpoch, "10+", default=None, tag=0
    )


@dataclass(slots=True)
class TopicProduceResponse:
    """The outcomes for one topic."""

    name: str = wire(STRING)
    partition_responses: list[PartitionProduceResponse] = wire(array(PartitionProduceResponse))


@dataclass(slots=True)
class ProduceNodeEndpoint:
    """The address of a leader that the response names."""

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, nullable="0+", default=None)


@dataclass(slots=True)
class ProduceResponse:
    """An outcome for each partition of the request."""

    responses: list[TopicProduceResponse] = wire(array(TopicProduceResponse))
    throttle_time_ms: int = wire(INT32)
    node_endpoints: list[ProduceNodeEndpoint] = wire(array(ProduceNodeEndpoint), "10+", tag=0)
