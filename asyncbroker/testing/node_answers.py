"""What a node of several answers: its own view of the broker, and the other nodes in its answers.

Produce, Fetch and the like, and all about groups, are served by the broker's handlers with a
`NodeView`. The answers that say who is where (Metadata, DescribeTopicPartitions, DescribeCluster,
FindCoordinator) are the broker's, rewritten; Produce from v10 and Fetch from v16 on name the leader
where there is another one (KIP-951).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.fetch import FetchLeaderIdAndEpoch, FetchNodeEndpoint
from asyncbroker.protocol.messages.produce import ProduceLeaderIdAndEpoch, ProduceNodeEndpoint
from asyncbroker.testing.handler_table import Table, wrapped
from asyncbroker.testing.node_view import NodeView
from asyncbroker.testing.nodes import NO_LEADER

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext
    from asyncbroker.handlers import Handle
    from asyncbroker.protocol.api import Api
    from asyncbroker.testing.nodes import Nodes

# Only these are told by a partition that another node leads it.
LEADER_APIS: Final = frozenset(
    {"Produce", "Fetch", "ListOffsets", "OffsetForLeaderEpoch", "DeleteRecords"}
)
LEADER_NAMED_FROM: Final = {"Produce": 10, "Fetch": 16}
LEADER_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
COORDINATORS_FROM: Final = 4


def node_handlers(table: Table, nodes: Nodes, node_id: int) -> Table:
    """The handlers of one node."""

    def wrap(api: Api, handle: Handle) -> Handle:
        rewrite = REWRITES.get(api.name)
        sees_leaders = api.name in LEADER_APIS

        def serve(broker: Broker, context: RequestContext, request: Any) -> Any:
            view = NodeView(broker, nodes, node_id, sees_leaders=sees_leaders)
            # Of the context only what the request brought may be looked at later.
            version = context.api_version
            response = handle(view, context, request)
            if rewrite is None or response is None:
                return response
            if isinstance(response, Awaitable):
                return _rewrite_later(rewrite, response, broker, nodes, version, request)
            rewrite(broker, nodes, version, request, response)
            return response

        return serve

    return wrapped(table, wrap)


Rewrite = Callable[["Broker", "Nodes", int, Any, Any], None]


async def _rewrite_later(
    rewrite: Rewrite,
    answer: Awaitable[Any],
    broker: Broker,
    nodes: Nodes,
    version: int,
    request: Any,
) -> Any:
    response = await answer
    if response is not None:
        rewrite(broker, nodes, version, request, response)
    return response


def _metadata(broker: Broker, nodes: Nodes, version: int, request: Any, response: Any) -> None:
    (template,) = response.brokers
    response.brokers = [
        dataclasses.replace(template, **_place(nodes, node_id)) for node_id in nodes.up
    ]
    response.controller_id = nodes.controller_id
    for topic in response.topics:
        _lead(nodes, topic.name, topic.partitions)


def _topic_partitions(
    broker: Broker, nodes: Nodes, version: int, request: Any, response: Any
) -> None:
    for topic in response.topics:
        _lead(nodes, topic.name, topic.partitions)


def _lead(nodes: Nodes, topic: str, partitions: Iterable[Any]) -> None:
    for partition in partitions:
        index = partition.partition_index
        replicas = nodes.replicas_of(index)
        partition.leader_id = nodes.leader_of(topic, index)
        partition.replica_nodes = replicas
        partition.offline_replicas = [each for each in replicas if not nodes.is_up(each)]
        # The last one that had it stays in sync, up or not.
        in_sync = [each for each in replicas if nodes.is_up(each)]
        partition.isr_nodes = in_sync or [nodes.elected_for(topic, index)]
        if partition.leader_id == NO_LEADER:
            partition.error_code = ErrorCode.LEADER_NOT_AVAILABLE


def _cluster(broker: Broker, nodes: Nodes, version: int, request: Any, response: Any) -> None:
    if response.error_code:
        return
    (template,) = response.brokers
    response.brokers = [
        dataclasses.replace(template, **_place(nodes, node_id, "broker_id")) for node_id in nodes.up
    ]
    response.controller_id = nodes.controller_id


def _coordinator(broker: Broker, nodes: Nodes, version: int, request: Any, response: Any) -> None:
    is_batched = version >= COORDINATORS_FROM
    for found in response.coordinators if is_batched else [response]:
        if found.error_code:
            continue
        node_id = nodes.coordinator_of(broker, found.key if is_batched else request.key)
        if node_id == NO_LEADER:
            found.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            found.error_message = "the node that coordinates the group is down"
            found.node_id, found.host, found.port = NO_LEADER, "", NO_LEADER
            continue
        address = nodes.addresses[node_id]
        found.node_id, found.host, found.port = node_id, address.host, address.port


def _produced(broker: Broker, nodes: Nodes, version: int, request: Any, response: Any) -> None:
    if version < LEADER_NAMED_FROM["Produce"]:
        return
    named = set()
    for topic in response.responses:
        for partition in topic.partition_responses:
            leader = _new_leader(broker, nodes, topic.name, partition.index, partition.error_code)
            if leader is not None:
                partition.current_leader = ProduceLeaderIdAndEpoch(*leader)
                named.add(leader[0])
    response.node_endpoints = [ProduceNodeEndpoint(**_place(nodes, each)) for each in sorted(named)]


def _fetched(broker: Broker, nodes: Nodes, version: int, request: Any, response: Any) -> None:
    if version < LEADER_NAMED_FROM["Fetch"]:
        return
    named = set()
    for answered in response.responses:
        topic = broker.topics.by_id(answered.topic_id)
        if topic is None:
            continue
        for partition in answered.partitions:
            leader = _new_leader(
                broker, nodes, topic.name, partition.partition_index, partition.error_code
            )
            if leader is not None:
                partition.current_leader = FetchLeaderIdAndEpoch(*leader)
                named.add(leader[0])
    response.node_endpoints = [FetchNodeEndpoint(**_place(nodes, each)) for each in sorted(named)]


def _new_leader(
    broker: Broker, nodes: Nodes, topic_name: str, index: int, error_code: int
) -> tuple[int, int] | None:
    """Leader and epoch of a partition that has just been refused for want of these."""
    if error_code not in LEADER_ERRORS:
        return None
    topic = broker.topics.get(topic_name)
    leader = nodes.leader_of(topic_name, index)
    if topic is None or leader == NO_LEADER:
        return None
    return leader, topic.partitions[index].leader_epoch


def _place(nodes: Nodes, node_id: int, id_name: str = "node_id") -> dict[str, Any]:
    address = nodes.addresses[node_id]
    return {id_name: node_id, "host": address.host, "port": address.port}


REWRITES: Final[dict[str, Rewrite]] = {
    "Metadata": _metadata,
    "DescribeTopicPartitions": _topic_partitions,
    "DescribeCluster": _cluster,
    "FindCoordinator": _coordinator,
    "Produce": _produced,
    "Fetch": _fetched,
}
