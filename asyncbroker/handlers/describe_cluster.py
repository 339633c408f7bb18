"""DescribeCluster (key 60), versions 0 to 2.

Behaviour: this broker, at the address of the listener that the request came in on, which is the
controller as well; the cluster's id never changes.

v1   brokers or controllers may be asked for (KIP-919). This is a broker's listener, so controllers
     are MISMATCHED_ENDPOINT_TYPE, and anything else UNSUPPORTED_ENDPOINT_TYPE
v2   fenced brokers (KIP-1073): there is never one, as a broker that answers is not fenced
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncbroker.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(
    broker: Broker, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Tells who this broker is."""
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=int(ErrorCode.MISMATCHED_ENDPOINT_TYPE),
            error_message="this is a broker's listener, not a controller's",
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=int(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
            error_message=f"there is no endpoint type {request.endpoint_type}",
        )
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id,
                host=context.listener.host,
                port=context.listener.port,
                rack=broker.config.broker_rack,
            )
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
