"""DescribeTopicPartitions (key 75), version 0: topics with their partitions, in pages (KIP-966)."""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import BOOL, INT16, INT32, STRING, UUID, array, wire

OPERATIONS_NOT_ASKED = -(1 << 31)


@dataclass(slots=True)
class TopicRequest:
    """A topic by its name."""

    name: str = wire(STRING)


@dataclass(slots=True)
class Cursor:
    """Where a page begins."""

    topic_name: str = wire(STRING)
    partition_index: int = wire(INT32)


@dataclass(slots=True)
class DescribeTopicPartitionsRequest:
    """The topics to describe (none: all), how many partitions a page may have, and where it
    begins (null: with the first topic)."""

    topics: list[TopicRequest] = wire(array(TopicRequest))
    response_partition_limit: int = wire(INT32, default=2000)
    cursor: Cursor | None = wire(Cursor, nullable="0+", default=None)


@dataclass(slots=True)
class DescribeTopicPartitionsResponsePartition:
    """A partition with its leader and replicas; of the eligible leaders (ELR), null is unknown."""

    error_code: int = wire(INT16)
    partition_index: int = wire(INT32)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32, default=-1, ignorable=True)
    replica_nodes: list[int] = wire(array(INT32))
    isr_nodes: list[int] = wire(array(INT32))
    eligible_leader_replicas: list[int] | None = wire(
        array(INT32), nullable="0+", default=None, ignorable=True
    )
    last_known_elr: list[int] | None = wire(
        array(INT32), nullable="0+", default=None, ignorable=True
    )
    offline_replicas: list[int] = wire(array(INT32), ignorable=True)


@dataclass(slots=True)
class DescribeTopicPartitionsResponseTopic:
    """A topic with those of its partitions that are on the page."""

    error_code: int = wire(INT16)
    name: str | None = wire(STRING, nullable="0+")
    topic_id: bytes = wire(UUID, ignorable=True)
    is_internal: bool = wire(BOOL, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = wire(
        array(DescribeTopicPartitionsResponsePartition)
    )
    topic_authorized_operations: int = wire(INT32, default=OPERATIONS_NOT_ASKED)


@dataclass(slots=True)
class DescribeTopicPartitionsResponse:
    """A page, and where the next one begins (null: there is none)."""

    throttle_time_ms: int = wire(INT32, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = wire(
        array(DescribeTopicPartitionsResponseTopic)
    )
    next_cursor: Cursor | None = wire(Cursor, nullable="0+", default=None, ignorable=True)
