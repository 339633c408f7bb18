"""What a log remembers of its producers, so that a retry is neither written twice nor lost.

Of each producer id: its epoch, its last five batches (what an idempotent producer can have in
flight), and the first offset of its transaction while one is open. The state follows from the
batches in the log alone. Snapshots of it, named by the offset *after* what they contain, save
replaying the whole log at a start; they are caches with a checksum: a bad one is passed over.

Kafka's `.snapshot`, big endian, which has the last batch of each producer only:

    int16 version 1, uint32 CRC-32C of the rest, int32 count, then of each producer
    int64 id, int16 epoch, int32 last sequence, int64 last offset, int32 last offset - first offset,
    int64 timestamp, int32 coordinator epoch, int64 first offset of the open transaction or -1

Beside it lies our `.producers` with all five, so that exactly-once survives a restart:

    int16 version 1, uint32 CRC-32C of the rest, uint32 CRC-32C of the whole `.snapshot` beside it,
    int32 count, then of each producer
    int64 id, int16 epoch, int32 coordinator epoch, int64 timestamp, int64 first offset of the open
    transaction or -1, int8 count, then of each batch, oldest first
    int32 last sequence, int64 last offset, int32 last offset - first offset, int64 timestamp

If the `.snapshot` beside it is another one (Apache Kafka had the directory meanwhile), the
`.producers` file is out of date and is not used.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncbroker.log.config import INT64_MAX
from asyncbroker.log.system_calls import Buffer
from asyncbroker.protocol.checksums import crc32c
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.records import NO_TIMESTAMP, BatchHeader, CorruptBatch, records_of

if TYPE_CHECKING:
    from asyncbroker.log.damage import DamagedRanges

logger = logging.getLogger(__name__)

SNAPSHOT_SUFFIX: Final = ".snapshot"
SIDECAR_SUFFIX: Final = ".producers"
BATCHES_KEPT: Final = 5

_VERSION: Final = 1
_NO_OFFSET: Final = -1
_SEQUENCE_MASK: Final = (1 << 31) - 1
_SEAL: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")
_SIDECAR_HEAD: Final = struct.Struct(">Ii")
_SIDECAR_ENTRY: Final = struct.Struct(">qhiqqb")
_SIDECAR_BATCH: Final = struct.Struct(">iqiq")
_MARKER_KEY: Final = struct.Struct(">hh")  # version, type (0 abort, 1 commit)
_MARKER_VALUE: Final = struct.Struct(">hi")  # version, coordinator epoch


class CorruptSnapshot(Exception):
    """A snapshot whose bytes are not what was written."""


class ProducerBatch(NamedTuple):
    """One batch that was appended."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Producer:
    """One producer id in one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "silent_since_ms",
        "timestamp",
        "transaction_start",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.coordinator_epoch = -1
        # Of the last batch or marker.
        self.timestamp = NO_TIMESTAMP
        # When it last wrote, or the log was opened. Kafka tells age by the records' timestamps and
        # so forgets, in the middle of its work, a producer that loads old data.
        self.silent_since_ms: int | None = None
        self.transaction_start = _NO_OFFSET
        self.batches: deque[ProducerBatch] = deque(maxlen=BATCHES_KEPT)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state at `offset` as the contents of its two files."""

    offset: int
    producer_count: int
    kafka: bytes
    sidecar: bytes


