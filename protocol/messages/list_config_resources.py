"""ListConfigResources (key 74), versions 0 to 1: what has settings (KIP-714: client metrics only).

v1   any types of resources (KIP-1142)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from asyncbroker.protocol.schema import INT8, INT16, INT32, STRING, array, wire

CLIENT_METRICS: Final = 16


@dataclass(slots=True)
class ListConfigResourcesRequest:
    """The types to list: 2 topics, 4 brokers, 8 their loggers, 16 client metrics, 32 groups. An
    empty list means all."""

    resource_types: list[int] = wire(array(INT8), "1+")


@dataclass(slots=True)
class ConfigResource:
    """One resource."""

    resource_name: str = wire(STRING)
    resource_type: int = wire(INT8, "1+", default=CLIENT_METRICS, ignorable=True)


@dataclass(slots=True)
class ListConfigResourcesResponse:
    """The resources of these types."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    config_resources: list[ConfigResource] = wire(array(ConfigResource))
