"""Fetch sessions (KIP-227): the broker remembers what a consumer reads, and sends only changes.

A full request (session epoch 0) opens a session; its answer names the id. An incremental request
(epoch 1, 2, ...) carries only partitions that are new or whose position moved, and those to forget,
and its answer holds only partitions with records, an error, or an offset that moved. Epoch -1 ends
the session named and reads without one. A request for a session that is not there, or with another
epoch than the one expected, is answered with an error for the whole of it; clients then begin anew.

The sessions are a cache with a fixed number of places. When it is full, a session that nobody used
for two minutes makes place, or one of that age with fewer partitions than the new one; otherwise
the new one is not opened (id 0), and its client goes on with full requests. So it is when all
sessions together would hold more partitions than they may.

The order of a session's partitions is the order in which they are read. One that returned records
goes to the end, so that under a limit on bytes none starves.

Not known here: how partitions are read, and when an answer is due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from typing import TYPE_CHECKING, Final

from asyncbroker.clock import Clock
from asyncbroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from asyncbroker.partition import Partition
    from asyncbroker.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
SESSION_ID_MAX: Final = 0x7FFFFFFF
EPOCH_MAX: Final = 0x7FFFFFFF

# From this version on requests name topics by id (KIP-516).
TOPIC_IDS_VERSION: Final = 13

# Kafka's `min.incremental.fetch.session.eviction.ms`.
EVICTION_AGE_SECONDS: Final = 120.0

# Over all sessions. One request may name some hundred thousand partitions, that there are none of
# such names included, and slots alone would let a thousand of these stay.
PARTITIONS_MAX: Final = 250_000

# How clients name a partition: topic (name, or id from version 13 on), and index.
PartitionKey = tuple[str | bytes, int]


class FetchedPartition:
    """A partition to read, and what its reader was last told about it.

    `topic` is empty in a request by id until the id has been found once; what it was then is kept,
    to tell a topic that was created anew from one that never was. `partition` is where the last
    look found it.
    """

    __slots__ = ("high_watermark", "log_start_offset", "partition", "topic", "topic_id", "wanted")

    def __init__(self, topic: str, topic_id: bytes, wanted: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.wanted = wanted
        self.partition: Partition | None = None
        self.high_watermark = -1
        self.log_start_offset = -1

    def must_answer(self, answer: PartitionData) -> bool:
        """Whether an incremental answer has to hold this partition; remembers what it says."""
        if answer.error_code != ErrorCode.NONE:
            # When the error is over the reader must hear of it, whatever the offsets are then.
            self.high_watermark = -1
            return True
        is_news = (
            answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.diverging_epoch is not None
            or _has_records(answer)
        )
        self.high_watermark = answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        return is_news


class FetchSession:
    """What one consumer reads. `epoch` is that of the next request."""

    __slots__ = ("created", "epoch", "id", "partitions", "used", "uses_topic_ids")

    def __init__(self, id: int, uses_topic_ids: bool, now: float) -> None:
        self.id = id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions: dict[PartitionKey, FetchedPartition] = {}
        self.created = now
        self.used = now

    def update(self, request: FetchRequest) -> None:
        """Applies an incremental request. It may forget what is unknown, even a topic id of 0."""
        for key, fetched in _partitions_of(request, self.uses_topic_ids):
            if (known := self.partitions.get(key)) is not None:
                known.wanted = fetched.wanted
            else:
                self.partitions[key] = fetched
        for forgotten in request.forgotten_topics_data:
            topic = forgotten.topic_id if self.uses_topic_ids else forgotten.topic
            for index in forgotten.partitions:
                self.partitions.pop((topic, index), None)

    def move_to_end(self, fetched: FetchedPartition) -> None:
        """Makes a partition that has been served the last one to be read next time."""
        topic = fetched.topic_id if self.uses_topic_ids else fetched.topic
        key = (topic, fetched.wanted.partition)
        if self.partitions.get(key) is fetched:
            del self.partitions[key]
            self.partitions[key] = fetched


class FetchContext:
    """What one request reads, and how its answer has to look."""

    __slots__ = ("_expected_epoch", "is_incremental", "partitions", "session")

    def __init__(
        self,
        partitions: Iterable[FetchedPartition],
        session: FetchSession | None = None,
        *,
        is_incremental: bool = False,
    ) -> None:
        self.partitions = list(partitions)
        self.session = session
        self.is_incremental = is_incremental
        self._expected_epoch = session.epoch if session is not None else INITIAL_EPOCH

    @property
    def session_id(self) -> int:
        """The id to answer with; 0 without a session."""
        return self.session.id if self.session is not None else NO_SESSION

    def select(
        self, answers: list[PartitionData | None]
    ) -> list[tuple[FetchedPartition, PartitionData]]:
        """Pairs partitions with their answers (same order), leaving out those without news; of an
        incremental request an answer may be None, where there was none to be expected.

        Raises KafkaError if another request has used the session since this one came.
        """
        session = self.session
        if session is not None and session.epoch != self._expected_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        selected = [
            (fetched, answer)
            for fetched, answer in zip(self.partitions, answers, strict=True)
            if answer is not None
            and (session is None or fetched.must_answer(answer) or not self.is_incremental)
        ]
        if session is not None:
            for fetched, answer in selected:
                if _has_records(answer):
                    session.move_to_end(fetched)
        return selected


class FetchSessions:
    """All sessions of this broker, in the order in which they were last used."""

    def __init__(self, clock: Clock, *, slots_max: int, random_below: Callable[[int], int]) -> None:
        self._clock = clock
        self._slots_max = slots_max
        self._random_below = random_below
        self._sessions: dict[int, FetchSession] = {}
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        """The session of this id, for who wants to look at it."""
        return self._sessions.get(session_id)

    def open(self, request: FetchRequest, version: int) -> FetchContext:
        """What `request` reads. Raises KafkaError when its session cannot go on."""
        uses_topic_ids = version >= TOPIC_IDS_VERSION
        if request.session_epoch > INITIAL_EPOCH:
            return self._continue(request, uses_topic_ids)
        if request.session_id != NO_SESSION:
            self._remove(request.session_id)
        partitions = dict(_partitions_of(request, uses_topic_ids))
        if request.session_epoch == FINAL_EPOCH:
            return FetchContext(partitions.values())
        if request.session_epoch < FINAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session = self._create(partitions, uses_topic_ids)
        return FetchContext(partitions.values(), session)

    def _continue(self, request: FetchRequest, uses_topic_ids: bool) -> FetchContext:
        """An incremental request: the next one of a session that is there."""
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._remove(session.id)
        session.update(request)
        if not session.partitions or not self._has_room_for(session.partitions):
            # An answer with id 0: the client begins anew when it has something to read.
            return FetchContext(session.partitions.values())
        self._add(session)
        session.used = self._clock.monotonic()
        session.epoch = next_epoch(session.epoch)
        return FetchContext(session.partitions.values(), session, is_incremental=True)

    def _create(
        self, partitions: dict[PartitionKey, FetchedPartition], uses_topic_ids: bool
    ) -> FetchSession | None:
        """A new session with these partitions, if there is a place for it."""
        now = self._clock.monotonic()
        is_full = len(self._sessions) >= self._slots_max or not self._has_room_for(partitions)
        if is_full and not self._evict(len(partitions), now):
            return None
        if not self._has_room_for(partitions):
            return None
        id = NO_SESSION
        while id == NO_SESSION or id in self._sessions:
            id = 1 + self._random_below(SESSION_ID_MAX)
        session = FetchSession(id, uses_topic_ids, now)
        session.partitions = partitions
        self._add(session)
        return session

    def _add(self, session: FetchSession) -> None:
        self._sessions[session.id] = session
        self._partition_count += len(session.partitions)

    def _remove(self, id: int) -> None:
        session = self._sessions.pop(id, None)
        if session is not None:
            self._partition_count -= len(session.partitions)

    def _has_room_for(self, partitions: Sized) -> bool:
        return self._partition_count + len(partitions) <= PARTITIONS_MAX

    def _evict(self, partition_count: int, now: float) -> bool:
        """Makes a place for a session of `partition_count` partitions, if one may be taken."""
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now - oldest.used <= EVICTION_AGE_SECONDS:
            aged = (
                session
                for session in self._sessions.values()
                if now - session.created > EVICTION_AGE_SECONDS
            )
            smallest = min(aged, key=lambda session: len(session.partitions), default=None)
            if smallest is None or len(smallest.partitions) >= partition_count:
                return False
            oldest = smallest
        self._remove(oldest.id)
        return True


def next_epoch(epoch: int) -> int:
    """The epoch of a session's next request; it wraps past the initial one."""
    return 1 if epoch == EPOCH_MAX else epoch + 1


def _partitions_of(
    request: FetchRequest, uses_topic_ids: bool
) -> Iterable[tuple[PartitionKey, FetchedPartition]]:
    for topic in request.topics:
        name = topic.topic_id if uses_topic_ids else topic.topic
        for wanted in topic.partitions:
            yield (
                (name, wanted.partition),
                FetchedPartition(topic.topic, topic.topic_id, wanted),
            )


def _has_records(answer: PartitionData) -> bool:
    records = answer.records
    if records is None:
        return False
    if isinstance(records, (bytes, bytearray, memoryview)):
        return len(records) > 0
    return records.size > 0
