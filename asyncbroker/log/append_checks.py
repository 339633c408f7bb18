"""What the settings of a topic say about a batch: may it come in, and does it begin a segment.

The comparisons that nearly every batch passes are in `PartitionLog.append`; here is what looks
closely when one of them does not hold.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from asyncbroker.log.batch_place import RELATIVE_OFFSET_MAX
from asyncbroker.log.config import INT64_MAX, LogConfig
from asyncbroker.log.index import OFFSET_INDEX, TIME_INDEX
from asyncbroker.log.segment import Segment
from asyncbroker.protocol.batches import LOG_APPEND_TIME_BIT, NO_TIMESTAMP, BatchHeader
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.record_facts import check_records
from asyncbroker.protocol.records import CorruptBatch, payload_of

# Positions are signed 32-bit numbers in the index, and sizes of files in Java's hands.
POSITION_MAX: Final = (1 << 31) - 1


def check_size(size: int, config: LogConfig) -> None:
    """Raises KafkaError for a batch that is larger than the topic or a segment takes."""
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes; max.message.bytes is {config.max_message_bytes}",
        )
    if size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"a batch of {size} bytes; segment.bytes is {config.segment_bytes}",
        )


def check_timestamps(
    batch: bytearray | memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> None:
    """Raises KafkaError for timestamps that a CreateTime topic refuses.

    Only a topic that limits the past has its batches decoded for it, in a worker thread: the header
    has no smallest timestamp. The max timestamp is that of the records, or -1 if these have none;
    whoever took the batch in has seen to it.
    """
    if header.attributes & LOG_APPEND_TIME_BIT:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP, "the topic has CreateTime, the batch LogAppendTime"
        )
    if header.max_timestamp > now_ms + config.message_timestamp_after_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"{header.max_timestamp - now_ms} ms ahead; message.timestamp.after.max.ms is "
            f"{config.message_timestamp_after_max_ms}",
        )
    if config.message_timestamp_before_max_ms == INT64_MAX:
        return
    try:
        limit = config.decompressed_bytes_max
        payload = payload_of(batch, header, decompressed_bytes_max=limit)
        smallest = check_records(payload, header).min_timestamp
    except CorruptBatch as damage:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(damage)) from damage
    if smallest != NO_TIMESTAMP and smallest < now_ms - config.message_timestamp_before_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"{now_ms - smallest} ms ago; message.timestamp.before.max.ms is "
            f"{config.message_timestamp_before_max_ms}",
        )


def is_roll_due(
    segment: Segment, header: BatchHeader, last_offset: int, config: LogConfig, now_ms: int
) -> bool:
    """Whether a segment must end before this batch."""
    if segment.size == 0:
        return False
    age_ms = now_ms - segment.created_ms
    if segment.first_timestamp is not None and segment.first_timestamp >= 0:
        age_ms = header.max_timestamp - segment.first_timestamp
    return (
        segment.size + header.size > min(config.segment_bytes, POSITION_MAX)
        or age_ms > _segment_ms(segment, config)
        or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        or is_index_full(segment, config)
    )


def roll_limits(segment: Segment, config: LogConfig) -> tuple[int, int]:
    """The size and the timestamp beyond which `is_roll_due` must be asked."""
    size, timestamp = min(config.segment_bytes, POSITION_MAX), INT64_MAX
    if segment.first_timestamp is not None:
        if segment.first_timestamp >= 0:
            timestamp = segment.first_timestamp + _segment_ms(segment, config)
        else:
            size = 0  # without timestamps only the clock can tell
    if is_index_full(segment, config):
        size = 0
    return size, timestamp


def is_index_full(segment: Segment, config: LogConfig, coming: int = 0) -> bool:
    """Whether an index has no room for another entry, after so many that are coming."""
    bytes_max = config.segment_index_bytes
    return (
        len(segment.offset_index) + coming >= bytes_max // OFFSET_INDEX.entry_bytes
        # One is kept free for the entry at the end.
        or len(segment.time_index) + coming >= bytes_max // TIME_INDEX.entry_bytes - 1
    )


def _segment_ms(segment: Segment, config: LogConfig) -> int:
    """How old a segment may grow. The jitter, which keeps the segments of many partitions from
    rolling at once, follows from the segment's name, so that a restart does not change it."""
    jitter_max_ms = min(config.segment_jitter_ms, config.segment_ms)
    jitter_ms = crc32(segment.path.encode()) % jitter_max_ms if jitter_max_ms > 0 else 0
    return config.segment_ms - jitter_ms
