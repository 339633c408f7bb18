"""What a topic asks of a batch that only its records can answer.

Most batches are appended without a look inside. A compacted topic must refuse records without a
key; a topic with a codec of its own stores every batch in it; and a batch whose producer left the
max timestamp out (sarama does) gets it filled in, because lookups by time rely on it. `conform`
does all of this. It decodes, so it belongs in a worker thread; and one record after another: a few
kilobytes may hold millions of them, which as objects would take twenty times their bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from asyncbroker.log.config import LogConfig
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.records import (
    DECOMPRESSED_BYTES_MAX,
    BatchHeader,
    Compression,
    CorruptBatch,
    Record,
    build_batch,
    read_header,
    records_of,
    stamp_max_timestamp,
)

# A batch may hold a million bad records; a few tell the producer what is wrong.
RECORD_ERRORS_MAX = 100


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

    def need_records(self, header: BatchHeader) -> bool:
        """Whether `conform` has anything to do for this batch."""
        return (
            self.requires_keys
            or (self.compression is not None and self.compression != header.compression)
            or header.max_timestamp < header.base_timestamp
        )


def conform(
    batch: bytearray | memoryview, header: BatchHeader, rules: BatchRules
) -> tuple[bytearray | memoryview, BatchHeader]:
    """The batch as the topic wants it; raises KafkaError (INVALID_RECORD) when it cannot be had."""
    records = _records(batch, header, rules.decompressed_bytes_max)
    if rules.requires_keys:
        records = _with_keys(records)
    if rules.compression is not None and rules.compression != header.compression:
        batch = build_batch(
            records,
            compression=rules.compression,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            timestamp_type=header.timestamp_type,
            is_transactional=header.is_transactional,
        )
        return batch, read_header(batch)
    deque(records, maxlen=0)
    if header.max_timestamp < header.base_timestamp:
        stamp_max_timestamp(batch)
        return batch, read_header(batch)
    return batch, header


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


def _with_keys(records: Iterable[Record]) -> Iterator[Record]:
    """All of the records; in the end InvalidRecords, if some have no key."""
    count = 0
    errors: list[tuple[int, str]] = []
    for index, record in enumerate(records):
        if record.key is None:
            count += 1
            if len(errors) < RECORD_ERRORS_MAX:
                errors.append((index, "a record without a key, and the topic is compacted"))
        yield record
    if count:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, f"{count} records without a key", errors)
