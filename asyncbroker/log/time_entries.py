"""Whether the last entry of a segment's time index tells the truth: that a batch has this time, and
that none of the segment has a later one.

The index has no checksum, and a crash or damage can take its end. Retention judges a segment by its
last entry: were that of an earlier time, records would be deleted before theirs has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncbroker.log.errors import CorruptLog

if TYPE_CHECKING:
    from asyncbroker.log.segment import Segment


def is_true(segment: Segment, entry: tuple[int, int], near: tuple[int, int] | None = None) -> bool:
    """Whether there is a batch with the time and the offset of an entry. `near` is an offset entry
    that is true; if it comes before the batch in question, the rest of the offset index is not
    read."""
    timestamp, key = entry
    offset = segment.base_offset + key
    if near is not None and near[0] <= key:
        steps = segment.steps(near[1], segment.size, True)
        position = next((at for _, last_offset, at, _ in steps if last_offset >= offset), None)
    else:
        position = segment.position_of(offset, segment.size)
    return position is not None and segment.header_at(position).max_timestamp == timestamp


def is_largest(segment: Segment, timestamp: int) -> bool:
    """Whether the batches from the last one on that the offset index knows are no later: with each
    entry of that index goes one of the time index, and with the end of the segment another."""
    entry = segment.offset_index.last()
    if entry is not None and not segment.offset_entry_is_true(entry):
        return False
    try:
        batches = segment.walk(0 if entry is None else entry[1], segment.size)
        return all(header.max_timestamp <= timestamp for header, _, _ in batches)
    except CorruptLog:
        return True  # for a reader to find; nothing is known of what lies there
