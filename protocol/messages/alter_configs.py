"""AlterConfigs (key 33), versions 0 to 2: replaces the settings of topics and brokers (KIP-133).

v1   on a quota violation the response comes at once and says how long to wait (KIP-219)
v2   flexible (KIP-482)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import BOOL, INT8, INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class AlterableConfig:
    """A setting and its value."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+", default=None)


@dataclass(slots=True)
class AlterConfigsResource:
    """A topic (type 2) or a broker (type 4), and all the settings that it is to have."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: list[AlterableConfig] = wire(array(AlterableConfig))


@dataclass(slots=True)
class AlterConfigsRequest:
    """The resources to change."""

    resources: list[AlterConfigsResource] = wire(array(AlterConfigsResource))
    validate_only: bool = wire(BOOL)


@dataclass(slots=True)
class AlterConfigsResourceResponse:
    """The outcome for one resource."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)


@dataclass(slots=True)
class AlterConfigsResponse:
    """An outcome for each resource of the request."""

    throttle_time_ms: int = wire(INT32, ignorable=True)
    responses: list[AlterConfigsResourceResponse] = wire(array(AlterConfigsResourceResponse))
