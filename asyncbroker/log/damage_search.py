"""Looks for damage in a log that is in use: where a reader stumbled, before a range is sent, or in
whole segments.

Checking begins at a batch that the index vouches for, so that it is known which offset is to be
expected. Damage that is found is told, and not remembered here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from asyncbroker.log.batch_scan import BatchScan, GoodBatch
from asyncbroker.log.damage import DamagedRange, hole_of
from asyncbroker.log.errors import CorruptIndex, CorruptLog
from asyncbroker.log.file_range import LogEnd, segment_at

if TYPE_CHECKING:
    from asyncbroker.log.segment import Segment
    from asyncbroker.protocol.batches import BatchHeader


def find_damage(
    segment: Segment,
    part: tuple[int, int],
    segments: Sequence[Segment],
    end: LogEnd,
    *,
    batch_bytes_max: int,
    on_good: Callable[[BatchHeader], None],
) -> Iterator[DamagedRange]:
    """What is damaged in the part [begin, end) of a segment, and was not known to be; `on_good`
    sees the headers of all else. `segments` and `end` are those of the log; for a segment that is
    none of them there is nothing to say."""
    log_end_offset, active, active_size, _ = end
    is_active = segment is active
    after = segment_at(segments, segment.base_offset) + 1
    if not is_active and (segments[after - 1] is not segment or after == len(segments)):
        return
    start, next_offset = _vouched_for(segment, part[0])
    scan = BatchScan(
        segment.open_file(),
        segment.base_offset,
        active_size if is_active else segment.size,
        end_offset=None if is_active else segments[after].base_offset,
        promised_offset=log_end_offset,
        offset_limit=log_end_offset,
        stop=part[1],
        batch_bytes_max=batch_bytes_max,
        holes=segment.holes,
    )
    for found in scan.run(start, next_offset):
        if isinstance(found, GoodBatch):
            on_good(found.header)
        elif found.reason:
            yield found.range_in(segment.base_offset, log_end_offset)


def _vouched_for(segment: Segment, position: int) -> tuple[int, int]:
    """Where a batch before `position` begins that is surely one, and its base offset."""
    before = position
    # One more than needed, because a batch that lies about its offset may show at the next one.
    for _ in range(2):
        try:
            entry = segment.offset_index.floor_by_value(before - 1) if before else None
        except CorruptIndex:
            entry = None
        if entry is None:
            return 0, segment.base_offset
        key, before = entry
    hole = hole_of(segment.holes, segment.base_offset + key, before)
    if hole is not None:
        return hole.position, hole.first_offset
    try:
        header = segment.header_at(before)
    except CorruptLog:
        return 0, segment.base_offset
    if header.last_offset - segment.base_offset != key:
        return 0, segment.base_offset
    return before, header.base_offset
