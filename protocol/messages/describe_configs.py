"""DescribeConfigs (key 32), versions 0 to 4: settings of topics and brokers (KIP-133).

v1   where each value comes from, and its synonyms (KIP-226)
v2   on a quota violation the response comes at once and says how long to wait (KIP-219)
v3   types and documentation of settings (KIP-569)
v4   flexible (KIP-482)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import BOOL, INT8, INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class DescribeConfigsResource:
    """A topic (type 2) or a broker (type 4), and the settings asked for: null means all."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configuration_keys: list[str] | None = wire(array(STRING), nullable="0+")


@dataclass(slots=True)
class DescribeConfigsRequest:
    """The resources to describe."""

    resources: list[DescribeConfigsResource] = wire(array(DescribeConfigsResource))
    include_synonyms: bool = wire(BOOL, "1+")
    include_documentation: bool = wire(BOOL, "3+")


@dataclass(slots=True)
class DescribeConfigsSynonym:
    """Another place that has a value for the setting, the one in force first."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+", default=None)
    source: int = wire(INT8)


@dataclass(slots=True)
class DescribeConfigsResourceResult:
    """A setting and where its value comes from.

    Sources: 1 topic, 2 and 3 dynamic broker, 4 static broker, 5 default. Types: 1 boolean, 2
    string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password. A sensitive value is
    null.
    """

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+", default=None)
    read_only: bool = wire(BOOL)
    is_default: bool = wire(BOOL, "0", ignorable=True)
    config_source: int = wire(INT8, "1+", default=-1, ignorable=True)
    is_sensitive: bool = wire(BOOL)
    synonyms: list[DescribeConfigsSynonym] = wire(
        array(DescribeConfigsSynonym), "1+", ignorable=True
    )
    config_type: int = wire(INT8, "3+", ignorable=True)
    documentation: str | None = wire(STRING, "3+", nullable="0+", default=None, ignorable=True)


@dataclass(slots=True)
class DescribeConfigsResult:
    """The settings of one resource."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: list[DescribeConfigsResourceResult] = wire(array(DescribeConfigsResourceResult))


@dataclass(slots=True)
class DescribeConfigsResponse:
    """The settings of each resource."""

    throttle_time_ms: int = wire(INT32)
    results: list[DescribeConfigsResult] = wire(array(DescribeConfigsResult))
