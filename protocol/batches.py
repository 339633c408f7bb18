"""The head of a record batch (magic 2): what a broker reads without looking at the records.

Byte map, big endian; `records.py` has the map of the records that follow.

    at  size  field
     0   8    base offset                <- the broker writes it
     8   4    batch length               bytes after this field: size of the batch - 12
    12   4    partition leader epoch     <- the broker writes it
    16   1    magic                      2
    17   4    CRC-32C                    of everything from `attributes` to the end
    21   2    attributes                 bits 0-2 compression, 3 timestamp type, 4 transactional,
                                         5 control, 6 base timestamp is a delete horizon (KIP-534)
    23   4    last offset delta          last offset - base offset
    27   8    base timestamp             ms; of the first record, deltas count from it
    35   8    max timestamp              ms; with LogAppendTime the time of every record
    43   8    producer id                -1: not idempotent
    51   2    producer epoch
    53   4    base sequence
    57   4    record count
    61   -    records, compressed as a whole when the attributes say so

The base offset and the leader epoch lie before the CRC's range, so a broker assigns offsets without
reading the batch again. Compaction keeps offsets: it leaves gaps, and batches without records.

Not known here: partitions, files, sockets, clocks, and what a topic allows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from types import ModuleType
from typing import Final

from asyncbroker.protocol.checksums import crc32c
from asyncbroker.protocol.compression import Buffer, Compression, CorruptBatch
from asyncbroker.protocol.errors import ErrorCode, KafkaError

BATCH_HEADER_BYTES: Final = 61
# Of a record without key, value and headers: its length and six fields of a byte each.
RECORD_BYTES_MIN: Final = 7
MAGIC: Final = 2
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
LENGTH_AT: Final = 8
LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_AT: Final = 43
# Base offset and batch length: what a batch's length does not count.
LENGTH_OVERHEAD: Final = 12

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

_SEQUENCE_COUNT: Final = 1 << 31
_PRODUCER: Final = struct.Struct(">qhi")
_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT16: Final = struct.Struct(">h")


class TimestampType(IntEnum):
    """Where a record's timestamp comes from; numbered as in Java's clients and Spark's column."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(slots=True)
class BatchHeader:
    """The 61 bytes as fields; `size` is the whole batch in bytes, header included."""

    base_offset: int
    size: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap from 2147483647 to 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCE_COUNT

    @property
    def compression(self) -> Compression:
        return Compression(self.attributes & COMPRESSION_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType(self.attributes >> 3 & 1)

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, if it can be one; the batch itself need not be in `buffer`.

    Raises CorruptBatch when there are fewer than 61 bytes or when a field cannot be right. The CRC
    is not looked at: see `verify_crc`.
    """
    if position < 0 or len(buffer) - position < BATCH_HEADER_BYTES:
        raise CorruptBatch(f"a batch header is {BATCH_HEADER_BYTES} bytes")
    fields = HEADER.unpack_from(buffer, position)
    header = BatchHeader(*fields)
    header.size += LENGTH_OVERHEAD
    if header.magic != MAGIC:
        raise CorruptBatch(f"magic {header.magic}, not {MAGIC}")
    if header.size < BATCH_HEADER_BYTES:
        raise CorruptBatch(f"a batch of {header.size} bytes")
    if header.base_offset < 0 or header.last_offset_delta < 0:
        raise CorruptBatch(f"offsets {header.base_offset} + {header.last_offset_delta}")
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise CorruptBatch(
            f"{header.record_count} records in {header.last_offset_delta + 1} offsets"
        )
    if header.attributes & COMPRESSION_MASK > Compression.ZSTD:
        raise CorruptBatch(f"unknown compression in attributes {header.attributes:#x}")
    return header


def verify_crc(buffer: Buffer, header: BatchHeader) -> bool:
    """Whether the batch at the start of `buffer` has the CRC that its header gives."""
    view = memoryview(buffer)
    return len(view) >= header.size and crc32c(view[ATTRIBUTES_AT : header.size]) == header.crc


def batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches in `buffer`, each with its bytes (a slice, no copy).

    Stops before a batch that is cut off at the end, as the last one of a Fetch response may be.
    Raises CorruptBatch where no batch can begin. CRCs are not checked.
    """
    view = memoryview(buffer)
    position = 0
    while len(view) - position >= BATCH_HEADER_BYTES:
        header = read_header(view, position)
        end = position + header.size
        if end > len(view):
            return
        yield header, view[position:end]
        position = end


def scanned(extension: ModuleType, buffer: Buffer, *, checks_crcs: bool) -> bytes:
    """What `scan` of the compiled extension tells of the whole batches that `batches` gives: ten
    int64 each. Raises CorruptBatch where no batch can begin."""
    rows: bytes
    rows, end, is_sound = extension.scan(buffer, checks_crcs)
    if not is_sound:
        # It says why; and nothing is left out should it see nothing wrong.
        read_header(buffer, end)
        raise CorruptBatch(f"no batch begins at byte {end}")
    return rows


def check_batch(buffer: Buffer) -> BatchHeader:
    """The header of the one batch that a client may send for a partition, checked without records.

    Raises KafkaError: CORRUPT_MESSAGE when the bytes were damaged on the way (length, CRC),
    INVALID_RECORD when the client built something that it may not send. The rules are those of
    Kafka's ProduceRequest.validateRecords and LogValidator.validateBatch, minus those that need the
    records or the topic. A max timestamp of -1 beside a real base timestamp passes: sarama never
    fills it in, and Kafka computes it (`stamp_max_timestamp`).
    """
    size = len(buffer)
    if size < BATCH_HEADER_BYTES:
        raise _short_batch(buffer)
    header = BatchHeader(*HEADER.unpack_from(buffer))
    header.size += LENGTH_OVERHEAD
    # One comparison a rule on the path that every request takes; the words come afterwards.
    if (
        header.size != size
        or header.magic != MAGIC
        or crc32c(memoryview(buffer)[ATTRIBUTES_AT:]) != header.crc
        or header.base_offset != 0
        or header.record_count <= 0
        or header.record_count != header.last_offset_delta + 1
        or header.attributes & (CONTROL_BIT | DELETE_HORIZON_BIT)
        or header.attributes & COMPRESSION_MASK > 4
        or (header.base_sequence < 0 and header.producer_id >= 0)
        or (header.max_timestamp < header.base_timestamp and header.max_timestamp != NO_TIMESTAMP)
        or _lacks_bytes(header)
    ):
        raise _bad_batch(buffer, header)
    return header


def _lacks_bytes(header: BatchHeader) -> bool:
    """Whether the records cannot be as many as the header says, which would take their offsets
    from the log and leave readers with a batch that they cannot read. Compressed ones may be."""
    payload_bytes = header.size - BATCH_HEADER_BYTES
    if header.attributes & COMPRESSION_MASK:
        return payload_bytes == 0
    return header.record_count * RECORD_BYTES_MIN > payload_bytes


def _short_batch(buffer: Buffer) -> KafkaError:
    if not buffer:
        return KafkaError(ErrorCode.INVALID_RECORD, "a partition without a record batch")
    if len(buffer) > MAGIC_AT and buffer[MAGIC_AT] != MAGIC:
        return _bad_magic(buffer[MAGIC_AT])
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"{len(buffer)} bytes, and a batch header is {BATCH_HEADER_BYTES}",
    )