class ProducerState:
    """The producers of one partition. Changed by whoever appends, one at a time."""

    __slots__ = ("_open_transactions", "_producers", "end_offset", "is_whole")

    def __init__(self, end_offset: int = 0) -> None:
        self._producers: dict[int, Producer] = {}
        # First offset -> producer id, in the order of offsets, which is that of insertion.
        self._open_transactions: dict[int, int] = {}
        # The state is that after all batches below this offset.
        self.end_offset = end_offset
        # False: of each producer only the last batch is known.
        self.is_whole = True

    def __len__(self) -> int:
        return len(self._producers)

    def producers(self) -> Iterator[tuple[int, Producer]]:
        """Each with its id."""
        return iter(self._producers.items())

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self._open_transactions), None)

    # ---- appending

    def check(
        self, header: BatchHeader, damaged: DamagedRanges, *, is_client: bool
    ) -> ProducerBatch | None:
        """Whether a producer's batch may follow: the batch that it repeats, or None to append it.

        Raises KafkaError. The rules are those of Kafka's ProducerAppendInfo: a repeat must match
        one of the last five exactly; a producer that is not known may begin anywhere (KIP-360). The
        coordinators' own batches (`is_client` false) have no sequences.

        One rule is ours: what is `damaged` of the log behind a producer's last batch may have been
        batches of it, and Kafka would have cut them away. Its next one may leave out as many.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        epoch = header.producer_epoch
        if epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {epoch} of producer {header.producer_id}, which is at {producer.epoch}",
            )
        if is_client and not header.is_control:
            if epoch == producer.epoch:
                repeated = _find(producer, header)
                if repeated is not None:
                    return repeated
            _check_sequence(producer, header, damaged)
        if producer.transaction_start >= 0 and not (header.is_transactional or header.is_control):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction in this partition",
            )
        return None

    def add(self, header: BatchHeader, batch: Buffer | None = None) -> None:
        """Takes over a batch that is in the log; `batch`, its bytes, is needed of control batches.

        Does not judge: what is in the log happened.
        """
        self.end_offset = header.next_offset
        producer_id = header.producer_id
        if producer_id < 0:
            return
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(header.producer_epoch)
        elif producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.timestamp = header.max_timestamp
        producer.silent_since_ms = None
        if header.is_control:
            self._end_transaction(producer, header, batch)
            return
        producer.batches.append(
            ProducerBatch(
                header.last_sequence,
                header.last_offset,
                header.last_offset_delta,
                header.max_timestamp,
            )
        )
        if header.is_transactional and producer.transaction_start < 0:
            producer.transaction_start = header.base_offset
            self._open_transactions[header.base_offset] = producer_id

    def _end_transaction(
        self, producer: Producer, header: BatchHeader, batch: Buffer | None
    ) -> None:
        """A commit or abort marker; compaction leaves an empty batch where one was."""
        if not header.record_count:
            return
        if batch is None:
            raise ValueError("a control batch comes with its bytes")
        marker = next(records_of(batch, header))
        if marker.key is None or marker.value is None:
            raise CorruptBatch(f"the marker at offset {header.base_offset} is empty")
        try:
            _, kind = _MARKER_KEY.unpack_from(marker.key)
            if kind not in (0, 1):
                return  # not the end of a transaction: the controller's, or of a later Kafka
            _, producer.coordinator_epoch = _MARKER_VALUE.unpack_from(marker.value)
        except struct.error as error:
            raise CorruptBatch(f"the marker at offset {header.base_offset}: {error}") from error
        self._open_transactions.pop(producer.transaction_start, None)
        producer.transaction_start = _NO_OFFSET

    def last_batches(self) -> dict[int, tuple[int, int]]:
        """The last offset of each producer's data, -1 for none that is known, and its epoch. May be
        asked while another thread appends: then newer batches are on their way."""
        found: dict[int, tuple[int, int]] = {}
        for producer_id, producer in list(self._producers.items()):
            try:
                last_offset = producer.batches[-1].last_offset
            except IndexError:
                last_offset = _NO_OFFSET
            found[producer_id] = (last_offset, producer.epoch)
        return found

    def known_to(self) -> int:
        """Where the last batch of that producer ends which has been silent for longest; the end of
        all offsets if there is none."""
        ends = (last_offset + 1 for last_offset, _ in self.last_batches().values())
        return min((end for end in ends if end > 0), default=INT64_MAX)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets who was silent for `expiration_ms` and has no open transaction. Silence begins
        with the first call after a batch, so that only clocks which say `now_ms` are compared: the
        wall clock, which stamps batches, may have been elsewhere when one came."""
        for producer in self._producers.values():
            if producer.silent_since_ms is None:
                producer.silent_since_ms = now_ms
        self._producers = {
            producer_id: producer
            for producer_id, producer in self._producers.items()
            if producer.transaction_start >= 0
            or now_ms - (producer.silent_since_ms or 0) < expiration_ms
        }

    # ---- snapshots

    def snapshot(self) -> Snapshot:
        """The state as it is now."""
        kafka = [_COUNT.pack(len(self._producers))]
        entries: list[bytes] = []
        for producer_id, producer in self._producers.items():
            last = producer.batches[-1] if producer.batches else _NO_BATCH
            kafka.append(
                _SNAPSHOT_ENTRY.pack(
                    producer_id,
                    producer.epoch,
                    last.last_sequence,
                    last.last_offset,
                    last.offset_delta,
                    producer.timestamp,
                    producer.coordinator_epoch,
                    producer.transaction_start,
                )
            )
            entries.append(
                _SIDECAR_ENTRY.pack(
                    producer_id,
                    producer.epoch,
                    producer.coordinator_epoch,
                    producer.timestamp,
                    producer.transaction_start,
                    len(producer.batches),
                )
            )
            entries += (_SIDECAR_BATCH.pack(*batch) for batch in producer.batches)
        sealed = _seal(b"".join(kafka))
        head = _SIDECAR_HEAD.pack(crc32c(sealed), len(self._producers))
        return Snapshot(
            self.end_offset, len(self._producers), sealed, _seal(head + b"".join(entries))
        )

    @classmethod
    def load(cls, offset: int, kafka: bytes, sidecar: bytes | None) -> ProducerState:
        """The state from a snapshot's files. Raises CorruptSnapshot if `kafka` is damaged; a
        sidecar that is damaged, or belongs to another snapshot, only costs the older batches."""
        producers = _decode_snapshot(kafka)
        is_whole = not producers
        if sidecar is not None:
            try:
                producers = _decode_sidecar(sidecar, crc32c(kafka))
                is_whole = True
            except CorruptSnapshot as damage:
                logger.warning("the sidecar of the snapshot at offset %d: %s", offset, damage)
        state = cls(offset)
        state._producers = producers
        state.is_whole = is_whole
        state._open_transactions = dict(
            sorted(
                (producer.transaction_start, producer_id)
                for producer_id, producer in producers.items()
                if producer.transaction_start >= 0
            )
        )
        return state


