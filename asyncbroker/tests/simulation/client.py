"""What all clients share: a way to the broker that is tried again and again, and their history."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from asyncbroker.protocol.records import batches, records_of, verify_crc
from asyncbroker.tests.history.history import History, Poll, Seen
from asyncbroker.tests.simulation.link import Link, Lost
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
            link = Link(shared.network, self.loop, self.name, shared.sent, shared.complaints)
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


@dataclass(slots=True)
class Fetched:
    """One partition's answer to a fetch."""

    code: ErrorCode
    log_start: int
    next_position: int


async def fetch(
    client: Client,
    positions: Mapping[tuple[str, int], int],
    *,
    wait_ms: int,
    partition_bytes_max: int = 4096,
) -> dict[tuple[str, int], Fetched]:
    """Fetches from partitions, and puts what came into the history. Raises Lost."""
    shared = client.shared
    version = shared.versions["Fetch"]
    topics: dict[str, FetchTopic] = {}
    for (name, index), position in positions.items():
        topic = topics.get(name)
        if topic is None:
            named = {"topic": name} if version < 13 else {"topic_id": shared.topic_ids[name]}
            topic = topics[name] = FetchTopic(partitions=[], **named)
        topic.partitions.append(
            FetchPartition(
                partition=index, fetch_offset=position, partition_max_bytes=partition_bytes_max
            )
        )
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        isolation_level=client.random.randrange(2),
        topics=list(topics.values()),
    )
    link = await client.connected()
    started = client.now
    response = await link.ask("Fetch", version, request)
    names = {id_: name for name, id_ in shared.topic_ids.items()}
    fetched: dict[tuple[str, int], Fetched] = {}
    for topic_answer in response.responses:
        name = topic_answer.topic if version < 13 else names[topic_answer.topic_id]
        for answer in topic_answer.partitions:
            key = (name, answer.partition_index)
            fetched[key] = _take(client, key, positions[key], started, answer)
    return fetched


def _take(
    client: Client, key: tuple[str, int], position: int, started: float, answer: Any
) -> Fetched:
    code = ErrorCode(answer.error_code)
    if code is not ErrorCode.NONE:
        client.note("fetch", *key, position, code.name)
        return Fetched(code, answer.log_start_offset, position)
    records, next_position = seen_in(bytes(answer.records), position, client)
    if records or client.random.random() < 0.3:
        client.note("fetch", *key, position, next_position, answer.high_watermark)
    client.shared.history.add(
        Poll(
            client.name,
            place_of(*key),
            position,
            started,
            client.now,
            records,
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start_offset,
        )
    )
    return Fetched(code, answer.log_start_offset, next_position)


def seen_in(data: bytes, position: int, client: Client) -> tuple[list[Seen], int]:
    """The records from `position` on in some batches, as a consumer sees them, and where the next
    one is. A compacted batch may have no record at all."""
    next_position = position
    seen: list[Seen] = []
    for header, batch in batches(data):
        if len(batch) < header.size:
            break
        if not verify_crc(batch, header):
            client.shared.complain(client.name, f"a damaged batch at {header.base_offset}")
        epoch = header.partition_leader_epoch
        next_position = header.next_offset
        seen += [
            Seen(record.offset, record.value, record.key, epoch)
            for record in records_of(batch, header)
            if record.offset >= position
        ]
    return seen, next_position


def place_of(topic: str, index: int) -> str:
    """A partition's name in the history."""
    return f"{topic}-{index}"
