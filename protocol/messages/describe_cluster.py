"""DescribeCluster (key 60), versions 0 to 2: the brokers, the controller, the cluster id (KIP-700).

v1   the type of the endpoints, brokers or controllers (KIP-919)
v2   brokers that are fenced, if asked for (KIP-1073)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import BOOL, INT8, INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class DescribeClusterRequest:
    """`endpoint_type` 1 asks for brokers, 2 for controllers."""

    include_cluster_authorized_operations: bool = wire(BOOL)
    endpoint_type: int = wire(INT8, "1+", default=1)
    include_fenced_brokers: bool = wire(BOOL, "2+")


@dataclass(slots=True)
class DescribeClusterBroker:
    """A broker's address on the listener that the request came in on."""

    broker_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, nullable="0+", default=None)
    is_fenced: bool = wire(BOOL, "2+")


@dataclass(slots=True)
class DescribeClusterResponse:
    """The cluster as this broker knows it."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    endpoint_type: int = wire(INT8, "1+", default=1)
    cluster_id: str = wire(STRING)
    controller_id: int = wire(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = wire(array(DescribeClusterBroker))
    cluster_authorized_operations: int = wire(INT32, default=-2147483648)
