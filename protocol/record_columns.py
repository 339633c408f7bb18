"""The records of a batch as columns, for who needs little of each: their offsets and keys.

`records.py` makes an object of every record; here a record is its place in the payload. That is
what compaction works on: it looks at keys, and what it keeps it copies as bytes. A batch of which
some records go is put together again as Apache Kafka's cleaner does it, byte for byte: its base
offset, last offset and producer's fields stay, so that sequences still follow from them; the base
timestamp becomes that of the first record that is left, or a delete horizon (KIP-534).

The map of a record is in `records.py`. Lengths are held against what is there before they are used;
what comes after the key is only looked at as far as is needed to tell a null value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from asyncbroker.protocol.batches import (
    BATCH_HEADER_BYTES,
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    RECORD_BYTES_MIN,
    BatchHeader,
    read_header,
    stamp_producer,
)
from asyncbroker.protocol.compression import Buffer, Compression, CorruptBatch
from asyncbroker.protocol.records import encode_varint, frame_records, read_varint


class RecordColumns(NamedTuple):
    """Of each record: offset - base offset, key (None: null), whether its value is null, and where
    it ends in the payload; it begins where the one before it ends."""

    offset_deltas: list[int]
    keys: list[bytes | None]
    are_tombstones: list[bool]
    ends: list[int]


def record_columns(payload: bytes, header: BatchHeader) -> RecordColumns:
    """The records in the decompressed payload of a batch. Raises CorruptBatch."""
    count = header.record_count
    return next(record_chunks(payload, header, count), None) or RecordColumns([], [], [], [])


def record_chunks(payload: bytes, header: BatchHeader, records_max: int) -> Iterator[RecordColumns]:
    """As `record_columns`, up to so many records at a time: a batch of a few kilobytes may hold
    millions. Raises CorruptBatch, at the latest after the last of them."""
    left, position, last_delta = header.record_count, 0, -1
    while left:
        count = min(left, records_max)
        try:
            columns, position = _walk(payload, count, position)
        except IndexError:
            raise CorruptBatch("the records end early") from None
        left -= count
        if not left and position != len(payload):
            raise CorruptBatch(f"the last record ends at byte {position} of {len(payload)}")
        deltas = columns.offset_deltas
        if (
            deltas[0] <= last_delta
            or deltas[-1] > header.last_offset_delta
            or any(map(int.__ge__, deltas, deltas[1:]))
        ):
            raise CorruptBatch("the offsets of the records do not ascend within the batch")
        last_delta = deltas[-1]
        yield columns
    if position != len(payload):
        raise CorruptBatch(f"the last record ends at byte {position} of {len(payload)}")


# What the first byte of a length of two says: these two, and the low bits of what follows them.
_TWO_BYTES: Final = [2 + ((byte & 0x7F) >> 1) for byte in range(256)]


def record_ends(payload: bytes, count: int, begin: int, end: int) -> list[int]:
    """Only where each of `count` records ends; they must fill `payload[begin:end]`.

    It does the least: that records do not reach beyond `end` is seen after the last of them, and
    that lengths have no sign is left to who looks into the records. Raises CorruptBatch.
    """
    if count * RECORD_BYTES_MIN > end - begin:
        raise CorruptBatch(f"{count} records in {end - begin} bytes")
    ends: list[int] = []
    append = ends.append
    position = begin
    try:
        for _ in range(count):
            byte = payload[position]
            if byte < 0x80:
                position += 1 + (byte >> 1)
            elif (high := payload[position + 1]) < 0x80:
                position += _TWO_BYTES[byte] + (high << 6)
            else:
                word, position = _zigzag(payload, position)
                position += word >> 1
            append(position)
    except IndexError:
        raise CorruptBatch("a record that is longer than its batch") from None
    if position != end:
        raise CorruptBatch(f"the records end {end - position} bytes before their batch")
    return ends


def _walk(payload: bytes, count: int, position: int) -> tuple[RecordColumns, int]:
    """The columns of so many records from a position on, and the end of the last one; IndexError
    past the payload's end.

    Varints of one byte, and the usual ones of two, are read in place: a call for each costs more
    than all the rest."""
    deltas: list[int] = []
    keys: list[bytes | None] = []
    tombstones: list[bool] = []
    ends: list[int] = []
    size = len(payload)
    for _ in range(count):
        byte = payload[position]
        if byte < 0x80:
            position += 1
        elif (high := payload[position + 1]) < 0x80:
            byte = byte & 0x7F | high << 7
            position += 2
        else:
            byte, position = _zigzag(payload, position)
        end = position + (byte >> 1)
        if byte & 1 or end > size:
            raise CorruptBatch(f"a record that ends at byte {end} of {size}")
        position += 1  # the attributes
        while payload[position] > 0x7F:  # the timestamp delta
            position += 1
        byte = payload[position + 1]
        if byte < 0x80:
            position += 2
        elif (high := payload[position + 2]) < 0x80:
            byte = byte & 0x7F | high << 7
            position += 3
        else:
            byte, position = _zigzag(payload, position + 1)
        deltas.append(byte >> 1 if byte & 1 == 0 else -1)
        byte = payload[position]
        if byte < 0x80:
            position += 1
        else:
            byte, position = _zigzag(payload, position)
        if byte & 1:
            keys.append(None)
        else:
            begin, position = position, position + (byte >> 1)
            keys.append(payload[begin:position])
        if position >= end:
            raise CorruptBatch(f"a key that ends at byte {position}, its record at {end}")
        # The sign is in the lowest bit of the first byte.
        tombstones.append(payload[position] & 1 == 1)
        ends.append(end)
        position = end
    return RecordColumns(deltas, keys, tombstones, ends), position


def _zigzag(payload: bytes, position: int) -> tuple[int, int]:
    """A varint of any length, still with its sign in the lowest bit, and where it ends."""
    value, position = read_varint(payload, position)
    return (value << 1 if value >= 0 else ~(value << 1)), position


# ---- building


def without_records(header: BatchHeader) -> bytearray:
    """The batch with all of its records gone: kept for its last offset and sequence."""
    return _build(header, b"", 0, NO_TIMESTAMP, header.max_timestamp, Compression.NONE, 0)


def with_records(
    header: BatchHeader,
    payload: bytes,
    ends: Sequence[int],
    kept: Sequence[int],
    delete_horizon_ms: int | None,
) -> bytearray:
    """The batch with the records at the indexes `kept` only, in its own codec.

    `delete_horizon_ms` is written into a batch that has none yet; one that it has stays.
    """
    thinning = Thinning(header, delete_horizon_ms)
    thinning.keep(payload, [0, *ends], kept)
    return thinning.batch()


def with_codec(batch: bytes, codec: Compression) -> Buffer:
    """A batch that is not compressed in a codec."""
    if codec is Compression.NONE:
        return batch
    header = read_header(batch)
    return _build(
        header,
        memoryview(batch)[BATCH_HEADER_BYTES:],
        header.record_count,
        header.base_timestamp,
        header.max_timestamp,
        codec,
        header.attributes & DELETE_HORIZON_BIT,
    )


class Thinning:
    """A batch that loses records: those that it keeps are taken in stretches, in order."""

    __slots__ = (
        "_base_timestamp",
        "_count",
        "_header",
        "_horizon_ms",
        "_max_timestamp",
        "_records",
    )

    def __init__(self, header: BatchHeader, delete_horizon_ms: int | None) -> None:
        """See `with_records`."""
        old_horizon = header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None
        self._header = header
        self._horizon_ms = old_horizon if old_horizon is not None else delete_horizon_ms
        # That of the first record that stays, if it is no horizon.
        self._base_timestamp = self._horizon_ms
        self._max_timestamp = NO_TIMESTAMP
        self._count = 0
        self._records = bytearray()

    def keep(self, payload: bytes, bounds: Sequence[int], kept: Sequence[int]) -> None:
        """Takes records, by their indexes among those that lie between the `bounds`."""
        if not kept:
            return
        header = self._header
        is_append_time = header.attributes & LOG_APPEND_TIME_BIT
        timestamps: list[int] = []
        bodies: list[tuple[int, int]] = []
        for index in kept:
            position = bounds[index]
            while payload[position] > 0x7F:  # the length
                position += 1
            position += 1
            byte = payload[position + 1]
            if byte < 0x80:
                delta, after = (byte >> 1) ^ -(byte & 1), position + 2
            else:
                delta, after = read_varint(payload, position + 1, bytes_max=10)
            timestamps.append(
                header.max_timestamp if is_append_time else header.base_timestamp + delta
            )
            bodies.append((position, after))
        largest = max(timestamps)
        if largest >= 1 << 63 or min(timestamps) < -(1 << 63):
            raise CorruptBatch("a timestamp of more than 64 bits")
        if self._base_timestamp is None:
            self._base_timestamp = timestamps[0]
        self._max_timestamp = max(self._max_timestamp, largest) if self._count else largest
        self._count += len(kept)
        base_timestamp = self._base_timestamp
        if base_timestamp == header.base_timestamp and not is_append_time:
            for index in kept:
                self._records += payload[bounds[index] : bounds[index + 1]]
            return
        for index, timestamp, (body, after) in zip(kept, timestamps, bodies, strict=True):
            delta_bytes = encode_varint(timestamp - base_timestamp)
            rest = payload[after : bounds[index + 1]]
            self._records += encode_varint(1 + len(delta_bytes) + len(rest))
            self._records += payload[body : body + 1]
            self._records += delta_bytes
            self._records += rest

    def batch(self) -> bytearray:
        """The batch of what was taken, which was something."""
        header = self._header
        assert self._base_timestamp is not None
        return _build(
            header,
            self._records,
            self._count,
            self._base_timestamp,
            self._max_timestamp,
            header.compression,
            DELETE_HORIZON_BIT if self._horizon_ms is not None else 0,
        )


def _build(
    header: BatchHeader,
    records: Buffer,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    compression: Compression,
    horizon_bit: int,
) -> bytearray:
    """The batch of `header` with other records."""
    batch = frame_records(
        records,
        record_count,
        base_timestamp,
        max_timestamp,
        compression,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        partition_leader_epoch=header.partition_leader_epoch,
        attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT) | horizon_bit,
    )
    stamp_producer(batch, header.producer_id, header.producer_epoch, header.base_sequence)
    return batch
