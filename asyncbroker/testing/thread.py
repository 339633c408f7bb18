"""A broker with a thread and an event loop of its own: `with BrokerThread() as broker`.

For tests that are synchronous, or whose clients block, or that run on any other loop. Every method
may be called from any thread but a handler's; it does its work in the broker's thread and returns
what came of it. In a test that is a coroutine, `wait_for` would stop the client that is waited for:
there it is `await broker.wait_for_async(...)`.

The methods are those of `Broker` and `Topic` (`embedding.py`), through the bridges of
`loop_thread.py`: what coroutines are there are plain methods here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from asyncbroker.testing.broker_clock import BrokerClock
from asyncbroker.testing.embedding import Broker, Topic
from asyncbroker.testing.faults import Faults
from asyncbroker.testing.hands import Group
from asyncbroker.testing.loop_thread import LoopThread, awaited, called, waited
from asyncbroker.testing.nodes import NodeInfo
from asyncbroker.testing.profile import SettingValue
from asyncbroker.testing.requests import Requests
from asyncbroker.testing.scenarios import Scenarios
from asyncbroker.testing.trace import Trace

# Loaded here for the sake of the first test; `new_event_loop` does without where it is missing.
with suppress(ImportError):
    import uvloop  # noqa: F401


class BrokerThread:
    """A broker for tests; everything that `Broker` says of its arguments and errors holds here."""

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
        self._inner = Broker(
            settings,
            directory=directory,
            host=host,
            port=port,
            nodes=nodes,
            kafka_version=kafka_version,
            trace=trace,
            clock=clock,
            **keywords,
        )
        self._thread = LoopThread()

    def __enter__(self) -> BrokerThread:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when the broker answers."""
        if self._thread.is_running:
            raise RuntimeError("the broker runs already")
        self._thread.start()
        try:
            self._thread.wait(self._inner.start())
        except BaseException:
            self._thread.end()
            raise

    def stop(self) -> None:
        """Stops in order, and ends the thread. The state stays with this object, for another
        `start`. Harmless when it does not run."""
        if not self._thread.is_running:
            return
        try:
            self._thread.wait(self._inner.stop())
        finally:
            self._thread.end()

    restart = waited(Broker.restart)
    """Stops and starts again with the same state and port, in memory too."""

    snapshot = waited(Broker.snapshot)
    """A copy of the whole state."""

    restore = waited(Broker.restore)
    """Makes the state what it was at a snapshot; connections are closed, as at a restart."""

    @property
    def nodes(self) -> list[NodeInfo]:
        """The nodes that it poses as, with id, address and whether they are up."""
        return self._inner.nodes

    leader_of = called(Broker.leader_of)
    """The id of the node that leads a partition; -1 when it is down."""

    coordinator_of = called(Broker.coordinator_of)
    """The id of the node that coordinates a group; -1 when it is down."""

    move_leader = waited(Broker.move_leader)
    """Has another node elected as a partition's leader; returns its id."""

    move_coordinator = waited(Broker.move_coordinator)
    """Has another node coordinate a group; returns its id."""

    take_down = waited(Broker.take_down)
    """Takes a node down: its connections break, its port refuses."""

    bring_up = waited(Broker.bring_up)
    """Brings a node back, at the same port."""

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for clients."""
        return self._inner.bootstrap_servers

    @property
    def faults(self) -> Faults:
        """Which requests fail."""
        return self._inner.faults

    @property
    def clock(self) -> ThreadClock:
        """The broker's time, to be moved."""
        return ThreadClock(self._inner.clock, self._thread)

    @property
    def scenarios(self) -> ThreadScenarios:
        """What goes wrong with Kafka, by name."""
        return ThreadScenarios(self._inner.scenarios, self._thread)

    @property
    def requests(self) -> Requests:
        """The last requests."""
        return self._inner.requests

    @property
    def topics(self) -> list[str]:
        """The names of all topics but the broker's own."""
        return self._thread.call(lambda: self._inner.topics)

    @property
    def groups(self) -> list[Group]:
        """All groups, as they are now."""
        return self._thread.call(lambda: self._inner.groups)

    def topic(self, name: str) -> ThreadTopic:
        """One topic, whether it exists or not."""
        return ThreadTopic(self._inner.topic(name), self._thread)

    group = called(Broker.group)
    """One group, as it is now; ask again to see what it has become."""

    wait_for = waited(Broker.wait_for)
    """Waits for records in a topic, for members or a state of a group, or until a condition holds
    (which is asked in the broker's thread)."""

    wait_for_async = awaited(Broker.wait_for)
    """`wait_for`, for coroutines of an asyncio loop."""


class ThreadTopic:
    """One topic of a broker in a thread."""

    def __init__(self, inner: Topic, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread
        self.name = inner.name

    records = called(Topic.records)
    """Its records, partition by partition, or those of one. Raises LookupError."""

    append = waited(Topic.append)
    """Appends one record, to a new topic if need be. Raises LookupError or KafkaError."""

    def create(
        self,
        partitions: int | None = None,
        settings: Mapping[str, SettingValue] | None = None,
    ) -> ThreadTopic:
        """Creates it, with settings by a topic's names. Raises KafkaError."""
        self._thread.wait(self._inner.create(partitions, settings))
        return self


class ThreadClock:
    """The clock of a broker in a thread."""

    def __init__(self, inner: BrokerClock, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread

    now = called(BrokerClock.now)
    """The broker's wall time."""

    advance = waited(BrokerClock.advance)
    """Moves the clock forward, and returns when all is done that fell due."""

    freeze = called(BrokerClock.freeze)
    """Time stands still, until `resume` or but for `advance`."""

    resume = called(BrokerClock.resume)
    """Time goes on by itself."""

    set = called(BrokerClock.set)
    """Sets the wall clock alone, forward or back."""


class ThreadScenarios:
    """The scenarios of a broker in a thread."""

    def __init__(self, inner: Scenarios, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread

    full_disk = called(Scenarios.full_disk)
    """Every write to the disk fails, until `remove()`."""

    slow_disk = called(Scenarios.slow_disk)
    """Every sync takes so much longer, until `remove()`."""

    leader_moves = waited(Scenarios.leader_moves)
    """A partition has a new leader; returns its node's id."""

    coordinator_moves = waited(Scenarios.coordinator_moves)
    """A group has a new coordinator; returns its node's id."""

    rebalance_storm = called(Scenarios.rebalance_storm)
    """No sooner is the group stable than it rebalances again, for so many generations."""

    zombie_member = waited(Scenarios.zombie_member)
    """A member is thrown out and does not know; returns the member that it was."""

    broker_restart = waited(Scenarios.broker_restart)
    """The broker stops, stays away, and comes back with the same state and port."""

    old_broker = waited(Scenarios.old_broker)
    """The broker comes back as one of an older release of Kafka."""