_NO_BATCH: Final = ProducerBatch(-1, _NO_OFFSET, 0, NO_TIMESTAMP)


def _find(producer: Producer, header: BatchHeader) -> ProducerBatch | None:
    """The batch with exactly these sequences, among the last five."""
    last_sequence = header.last_sequence
    for batch in producer.batches:
        if batch.last_sequence == last_sequence and batch.offset_delta == header.last_offset_delta:
            return batch
    return None


def _check_sequence(producer: Producer, header: BatchHeader, damaged: DamagedRanges) -> None:
    if header.producer_epoch != producer.epoch or not producer.batches:
        # A new epoch begins at 0; so does what follows a marker that brought the epoch.
        expected = 0
    else:
        expected = (producer.batches[-1].last_sequence + 1) & _SEQUENCE_MASK
    if header.base_sequence == expected:
        return
    missing = (header.base_sequence - expected) & _SEQUENCE_MASK
    known_to = producer.batches[-1].last_offset + 1 if producer.batches else INT64_MAX
    if missing > damaged.count_from(known_to):
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"sequence {header.base_sequence} of producer {header.producer_id}, "
            f"epoch {header.producer_epoch}; expected {expected}",
        )


def _seal(body: bytes) -> bytes:
    return _SEAL.pack(_VERSION, crc32c(body)) + body


def _unseal(data: bytes) -> memoryview:
    if len(data) < _SEAL.size:
        raise CorruptSnapshot(f"{len(data)} bytes")
    version, crc = _SEAL.unpack_from(data)
    body = memoryview(data)[_SEAL.size :]
    if version != _VERSION or crc32c(body) != crc:
        raise CorruptSnapshot(f"version {version}, or the CRC does not match")
    return body


def _decode_snapshot(data: bytes) -> dict[int, Producer]:
    body = _unseal(data)
    producers: dict[int, Producer] = {}
    try:
        (count,) = _COUNT.unpack_from(body)
        if len(body) != _COUNT.size + count * _SNAPSHOT_ENTRY.size:
            raise CorruptSnapshot(f"{count} producers in {len(body)} bytes")
        for fields in _SNAPSHOT_ENTRY.iter_unpack(body[_COUNT.size :]):
            producer_id, epoch, sequence, offset, delta, timestamp, coordinator, start = fields
            producer = producers[producer_id] = Producer(epoch)
            producer.coordinator_epoch = coordinator
            producer.timestamp = timestamp
            producer.transaction_start = start
            if offset >= 0:
                producer.batches.append(ProducerBatch(sequence, offset, delta, timestamp))
    except struct.error as error:
        raise CorruptSnapshot(str(error)) from error
    return producers


def _decode_sidecar(data: bytes, kafka_crc: int) -> dict[int, Producer]:
    body = _unseal(data)
    producers: dict[int, Producer] = {}
    try:
        belongs_to, count = _SIDECAR_HEAD.unpack_from(body)
        if belongs_to != kafka_crc:
            raise CorruptSnapshot("it belongs to another snapshot")
        position = _SIDECAR_HEAD.size
        for _ in range(count):
            producer_id, epoch, coordinator, timestamp, start, batch_count = (
                _SIDECAR_ENTRY.unpack_from(body, position)
            )
            position += _SIDECAR_ENTRY.size
            producer = producers[producer_id] = Producer(epoch)
            producer.coordinator_epoch = coordinator
            producer.timestamp = timestamp
            producer.transaction_start = start
            for _ in range(batch_count):
                producer.batches.append(ProducerBatch(*_SIDECAR_BATCH.unpack_from(body, position)))
                position += _SIDECAR_BATCH.size
    except struct.error as error:
        raise CorruptSnapshot(str(error)) from error
    return producers
