"""Finds offsets by time in a list of segments.

Timestamps need not ascend: a producer says what it likes. The time index of a segment holds the
running maximum, so what it skips is surely older than what is looked for; from there the log is
read, and inside the first batch that can hold the record, its records. All of this may read the
disk: for worker threads, while the log grows, and loses its oldest segments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from asyncbroker.log.file_range import segment_at
from asyncbroker.log.segment import Segment
from asyncbroker.protocol.batches import NO_TIMESTAMP, BatchHeader
from asyncbroker.protocol.records import CorruptBatch, records_of

if TYPE_CHECKING:
    from asyncbroker.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)


class TimestampOffset(NamedTuple):
    """A record by its offset, with its timestamp and the leader epoch in which it was written."""

    offset: int
    timestamp: int
    leader_epoch: int


def find_first_at_or_after(
    log: PartitionLog, timestamp: int, end_offset: int
) -> TimestampOffset | None:
    """The first record of a log below `end_offset` whose timestamp is at least `timestamp`."""
    return _find(log, lambda held, start: _first_at_or_after(held, timestamp, start, end_offset))


def find_largest(log: PartitionLog, end_offset: int) -> TimestampOffset | None:
    """The first record of a log with the largest timestamp that it has; None, as from Kafka, when
    that record is not below `end_offset`."""
    return _find(log, lambda held, start: _first_of_largest(held, start, end_offset))


def _find(
    log: PartitionLog, search: Callable[[Sequence[Segment], int], TimestampOffset | None]
) -> TimestampOffset | None:
    while True:
        start = log.log_start_offset
        segments = log.segments
        try:
            return search(segments[segment_at(segments, start) :], start)
        except FileNotFoundError:
            # The oldest segments may be deleted meanwhile; then there is a new beginning.
            if start == log.log_start_offset:
                raise


def _first_at_or_after(
    segments: Sequence[Segment], timestamp: int, start_offset: int, end_offset: int
) -> TimestampOffset | None:
    """The first record in [start_offset, end_offset) whose timestamp is at least `timestamp`."""
    for segment in segments:
        if segment.base_offset >= end_offset:
            return None
        if segment.largest_timestamp() < timestamp:
            continue
        limit = segment.size
        first_offset = max(start_offset, segment.first_offset_by_time(timestamp))
        position = segment.position_of(first_offset, limit)
        if position is None:
            continue
        for header, at, _ in segment.walk(position, limit):
            if header.base_offset >= end_offset:
                return None
            if header.max_timestamp >= timestamp:
                found = _first_in_batch(
                    segment.read_batch(header, at), header, timestamp, start_offset
                )
                if found is not None:
                    return found if found.offset < end_offset else None
    return None


def _first_of_largest(
    segments: Sequence[Segment], start_offset: int, end_offset: int
) -> TimestampOffset | None:
    """The first record in [start_offset, end_offset) with the largest timestamp there is."""
    first, later = segments[0], segments[1:]
    largest = max((segment.largest_timestamp() for segment in later), default=NO_TIMESTAMP)
    if first.largest_timestamp() > largest:
        largest = max(largest, _largest_from(first, start_offset))
    if largest == NO_TIMESTAMP:
        return None
    return _first_at_or_after(segments, largest, start_offset, end_offset)


def _largest_from(segment: Segment, start_offset: int) -> int:
    """The largest timestamp of a segment, of which the records before `start_offset` are deleted:
    one of those may have had the largest of all."""
    if start_offset <= segment.base_offset:
        return segment.largest_timestamp()
    largest = NO_TIMESTAMP
    limit = segment.size
    position = segment.position_of(start_offset, limit)
    for header, at, _ in () if position is None else segment.walk(position, limit):
        timestamp = header.max_timestamp
        if timestamp > largest and header.base_offset < start_offset:
            timestamp = _largest_in_batch(segment.read_batch(header, at), header, start_offset)
        largest = max(largest, timestamp)
    return largest


def _largest_in_batch(batch: bytes, header: BatchHeader, start_offset: int) -> int:
    # One after the other: a small batch may hold millions.
    records = records_of(batch, header)
    try:
        return max(
            (each.timestamp for each in records if each.offset >= start_offset),
            default=NO_TIMESTAMP,
        )
    except CorruptBatch:
        return header.max_timestamp


def _first_in_batch(
    batch: bytes, header: BatchHeader, timestamp: int, start_offset: int
) -> TimestampOffset | None:
    """The record in the batch, or None if the one that has the timestamp is before the start."""
    epoch = header.partition_leader_epoch
    try:
        for record in records_of(batch, header):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimestampOffset(record.offset, record.timestamp, epoch)
    except CorruptBatch as damage:
        # Its CRC was right, so a producer made it so: what the header says is all there is.
        logger.warning("the batch at offset %d: %s", header.base_offset, damage)
        return TimestampOffset(max(header.base_offset, start_offset), header.max_timestamp, epoch)
    return None
