"""Who leads what, when one broker poses as several nodes: plain facts, without sockets or logs.

The nodes are simulated: there is one copy of the data, in one broker, and each node is a port that
serves it as far as it leads. What is kept here is which nodes are up, and which one leads each
partition. Partition i of any topic begins at node i modulo their number, so that leaders are spread
and a test can tell where they are; its replicas are that node and those after it, three at most.

The groups of a partition of `__consumer_offsets` are coordinated by its leader, as in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asyncbroker.context import Address
from asyncbroker.groups import partition_of
from asyncbroker.topic_names import GROUP_METADATA_TOPIC

if TYPE_CHECKING:
    from asyncbroker.broker import Broker

NO_LEADER: Final = -1
REPLICAS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One node of a test's broker."""

    node_id: int
    address: str
    is_up: bool


class Nodes:
    """The nodes of one broker and what they lead."""

    def __init__(self, first_id: int, count: int) -> None:
        self.ids: Final = tuple(range(first_id, first_id + count))
        self.addresses: dict[int, Address] = {}
        self._up = set(self.ids)
        # Those that lead something else than they began with.
        self._elected: dict[tuple[str, int], int] = {}

    @property
    def controller_id(self) -> int:
        """The first node that is up."""
        return next((node_id for node_id in self.ids if node_id in self._up), NO_LEADER)

    @property
    def up(self) -> list[int]:
        """The ids of the nodes that are up."""
        return [node_id for node_id in self.ids if node_id in self._up]

    def check(self, node_id: int) -> None:
        """Raises LookupError for a node that there is not."""
        if node_id not in self.ids:
            raise LookupError(f"there is no node {node_id}; there are {_listed(self.ids)}")

    def set_up(self, node_id: int, *, is_up: bool) -> None:
        """A node comes or goes."""
        (self._up.add if is_up else self._up.discard)(node_id)

    def is_up(self, node_id: int) -> bool:
        """Whether its port answers."""
        return node_id in self._up

    def replicas_of(self, index: int) -> list[int]:
        """The nodes that are said to have a partition of this index, the preferred leader first."""
        start = index % len(self.ids)
        return [*self.ids[start:], *self.ids[:start]][:REPLICAS_MAX]

    def elected_for(self, topic: str, index: int) -> int:
        """The node that leads a partition whenever it is up."""
        elected = self._elected.get((topic, index))
        if elected is None:
            replicas = self.replicas_of(index)
            # A topic that is made while a node is down has no leader there.
            elected = next(filter(self.is_up, replicas), replicas[0])
            self._elected[topic, index] = elected
        return elected

    def leader_of(self, topic: str, index: int) -> int:
        """The node that leads a partition now; -1 when it is down."""
        elected = self.elected_for(topic, index)
        return elected if elected in self._up else NO_LEADER

    def elect(self, topic: str, index: int, node_id: int) -> None:
        """Makes a node the leader."""
        self._elected[topic, index] = node_id

    def other_replica(self, index: int, than: int) -> int:
        """A node that may lead in place of another; -1 when none is up."""
        replicas = [node_id for node_id in self.replicas_of(index) if node_id != than]
        return next(filter(self.is_up, replicas), NO_LEADER)

    def coordinator_of(self, broker: Broker, group_id: str) -> int:
        """The node that coordinates a group now; -1 when it is down."""
        return self.leader_of(GROUP_METADATA_TOPIC, groups_partition(broker, group_id))


def groups_partition(broker: Broker, group_id: str) -> int:
    """The partition of `__consumer_offsets` that a group is kept in."""
    topic = broker.topics.get(GROUP_METADATA_TOPIC)
    count = broker.config.offsets_topic_num_partitions if topic is None else len(topic.partitions)
    return partition_of(group_id, count)


def _listed(ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, ids))
