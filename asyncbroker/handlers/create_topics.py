"""CreateTopics (key 19), versions 0 to 7.

Behaviour: each topic has its own outcome, given when it is durable and can be used. Counts of -1
mean `num.partitions` and one replica. More replicas than one are INVALID_REPLICATION_FACTOR, unless
`asyncbroker.replication.factor.cap` is set. Manual assignments must put every partition on this
broker. The whole request is checked as Kafka's controller does it; `validate_only` does only that.
`timeout_ms` is not obeyed, as a creation is quick.

v1   `validate_only`, error messages
v4   -1 means the default (KIP-464): taken from earlier versions too
v5   the response has the topic's size and settings (KIP-525)
v6   THROTTLING_QUOTA_EXCEEDED (KIP-599): never, there are no quotas
v7   the topic's id (KIP-516); zeros with `validate_only`

Versions 0 and 1, which Kafka 4 no longer has, are served because infrastructure tools still send
them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.config_entries import topic_entries
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from asyncbroker.topic_config import check_overrides
from asyncbroker.topic_names import CLUSTER_METADATA_TOPIC

if TYPE_CHECKING:
    from asyncio import Future

    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext
    from asyncbroker.topic import Topic

logger = logging.getLogger(__name__)

DEFAULT: Final = -1


def handle(
    broker: Broker, _context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse | Coroutine[Any, Any, CreateTopicsResponse]:
    """Creates the topics asked for, or only says whether they could be."""
    response = CreateTopicsResponse()
    creations: list[tuple[CreatableTopicResult, Future[Topic]]] = []
    name_counts = Counter(topic.name for topic in request.topics)
    described = _DescribedConfigs(broker)
    # A name that comes twice has one outcome, as in Kafka.
    for topic in {topic.name: topic for topic in request.topics}.values():
        result = CreatableTopicResult(name=topic.name, configs=[])
        response.topics.append(result)
        try:
            if name_counts[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {topic.name} is named twice")
            overrides = _check_configs(broker, topic)
            partition_count = _check_size(broker, topic)
            broker.topics.check_new(topic.name, partition_count)
            if not request.validate_only:
                creation = broker.topics.create(topic.name, partition_count, overrides)
                creations.append((result, creation))
        except KafkaError as error:
            _refuse(result, error)
            continue
        result.num_partitions = partition_count
        result.replication_factor = 1
        result.configs = described.of(overrides)
    return _await_creations(response, creations) if creations else response


async def _await_creations(
    response: CreateTopicsResponse, creations: list[tuple[CreatableTopicResult, Future[Topic]]]
) -> CreateTopicsResponse:
    for result, creation in creations:
        try:
            result.topic_id = (await creation).topic_id
        except KafkaError as error:
            _refuse(result, error)
    return response


def _refuse(result: CreatableTopicResult, error: KafkaError) -> None:
    result.error_code = error.code
    result.error_message = error.message
    result.num_partitions = result.replication_factor = -1
    result.configs = []


def _check_configs(broker: Broker, topic: CreatableTopic) -> dict[str, str]:
    if topic.name == CLUSTER_METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic.name} is not a topic for clients")
    return check_overrides({config.name: config.value for config in topic.configs}, broker.config)


def _check_size(broker: Broker, topic: CreatableTopic) -> int:
    """How many partitions the topic gets."""
    if topic.assignments:
        if topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "with a manual assignment both counts must be -1"
            )
        return _check_assignments(broker, topic.assignments)
    if topic.num_partitions < DEFAULT or topic.num_partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"{topic.num_partitions} partitions are not possible"
        )
    if topic.replication_factor < DEFAULT or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{topic.replication_factor} replicas are not possible",
        )
    if topic.replication_factor > 1:
        if not broker.config.replication_factor_cap:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{topic.replication_factor} replicas are not possible: there is one broker",
            )
        logger.warning(
            "topic %s gets one replica instead of %d", topic.name, topic.replication_factor
        )
    if topic.num_partitions == DEFAULT:
        return broker.config.num_partitions
    return topic.num_partitions


def _check_assignments(broker: Broker, assignments: list[CreatableReplicaAssignment]) -> int:
    indexes = sorted(assignment.partition_index for assignment in assignments)
    if indexes != list(range(len(assignments))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 on, each once"
        )
    for assignment in assignments:
        if assignment.broker_ids != [broker.node_id]:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {assignment.partition_index} is assigned to brokers "
                f"{assignment.broker_ids}: there is only {broker.node_id}",
            )
    return len(assignments)


class _DescribedConfigs:
    """The settings of new topics as the response lists them, made once for equal overrides."""

    def __init__(self, broker: Broker) -> None:
        self._config = broker.config
        self._made: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = {}

    def of(self, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """All settings of a topic with these overrides."""
        key = tuple(sorted(overrides.items()))
        if key not in self._made:
            self._made[key] = [
                CreatableTopicConfigs(
                    name=entry.setting.name, value=entry.value, config_source=entry.source
                )
                for entry in topic_entries(overrides, self._config)
            ]
        return self._made[key]
