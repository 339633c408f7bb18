"""A broker on the caller's event loop: `async with Broker() as broker`.

Looking (`records`, `group`) is immediate, since broker and test share a thread; what has to wait is
a coroutine. Any asyncio loop will do. Blocking clients would block the broker with the test: for
those there is `BrokerThread`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from asyncbroker.testing.arguments import Seconds, Timestamp, checked, checked_methods
from asyncbroker.testing.broker_clock import BrokerClock, is_frozen
from asyncbroker.testing.faults import Faults
from asyncbroker.testing.hands import (
    Group,
    Header,
    Record,
    all_groups,
    append_record,
    create_topic,
    look_at_group,
    read_records,
    topic_names,
)
from asyncbroker.testing.node import Node
from asyncbroker.testing.nodes import NodeInfo
from asyncbroker.testing.profile import SettingValue, make_config, text_of
from asyncbroker.testing.requests import Requests
from asyncbroker.testing.scenarios import Scenarios
from asyncbroker.testing.snapshot import Snapshot
from asyncbroker.testing.trace import Trace
from asyncbroker.testing.waiting import Wanted, wait_for


@checked_methods
class Broker:
    """A broker for tests, with a server on a port of its own.

    `directory`: where its data is kept; in memory without one. `port`: 0 is any free one. `nodes`:
    it poses as so many brokers, on as many ports (from `port` on, if that is given).
    `kafka_version`: it serves the versions of that release of Kafka, "2.8" say. `trace`: True
    writes a line for each request to standard error, a text chooses some ("api=Produce errors"), a
    function is called with each `Exchange` in the broker's thread. `clock`: "frozen" is one that
    stands still until the test moves it. Settings go by Kafka's names,
    over those of the test profile. Raises ConfigError, BadChoice, and at the start
    CannotListen, DirectoryRefused or OSError.

        async with Broker(nodes=3, num_partitions=6) as broker:
            await broker.move_leader("orders", 0, to=2)
    """

    @checked
    def __init__(
        self,
        settings: Mapping[str, SettingValue] | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        nodes: int = 1,
        kafka_version: str | None = None,
        trace: Trace = False,
        clock: str = "running",
        **keywords: SettingValue,
    ) -> None:
        config = make_config(
            settings, keywords, directory=directory, host=host, port=port, nodes=nodes
        )
        self._node = Node(config, nodes, kafka_version, trace=trace, is_frozen=is_frozen(clock))
        self._clock = BrokerClock(self._node)

    async def __aenter__(self) -> Broker:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Returns when the broker answers."""
        await self._node.start()

    async def stop(self) -> None:
        """Stops in order. The state stays with this object, for another `start`."""
        await self._node.stop()

    async def restart(self, *, down_seconds: Seconds = 0.0) -> None:
        """Stops and starts again with the same state and port, in memory too."""
        await self._node.restart(down_seconds=down_seconds)

    async def snapshot(self) -> Snapshot:
        """A copy of the whole state: topics, records, groups, offsets, producer ids, settings.

            before = await broker.snapshot()
            ...
            await broker.restore(before)

        Clients notice nothing of it with a broker in memory; one in a directory is restarted.
        """
        return await self._node.snapshot()

    async def restore(self, snapshot: Snapshot) -> None:
        """Makes the state what it was at a snapshot of this broker, or of another one that is in
        memory (or in a directory) as this one is. As at a restart, connections are closed, and
        clients come back to the same port. Leader epochs go on from the present ones."""
        await self._node.restore(snapshot)

    @property
    def nodes(self) -> list[NodeInfo]:
        """The nodes that it poses as, with id, address and whether they are up."""
        return self._node.list_nodes()

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The id of the node that leads a partition; -1 when it is down. Raises LookupError."""
        return self._node.leader_of(topic, partition)

    def coordinator_of(self, group_id: str) -> int:
        """The id of the node that coordinates a group; -1 when it is down."""
        return self._node.coordinator_of(group_id)

    async def move_leader(self, topic: str, partition: int = 0, *, to: int | None = None) -> int:
        """Has node `to` (or the next one that is up) elected as a partition's leader; returns its
        id. The leader epoch grows, and the old leader refuses with NOT_LEADER_OR_FOLLOWER. Raises
        LookupError, or ValueError for a node that is down."""
        return await self._node.move_leader(topic, partition, to)

    async def move_coordinator(self, group_id: str, *, to: int | None = None) -> int:
        """Has node `to` (or the next one that is up) coordinate a group; returns its id. It loads
        the group from the log; who waits at the old one gets NOT_COORDINATOR. Groups of the same
        partition of `__consumer_offsets` move along."""
        return await self._node.move_coordinator(group_id, to)

    async def take_down(self, node_id: int, *, leaders: str = "move") -> None:
        """Takes a node down as a crash does: its connections break, its port refuses. With
        leaders="move" others lead what it led, with "missing" nobody does until it is back."""
        await self._node.take_down(node_id, leaders=leaders)

    async def bring_up(self, node_id: int) -> None:
        """Brings a node back, at the same port. Leaders that have moved stay where they are."""
        await self._node.bring_up(node_id)

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for clients; of several nodes, with commas."""
        return self._node.bootstrap_servers

    @property
    def faults(self) -> Faults:
        """Which requests fail."""
        return self._node.faults

    @property
    def clock(self) -> BrokerClock:
        """The broker's time, to be moved."""
        return self._clock

    @property
    def scenarios(self) -> Scenarios:
        """What goes wrong with Kafka, by name."""
        return Scenarios(self._node)

    @property
    def requests(self) -> Requests:
        """The last requests."""
        return self._node.requests

    @property
    def topics(self) -> list[str]:
        """The names of all topics but the broker's own."""
        return topic_names(self._node.broker)

    @property
    def groups(self) -> list[Group]:
        """All groups, as they are now."""
        return all_groups(self._node.broker)

    def topic(self, name: str) -> Topic:
        """One topic, whether it exists or not."""
        return Topic(self._node, name)

    def group(self, group_id: str) -> Group:
        """One group, as it is now; ask again to see what it has become."""
        return look_at_group(self._node.broker, group_id)

    async def wait_for(
        self,
        *,
        records: int | None = None,
        topic: str | None = None,
        group: str | None = None,
        members: int | None = None,
        state: str | None = None,
        until: Callable[[], bool] | None = None,
        timeout: Seconds = 10.0,
    ) -> list[Record]:
        """Waits for so many records in a topic (and returns all it has), for so many members in a
        group, for a state of it, for a condition. Raises WaitTimedOut after `timeout` seconds."""
        __tracebackhide__ = True
        wanted = Wanted(records, topic, group, members, state, until)
        return await wait_for(lambda: self._node.broker, wanted, timeout)


@checked_methods
class Topic:
    """One topic of a broker on this loop."""

    def __init__(self, node: Node, name: str) -> None:
        self._node = node
        self.name = name

    def records(self, partition: int | None = None) -> list[Record]:
        """Its records, partition by partition, or those of one. Raises LookupError."""
        return read_records(self._node.broker, self.name, partition)

    async def create(
        self,
        partitions: int | None = None,
        settings: Mapping[str, SettingValue] | None = None,
    ) -> Topic:
        """Creates it, with settings by a topic's names. Raises KafkaError."""
        texts = {name: text_of(value) for name, value in (settings or {}).items()}
        await create_topic(self._node.broker, self.name, partitions, texts)
        return self

    async def append(
        self,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        partition: int = 0,
        timestamp: Timestamp | None = None,
        headers: Iterable[Header] = (),
    ) -> Record:
        """Appends one record, to a new topic if need be. Raises LookupError or KafkaError."""
        return await append_record(
            self._node.broker,
            self.name,
            value,
            key=key,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
        )
