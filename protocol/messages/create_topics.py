"""CreateTopics (key 19), versions 0 to 7: creates topics (KIP-4).

v1   `validate_only`, and an error message for each topic
v2   the throttle time (KIP-124)
v3   on a quota violation the response comes at once and says how long to wait (KIP-219)
v4   -1 partitions or replicas means the broker's default (KIP-464)
v5   flexible (KIP-482); the response has the topic's size and configs (KIP-525)
v6   THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599)
v7   the response has the topic's id (KIP-516)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import BOOL, INT8, INT16, INT32, STRING, UUID, array, wire


@dataclass(slots=True)
class CreatableReplicaAssignment:
    """The brokers of one partition, the preferred leader first."""

    partition_index: int = wire(INT32)
    broker_ids: list[int] = wire(array(INT32))


@dataclass(slots=True)
class CreatableTopicConfig:
    """A setting of the new topic."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+", default=None)


@dataclass(slots=True)
class CreatableTopic:
    """A topic: counts (-1: the default), or assignments and counts of -1, and its settings."""

    name: str = wire(STRING)
    num_partitions: int = wire(INT32)
    replication_factor: int = wire(INT16)
    assignments: list[CreatableReplicaAssignment] = wire(array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = wire(array(CreatableTopicConfig))


@dataclass(slots=True)
class CreateTopicsRequest:
    """The topics to create."""

    topics: list[CreatableTopic] = wire(array(CreatableTopic))
    timeout_ms: int = wire(INT32, default=60000)
    validate_only: bool = wire(BOOL, "1+")


@dataclass(slots=True)
class CreatableTopicConfigs:
    """A setting of the created topic, and where its value comes from."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+", default=None)
    read_only: bool = wire(BOOL)
    config_source: int = wire(INT8, default=-1)
    is_sensitive: bool = wire(BOOL)


@dataclass(slots=True)
class CreatableTopicResult:
    """The topic as it was created, or why it was not."""

    name: str = wire(STRING)
    topic_id: bytes = wire(UUID, "7+", ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, "1+", nullable="0+", default=None, ignorable=True)
    topic_config_error_code: int = wire(INT16, "5+", tag=0, ignorable=True)
    num_partitions: int = wire(INT32, "5+", default=-1, ignorable=True)
    replication_factor: int = wire(INT16, "5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = wire(
        array(CreatableTopicConfigs), "5+", nullable="0+", ignorable=True
    )


@dataclass(slots=True)
class CreateTopicsResponse:
    """An outcome for each topic of the request."""

    throttle_time_ms: int = wire(INT32, "2+", ignorable=True)
    topics: list[CreatableTopicResult] = wire(array(CreatableTopicResult))
