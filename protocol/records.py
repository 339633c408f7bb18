"""Record batches (magic 2): the records inside, read and built.

A batch is a header of 61 bytes, whose map and checks are in `batches.py` (its names can be had from
here too), and then its records, compressed as a whole when the attributes say so. One record:

    length            varint    bytes after this field
    attributes        int8      unused
    timestamp delta   varlong   from the batch's base timestamp, ms
    offset delta      varint    from the batch's base offset
    key length        varint    -1: null;   key bytes
    value length      varint    -1: null;   value bytes
    header count      varint    then of each header: key length varint (never null), key as UTF-8,
                                value length varint (-1: null), value bytes

Varints are Protocol Buffers' zigzag ones: at most 5 bytes, varlongs 10.

The bytes are a stranger's: every length is held against what is left before it is used, and
whatever is wrong comes out as `CorruptBatch`, never as another exception. In a batch with
LogAppendTime the records' own timestamps are passed over for the header's max timestamp, as Kafka's
clients do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from asyncbroker.protocol.batches import (
    BATCH_HEADER_BYTES,
    CONTROL_BIT,
    HEADER,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
    batches,
    check_batch,
    read_header,
    stamp,
    stamp_crc,
    stamp_log_append_time,
    stamp_max_timestamp,
    stamp_producer,
    verify_crc,
)
from asyncbroker.protocol.compression import (
    Buffer,
    Compression,
    CorruptBatch,
    compress,
    decompress,
)

__all__ = [
    "BATCH_HEADER_BYTES",
    "DECOMPRESSED_BYTES_MAX",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchHeader",
    "Compression",
    "CorruptBatch",
    "Record",
    "TimestampType",
    "batches",
    "build_batch",
    "check_batch",
    "frame_records",
    "payload_of",
    "read_header",
    "records_of",
    "stamp",
    "stamp_crc",
    "stamp_log_append_time",
    "stamp_max_timestamp",
    "stamp_producer",
    "verify_crc",
]

# Far above what 1 MiB of honest batch (`max.message.bytes`) decompresses to.
DECOMPRESSED_BYTES_MAX: Final = 128 << 20

_NULL_LENGTH: Final = 1  # -1 as a varint
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1


@dataclass(slots=True)
class Record:
    """One record. `timestamp` is in ms; a null key or value is None; headers keep their order."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


# ---- reading


