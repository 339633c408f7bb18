"""What all clients share: a way to the broker that is tried again and again, and their history."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.tests.history.history import History
from asyncbroker.tests.simulation.link import REQUEST_SECONDS_MAX, Link, Lost
from asyncbroker.tests.simulation.network import Network
from asyncbroker.tests.simulation.world import VirtualLoop, World

# Errors that a client answers by trying again.
PASSING: Final = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


@dataclass
class Shared:
    """What the clients of one run have in common."""

    world: World
    network: Network
    loop: VirtualLoop
    history: History
    versions: Mapping[str, int]
    complaints: list[str]
    # Topics by name, with how many partitions they have.
    topics: dict[str, int] = field(default_factory=dict)
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    # How many requests of each kind were sent.
    sent: Counter[str] = field(default_factory=Counter)
    # What else is worth knowing of a run: how often it has met this and that.
    met: Counter[str] = field(default_factory=Counter)
    # No new work: what is begun is brought to its end.
    is_finishing: bool = False

    @property
    def operation_count(self) -> int:
        return sum(self.sent.values())

    def complain(self, who: str, text: str) -> None:
        self.world.note(who, "complains:", text)
        self.complaints.append(f"{self.world.now:.6f} {who}: {text}")


class Client:
    """One client: a name, a connection, and chance of its own."""

    # How long it waits for an answer before it gives up the connection.
    request_seconds_max = REQUEST_SECONDS_MAX

    def __init__(self, shared: Shared, name: str) -> None:
        self.shared = shared
        self.name = name
        self.world = shared.world
        self.loop = shared.loop
        self.random = Random(shared.world.random.getrandbits(64))
        self.link: Link | None = None
        self.is_done = False

    @property
    def now(self) -> float:
        return self.world.now

    async def sleep(self, seconds: float) -> None:
        """Waits."""
        future: asyncio.Future[None] = self.loop.create_future()
        self.loop.call_later(seconds, future.set_result, None)
        await future

    async def pause(self, seconds_max: float) -> None:
        """Waits for up to so long."""
        await self.sleep(seconds_max * self.random.random())

    async def connected(self) -> Link:
        """The connection, made anew as often as it takes."""
        while self.link is None or self.link.is_lost:
            shared = self.shared
            link = Link(
                shared.network,
                self.loop,
                self.name,
                shared.sent,
                shared.complaints,
                self.request_seconds_max,
            )
            try:
                await link.open()
            except Lost:
                await self.pause(0.3)
            else:
                self.link = link
        return self.link

    def disconnect(self) -> None:
        """Leaves the connection."""
        if self.link is not None:
            self.link.close()
            self.link = None

    async def ask(self, name: str, request: Any) -> Any:
        """Asks and waits for the answer. Raises Lost."""
        link = await self.connected()
        return await link.ask(name, self.shared.versions[name], request)

    async def insist(self, name: str, request: Any) -> Any:
        """Asks until there is an answer, whatever it is."""
        while True:
            try:
                return await self.ask(name, request)
            except Lost:
                await self.pause(0.2)

    def note(self, *words: object) -> None:
        """Tells the run's diary."""
        self.world.note(self.name, *words)


def place_of(topic: str, index: int) -> str:
    """A partition's name in the history."""
    return f"{topic}-{index}"
