"""Whole batches of one segment, as a place in a file: what a Fetch response carries."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from asyncbroker.log.damage import good_until
from asyncbroker.log.errors import CorruptLog, Unchecked
from asyncbroker.log.files import File
from asyncbroker.log.index import RecentBatches
from asyncbroker.log.segment import Segment


class FileRange:
    """`size` bytes of `file` from `position` on. It keeps the file open as long as it lives; the
    bytes stay what they are even when the segment is deleted meanwhile. Not `is_trusted`: they are
    to be checked before they are sent (`checking.checked`). `on_error` is told by whoever sends it
    if the disk does not give the bytes."""

    __slots__ = ("file", "is_trusted", "on_error", "position", "size")

    def __init__(self, file: File, position: int, size: int, *, is_trusted: bool = True) -> None:
        self.file = file
        self.position = position
        self.size = size
        self.is_trusted = is_trusted
        self.on_error: Callable[[OSError], object] | None = None

    def read(self) -> bytes:
        """The bytes; may wait for the disk."""
        data = self.file.pread(self.size, self.position)
        if len(data) < self.size:
            raise CorruptLog(self.file.path, "the file is shorter than it was", self.position)
        return data

    def read_nowait(self) -> bytes | bytearray | None:
        """The bytes if they are in memory, else None."""
        return self.file.pread_nowait(self.size, self.position)

    def is_resident(self) -> bool:
        """Whether `sendfile` from here would surely not wait for the disk."""
        return self.file.is_resident(self.position, self.size)

    def fileno(self) -> int | None:
        """The descriptor, while this range is held; None if the file has none."""
        return self.file.fileno()

    def __repr__(self) -> str:
        return f"FileRange({self.file.path!r}, {self.position}, {self.size})"


LogEnd = tuple[int, Segment, int, RecentBatches]
"""The end of a log as readers may use it: its offset, the newest segment, how much of its file is
there to be read, and its newest batches."""


def segment_at(segments: Sequence[Segment], offset: int) -> int:
    """The index of the segment that an offset belongs to."""
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)


def find_range(
    segments: Sequence[Segment],
    end: LogEnd,
    offset: int,
    bytes_max: int,
    *,
    end_offset: int,
    always_one: bool,
    may_block: bool,
    on_gap: Callable[[int], None] | None = None,
) -> FileRange | None:
    """What `PartitionLog.locate` gives for an offset inside the log, below `end_offset`. `on_gap`
    is told where the next segment begins if the offset, and all behind it, is in no segment."""
    log_end, active, active_limit, recent = end
    limited_to = end_offset if end_offset < log_end else None
    found = _range_in_recent(
        active,
        recent,
        active_limit,
        offset,
        bytes_max,
        end_offset=limited_to,
        always_one=always_one,
        may_block=may_block,
    )
    if found is not None:
        return found if found.size > 0 else None
    for at in range(segment_at(segments, offset), len(segments)):
        segment = segments[at]
        if segment.base_offset >= end_offset:
            return None
        found = _range_in_segment(
            segment,
            active_limit if segment is active else segment.size,
            offset,
            bytes_max,
            end_offset=limited_to,
            always_one=always_one,
            may_block=may_block,
        )
        if found is not None:
            return found if found.size > 0 else None
        if on_gap is not None and at + 1 < len(segments):
            on_gap(segments[at + 1].base_offset)
    return None


def _range_in_recent(
    segment: Segment,
    recent: RecentBatches,
    limit: int,
    offset: int,
    bytes_max: int,
    *,
    end_offset: int | None,
    always_one: bool,
    may_block: bool,
) -> FileRange | None:
    """As `_range_in_segment`, of the newest batches, and without asking a file; None for an offset
    before them. They have no gaps; the appender may already have added some beyond `limit`."""
    offsets, positions = recent.columns
    if not len(offsets) or offset < offsets[0]:
        return None
    at = bisect_right(offsets, offset) - 1
    start = positions[at]
    if end_offset is not None:
        limit = positions[bisect_right(offsets, end_offset) - 1]
    stop = limit
    if limit - start > bytes_max:
        stop = positions[bisect_right(positions, start + bytes_max, at, len(offsets)) - 1]
        if stop == start and always_one:
            stop = positions[at + 1] if at + 1 < len(offsets) else limit
    stop = min(stop, limit)
    return _range_of(segment, start, stop, may_block)


def _range_in_segment(
    segment: Segment,
    limit: int,
    offset: int,
    bytes_max: int,
    *,
    end_offset: int | None,
    always_one: bool,
    may_block: bool,
) -> FileRange | None:
    """The batches from the one that contains `offset`, or comes next, on; below the position
    `limit` and, if given, below `end_offset`; at most `bytes_max` bytes. None if there is no such
    batch; an empty range if the first one is too large and `always_one` is not asked for. Raises
    Unchecked for an offset that no batch has, until that is sure."""
    start, before = segment.place_of(offset, limit, may_block=may_block)
    if before is not None and not segment.trusted.covers(*before):
        raise Unchecked(segment.log_path, *before)
    if start is None:
        return None
    stop = limit
    if limit - start > bytes_max:
        stop = segment.end_of_batches(start, start + bytes_max, limit, may_block=may_block)
        if stop == start and always_one:
            stop = start + segment.batch_size_at(start, may_block=may_block)
    if end_offset is not None:
        end = segment.position_of(end_offset, stop, may_block=may_block)
        stop = stop if end is None else end
    return _range_of(segment, start, stop, may_block)


def _range_of(segment: Segment, start: int, stop: int, may_block: bool) -> FileRange:
    """What lies between two positions, up to the first damage that is known."""
    file = segment.open_file(may_block=may_block)
    if segment.holes:
        stop = good_until(segment.holes, start, stop)
    is_trusted = segment.trusted.covers(start, stop)
    return FileRange(file, start, stop - start, is_trusted=is_trusted)
