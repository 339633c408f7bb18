"""The clients of the simulation at a real broker: over TCP, on a real event loop, in real time.

They know a network, a world and a loop. Here these are what the system has; what the clients do and
write down is the same, and so is the checker. On top: values of all sizes, and a member of a group
of the consumer protocol.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple, cast

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from asyncbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from asyncbroker.tests.history.history import Commit, History, Outcome
from asyncbroker.tests.simulation.admins import Churn
from asyncbroker.tests.simulation.client import Client, Shared, place_of
from asyncbroker.tests.simulation.link import Lost
from asyncbroker.tests.simulation.network import Wire
from asyncbroker.tests.simulation.producers import Batch, Producer
from asyncbroker.tests.simulation.simulate import VERSIONS

# The version in which a member of the consumer protocol commits.
COMMIT_VERSION: Final = 9
VALUE_BYTES: Final = (0, 0, 0, 100, 3_000, 40_000)
HEARTBEAT_SECONDS: Final = 0.1


class RealWorld:
    """Time as it is, and chance."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.lines: list[str] = []

    @property
    def now(self) -> float:
        return time.monotonic()

    def note(self, *words: object) -> None:
        """A line for whoever looks into a failure."""
        self.lines.append(f"{self.now:.6f} {' '.join(map(str, words))}")

    def at(self, when: float, callback: Callable[..., object], *args: Any) -> None:
        """Calls back at once: only the simulation takes its time."""
        asyncio.get_running_loop().call_soon(callback, *args)


class TcpNetwork:
    """Connections to one port."""

    def __init__(self, world: RealWorld) -> None:
        self.world = world
        self.port = 0
        self.wires: dict[Wire, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: set[_End] = set()

    def latency(self) -> float:
        """The system has its own."""
        return 0.0

    def connect(self, wire: Wire) -> None:
        """Tries to connect; the wire hears of it, one way or the other."""
        self.wires[wire] = None
        task = asyncio.get_running_loop().create_task(self._connect(wire))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, wire: Wire) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, end = await loop.create_connection(lambda: _End(wire), "127.0.0.1", self.port)
        except OSError:
            wire.lost()
        else:
            self._ends = {each for each in self._ends if not each.lost.done()} | {end}

    async def close(self) -> None:
        """Ends all connections."""
        await asyncio.gather(*self._tasks)
        for end in self._ends:
            end.eof()
        await asyncio.gather(*(end.lost for end in self._ends))


class _End(asyncio.Protocol):
    """A socket's end of a wire; what a wire takes for the broker's transport."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._transport: asyncio.Transport | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._wire.is_closed:
            self._transport.close()
        self._wire.transport = cast("Any", self)
        self._wire.connected()

    def data_received(self, data: bytes) -> None:
        self._wire.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)
        self._wire.lost()

    def arrived(self, data: bytes) -> None:
        """Bytes of the client."""
        if self._transport is not None:
            self._transport.write(data)

    def eof(self) -> None:
        """The client leaves."""
        if self._transport is not None:
            self._transport.abort()


def shared_by_all(seed: int, history: History) -> Shared:
    """What clients have in common, on the running loop; the port is to be set."""
    world = RealWorld(seed)
    return Shared(
        cast("Any", world),
        cast("Any", TcpNetwork(world)),
        cast("Any", asyncio.get_running_loop()),
        history,
        {name: world.random.choice(choices) for name, choices in VERSIONS.items()},
        complaints=[],
    )


class SizedProducer(Producer):
    """Sends values of many sizes; `made` is all that it ever made, in order."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.made: list[Batch] = []

    @property
    def is_idempotent(self) -> bool:
        return self._is_idempotent

    def _new_batch(self, *, idempotent: bool = False) -> Batch:
        batch = super()._new_batch(idempotent=idempotent)
        size = self.random.choice(VALUE_BYTES)
        for send in batch.sends:
            send.value = send.value.ljust(size, b".")
        batch.data = self._encode(batch)
        self.made.append(batch)
        return batch

    def again(self, batch: Batch) -> Any:
        """A request with a batch as it was sent."""
        return self._request(batch)


class Life(NamedTuple):
    """A topic that was made, and its creation acknowledged at a time."""

    time: float
    name: str
    number: int


class LifeChurn(Churn):
    """Remembers which topics it has made."""

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name)
        self.lives: list[Life] = []

    async def _use(self, name: str, life: int) -> bool:
        self.lives.append(Life(self.now, name, life))
        return await super()._use(name, life)


class Heard(NamedTuple):
    """A heartbeat of a member, and what it was answered. `ended` is infinite if it was not."""

    started: float
    ended: float
    epoch: int


class NextMember(Client):
    """A member of a group of the consumer protocol (KIP-848), which commits growing offsets for
    what it owns. It stays for good."""

    def __init__(self, shared: Shared, name: str, group: str, topics: list[str]) -> None:
        super().__init__(shared, name)
        self.group = group
        self.member_id = ""
        self.heard: list[Heard] = []
        self._topics = topics
        self._epoch = 0
        self._owned: list[HeartbeatTopicPartitions] = []
        self._count = 0

    async def run(self) -> None:
        """Until the run is over."""
        # Version 0 has the broker make the member's id, and an answer that is lost would leave a
        # member behind that nobody is.
        self.member_id = str(uuid.UUID(int=self.random.getrandbits(128)))
        while not self.shared.is_finishing:
            try:
                await self.beat()
                await self._commit()
            except Lost:
                pass
            await self.pause(2 * HEARTBEAT_SECONDS)
        self.is_done = True

    async def beat(self) -> ErrorCode:
        """Says that it is there, and takes what it is given. Raises Lost."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=self._topics,
            topic_partitions=self._owned,
        )
        started = self.now
        self.heard.append(Heard(started, float("inf"), -1))
        link = await self.connected()
        response = await link.ask("ConsumerGroupHeartbeat", 1, request)
        code = ErrorCode(response.error_code)
        self.note("beat", self._epoch, code.name, response.member_epoch)
        if code is ErrorCode.NONE:
            self._epoch = response.member_epoch
            if response.assignment is not None:
                self._owned = response.assignment.topic_partitions
            self.heard[-1] = Heard(started, self.now, self._epoch)
        elif code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            if self._epoch:
                self.shared.complain(self.name, f"epoch {self._epoch}: {code.name}")
            self._epoch, self._owned = 0, []
        return code

    async def _commit(self) -> None:
        names = {topic_id: name for name, topic_id in self.shared.topic_ids.items()}
        for owned in self._owned:
            name = names.get(owned.topic_id)
            for index in owned.partitions if name is not None else ():
                assert name is not None
                await self._commit_one(name, index)

    async def _commit_one(self, topic: str, index: int) -> None:
        self._count += 1
        commit = Commit(self.name, self.group, place_of(topic, index), self._count, self.now)
        self.shared.history.add(commit)
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self._epoch,
            member_id=self.member_id,
            topics=[
                OffsetCommitRequestTopic(
                    topic, partitions=[OffsetCommitRequestPartition(index, self._count, -1, "")]
                )
            ],
        )
        link = await self.connected()
        response = await link.ask("OffsetCommit", COMMIT_VERSION, request)
        code = ErrorCode(response.topics[0].partitions[0].error_code)
        commit.ended, commit.error = self.now, code.name
        if code is ErrorCode.NONE:
            commit.outcome = Outcome.OK
