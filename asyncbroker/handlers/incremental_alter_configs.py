"""IncrementalAlterConfigs (key 44), versions 0 to 1.

Behaviour: changes single settings of topics (type 2), brokers (type 4) and groups (type 32, which
need not exist), all changes of a resource or none; each resource has its own outcome. Operations:
SET, DELETE (back to what is inherited), APPEND and SUBTRACT for lists, which start from the value
in force. A broker is this one by its id, or all brokers by the empty name, and takes only settings
that can change while it runs. Changes of a topic hold for its logs when the response is sent.

v1   flexible (KIP-482)

Not done: loggers of a broker (type 8), client metrics (16).
"""

from __future__ import annotations

from collections.abc import Coroutine
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from asyncbroker.handlers.config_changes import Present, ResourceChange, change_resources
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from asyncbroker.settings import SettingType

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
    changes = [
        ResourceChange(
            resource.resource_type,
            resource.resource_name,
            [config.name for config in resource.configs],
            partial(_change, resource.configs),
        )
        for resource in request.resources
    ]
    errors = await change_resources(broker, changes, validate_only=request.validate_only)
    response = IncrementalAlterConfigsResponse()
    for change, error in zip(changes, errors, strict=True):
        outcome = IncrementalAlterConfigsResourceResponse(
            resource_type=change.resource_type, resource_name=change.resource_name
        )
        if error is not None:
            outcome.error_code, outcome.error_message = error.code, error.message
        response.responses.append(outcome)
    return response


def _change(configs: list[IncrementalAlterableConfig], present: Present) -> dict[str, str]:
    """What is set after the changes."""
    changed = dict(present.settings)
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
        setting = present.setting_of(name)
        if setting is None or setting.type is not SettingType.LIST:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}: there is no list of this name")
        is_append = config.config_operation == Operation.APPEND
        changed[name] = _change_list(is_append, changed.get(name, present.in_force(name)), value)
    return changed


def _change_list(is_append: bool, present: str | None, value: str) -> str:
    """A list with the items of `value` added at its end, or taken out."""
    items = [item for item in (present or "").split(",") if item]
    named = [item.strip() for item in value.split(",") if item.strip()]
    if is_append:
        return ",".join([*items, *(item for item in named if item not in items)])
    return ",".join(item for item in items if item not in named)
