"""AlterConfigs (key 33), versions 0 to 2.

Behaviour: replaces all settings of topics (type 2), brokers (type 4) and groups (type 32) that were
made for them: a setting that the request does not name goes back to what is inherited (KIP-133).
This is the older way, which loses what others set at the same time; IncrementalAlterConfigs is the
better one. Each resource has its own outcome and changes as a whole or not at all. A value must not
be null.

v2   flexible (KIP-482)

Not done: loggers of a broker (type 8), client metrics (16).
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from asyncbroker.handlers.config_changes import Present, ResourceChange, change_resources
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext


def handle(
    broker: Broker, _context: RequestContext, request: AlterConfigsRequest
) -> Coroutine[Any, Any, AlterConfigsResponse]:
    """Replaces the settings of each resource, or only says whether they could be."""
    return _alter_all(broker, request)


async def _alter_all(broker: Broker, request: AlterConfigsRequest) -> AlterConfigsResponse:
    changes = [
        ResourceChange(
            resource.resource_type,
            resource.resource_name,
            [config.name for config in resource.configs],
            partial(_replace, resource.configs),
        )
        for resource in request.resources
    ]
    errors = await change_resources(broker, changes, validate_only=request.validate_only)
    response = AlterConfigsResponse()
    for change, error in zip(changes, errors, strict=True):
        outcome = AlterConfigsResourceResponse(
            resource_type=change.resource_type, resource_name=change.resource_name
        )
        if error is not None:
            outcome.error_code, outcome.error_message = error.code, error.message
        response.responses.append(outcome)
    return response


def _replace(configs: list[AlterableConfig], _present: Present) -> dict[str, str]:
    replaced = {}
    for config in configs:
        if config.value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{config.name}: there is no value")
        replaced[config.name] = config.value
    return replaced
