"""Fetching: with a fetch session (KIP-227) or without one, and what came put into the history.

A session is a consumer's: it names only partitions that are new to the broker or have moved, and
hears only of those with news. What it hears nothing of is taken to have nothing new; so a broker
that forgets to tell lets its reader stand still, which is noticed in the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from asyncbroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from asyncbroker.protocol.records import batches, records_of, verify_crc
from asyncbroker.tests.history.history import Poll, Seen
from asyncbroker.tests.simulation.client import PASSING, Client, place_of
from asyncbroker.tests.simulation.link import Lost

if TYPE_CHECKING:
    from asyncbroker.tests.simulation.link import Link

# The first versions of Fetch with sessions, and with topic ids.
SESSIONS_VERSION: Final = 7
TOPIC_IDS_VERSION: Final = 13

# A session that nobody has used for so long may make place for another.
SESSION_SECONDS: Final = 120.0

# A topic and a partition of it.
Key = tuple[str, int]


@dataclass(slots=True)
class Fetched:
    """One partition's answer to a fetch."""

    code: ErrorCode
    next_position: int


class FetchSession:
    """What a consumer knows of its session."""

    def __init__(self) -> None:
        self.id = 0
        self.epoch = 0
        self._told: dict[Key, tuple[int, int]] = {}
        self._link: Link | None = None

    def begin(self, link: Link, wanted: Mapping[Key, tuple[int, int]]) -> tuple[list[Key], ...]:
        """What the next request says: the partitions that it has, and those to be forgotten."""
        if link is not self._link:
            # Whether the last request came through is not known: from the beginning, by the
            # id that the broker may still have.
            self.epoch = 0
            self._link = link
        if self.epoch == 0:
            self._told = dict(wanted)
            return list(wanted), []
        changed = [key for key, what in wanted.items() if self._told.get(key) != what]
        gone = [key for key in self._told if key not in wanted]
        self._told = dict(wanted)
        return changed, gone

    def end(self, code: ErrorCode, session_id: int) -> None:
        """What the answer says of the session."""
        if code is not ErrorCode.NONE or session_id == 0:
            self.id = self.epoch = 0
        else:
            self.id = session_id
            self.epoch += 1


async def fetch(
    client: Client,
    positions: Mapping[Key, int],
    *,
    wait_ms: int,
    partition_bytes_max: int = 4096,
    session: FetchSession | None = None,
) -> dict[Key, Fetched]:
    """Fetches from partitions, and puts what came into the history. With a session only those
    with news are in the answer, and all are absent when it has to begin anew. Raises Lost."""
    shared = client.shared
    version = shared.versions["Fetch"]
    link = await client.connected()
    keys, gone = list(positions), list[Key]()
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        isolation_level=client.random.randrange(2),
        topics=[],
    )
    if session is not None and version >= SESSIONS_VERSION:
        wanted = {key: (position, partition_bytes_max) for key, position in positions.items()}
        keys, gone = session.begin(link, wanted)
        request.session_id, request.session_epoch = session.id, session.epoch
    _name_partitions(client, request, {key: positions[key] for key in keys}, partition_bytes_max)
    _name_forgotten(client, request, gone)
    started = client.now
    response = await link.ask("Fetch", version, request)
    if session is not None and version >= SESSIONS_VERSION:
        code = ErrorCode(response.error_code)
        session.end(code, response.session_id)
        shared.met["incremental fetches"] += request.session_epoch > 0
        shared.met["fetch sessions ended by the broker"] += code is not ErrorCode.NONE
        shared.met["fetch sessions refused for lack of room"] += response.session_id == 0
        if code is not ErrorCode.NONE:
            client.note("fetch session", request.session_epoch, code.name)
            if request.session_epoch == 0 or client.now < SESSION_SECONDS:
                shared.complain(client.name, f"fetch session: {code.name}")
            return {}
    names = {id_: name for name, id_ in shared.topic_ids.items()}
    fetched: dict[Key, Fetched] = {}
    for topic_answer in response.responses:
        by_id = version >= TOPIC_IDS_VERSION
        name = names[topic_answer.topic_id] if by_id else topic_answer.topic
        for answer in topic_answer.partitions:
            key = (name, answer.partition_index)
            fetched[key] = _take(client, key, positions[key], started, answer)
    return fetched


def _name_partitions(
    client: Client, request: FetchRequest, positions: Mapping[Key, int], partition_bytes_max: int
) -> None:
    topics: dict[str, FetchTopic] = {}
    for (name, index), position in positions.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchTopic(partitions=[], **_named(client, name))
        topic.partitions.append(
            FetchPartition(
                partition=index, fetch_offset=position, partition_max_bytes=partition_bytes_max
            )
        )
    request.topics = list(topics.values())


def _name_forgotten(client: Client, request: FetchRequest, keys: list[Key]) -> None:
    request.forgotten_topics_data = [
        ForgottenTopic(partitions=[index], **_named(client, name)) for name, index in keys
    ]


def _named(client: Client, name: str) -> dict[str, Any]:
    """How a request says which topic."""
    if client.shared.versions["Fetch"] < TOPIC_IDS_VERSION:
        return {"topic": name}
    return {"topic_id": client.shared.topic_ids[name]}


def _take(client: Client, key: Key, position: int, started: float, answer: Any) -> Fetched:
    code = ErrorCode(answer.error_code)
    if code is not ErrorCode.NONE:
        client.shared.met["reads of damaged records"] += code is ErrorCode.CORRUPT_MESSAGE
        client.note("fetch", *key, position, code.name)
        return Fetched(code, position)
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
    return Fetched(code, next_position)


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
            break
        epoch = header.partition_leader_epoch
        next_position = header.next_offset
        seen += [
            Seen(record.offset, record.value, record.key, epoch)
            for record in records_of(batch, header)
            if record.offset >= position
        ]
    return seen, next_position


async def next_position(client: Client, key: Key, position: int, answer: Fetched) -> int:
    """Where to read on after an answer."""
    if answer.code is ErrorCode.NONE:
        return answer.next_position
    if answer.code is ErrorCode.OFFSET_OUT_OF_RANGE:
        return await offset_at(client, key, -2)
    if answer.code is ErrorCode.CORRUPT_MESSAGE:
        for first, end in client.shared.history.damaged.get(place_of(*key), ()):
            if first <= position < end:
                return end
    if answer.code not in PASSING:
        client.shared.complain(
            client.name, f"fetch of {place_of(*key)} at {position}: {answer.code.name}"
        )
    return position


async def offset_at(client: Client, key: Key, timestamp: int) -> int:
    """A partition's beginning (-2) or end (-1), asked as often as it takes."""
    name, index = key
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name, [ListOffsetsPartition(index, timestamp=timestamp)])],
    )
    while True:
        response = await client.insist("ListOffsets", request)
        answer = response.topics[0].partitions[0]
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            return int(answer.offset)
        if code not in PASSING or client.shared.is_finishing:
            client.shared.complain(client.name, f"offsets of {place_of(*key)}: {code.name}")
            raise Lost
        await client.pause(0.1)
