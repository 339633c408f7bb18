"""The broker as one of several nodes shows it to handlers.

Handlers ask a broker for topics and groups. As a node they are given a `NodeView` of it: its
partitions that another node leads refuse everything with NOT_LEADER_OR_FOLLOWER, and its groups
that another node coordinates with NOT_COORDINATOR. All else is the broker's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.topic import Topic

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.partition import Partition
    from asyncbroker.testing.nodes import Nodes

# Where the methods of `Groups` that serve a request have the group's id.
_GROUP_OF: Final[dict[str, Callable[..., str]]] = {
    "join": lambda context, request: request.group_id,
    "sync": lambda context, request: request.group_id,
    "heartbeat": lambda request: request.group_id,
    "consumer_heartbeat": lambda context, request: request.group_id,
    "leave": lambda request: request.group_id,
    "commit": lambda context, request: request.group_id,
    "fetch": lambda request, **keywords: request.group_id,
    "delete_offsets": lambda request: request.group_id,
    "delete": lambda group_id: group_id,
    "describe": lambda group_id: group_id,
    "describe_consumer_group": lambda group_id: group_id,
}


class NodeView:
    """What a handler takes as its broker. `sees_leaders`: whether its topics are those of the node,
    which must not be altered."""

    def __init__(self, broker: Broker, nodes: Nodes, node_id: int, *, sees_leaders: bool) -> None:
        self.node_id = node_id
        self.topics = _TopicsView(broker, nodes, node_id) if sees_leaders else broker.topics
        self._broker = broker
        self._nodes = nodes

    @property
    def groups(self) -> _GroupsView:
        """The groups, of which this node coordinates some."""
        return _GroupsView(self._broker, self._nodes, self.node_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)


class _TopicsView:
    """The topics for those who read and write records."""

    def __init__(self, broker: Broker, nodes: Nodes, node_id: int) -> None:
        self._broker = broker
        self._nodes = nodes
        self._node_id = node_id

    def get(self, name: str) -> Topic | None:
        """The topic of this name."""
        return self._view(self._broker.topics.get(name))

    def by_id(self, topic_id: bytes) -> Topic | None:
        """The topic of this id."""
        return self._view(self._broker.topics.by_id(topic_id))

    def _view(self, topic: Topic | None) -> Topic | None:
        if topic is None:
            return None
        partitions = [
            partition
            if self._nodes.leader_of(topic.name, partition.index) == self._node_id
            else cast("Partition", _Elsewhere(partition.name))
            for partition in topic.partitions
        ]
        return Topic(topic.name, topic.topic_id, partitions, topic.config)


class _Elsewhere:
    """A partition that another node leads."""

    def __init__(self, name: str) -> None:
        self.__dict__["name"] = name

    def __getattr__(self, attribute: str) -> NoReturn:
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"another node leads {self.__dict__['name']}"
        )


class _GroupsView:
    """The groups; methods about one of them are checked."""

    def __init__(self, broker: Broker, nodes: Nodes, node_id: int) -> None:
        self._broker = broker
        self._nodes = nodes
        self._node_id = node_id

    def list_groups(self, states: Iterable[str], types: Iterable[str]) -> list[Any]:
        """Those of this node; tools ask all nodes."""
        listed = self._broker.groups.list_groups(states, types)
        return [group for group in listed if self._is_here(group.group_id)]

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._broker.groups, name)
        group_of = _GROUP_OF.get(name)
        if group_of is None:
            return method

        def checked(*arguments: Any, **keywords: Any) -> Any:
            group_id = group_of(*arguments, **keywords)
            if not self._is_here(group_id):
                message = f"another node coordinates group {group_id}"
                raise KafkaError(ErrorCode.NOT_COORDINATOR, message)
            return method(*arguments, **keywords)

        return checked

    def _is_here(self, group_id: str) -> bool:
        return self._nodes.coordinator_of(self._broker, group_id) == self._node_id
