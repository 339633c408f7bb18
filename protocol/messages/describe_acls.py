"""DescribeAcls (key 29), versions 1 to 3: who may do what (KIP-140).

v1   patterns of resource names (KIP-290)
v2   flexible (KIP-482)
v3   users as resources (KIP-373)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT8, INT16, INT32, STRING, array, wire

LITERAL_PATTERN = 3


@dataclass(slots=True)
class DescribeAclsRequest:
    """The filter; null and 1 (any) pass all."""

    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, nullable="0+")
    pattern_type_filter: int = wire(INT8, "1+", default=LITERAL_PATTERN)
    principal_filter: str | None = wire(STRING, nullable="0+")
    host_filter: str | None = wire(STRING, nullable="0+")
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@dataclass(slots=True)
class AclDescription:
    """A rule: whether somebody, from somewhere, may do something."""

    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@dataclass(slots=True)
class DescribeAclsResource:
    """A resource with its rules."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8, "1+", default=LITERAL_PATTERN)
    acls: list[AclDescription] = wire(array(AclDescription))


@dataclass(slots=True)
class DescribeAclsResponse:
    """The rules that pass the filter."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    resources: list[DescribeAclsResource] = wire(array(DescribeAclsResource))
