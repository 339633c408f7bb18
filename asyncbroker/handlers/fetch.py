"""Fetch (key 1), versions 4 to 17.

Behaviour: every partition asked for (or in the session, see `fetch_sessions.py`) is looked at in
order. The answer is due when together they have `min_bytes` (also where less of that fits into the
limits below), when one has an error, or when `max_wait_ms` is over, with whatever there is then;
until then the fetch waits (`fetch_waits.py`) and looks again when it is woken. Looking finds ranges
of log files and reads none of them.

`max_bytes` and `partition_max_bytes` are soft: the first partition with records gives at least one
whole batch, however large (KIP-74). Records are whole batches as they lie in the log, from the one
that contains the offset; they are empty when there are none, never null. What is large goes into
the response as a range of a file, for the connection to send without copying it. A range that is
not in the page cache, or that nobody has looked at since the start, is read in a worker thread
first, and its CRCs are checked: nothing blocks the event loop, a disk error becomes an error of
that partition instead of a response that breaks off, and damage is never sent. Records before it
are; who asks for a damaged one gets CORRUPT_MESSAGE, and who asks for later ones gets them.

v4   isolation level (KIP-98): who reads committed records gets none beyond the last stable offset,
     and is told of aborted transactions; there are such only in logs that have moved in
v5   log start offset (KIP-107)
v6   KAFKA_STORAGE_ERROR (KIP-112); earlier versions get NOT_LEADER_OR_FOLLOWER instead
v7   fetch sessions (KIP-227)
v9   current leader epoch: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH (KIP-320)
v10  zstd (KIP-110); earlier versions get UNSUPPORTED_COMPRESSION_TYPE when they meet it
v11  rack and preferred read replica (KIP-392): always -1, there is one replica
v12  flexible (KIP-482); last fetched epoch and diverging epoch (KIP-595)
v13  topic ids (KIP-516): UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID
v15  replica state (KIP-903)
v16  node endpoints (KIP-951): never sent
v17  a follower's directory (KIP-853): not looked at, as consumers have none

Not done: fetches by followers, which get NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sized
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.fetch_sessions import TOPIC_IDS_VERSION
from asyncbroker.log.errors import CorruptLog, WouldBlock
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from asyncbroker.protocol.records import Compression, batches

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext
    from asyncbroker.fetch_sessions import FetchContext, FetchedPartition
    from asyncbroker.log.file_range import FileRange
    from asyncbroker.partition import Partition

READ_COMMITTED: Final = 1
CONSUMER_REPLICA_IDS: Final = (-1, -2)

STORAGE_ERROR_VERSION: Final = 6
ZSTD_VERSION: Final = 10

# Ranges below this are read into the response: up to here a copy costs less than a `sendfile`.
INLINE_BYTES_MIN: Final = 32 * 1024
# Up to this it costs as much, and does not depend on what the system says is in memory. So much in
# one response, and the rest is sent from where it is: a copy of all would hold up the loop.
INLINE_BYTES_MAX: Final = 64 * 1024
INLINE_TOGETHER_BYTES_MAX: Final = 256 * 1024


def handle(
    broker: Broker, context: RequestContext, request: FetchRequest
) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    """Answers at once if there is enough to say and all of it is in memory."""
    version = context.api_version
    replica = request.replica_state
    replica_id = request.replica_id if replica is None else replica.replica_id
    if replica_id not in CONSUMER_REPLICA_IDS:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"no replica {replica_id} is known")
    fetch = _Fetch(broker, version, request, broker.fetch_sessions.open(request, version))
    if fetch.look() and (fetch.is_due() or request.max_wait_ms <= 0) and fetch.load():
        return fetch.response()
    return _finish(broker, context, fetch)


async def _finish(broker: Broker, context: RequestContext, fetch: _Fetch) -> FetchResponse:
    """Waits for data, if that is what is missing, and for the disk, if it is needed."""
    request, waits, clock = fetch.request, broker.fetch_waits, broker.peer_clock
    deadline = clock.monotonic() + request.max_wait_ms / 1000
    await fetch.look_on_disk()
    while not (fetch.is_due() or clock.monotonic() >= deadline):
        if waits.is_full() or context.is_closing():
            break
        missing_bytes = request.min_bytes - fetch.available_bytes
        await waits.wait(fetch.seen(), missing_bytes, deadline, context)
        fetch.look_again()
        await fetch.look_on_disk()
    if not fetch.load():
        await fetch.load_from_disk()
    return fetch.response()


class _Fetch:
    """One request while it is served: its partitions in order, and what each has to say so far."""

    __slots__ = (
        "_bytes_max",
        "_context",
        "_has_verdict",
        "_is_committed",
        "_last_looks",
        "_looks",
        "_metrics",
        "_topics",
        "_version",
        "available_bytes",
        "request",
        "size",
    )

    def __init__(
        self, broker: Broker, version: int, request: FetchRequest, context: FetchContext
    ) -> None:
        self.request = request
        self._topics = broker.topics
        self._metrics = broker.storage.metrics
        self._version = version
        self._context = context
        self._bytes_max = min(request.max_bytes, broker.config.fetch_max_bytes)
        self._is_committed = request.isolation_level == READ_COMMITTED
        self._looks: list[_Look] = []
        self.look_again()

    # ---- looking: which ranges of which files

    def look_again(self) -> None:
        """Makes the next look begin anew; it will keep what has not changed since the last one."""
        self._last_looks, self._looks = self._looks, []
        # What is found, and what there is: more, if the next batch is too large for the limits.
        self.size = self.available_bytes = 0
        # An error, or a reason not to wait for more.
        self._has_verdict = not self._context.partitions

    def is_due(self) -> bool:
        """Whether waiting would be wrong: there is enough, or something that cannot wait."""
        return self._has_verdict or self.available_bytes >= self.request.min_bytes

    def seen(self) -> list[tuple[Partition, int]]:
        """Where more records may come from, each with the high watermark that it had."""
        return [
            (look.partition, look.high_watermark)
            for look in self._looks
            if look.partition is not None
        ]

    def look(self) -> bool:
        """Looks at the partitions not looked at yet, up to one that takes the disk to find its way
        in; returns whether that was all of them."""
        for fetched in self._context.partitions[len(self._looks) :]:
            if self._keeps_last_look() or self._is_quiet(fetched):
                continue
            try:
                partition = self._find(fetched)
                if self._diverges(partition, fetched.wanted):
                    continue
                located = partition.locate(
                    fetched.wanted.fetch_offset,
                    self._bytes_max_of(fetched.wanted),
                    always_one=not self.size,
                    is_committed=self._is_committed,
                )
            except KafkaError as error:
                self._add_error(fetched, error)
            except WouldBlock:
                return False
            else:
                self._add(partition, fetched.wanted, located)
        return True

    async def look_on_disk(self) -> None:
        """Looks at all partitions not looked at yet."""
        while not self.look():
            fetched = self._context.partitions[len(self._looks)]
            try:
                partition = self._find(fetched)
                located = await partition.locate_on_disk(
                    fetched.wanted.fetch_offset,
                    self._bytes_max_of(fetched.wanted),
                    always_one=not self.size,
                    is_committed=self._is_committed,
                )
            except KafkaError as error:
                self._add_error(fetched, error)
            else:
                self._add(partition, fetched.wanted, located)

    def _keeps_last_look(self) -> bool:
        """Keeps what was found in the partition that is next, if a look would find it again: a wait
        ends with an append to one of what may be thousands of partitions."""
        if len(self._looks) >= len(self._last_looks):
            return False
        look = self._last_looks[len(self._looks)]
        if not look.is_current():
            return False
        self._note(look)
        return True

    def _is_quiet(self, fetched: FetchedPartition) -> bool:
        """Notes that there is nothing to say, if the reader of a session is at the end and knows
        it: of most partitions of a large session most of the time."""
        partition, wanted = fetched.partition, fetched.wanted
        if (
            partition is None
            or not self._context.is_incremental
            or wanted.fetch_offset != fetched.high_watermark
            or wanted.last_fetched_epoch >= 0
            or wanted.current_leader_epoch not in (-1, partition.leader_epoch)
            or partition.high_watermark != fetched.high_watermark
            or partition.log_start_offset != fetched.log_start_offset
            or not partition.is_readable()
        ):
            return False
        self._note(_Look(None, partition, None, 0))
        return True

    def _note(self, look: _Look) -> None:
        self._looks.append(look)
        self.available_bytes += look.available_bytes
        if look.located is not None:
            self.size += look.located.size

    def _find(self, fetched: FetchedPartition) -> Partition:
        """The partition, if it can be read by who knows this of it."""
        wanted = fetched.wanted
        fetched.partition = None
        if self._version < TOPIC_IDS_VERSION:
            topic = self._topics.get(fetched.topic)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            topic = self._topics.by_id(fetched.topic_id)
            if topic is None:
                # A session knows the name that the id had: has it another one now?
                if fetched.topic and self._topics.get(fetched.topic) is not None:
                    raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            fetched.topic = topic.name
        if not 0 <= wanted.partition < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition = topic.partitions[wanted.partition]
        partition.check_readable()
        partition.check_leader_epoch(wanted.current_leader_epoch)
        fetched.partition = partition
        return partition

    def _diverges(self, partition: Partition, wanted: FetchPartition) -> bool:
        """Whether the reader has records of an epoch that ended before its offset, because the log
        was cut; then it is told where (KIP-595) and gets no records."""
        if wanted.last_fetched_epoch < 0:
            return False
        epoch, end_offset = partition.end_offset_for_epoch(wanted.last_fetched_epoch)
        if epoch < 0 or wanted.fetch_offset < partition.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch >= wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
            return False
        answer = self._add(partition, wanted, None)
        answer.diverging_epoch = FetchEpochEndOffset(epoch, end_offset)
        self._has_verdict = True
        return True

    def _bytes_max_of(self, wanted: FetchPartition) -> int:
        return max(0, min(wanted.partition_max_bytes, self._bytes_max - self.size))

    def _add(
        self, partition: Partition, wanted: FetchPartition, located: FileRange | None
    ) -> PartitionData:
        answer = PartitionData(
            partition_index=wanted.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log_start_offset,
            aborted_transactions=[] if self._is_committed else None,
            records=b"" if located is None else located,
        )
        available_bytes = _available_bytes(
            partition, wanted, located, answer.last_stable_offset if self._is_committed else None
        )
        look = _Look(answer, partition, located, available_bytes)
        look.fetch_offset = wanted.fetch_offset
        self._note(look)
        # A range ends with its segment, so what it lacks may lie in the next one.
        if located is not None and partition.is_in_older_segment(wanted.fetch_offset):
            self._has_verdict = True
        return answer

    def _add_error(self, fetched: FetchedPartition, error: KafkaError) -> None:
        self._looks.append(_Look(self._error(fetched.wanted.partition, error), None, None, 0))
        self._has_verdict = True

    def _error(self, index: int, error: KafkaError) -> PartitionData:
        code = error.code
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self._version < STORAGE_ERROR_VERSION:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._metrics.corrupt_reads += code is ErrorCode.CORRUPT_MESSAGE
        return PartitionData(
            partition_index=index,
            error_code=code,
            high_watermark=-1,
            aborted_transactions=[] if self._is_committed else None,
        )

    # ---- loading: what of those ranges is not in memory, or has to be seen

    def load(self) -> bool:
        """Reads small ranges into the answers; returns whether the large ones can be sent from
        where they are, too. If not, `load_from_disk` must follow."""
        is_loaded = True
        room = INLINE_TOGETHER_BYTES_MAX
        for look in self._looks:
            partition, located = look.partition, look.located
            if partition is None or located is None:
                continue
            if not located.is_trusted or self._has_aborted(partition):
                is_loaded = False
                continue
            size = located.size
            if size >= INLINE_BYTES_MIN and size > min(INLINE_BYTES_MAX, room):
                is_loaded &= self._version >= ZSTD_VERSION and located.is_resident()
                continue
            room -= size
            try:
                records = located.read_nowait()
            except OSError as error:
                self._fail(look, partition.read_failed(error))
                continue
            if records is None:
                is_loaded = False
            else:
                self._take(look, records)
        return is_loaded

    async def load_from_disk(self) -> None:
        """Reads and checks what `load` has left, in worker threads."""
        # Imported here: a new broker starts without logs, and without their code.
        from asyncbroker.log import checking

        for look in self._looks:
            partition, located = look.partition, look.located
            if partition is None or located is None:
                continue
            is_large = located.size >= INLINE_BYTES_MIN and self._version >= ZSTD_VERSION
            is_sent = is_large and located.is_trusted and located.is_resident()
            if is_sent and not self._has_aborted(partition):
                continue
            try:
                checked = await partition.read(
                    checking.checked, partition.log, located, look.fetch_offset
                )
                if checked is not None and self._has_aborted(partition):
                    checked = await self._tell_aborted(look, partition, checked)
                if checked is None:
                    self._take(look, b"")
                elif not is_large:
                    self._take(look, await partition.read(checked.read))
                else:
                    assert look.answer is not None
                    look.answer.records = look.located = checked
            except KafkaError as error:
                self._fail(look, error)
            except (OSError, CorruptLog) as error:
                self._fail(look, partition.read_failed(error))

    def _has_aborted(self, partition: Partition) -> bool:
        """Whether the reader must be told which transactions were aborted."""
        return self._is_committed and partition.log.has_transactions

    async def _tell_aborted(
        self, look: _Look, partition: Partition, located: FileRange
    ) -> FileRange:
        """Tells which transactions were aborted in a range; what the reader gets of it."""
        assert look.answer is not None
        from asyncbroker.log.checking import committed_in

        log = partition.log
        located, aborted = await partition.read(committed_in, log, located, look.fetch_offset)
        look.answer.aborted_transactions = [
            AbortedTransaction(each.producer_id, each.first_offset)
            for each in sorted(aborted, key=lambda each: each.first_offset)
        ]
        return located

    def _take(self, look: _Look, records: bytes | bytearray) -> None:
        """Puts what was read into an answer, if the client can read it."""
        assert look.answer is not None
        look.answer.records = records
        look.located = None
        if self._version < ZSTD_VERSION and any(
            header.compression is Compression.ZSTD for header, _ in batches(records)
        ):
            self._fail(look, KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE))

    def _fail(self, look: _Look, error: KafkaError) -> None:
        assert look.answer is not None
        look.answer = self._error(look.answer.partition_index, error)
        look.located = None

    # ---- the response

    def response(self) -> FetchResponse:
        """What there is to say to the client; KafkaError if the session has gone on without us."""
        for look in self._looks:
            if look.partition is not None and look.answer is not None:
                records = look.answer.records or b""
                if isinstance(records, Sized):
                    size = len(records)
                else:
                    size = records.size
                    assert look.located is not None
                    look.located.on_error = look.partition.read_failed
                look.partition.traffic.fetched(size)
        topics: list[FetchableTopicResponse] = []
        last: FetchedPartition | None = None
        for fetched, answer in self._context.select([look.answer for look in self._looks]):
            if last is None or last.topic != fetched.topic or last.topic_id != fetched.topic_id:
                topics.append(FetchableTopicResponse(fetched.topic, fetched.topic_id))
                last = fetched
            topics[-1].partitions.append(answer)
        return FetchResponse(session_id=self._context.session_id, responses=topics)


class _Look:
    """What was seen of one partition, and what it has to say: `answer`, or None for nothing new.
    `located` while its records are still in the file only."""

    __slots__ = (
        "answer",
        "available_bytes",
        "fetch_offset",
        "high_watermark",
        "located",
        "log_start_offset",
        "partition",
    )

    def __init__(
        self,
        answer: PartitionData | None,
        partition: Partition | None,
        located: FileRange | None,
        available_bytes: int,
    ) -> None:
        self.answer = answer
        self.partition = partition
        self.located = located
        self.available_bytes = available_bytes
        self.fetch_offset = -1
        self.high_watermark = -1 if partition is None else partition.high_watermark
        self.log_start_offset = -1 if partition is None else partition.log_start_offset

    def is_current(self) -> bool:
        """Whether another look would see the same."""
        partition = self.partition
        return (
            partition is not None
            and partition.high_watermark == self.high_watermark
            and partition.log_start_offset == self.log_start_offset
            and partition.is_readable()
        )


def _available_bytes(
    partition: Partition, wanted: FetchPartition, located: FileRange | None, limit: int | None
) -> int:
    """What the partition adds to `min_bytes`: as in Kafka all that it has, up to its own limit,
    whether whole batches fit into that or not. Otherwise a reader of large batches whose limit is
    its minimum would wait out each of its fetches."""
    if located is not None:
        available = partition.bytes_from(located.position)
        return max(located.size, min(available, wanted.partition_max_bytes))
    is_at_end = wanted.fetch_offset >= (partition.high_watermark if limit is None else limit)
    return 0 if is_at_end else max(0, wanted.partition_max_bytes)
