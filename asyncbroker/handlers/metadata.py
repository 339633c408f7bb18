"""Metadata (key 3), versions 0 to 13.

Behaviour: one broker, this one, at the address of the listener that the request came in on; it is
the controller, and the leader and only replica of every partition. A topic that does not exist is
created if the request and `auto.create.topics.enable` allow it, and answered when it is ready, so
that a client need not ask again. A name that no topic can have gets INVALID_TOPIC_EXCEPTION; each
topic has its own error.

v0   an empty list means all topics; from v1 on null means all, and empty means none
v1   racks, the controller, internal topics (KIP-4)
v2   the cluster's id (KIP-78)
v4   the client says whether topics may be created (KIP-204); earlier versions always allow it
v5   offline replicas (KIP-112): never any
v7   leader epochs (KIP-320)
v8   authorized operations (KIP-430): all of them, when asked
v9   flexible (KIP-482)
v10  topic ids in the response (KIP-516); in a request they are INVALID_REQUEST before v12
v12  topics by id (KIP-516): an unknown one gets UNKNOWN_TOPIC_ID, and no name. As in Kafka, one
     topic by id makes all names of the request ignored
v13  an error at the top (KIP-1102): that of a request which is refused as a whole. Nobody is sent
     back to bootstrap anew
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from asyncbroker.protocol.schema import ZERO_UUID
from asyncbroker.topic import Topic
from asyncbroker.topic_config import automatic_topic
from asyncbroker.topic_names import INTERNAL_TOPICS, check_topic_name

if TYPE_CHECKING:
    from asyncio import Future

    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext

EMPTY_MEANS_ALL_VERSION: Final = 0
TOPIC_IDS_VERSION: Final = 12


def handle(
    broker: Broker, context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    """Tells about the topics asked for, at once unless one has to be created."""
    response = _about_the_cluster(broker, context, request)
    asked = request.topics
    if asked is None or (not asked and context.api_version == EMPTY_MEANS_ALL_VERSION):
        response.topics = [_describe(broker, topic) for topic in broker.topics]
    elif any(topic.topic_id != ZERO_UUID for topic in asked):
        if context.api_version < TOPIC_IDS_VERSION:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "topic ids can be asked for from v12 on")
        # Each once and in order, as are the names below.
        for topic_id in dict.fromkeys(topic.topic_id for topic in asked):
            response.topics.append(_describe_by_id(broker, topic_id))
    else:
        names = dict.fromkeys(topic.name for topic in asked)
        if None in names:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic has neither a name nor an id")
        return _answer_names(broker, request, response, (name or "" for name in names))
    return _with_operations(request, response)


def _about_the_cluster(
    broker: Broker, context: RequestContext, request: MetadataRequest
) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.node_id,
                host=context.listener.host,
                port=context.listener.port,
                rack=broker.config.broker_rack,
            )
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _answer_names(
    broker: Broker, request: MetadataRequest, response: MetadataResponse, names: Iterable[str]
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    """Describes topics by name. Creation of all that are missing is begun before any is awaited."""
    may_create = request.allow_auto_topic_creation and broker.config.auto_create_topics_enable
    creations: list[tuple[MetadataResponseTopic, Future[Topic]]] = []
    for name in names:
        found: Topic | Future[Topic] | None = broker.topics.get(name)
        error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            if found is None:
                check_topic_name(name)
                if may_create:
                    found = broker.topics.ensure(name, *automatic_topic(name, broker.config))
        except KafkaError as error:
            error_code = error.code
        if isinstance(found, Topic):
            response.topics.append(_describe(broker, found))
            continue
        missing = MetadataResponseTopic(error_code, name, is_internal=name in INTERNAL_TOPICS)
        response.topics.append(missing)
        if found is not None:
            creations.append((missing, found))
    if creations:
        return _await_creations(broker, request, response, creations)
    return _with_operations(request, response)


async def _await_creations(
    broker: Broker,
    request: MetadataRequest,
    response: MetadataResponse,
    creations: list[tuple[MetadataResponseTopic, Future[Topic]]],
) -> MetadataResponse:
    created = {}
    for missing, creation in creations:
        try:
            created[missing.name] = _describe(broker, await creation)
        except KafkaError as error:
            missing.error_code = error.code
    response.topics = [created.get(topic.name, topic) for topic in response.topics]
    return _with_operations(request, response)


def _describe_by_id(broker: Broker, topic_id: bytes) -> MetadataResponseTopic:
    topic = broker.topics.by_id(topic_id)
    if topic is None:
        return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    return _describe(broker, topic)


def _describe(broker: Broker, topic: Topic) -> MetadataResponseTopic:
    replicas = [broker.node_id]
    # There may be thousands of partitions, hence positional: error, index, leader, leader epoch,
    # replicas, in-sync replicas, offline replicas.
    offline: list[int] = []
    leader_id = broker.node_id
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                0, partition.index, leader_id, partition.leader_epoch, replicas, replicas, offline
            )
            for partition in topic.partitions
        ],
    )


def _with_operations(request: MetadataRequest, response: MetadataResponse) -> MetadataResponse:
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            if topic.error_code == ErrorCode.NONE:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    return response
