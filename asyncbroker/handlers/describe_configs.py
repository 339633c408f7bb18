"""DescribeConfigs (key 32), versions 0 to 4.

Behaviour: topics (type 2), brokers (type 4) and groups (type 32, KIP-848), all settings or those
asked for, in the order of the keys, which kafkajs' own tests rely on. A null or an empty list of
keys means all, and unknown keys are left out. A broker is this one by its id; by the empty name it
is the dynamic settings that hold for all brokers. A group need not exist. Each resource has its own
error. Values of passwords are never shown.

v0   `is_default`; later versions name the source instead
v1   sources and synonyms (KIP-226): topic, dynamic, static, default, in this order, with the
     stand-ins of a setting behind it (`log.retention.ms`, `.minutes`, `.hours`); without a value
     of the setting's own name, Kafka tells none of them
v3   types and documentation (KIP-569)
v4   flexible (KIP-482)

Not done: loggers of a broker (type 8), client metrics (16).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from asyncbroker.config_entries import (
    ConfigEntry,
    ConfigSource,
    broker_entries,
    dynamic_default_entries,
    group_entries,
    topic_entries,
)
from asyncbroker.group_settings import check_group_id
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from asyncbroker.topic_names import check_topic_name

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext

TOPIC: Final = 2
BROKER: Final = 4
GROUP: Final = 32


def handle(
    broker: Broker, _context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Tells the settings of each resource."""
    return DescribeConfigsResponse(
        results=[_describe(broker, request, resource) for resource in request.resources]
    )


def _describe(
    broker: Broker, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        entries_of = ENTRIES.get(resource.resource_type)
        if entries_of is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"resources of type {resource.resource_type} have no settings here",
            )
        entries = entries_of(broker, resource.resource_name)
        result.configs = [
            _result(request, entry) for entry in _chosen(entries, resource.configuration_keys)
        ]
    except KafkaError as error:
        result.error_code = error.code
        result.error_message = error.message
    return result


def _chosen(entries: Iterable[ConfigEntry], keys: list[str] | None) -> Iterable[ConfigEntry]:
    """All entries, or those with these names, in their order."""
    if not keys:
        return entries
    by_name = {entry.setting.name: entry for entry in entries}
    return [by_name[key] for key in dict.fromkeys(keys) if key in by_name]


def _topic_entries(broker: Broker, name: str) -> Iterable[ConfigEntry]:
    check_topic_name(name)
    topic = broker.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    return topic_entries(topic.config.overrides, broker.config)


def _broker_entries(broker: Broker, name: str) -> Iterable[ConfigEntry]:
    if not name:
        return dynamic_default_entries(broker.config)
    check_broker_name(broker, name)
    return broker_entries(broker.config)


def _group_entries(broker: Broker, group_id: str) -> Iterable[ConfigEntry]:
    check_group_id(group_id)
    return group_entries(broker.group_settings.of(group_id), broker.config)


def check_broker_name(broker: Broker, name: str) -> None:
    """Raises KafkaError(INVALID_REQUEST) for the name of a broker that is not this one."""
    if name != str(broker.node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"this is broker {broker.node_id}, not {name!r}; the empty name means all brokers",
        )


ENTRIES: Final[dict[int, Callable[[Broker, str], Iterable[ConfigEntry]]]] = {
    TOPIC: _topic_entries,
    BROKER: _broker_entries,
    GROUP: _group_entries,
}


def _result(request: DescribeConfigsRequest, entry: ConfigEntry) -> DescribeConfigsResourceResult:
    setting = entry.setting
    result = DescribeConfigsResourceResult(
        name=setting.name,
        value=None if setting.is_sensitive else entry.value,
        read_only=entry.is_read_only,
        is_default=entry.source is ConfigSource.DEFAULT,
        config_source=entry.source,
        is_sensitive=setting.is_sensitive,
        config_type=setting.type,
    )
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(name, None if setting.is_sensitive else value, source)
            for name, value, source in entry.synonyms
        ]
    if request.include_documentation:
        result.documentation = setting.documentation
    return result
