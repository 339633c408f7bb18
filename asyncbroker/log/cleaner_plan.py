"""What may be compacted of a log, whether it is time for it, and which segments become one.

    log start .. start_offset    compacted before: the clean part, whose keys are each there once
    start_offset .. end_offset   the dirty part
    end_offset ..                not to be touched: the newest segment, records younger than
                                 `min.compaction.lag.ms`, open transactions, what may not be durable

The rules are those of Kafka's LogCleanerManager. Only looks; for worker threads, since a segment's
times may have to be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asyncbroker.log.append_checks import POSITION_MAX
from asyncbroker.log.batch_place import RELATIVE_OFFSET_MAX
from asyncbroker.log.config import LogConfig
from asyncbroker.log.file_range import segment_at
from asyncbroker.log.index import OFFSET_INDEX, TIME_INDEX
from asyncbroker.log.segment import Segment

if TYPE_CHECKING:
    from asyncbroker.log.partition_log import PartitionLog

# The files of a group stay open until nobody reads them any more.
GROUP_SEGMENTS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """See the head of this file. `segments` are all below `end_offset`."""

    segments: tuple[Segment, ...]
    start_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether the dirty part is large or old enough."""
        return self.dirty_ratio > config.min_cleanable_dirty_ratio or (
            self.is_overdue and self.dirty_bytes > 0
        )


def plan_cleaning(
    log: PartitionLog, cleaned_offset: int | None, limit_offset: int, now_ms: int
) -> CleaningPlan:
    """`cleaned_offset` is up to where the log was compacted, None for never; `limit_offset` that up
    to which it is decided and readable."""
    segments, config = log.segments, log.config
    start_offset = log_start_offset = log.log_start_offset
    if cleaned_offset is not None and log_start_offset <= cleaned_offset <= limit_offset:
        start_offset = cleaned_offset
    older = segments[:-1]
    first_dirty = segment_at(segments, start_offset)
    count = min(len(older), segment_at(segments, limit_offset))
    oldest_ms = now_ms - config.max_compaction_lag_ms
    is_overdue = False
    for at in range(first_dirty, count):
        if (
            config.min_compaction_lag_ms > 0
            and _newest_ms(older[at]) > now_ms - config.min_compaction_lag_ms
        ):
            count = at
            break
        is_overdue = is_overdue or 0 < _first_ms(older[at]) < oldest_ms
    cleanable = tuple(older[:count])
    end_offset = segments[count].base_offset
    return CleaningPlan(
        segments=cleanable,
        start_offset=min(start_offset, end_offset),
        end_offset=end_offset,
        clean_bytes=sum(each.size for each in cleanable if each.base_offset < start_offset),
        dirty_bytes=sum(each.size for each in cleanable[first_dirty:]),
        is_overdue=is_overdue,
    )


def group_segments(
    segments: Sequence[Segment], config: LogConfig, end_offset: int
) -> list[list[Segment]]:
    """Neighbours that together are no larger than a segment may be, so that logs do not end up as
    many small files."""
    bytes_max = min(config.segment_bytes, POSITION_MAX)
    groups: list[list[Segment]] = []
    size = offset_entries = time_entries = 0
    for at, segment in enumerate(segments):
        size += segment.size
        offset_entries += len(segment.offset_index)
        time_entries += len(segment.time_index)
        next_offset = segments[at + 1].base_offset if at + 1 < len(segments) else end_offset
        if (
            not groups
            or size > bytes_max
            or offset_entries * OFFSET_INDEX.entry_bytes > config.segment_index_bytes
            or time_entries * TIME_INDEX.entry_bytes > config.segment_index_bytes
            or next_offset - 1 - groups[-1][0].base_offset > RELATIVE_OFFSET_MAX
            or len(groups[-1]) >= GROUP_SEGMENTS_MAX
        ):
            groups.append([])
            size = segment.size
            offset_entries, time_entries = len(segment.offset_index), len(segment.time_index)
        groups[-1].append(segment)
    return groups


def _newest_ms(segment: Segment) -> int:
    """The time of the newest record; without any timestamps, when the segment was made or opened:
    rather too late than too early."""
    largest = segment.largest_timestamp()
    return largest if largest >= 0 else segment.created_ms


def _first_ms(segment: Segment) -> int:
    return segment.header_at(0).max_timestamp if segment.size else 0
