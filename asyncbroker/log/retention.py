"""Which segments at the beginning of a log have outlived the topic's retention (Kafka's rules).

Only whole segments go, oldest first, and none that a reader may not have seen: its end must not be
above the high watermark. A segment goes when

- it lies below the log's start, whatever the topic's cleanup policy is,
- or, with `delete` in the policy, as long as `retention.bytes` or more stay without it,
- or, with `delete` in the policy, when its largest timestamp is older than `retention.ms`. One
  record stamped in the future keeps its segment, and so all that came later. Where no record has a
  timestamp, the segment counts from when it was made or opened.

The newest segment can go too, if it has records: then it is rolled, so that there is always a
segment, and the log begins at its end.

Not known here: clocks, who moves the log's start, when files are removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from asyncbroker.log.config import LogConfig
from asyncbroker.log.segment import Segment


class Expired(NamedTuple):
    """What is to go: `segment_count` segments of `size` bytes, after which the log begins at
    `start_offset`. `is_all`: up to its end, so that the newest segment has to be rolled first."""

    start_offset: int
    segment_count: int
    size: int
    is_all: bool


def find_expired(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    log_start_offset: int,
    end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> Expired | None:
    """What is to go now, if anything is. `end_offset` must have been read before `segments`. May
    read the disk."""
    excess = -1
    if config.is_deleted_by_retention and config.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments) - config.retention_bytes
    found: Expired | None = None
    size = 0
    for count, segment in enumerate(segments, 1):
        is_last = count == len(segments)
        next_offset = end_offset if is_last else segments[count].base_offset
        if next_offset > high_watermark or (is_last and segment.size == 0):
            break
        if not (
            (not is_last and next_offset <= log_start_offset)
            or excess >= segment.size
            or _is_too_old(segment, config, now_ms)
        ):
            break
        excess -= segment.size
        size += segment.size
        found = Expired(next_offset, count, size, is_last)
    return found


def _is_too_old(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    if not config.is_deleted_by_retention or config.retention_ms < 0:
        return False
    timestamp = segment.largest_timestamp()
    return now_ms - (timestamp if timestamp >= 0 else segment.created_ms) > config.retention_ms
