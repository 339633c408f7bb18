"""DescribeProducers (key 61), version 0: who has written to partitions with a producer id
(KIP-664)."""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT16, INT32, INT64, STRING, array, wire


@dataclass(slots=True)
class DescribeProducersTopicRequest:
    """Partitions of one topic."""

    name: str = wire(STRING)
    partition_indexes: list[int] = wire(array(INT32))


@dataclass(slots=True)
class DescribeProducersRequest:
    """The partitions to tell about."""

    topics: list[DescribeProducersTopicRequest] = wire(array(DescribeProducersTopicRequest))


@dataclass(slots=True)
class DescribeProducersState:
    """One producer, and what it wrote last; -1 for what it has not, or not any more."""

    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT32)
    last_sequence: int = wire(INT32, default=-1)
    last_timestamp: int = wire(INT64, default=-1)
    coordinator_epoch: int = wire(INT32)
    current_txn_start_offset: int = wire(INT64, default=-1)


@dataclass(slots=True)
class DescribeProducersPartitionResponse:
    """The producers of one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    active_producers: list[DescribeProducersState] = wire(array(DescribeProducersState))


@dataclass(slots=True)
class DescribeProducersTopicResponse:
    """Partitions of one topic."""

    name: str = wire(STRING)
    partitions: list[DescribeProducersPartitionResponse] = wire(
        array(DescribeProducersPartitionResponse)
    )


@dataclass(slots=True)
class DescribeProducersResponse:
    """The producers of the partitions asked for."""

    throttle_time_ms: int = wire(INT32)
    topics: list[DescribeProducersTopicResponse] = wire(array(DescribeProducersTopicResponse))
