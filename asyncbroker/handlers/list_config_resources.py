"""ListConfigResources (key 74), versions 0 to 1.

Behaviour: the resources that settings can be asked of, by type: topics, brokers and groups (those
with settings of their own); no types mean all. `kafka-configs --entity-type groups` asks it.

v0   client metrics only (type 16, KIP-714): there are none
v1   any types (KIP-1142); another than the five of Kafka's is UNSUPPORTED_VERSION

Not done: the loggers of a broker (type 8). They have no settings here, so that none are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from asyncbroker.handlers.describe_configs import BROKER, GROUP, TOPIC
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.list_config_resources import (
    CLIENT_METRICS,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext

BROKER_LOGGER: Final = 8

NAMES: Final[dict[int, Callable[[Broker], Iterable[str]]]] = {
    TOPIC: lambda broker: [topic.name for topic in broker.topics],
    BROKER: lambda broker: [str(broker.node_id)],
    BROKER_LOGGER: lambda _: [],
    CLIENT_METRICS: lambda _: [],
    GROUP: lambda broker: broker.group_settings.group_ids(),
}


def handle(
    broker: Broker, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Lists the names of the types asked for."""
    if context.api_version == 0:
        return ListConfigResourcesResponse()
    types = request.resource_types or list(NAMES)
    if not set(types) <= NAMES.keys():
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(name, type)
            for type in dict.fromkeys(types)
            for name in NAMES[type](broker)
        ]
    )
