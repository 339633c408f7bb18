"""IncrementalAlterConfigs (key 44), versions 0 to 1.

Behaviour: changes single settings of topics (type 2) and brokers (type 4), all changes of a
resource or none; each resource has its own outcome. Operations: SET, DELETE (back to what is
inherited), APPEND and SUBTRACT for lists, which start from the value in force. A broker is this one
by its id, or all brokers by the empty name, and takes only settings that can change while it runs.
Changes of a topic hold for its logs when the response is sent.

v1   flexible (KIP-482)

Not done: loggers of a broker (type 8), client metrics (16), groups (32).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.config_entries import broker_entry, is_dynamic, topic_entry
from asyncbroker.handlers.describe_configs import BROKER, TOPIC, check_broker_name
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from asyncbroker.settings import Setting, SettingType, broker_setting, topic_settings
from asyncbroker.topic_config import check_overrides
from asyncbroker.topic_names import check_topic_name

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext


class Operation(IntEnum):
    """What to do with a setting (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def handle(
    broker: Broker, _context: RequestContext, request: IncrementalAlterConfigsRequest
) -> Coroutine[Any, Any, IncrementalAlterConfigsResponse]:
    """Changes the settings of each resource, or only says whether they could be."""
    return _alter_all(broker, request)


async def _alter_all(
    broker: Broker, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    response = IncrementalAlterConfigsResponse()
    counts = Counter((each.resource_type, each.resource_name) for each in request.resources)
    for resource in request.resources:
        outcome = IncrementalAlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.responses.append(outcome)
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the resource is named twice")
            alter = ALTER.get(resource.resource_type)
            if alter is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"resources of type {resource.resource_type} have no settings here",
                )
            # The new settings follow from the present ones, so that another change of them must
            # not come in between.
            async with broker.altering:
                await alter(broker, resource, request.validate_only)
        except KafkaError as error:
            outcome.error_code = error.code
            outcome.error_message = error.message
    return response


async def _alter_topic(
    broker: Broker, resource: IncrementalAlterConfigsResource, validate_only: bool
) -> None:
    name = resource.resource_name
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "topics have no settings in common")
    check_topic_name(name)
    topic = broker.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    present = topic.config.overrides
    changed = _change(
        resource.configs,
        present,
        topic_settings().get,
        lambda name: topic_entry(name, present, broker.config).value,
    )
    overrides = check_overrides(changed, broker.config)
    if not validate_only:
        await broker.topics.set_overrides(topic, overrides)


async def _alter_broker(
    broker: Broker, resource: IncrementalAlterConfigsResource, validate_only: bool
) -> None:
    name = resource.resource_name
    if name:
        check_broker_name(broker, name)
    for config in resource.configs:
        if broker_setting(config.name) is not None and not is_dynamic(config.name):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{config.name} cannot change while the broker runs"
            )
    present = broker.config.dynamic if name else broker.config.dynamic_default
    changed = _change(
        resource.configs,
        present,
        broker_setting,
        lambda name: broker_entry(name, broker.config).value,
    )
    await broker.set_dynamic_settings(name, changed, validate_only=validate_only)


ALTER: Final[
    dict[
        int,
        Callable[[Broker, IncrementalAlterConfigsResource, bool], Coroutine[Any, Any, None]],
    ]
] = {TOPIC: _alter_topic, BROKER: _alter_broker}


def _change(
    configs: list[IncrementalAlterableConfig],
    present: Mapping[str, str],
    setting_of: Callable[[str], Setting | None],
    in_force: Callable[[str], str | None],
) -> dict[str, str]:
    """What is set after the changes. `in_force` has the values of what is not set here."""
    changed = dict(present)
    if len({config.name for config in configs}) < len(configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a setting is named twice")
    for config in configs:
        name, value = config.name, config.value
        if config.config_operation == Operation.DELETE:
            changed.pop(name, None)
            continue
        if value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: there is no value")
        if config.config_operation == Operation.SET:
            changed[name] = value
            continue
        if config.config_operation not in (Operation.APPEND, Operation.SUBTRACT):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{name}: no operation {config.config_operation}"
            )
        setting = setting_of(name)
        if setting is None or setting.type is not SettingType.LIST:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}: there is no list of this name")
        is_append = config.config_operation == Operation.APPEND
        changed[name] = _change_list(is_append, changed.get(name, in_force(name)), value)
    return changed


def _change_list(is_append: bool, present: str | None, value: str) -> str:
    """A list with the items of `value` added at its end, or taken out."""
    items = [item for item in (present or "").split(",") if item]
    named = [item.strip() for item in value.split(",") if item.strip()]
    if is_append:
        return ",".join([*items, *(item for item in named if item not in items)])
    return ",".join(item for item in items if item not in named)
