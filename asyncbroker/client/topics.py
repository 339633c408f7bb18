"""Topics and their settings: create, grow, delete, describe, change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.connection import Connection, Deadline
from asyncbroker.client.errors import BrokerError
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from asyncbroker.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from asyncbroker.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from asyncbroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from asyncbroker.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

BROKER_DEFAULT: Final = -1
"""The number of partitions or replicas that leaves the choice to the broker (KIP-464)."""


class ResourceType(IntEnum):
    """What has settings."""

    TOPIC = 2
    BROKER = 4


class ConfigOperation(IntEnum):
    """What to do to a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> CreatableTopicResult:
    """Creates a topic, and waits until it has leaders. Raises `BrokerError`."""

    def create(deadline: Deadline) -> CreatableTopicResult:
        connection = cluster.connection(cluster.controller(deadline), deadline)
        topic = CreatableTopic(
            name,
            partitions,
            replication_factor,
            configs=[CreatableTopicConfig(key, value) for key, value in (configs or {}).items()],
        )
        if connection.version_of(CreateTopicsRequest) < 4:
            # Brokers before KIP-464 have no default to leave it to.
            topic.num_partitions = 1 if partitions == BROKER_DEFAULT else partitions
            topic.replication_factor = (
                1 if replication_factor == BROKER_DEFAULT else replication_factor
            )
        request = CreateTopicsRequest([topic], deadline.for_broker_ms, validate_only)
        response = connection.request(request, CreateTopicsResponse, deadline)
        row = response.topics[0]
        _check(row.error_code, "CreateTopics", f"topic {name!r}", connection, row.error_message)
        return row

    result = cluster.retrying(create)
    if not validate_only:
        cluster.retrying(lambda deadline: _await_leaders(cluster, name, deadline))
    return result


def create_partitions(cluster: Cluster, name: str, count: int) -> None:
    """Gives a topic `count` partitions in all, and waits until they have leaders. Raises
    `BrokerError`."""

    def create(deadline: Deadline) -> None:
        connection = cluster.connection(cluster.controller(deadline), deadline)
        topic = CreatePartitionsTopic(name, count, None)
        request = CreatePartitionsRequest([topic], deadline.for_broker_ms)
        row = connection.request(request, CreatePartitionsResponse, deadline).results[0]
        _check(row.error_code, "CreatePartitions", f"topic {name!r}", connection, row.error_message)

    cluster.retrying(create)
    cluster.retrying(lambda deadline: _await_leaders(cluster, name, deadline))


def delete_topic(cluster: Cluster, name: str) -> None:
    """Deletes a topic. Raises `BrokerError`."""

    def delete(deadline: Deadline) -> None:
        connection = cluster.connection(cluster.controller(deadline), deadline)
        request = DeleteTopicsRequest(timeout_ms=deadline.for_broker_ms)
        if connection.version_of(DeleteTopicsRequest) >= 6:
            request.topics = [DeleteTopicState(name)]
        else:
            request.topic_names = [name]
        row = connection.request(request, DeleteTopicsResponse, deadline).responses[0]
        _check(row.error_code, "DeleteTopics", f"topic {name!r}", connection, row.error_message)
        cluster.forget()

    cluster.retrying(delete)


def describe_configs(
    cluster: Cluster,
    resource_type: ResourceType,
    name: str,
    *,
    keys: Sequence[str] | None = None,
    include_synonyms: bool = False,
) -> list[DescribeConfigsResourceResult]:
    """The settings of a topic or of a broker (by its id), all of them or those named in `keys`."""

    def describe(deadline: Deadline) -> list[DescribeConfigsResourceResult]:
        connection = _connection_for(cluster, resource_type, name, deadline)
        resource = DescribeConfigsResource(
            resource_type, name, None if keys is None else list(keys)
        )
        request = DescribeConfigsRequest([resource])
        if connection.version_of(DescribeConfigsRequest) >= 1:
            request.include_synonyms = include_synonyms
        row = connection.request(request, DescribeConfigsResponse, deadline).results[0]
        subject = f"{resource_type.name.lower()} {name!r}"
        _check(row.error_code, "DescribeConfigs", subject, connection, row.error_message)
        return sorted(row.configs, key=lambda config: config.name)

    return cluster.retrying(describe)


def alter_configs(
    cluster: Cluster,
    resource_type: ResourceType,
    name: str,
    changes: Sequence[IncrementalAlterableConfig],
    *,
    validate_only: bool = False,
) -> None:
    """Changes single settings of a topic or a broker (Kafka 2.3 and later)."""

    def alter(deadline: Deadline) -> None:
        connection = _connection_for(cluster, resource_type, name, deadline)
        resource = IncrementalAlterConfigsResource(resource_type, name, list(changes))
        request = IncrementalAlterConfigsRequest([resource], validate_only)
        row = connection.request(request, IncrementalAlterConfigsResponse, deadline).responses[0]
        subject = f"{resource_type.name.lower()} {name!r}"
        _check(row.error_code, "IncrementalAlterConfigs", subject, connection, row.error_message)

    cluster.retrying(alter)


def _await_leaders(cluster: Cluster, name: str, deadline: Deadline) -> None:
    """One look at a topic that was just created. Other brokers hear of it a little later, so it
    may be unknown yet: that passes."""
    cluster.forget()
    rows = cluster.metadata([name], deadline).topics
    if not rows or rows[0].error_code != ErrorCode.NONE:
        code = rows[0].error_code if rows else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise BrokerError(code, api="Metadata", subject=f"topic {name!r}", is_retriable=True)
    if any(partition.leader_id < 0 for partition in rows[0].partitions):
        raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, api="Metadata", subject=f"topic {name!r}")


def _connection_for(
    cluster: Cluster, resource_type: ResourceType, name: str, deadline: Deadline
) -> Connection:
    """A broker's settings are that broker's business; any broker knows those of topics."""
    if resource_type is ResourceType.BROKER and name:
        return cluster.connection(int(name), deadline)
    return cluster.any_connection(deadline)


def _check(code: int, api: str, subject: str, connection: Connection, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise BrokerError(
            code, api=api, subject=subject, broker=str(connection.address), message=message
        )
