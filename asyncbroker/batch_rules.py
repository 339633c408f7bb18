"""What a topic asks of a batch that only its records can answer.

A batch is appended as it came, but not without a look inside: a header may lie about its records,
with a CRC that fits, and then every reader that comes upon the batch stops there. What is wrong is
refused (INVALID_RECORD), as by Kafka; a max timestamp that is not that of the records, which
lookups by time rely on, is mended (sarama leaves it out). A compacted topic must refuse records
without a key, and a topic with a codec of its own stores every batch in it.

`conformed_at_once` does this for what is small, on the event loop; `conform` for all else, which
belongs in a worker thread. A few kilobytes may hold millions of records: none of them becomes an
object, if the compiled extension is there. Without it records take microseconds each, and a batch
is looked into only where the topic asks for something; `asyncbroker.check.compressed.max.bytes=0`
says the same of compressed ones, whose decompression costs a few ms of CPU for a megabyte.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from asyncbroker.log.config import LogConfig
from asyncbroker.protocol.batches import (
    BATCH_HEADER_BYTES,
    COMPRESSION_MASK,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
)
from asyncbroker.protocol.compression import Buffer
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.native import RECORDS
from asyncbroker.protocol.record_facts import check_records
from asyncbroker.protocol.records import (
    DECOMPRESSED_BYTES_MAX,
    BatchHeader,
    Compression,
    CorruptBatch,
    Record,
    frame_records,
    payload_of,
    read_header,
    records_of,
    stamp_max_timestamp,
    stamp_producer,
)

# A batch may hold a million bad records; a few tell the producer what is wrong.
RECORD_ERRORS_MAX = 100

# What is looked into on the event loop: up to so many bytes of batch and of records, which takes
# less time than a thread would to notice it.
AT_ONCE_BYTES_MAX: Final = 64 << 10
AT_ONCE_COMPRESSED_BYTES_MAX: Final = 8 << 10


class InvalidRecords(KafkaError):
    """A batch that is refused because of some of its records: their indexes, with the reasons."""

    def __init__(
        self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]]
    ) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors[:RECORD_ERRORS_MAX]


@dataclass(frozen=True, slots=True)
class BatchRules:
    """The rules of one topic. `compression` None keeps the codec that a batch came with."""

    compression: Compression | None = None
    requires_keys: bool = False
    min_insync_replicas: int = 1
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
    # asyncbroker.check.compressed.max.bytes
    check_compressed_bytes_max: int = sys.maxsize

    @property
    def take_plain(self) -> bool:
        """Whether a batch of records that are what its header says, without compression, may be
        taken as it is."""
        return not (self.requires_keys or self.compression)

    def need_records(self, header: BatchHeader) -> bool:
        """Whether `conform` has anything to do for this batch."""
        is_compressed = header.attributes & COMPRESSION_MASK
        checked_bytes_max = self.check_compressed_bytes_max if is_compressed else sys.maxsize
        return (
            (RECORDS is not None and header.size <= checked_bytes_max)
            or self.requires_keys
            or (self.compression is not None and self.compression != header.compression)
            or header.max_timestamp < header.base_timestamp
        )


Conformed = tuple[bytearray | memoryview, BatchHeader]


def conformed_at_once(
    batch: bytearray | memoryview, header: BatchHeader, rules: BatchRules
) -> Conformed | None:
    """As `conform`, if that takes next to no time; None if a thread has to do it."""
    if RECORDS is None or header.size > AT_ONCE_BYTES_MAX:
        return None
    if rules.compression is not None and rules.compression != header.compression:
        return None
    if not header.attributes & COMPRESSION_MASK:
        return _conform(batch, header, rules, memoryview(batch)[BATCH_HEADER_BYTES:])
    if header.size > AT_ONCE_COMPRESSED_BYTES_MAX:
        return None
    try:
        payload = payload_of(batch, header, decompressed_bytes_max=AT_ONCE_BYTES_MAX)
    except CorruptBatch:
        return None  # or it is only larger
    return _conform(batch, header, rules, payload)


def conform(batch: bytearray | memoryview, header: BatchHeader, rules: BatchRules) -> Conformed:
    """The batch as the topic wants it, changed in place where that is enough; raises KafkaError
    (INVALID_RECORD) when it cannot be had."""
    try:
        payload = payload_of(batch, header, decompressed_bytes_max=rules.decompressed_bytes_max)
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    return _conform(batch, header, rules, payload)


def _conform(
    batch: bytearray | memoryview, header: BatchHeader, rules: BatchRules, payload: Buffer
) -> Conformed:
    try:
        facts = check_records(payload, header)
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    if not facts.has_all_offsets:
        # Kafka takes this in a batch that is not compressed, and readers get what they cannot read.
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "the offsets of the records are not 0, 1, 2, ..."
        )
    if facts.keyless_count and rules.requires_keys:
        reason = "a record without a key, and the topic is compacted"
        raise InvalidRecords(
            ErrorCode.INVALID_RECORD,
            f"{facts.keyless_count} records without a key",
            [(index, reason) for index in facts.first_keyless],
        )
    max_timestamp = facts.max_timestamp
    is_true = header.max_timestamp == max_timestamp or header.attributes & LOG_APPEND_TIME_BIT
    if rules.compression is not None and rules.compression != header.compression:
        batch = _recompressed(header, payload, max_timestamp, rules.compression)
        return batch, read_header(batch)
    if not is_true:
        stamp_max_timestamp(batch, max_timestamp)
        return batch, read_header(batch)
    return batch, header


def _recompressed(
    header: BatchHeader, payload: Buffer, max_timestamp: int, compression: Compression
) -> bytearray:
    """The same records in another codec."""
    batch = frame_records(
        payload,
        header.record_count,
        header.base_timestamp,
        max_timestamp,
        compression,
        attributes=header.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT),
    )
    stamp_producer(batch, header.producer_id, header.producer_epoch, header.base_sequence)
    return batch


def timestamp_errors(
    batch: bytearray | memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> list[tuple[int, str]]:
    """Which records lie outside the times that a topic accepts, or the first of them. Decodes, as
    `conform` does."""
    earliest_ms = now_ms - config.message_timestamp_before_max_ms
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    outside = (
        (index, f"timestamp {record.timestamp} is outside {earliest_ms} to {latest_ms}")
        for index, record in enumerate(_records(batch, header, config.decompressed_bytes_max))
        if not earliest_ms <= record.timestamp <= latest_ms
    )
    return list(islice(outside, RECORD_ERRORS_MAX))


def _records(
    batch: bytearray | memoryview, header: BatchHeader, decompressed_bytes_max: int
) -> Iterator[Record]:
    try:
        yield from records_of(batch, header, decompressed_bytes_max=decompressed_bytes_max)
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
