"""A broker and its servers on the loop that runs: started, stopped, and moved about.

What survives a stop lives here: the ports, the files and metadata of a broker in memory, the faults
and the noted requests, and who leads what. There is one broker and a server for each node that it
poses as (`nodes.py`); with one node there is nothing between the server and the broker's handlers
but `watch.py`.

A broker in memory needs no threads: there is nothing that could block.
"""

from __future__ import annotations

import asyncio
import dataclasses
import encodings.idna
import os
from typing import TYPE_CHECKING, Final

from asyncbroker import groups
from asyncbroker.broker import LEADER_EPOCH, MEMORY_DIRECTORY, Broker
from asyncbroker.clock import SystemClock
from asyncbroker.handlers import (
    HANDLERS,
    api_versions,
    create_topics,
    fetch,
    find_coordinator,
    join_group,
    metadata,
    offset_commit,
    produce,
)
from asyncbroker.log import partition_log
from asyncbroker.log.files import RealFiles
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.metadata_store import MemoryMetadataStore, SetValue
from asyncbroker.protocol import compiler
from asyncbroker.runner import make_server, stop_in_order
from asyncbroker.sqlite_metadata import FILE_NAME, SqliteMetadataStore
from asyncbroker.testing.disk import watched_files
from asyncbroker.testing.faults import Faults
from asyncbroker.testing.hands import partition_of, topic_of
from asyncbroker.testing.held_port import HeldPort
from asyncbroker.testing.loop_thread import NotRunning
from asyncbroker.testing.movable_clock import MovableClock
from asyncbroker.testing.node_answers import node_handlers
from asyncbroker.testing.nodes import NO_LEADER, NodeInfo, Nodes, groups_partition
from asyncbroker.testing.releases import as_release, release_of
from asyncbroker.testing.requests import Requests
from asyncbroker.testing.snapshot import Snapshot, changes_to, copy_files, write_files
from asyncbroker.testing.trace import Trace, make_observer
from asyncbroker.testing.watch import Watch
from asyncbroker.topic_names import GROUP_METADATA_TOPIC
from asyncbroker.workers import InlineWorkers, ThreadWorkers, Workers

if TYPE_CHECKING:
    from asyncbroker.config import BrokerConfig
    from asyncbroker.handlers import Handler
    from asyncbroker.log.files import Files
    from asyncbroker.metadata_store import MetadataStore
    from asyncbroker.partition import Partition
    from asyncbroker.server import Server
    from asyncbroker.testing.handler_table import Table

# Otherwise loaded when a name is looked up and when a request first needs them, which stops the
# loop for some 50 ms at the first topic and as long again at the first group. What nearly every
# test needs is paid for with this import, and not out of the patience of the first test's clients.
_NEEDED_SOON: Final = (
    encodings.idna,
    compiler,
    partition_log,
    groups,
    api_versions,
    create_topics,
    fetch,
    find_coordinator,
    join_group,
    metadata,
    offset_commit,
    produce,
)

LOAD_SECONDS_MAX: Final = 5.0