def payload_of(
    batch: Buffer,
    header: BatchHeader | None = None,
    *,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Buffer:
    """The bytes of a batch's records, decompressed; a slice of `batch` if it is not compressed."""
    if header is None:
        header = read_header(batch)
    if len(batch) < header.size:
        raise CorruptBatch(f"a batch of {header.size} bytes, {len(batch)} are there")
    view = memoryview(batch)[BATCH_HEADER_BYTES : header.size]
    if header.compression is Compression.NONE:
        return view
    if header.record_count == 0 and not view:
        return b""  # the cleaner leaves an emptied batch its codec but no payload
    return decompress(header.compression, view, decompressed_bytes_max)


def records_of(
    batch: Buffer,
    header: BatchHeader | None = None,
    *,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[Record]:
    """The records of the one batch at the start of `batch`, decoded one by one.

    Does not check the CRC. Raises CorruptBatch, at the latest after the last good record: for
    anything that does not fit, for bytes left over, for records outside the batch's offsets.
    """
    if header is None:
        header = read_header(batch)
    payload = bytes(payload_of(batch, header, decompressed_bytes_max=decompressed_bytes_max))
    append_time = (
        header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    )
    for record in records_of_payload(payload, header):
        if append_time is not None:
            record.timestamp = append_time
        yield record


def records_of_payload(payload: bytes, header: BatchHeader) -> Iterator[Record]:
    """As `records_of`, from a decompressed payload, with the times that the records have."""
    position = 0
    for _ in range(header.record_count):
        try:
            length, position = _varint(payload, position)
            end = position + length
            if length < 0 or end > len(payload):
                raise CorruptBatch(
                    f"a record of {length} bytes, {len(payload) - position} are left"
                )
            record = _record(payload, position, end, header)
        except IndexError:
            raise CorruptBatch("the records end early") from None
        position = end
        yield record
    if position != len(payload):
        raise CorruptBatch(f"{len(payload) - position} bytes after the last record")


def _record(payload: bytes, position: int, end: int, header: BatchHeader) -> Record:
    """The record whose body is `payload[position:end]`; IndexError past the payload's end."""
    timestamp_delta, position = _varlong(payload, position + 1)
    offset_delta, position = _varint(payload, position)
    key, position = _nullable_bytes(payload, position, end)
    value, position = _nullable_bytes(payload, position, end)
    headers_count, position = _varint(payload, position)
    # A header takes two bytes at least, so a lying count ends here and not in the loop.
    if not 0 <= headers_count * 2 <= end - position:
        raise CorruptBatch(f"{headers_count} headers in {end - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(headers_count):
        header_key, position = _nullable_bytes(payload, position, end)
        if header_key is None:
            raise CorruptBatch("a header without a key")
        header_value, position = _nullable_bytes(payload, position, end)
        # Java reads malformed UTF-8 with replacement characters too.
        headers.append((header_key.decode("utf-8", "replace"), header_value))
    if position != end:
        raise CorruptBatch(f"a record's fields end {end - position} bytes before the record")
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise CorruptBatch(
            f"offset delta {offset_delta} in a batch up to {header.last_offset_delta}"
        )
    timestamp = header.base_timestamp + timestamp_delta
    if not _INT64_MIN <= timestamp <= _INT64_MAX:
        raise CorruptBatch(f"timestamp {timestamp}")
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers)


def _nullable_bytes(payload: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    byte = payload[position]
    if byte == _NULL_LENGTH:
        return None, position + 1
    if byte < 0x80:  # `_varint` in place: this is called twice a record, and for each header
        length, position = (byte >> 1) ^ -(byte & 1), position + 1
    else:
        length, position = read_varint(payload, position, 5)
    after = position + length
    if length < 0 or after > end:
        # A null may also be spelled in more bytes than it needs.
        if length == -1 and position <= end:
            return None, position
        raise CorruptBatch(f"a field of {length} bytes, {end - position} are left")
    return payload[position:after], after


def _varint(payload: bytes, position: int) -> tuple[int, int]:
    byte = payload[position]
    if byte < 0x80:  # nearly all of them
        return (byte >> 1) ^ -(byte & 1), position + 1
    return read_varint(payload, position, 5)


def _varlong(payload: bytes, position: int) -> tuple[int, int]:
    byte = payload[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return read_varint(payload, position, 10)


def read_varint(payload: bytes, position: int, bytes_max: int = 5) -> tuple[int, int]:
    """The varint at `position` (a varlong: 10 bytes), and the position after it."""
    value = shift = 0
    for byte in payload[position : position + bytes_max]:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        raise CorruptBatch(f"a varint without an end in {bytes_max} bytes")
    if value >> (32 if bytes_max == 5 else 64):
        raise CorruptBatch("a varint of too many bits")
    return (value >> 1) ^ -(value & 1), position


# ---- building


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    partition_leader_epoch: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    is_transactional: bool = False,
    is_control: bool = False,
    keeps_offsets: bool = False,
) -> bytearray:
    """One batch of `records`, with its CRC.

    Records are numbered from `base_offset` on, whatever their own offsets say, unless
    `keeps_offsets`: then they must ascend from at least `base_offset`, and gaps stay. Raises
    ValueError for no records or offsets that do not ascend, struct.error for numbers that no field
    holds.
    """
    # Not a list of parts: there may be millions of records, each of a few bytes.
    encoded = bytearray()
    record_count = 0
    base_timestamp = max_timestamp = NO_TIMESTAMP
    offset_delta = -1
    for record in records:
        if not record_count:
            base_timestamp = max_timestamp = record.timestamp
        elif record.timestamp > max_timestamp:
            max_timestamp = record.timestamp
        if not keeps_offsets:
            offset_delta += 1
        elif record.offset - base_offset > offset_delta:
            offset_delta = record.offset - base_offset
        else:
            raise ValueError(f"offset {record.offset} does not ascend")
        body = _record_body(record, record.timestamp - base_timestamp, offset_delta)
        encoded += encode_varint(len(body))
        encoded += body
        record_count += 1
    if not record_count:
        raise ValueError("a batch has at least one record")
    attributes = (
        (LOG_APPEND_TIME_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if is_transactional else 0)
        | (CONTROL_BIT if is_control else 0)
    )
    batch = frame_records(
        bytes(encoded),
        record_count,
        base_timestamp,
        max_timestamp,
        compression,
        base_offset=base_offset,
        last_offset_delta=offset_delta,
        partition_leader_epoch=partition_leader_epoch,
        attributes=attributes,
    )
    stamp_producer(batch, producer_id, producer_epoch, base_sequence)
    return batch


def frame_records(
    records: Buffer,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    compression: Compression,
    *,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    partition_leader_epoch: int = -1,
    attributes: int = 0,
) -> bytearray:
    """A batch of records that are encoded already, which it compresses. It is nobody's, and has no
    CRC, until `stamp_producer`."""
    payload = compress(compression, records)
    batch = bytearray(
        HEADER.pack(
            base_offset,
            BATCH_HEADER_BYTES - LENGTH_OVERHEAD + len(payload),
            partition_leader_epoch,
            MAGIC,
            0,
            attributes | compression,
            count - 1 if last_offset_delta is None else last_offset_delta,
            base_timestamp,
            max_timestamp,
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            NO_SEQUENCE,
            count,
        )
    )
    batch += payload
    return batch


def _record_body(record: Record, timestamp_delta: int, offset_delta: int) -> bytes:
    parts = [b"\x00", encode_varint(timestamp_delta), encode_varint(offset_delta)]
    for part in (record.key, record.value):
        parts += (_NULL, b"") if part is None else (encode_varint(len(part)), part)
    parts.append(encode_varint(len(record.headers)))
    for header_key, header_value in record.headers:
        key = header_key.encode()
        parts += (encode_varint(len(key)), key)
        parts += (
            (_NULL, b"")
            if header_value is None
            else (encode_varint(len(header_value)), header_value)
        )
    return b"".join(parts)


def encode_varint(value: int) -> bytes:
    """A varint or varlong."""
    if -64 <= value < 64:
        return _SMALL_VARINTS[value]
    word = value << 1 if value >= 0 else ~(value << 1)
    encoded = bytearray()
    while word > 0x7F:
        encoded.append(word & 0x7F | 0x80)
        word >>= 7
    encoded.append(word)
    return bytes(encoded)


# By value: an index below zero finds the negative ones at the end.
_SMALL_VARINTS: Final = [bytes([value << 1]) for value in range(64)] + [
    bytes([~(value << 1)]) for value in range(-64, 0)
]
_NULL: Final = _SMALL_VARINTS[-1]
