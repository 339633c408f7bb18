"""IncrementalAlterConfigs (key 44), versions 0 to 1: changes single settings (KIP-339).

v1   flexible (KIP-482)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import BOOL, INT8, INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class IncrementalAlterableConfig:
    """A change: operation 0 sets, 1 deletes, 2 appends to a list, 3 takes away from it."""

    name: str = wire(STRING)
    config_operation: int = wire(INT8)
    value: str | None = wire(STRING, nullable="0+", default=None)


@dataclass(slots=True)
class IncrementalAlterConfigsResource:
    """A topic (type 2) or a broker (type 4), and the changes to its settings."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: list[IncrementalAlterableConfig] = wire(array(IncrementalAlterableConfig))


@dataclass(slots=True)
class IncrementalAlterConfigsRequest:
    """The resources to change."""

    resources: list[IncrementalAlterConfigsResource] = wire(array(IncrementalAlterConfigsResource))
    validate_only: bool = wire(BOOL)


@dataclass(slots=True)
class IncrementalAlterConfigsResourceResponse:
    """The outcome for one resource."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)


@dataclass(slots=True)
class IncrementalAlterConfigsResponse:
    """An outcome for each resource of the request."""

    throttle_time_ms: int = wire(INT32)
    responses: list[IncrementalAlterConfigsResourceResponse] = wire(
        array(IncrementalAlterConfigsResourceResponse)
    )