def _bad_magic(magic: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"message format {magic}; only 2 is accepted")


def _bad_batch(buffer: Buffer, header: BatchHeader) -> KafkaError:
    """Which of `check_batch`'s rules was broken, in the order in which Kafka would find it."""
    if header.magic != MAGIC:
        return _bad_magic(header.magic)
    if not BATCH_HEADER_BYTES <= header.size <= len(buffer):
        return KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch says {header.size} bytes, {len(buffer)} are there",
        )
    if header.size < len(buffer):
        return KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{len(buffer) - header.size} bytes after the one batch that a partition may have",
        )
    if not verify_crc(buffer, header):
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, "the CRC does not match")
    return KafkaError(ErrorCode.INVALID_RECORD, _invalid_because(header))


def _invalid_because(header: BatchHeader) -> str:
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        return f"{header.record_count} records, last offset delta {header.last_offset_delta}"
    if header.base_offset != 0:
        return f"base offset {header.base_offset}; a client's batch begins at 0"
    if header.is_control:
        return "clients may not write control records"
    if header.attributes & DELETE_HORIZON_BIT:
        return "clients may not set a delete horizon"
    if header.attributes & COMPRESSION_MASK > Compression.ZSTD:
        return f"unknown compression {header.attributes & COMPRESSION_MASK}"
    if header.producer_id >= 0 and header.base_sequence < 0:
        return f"producer {header.producer_id} without a sequence"
    if _lacks_bytes(header):
        return f"{header.record_count} records in {header.size - BATCH_HEADER_BYTES} bytes"
    return f"max timestamp {header.max_timestamp} before base timestamp {header.base_timestamp}"


def stamp(batch: bytearray | memoryview, base_offset: int, partition_leader_epoch: int) -> None:
    """Writes what the broker assigns, in place; neither field is under the CRC."""
    _INT64.pack_into(batch, 0, base_offset)
    _INT32.pack_into(batch, LEADER_EPOCH_AT, partition_leader_epoch)


def stamp_log_append_time(batch: bytearray | memoryview, now_ms: int) -> None:
    """Makes `now_ms` the timestamp of all records (LogAppendTime), in place, with a new CRC."""
    (attributes,) = _INT16.unpack_from(batch, ATTRIBUTES_AT)
    _INT16.pack_into(batch, ATTRIBUTES_AT, attributes | LOG_APPEND_TIME_BIT)
    _INT64.pack_into(batch, MAX_TIMESTAMP_AT, now_ms)
    stamp_crc(batch)


def stamp_max_timestamp(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    """Writes the max timestamp that the records have, in place, with a new CRC."""
    _INT64.pack_into(batch, MAX_TIMESTAMP_AT, timestamp_ms)
    stamp_crc(batch)


def stamp_producer(
    batch: bytearray | memoryview, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    """Writes who sends the batch and the number of its first record, in place, with a new CRC."""
    _PRODUCER.pack_into(batch, PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    stamp_crc(batch)


def stamp_crc(batch: bytearray | memoryview) -> None:
    """Computes the CRC anew, in place; `batch` is exactly one batch."""
    _UINT32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