class Node:
    """The broker of a test. All methods are for the thread of the loop that runs it."""

    def __init__(
        self,
        config: BrokerConfig,
        nodes: int = 1,
        kafka_version: str | None = None,
        *,
        trace: Trace = False,
        is_frozen: bool = False,
    ) -> None:
        if nodes < 1:
            raise ValueError(f"nodes={nodes}: there is at least one")
        self.requests = Requests(nodes=nodes)
        self.faults = Faults(self.requests.add_note)
        self.release = None if kafka_version is None else release_of(kafka_version)
        self.nodes = Nodes(config.node_id, nodes)
        self.clock = MovableClock(is_frozen=is_frozen)
        self._config = config
        self.watch = Watch(self.faults, self.requests)
        self._observer = make_observer(trace, self.requests.last_faults)
        self._is_in_memory = config.data_directory is None
        disk = self.faults.disk
        self._files: Files = (
            MemoryFiles(disk.called) if self._is_in_memory else watched_files(RealFiles(), disk)
        )
        self._metadata = MemoryMetadataStore() if self._is_in_memory else None
        (listener,) = config.listeners
        self._ports = {
            node_id: HeldPort(
                dataclasses.replace(listener, port=listener.port and listener.port + number)
            )
            for number, node_id in enumerate(self.nodes.ids)
        }
        self._broker: Broker | None = None
        self._servers: dict[int, Server] = {}
        # Whose the broker is while it runs.
        self._loop: asyncio.AbstractEventLoop | None = None
        # The latest of all brokers that have been stopped.
        self._leader_epoch = 0

    @property
    def is_in_memory(self) -> bool:
        """Whether there is no disk."""
        return self._is_in_memory

    @property
    def broker(self) -> Broker:
        """The broker behind the servers. Raises NotRunning, also to who is on another loop: the
        broker's own may stand still meanwhile, or be closed."""
        if self._broker is None:
            raise NotRunning("the broker does not run")
        if _running_loop() not in (None, self._loop):
            raise NotRunning(
                "the broker belongs to the event loop that it was started on, and this is another "
                "one; BrokerThread is for any (with pytest-asyncio: give fixture and tests the "
                "same loop_scope)"
            )
        return self._broker

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of each node; the same after a restart."""
        if not self.nodes.addresses:
            raise NotRunning("the broker has not been started: it has no port yet")
        return ",".join(map(str, self.nodes.addresses.values()))

    def list_nodes(self) -> list[NodeInfo]:
        """All nodes."""
        return [
            NodeInfo(node_id, str(address), self.nodes.is_up(node_id))
            for node_id, address in self.nodes.addresses.items()
        ]

    # ---- start and stop

    async def start(self) -> None:
        """Returns when the broker answers. Raises CannotListen, DirectoryRefused or OSError."""
        if self._broker is not None:
            raise RuntimeError("the broker runs already")
        for port in self._ports.values():
            port.hold()
        loop = asyncio.get_running_loop()
        workers: Workers = (
            InlineWorkers()
            if self._is_in_memory
            else ThreadWorkers(loop, self._config.worker_threads)
        )
        self.clock.attach(loop)
        broker = Broker(
            self._config,
            self.clock,
            workers,
            peer_clock=SystemClock(loop),
            files=self._files,
            metadata=self._metadata,
            is_volatile=self._is_in_memory,
        )
        servers = {node_id: self._make_server(broker, node_id) for node_id in self.nodes.up}
        try:
            for node_id, server in servers.items():
                self._bind(node_id, server)
            await broker.start()
        except BaseException:
            for server in servers.values():
                server.unbind()
            await workers.close()
            self.clock.detach()
            self._release_ports()
            raise
        self._broker, self._servers, self._loop = broker, servers, loop
        # Who looks at a group next is to see it.
        await self._groups_loaded()
        self.watch.begin()
        for server in servers.values():
            server.start()

    async def stop(self, *, for_good: bool = True) -> None:
        """Ends everything in order, as SIGTERM does; what is delayed goes on at once. Harmless when
        it does not run."""
        if self._broker is not None:
            broker, servers = self.broker, [*self._servers.values()]
            self._broker, self._servers, self._loop = None, {}, None
            topics = broker.topics
            self._leader_epoch = max(topics.leader_epoch, topics.highest_logged_epoch())
            self.watch.let_go()
            seconds_max = self._config.stop_timeout_ms / 1000
            status = await stop_in_order(broker, servers, seconds_max)
            self.clock.detach()
            if status:
                raise RuntimeError(f"the broker did not stop within {seconds_max:g} s")
        if for_good:
            self._release_ports()

    async def restart(self, *, down_seconds: float = 0.0) -> None:
        """Stops and starts with the same state and ports; in between nobody listens there."""
        await self.stop(for_good=False)
        if down_seconds > 0:
            await asyncio.sleep(down_seconds)
        await self.start()

    def _make_server(self, broker: Broker, node_id: int) -> Server:
        table: Table = HANDLERS
        if self.release is not None:
            table = as_release(table, self.release)
        if len(self.nodes.ids) > 1:
            table = node_handlers(table, self.nodes, node_id)
        handlers: dict[int, Handler] = {**self.watch.handlers(table, node_id)}
        return make_server(
            broker,
            handlers=handlers,
            listeners=[self._ports[node_id].listener],
            observer=self._observer,
        )

    def _bind(self, node_id: int, server: Server) -> None:
        (address,) = server.bind()
        self.nodes.addresses[node_id] = address
        self._ports[node_id].set_port(address.port)

    def _release_ports(self) -> None:
        for port in self._ports.values():
            port.release()

    # ---- nodes

    async def take_down(self, node_id: int, *, leaders: str) -> None:
        """The node's connections break and its port refuses. What it led is led by others, or
        (leaders="missing") by nobody until it is back."""
        self.nodes.check(node_id)
        if leaders not in ("move", "missing"):
            raise ValueError(f'leaders={leaders!r}: they "move", or are "missing"')
        server = self._servers.pop(node_id, None)
        if server is None:
            return
        led = self._led_by(node_id)
        self.nodes.set_up(node_id, is_up=False)
        server.begin_stop()
        await server.finish_stop(0.0)
        for partition in led:
            other = self.nodes.other_replica(partition.index, node_id)
            keeps = leaders == "missing" or other == NO_LEADER
            await self._elect(partition.topic, partition.index, node_id if keeps else other)

    async def bring_up(self, node_id: int) -> None:
        """The node is back, at the same port; it leads what has no other leader."""
        self.nodes.check(node_id)
        if node_id in self._servers:
            return
        server = self._make_server(self.broker, node_id)
        self._bind(node_id, server)
        server.start()
        self._servers[node_id] = server
        self.nodes.set_up(node_id, is_up=True)
        for partition in self._led_by(node_id):
            await self._elect(partition.topic, partition.index, node_id)

    async def move_leader(self, topic: str, index: int, to: int | None) -> int:
        """Has a node elected (without `to` the next one that is up); returns its id. The leader
        epoch grows."""
        partition_of(topic_of(self.broker, topic), index)
        if to is None:
            leader = self.nodes.elected_for(topic, index)
            to = self.nodes.other_replica(index, leader)
            to = leader if to == NO_LEADER else to
        self.nodes.check(to)
        if not self.nodes.is_up(to):
            raise ValueError(f"node {to} is down")
        await self._elect(topic, index, to)
        return to

    async def move_coordinator(self, group_id: str, to: int | None) -> int:
        """Has another node coordinate a group, with all that share its partition of
        `__consumer_offsets`."""
        await self._ensure_groups(group_id)
        index = groups_partition(self.broker, group_id)
        return await self.move_leader(GROUP_METADATA_TOPIC, index, to)

    def leader_of(self, topic: str, index: int) -> int:
        """The node that leads a partition; -1 when there is none."""
        partition_of(topic_of(self.broker, topic), index)
        return self.nodes.leader_of(topic, index)

    def coordinator_of(self, group_id: str) -> int:
        """The node that coordinates a group; -1 when there is none."""
        return self.nodes.coordinator_of(self.broker, group_id)

    async def _ensure_groups(self, group_id: str) -> None:
        creation = self.broker.groups.find(group_id)
        if creation is not None:
            await creation

    async def _groups_loaded(self) -> None:
        """Returns when groups are loaded, or when they take so long that something is wrong."""
        if self.broker.topics.get(GROUP_METADATA_TOPIC) is None:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LOAD_SECONDS_MAX
        while self.broker.groups.is_loading() and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    def _led_by(self, node_id: int) -> list[Partition]:
        return [
            partition
            for topic in self.broker.topics
            for partition in topic.partitions
            if self.nodes.elected_for(topic.name, partition.index) == node_id
        ]

    async def _elect(self, topic: str, index: int, node_id: int) -> None:
        """Makes a node the leader, with the next leader epoch."""
        self.nodes.elect(topic, index, node_id)

        async def take_over() -> Partition:
            found = topic_of(self.broker, topic)
            successor = await found.partitions[index].hand_over()
            # Replaced, never changed: others may be going through it.
            partitions = [*found.partitions]
            partitions[index] = successor
            found.partitions = partitions
            return successor

        if topic == GROUP_METADATA_TOPIC:
            await self._ensure_groups("")
            await self.broker.groups.hand_over(index, take_over)
            await self._groups_loaded()
        else:
            await take_over()

    # ---- the whole state

    async def snapshot(self) -> Snapshot:
        """A copy of all there is. A broker in a directory is stopped for it, one in memory not."""
        root = self._config.data_directory or MEMORY_DIRECTORY
        if self._metadata is not None:
            return copy_files(self._files, root, self._metadata.open())
        was_running = self._broker is not None
        await self.stop(for_good=False)
        snapshot = copy_files(self._files, root, None)
        if was_running:
            await self.start()
        return snapshot

    async def restore(self, snapshot: Snapshot) -> None:
        """Makes the state what it was; a broker that runs is stopped for it and started again.
        Leader epochs go on from the present ones, so that clients notice what is gone."""
        if (snapshot.metadata is None) is self._is_in_memory:
            raise ValueError("a snapshot of a broker in a directory is for such a broker alone")
        was_running = self._broker is not None
        await self.stop(for_good=False)
        root = self._config.data_directory or MEMORY_DIRECTORY
        if snapshot.metadata is not None:
            self._files = MemoryFiles(self.faults.disk.called)
            self._metadata = MemoryMetadataStore()
            write_files(snapshot, self._files, root)
            self._metadata.apply([*changes_to(snapshot.metadata)])
            self._pass_leader_epoch(self._metadata)
        else:
            write_files(snapshot, self._files, root)
            store = SqliteMetadataStore(os.path.join(root, FILE_NAME))
            try:
                self._pass_leader_epoch(store)
            finally:
                store.close()
        if was_running:
            await self.start()

    def _pass_leader_epoch(self, store: MetadataStore) -> None:
        known = int(store.open().values.get(LEADER_EPOCH, "0"))
        store.apply([SetValue(LEADER_EPOCH, str(max(known, self._leader_epoch + 1)))])


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop of the caller, if one is running there."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
