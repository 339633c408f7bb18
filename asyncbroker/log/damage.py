"""The stretches of a log that are known to be damaged: remembered, told to readers, never served.

A stretch lies in one segment, from the byte where the damage begins to where the next good batch
does, and stands for the offsets in between. Its bytes stay where they are. Readers are refused its
offsets, and what they get of the offsets before ends before it. It is kept over restarts, so that
nobody has to read the log again to know of it, in a file of the partition's directory:

    damaged-ranges    text: the version (0), the number of ranges, a line of each, and the CRC-32C
                      of all that in hexadecimal. A line has the base offset of the segment, the
                      first position, the one after the last, the first offset, the one after the
                      last. Of damage whose bytes were deleted or taken out the base offset is -1
                      and the positions are 0: see `count_from`

Without damage there is no such file. If it is damaged itself, the whole log has to be read again.

Not known here: how damage is found (`batch_scan.py`), who finds it, and what a reader is told.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncbroker.log.checkpoints import CorruptCheckpoint
from asyncbroker.log.files import Files
from asyncbroker.protocol.checksums import crc32c

if TYPE_CHECKING:
    from asyncbroker.log.segment import Segment

logger = logging.getLogger(__name__)

DAMAGED_RANGES: Final = "damaged-ranges"
_VERSION: Final = "0"


class DamagedRange(NamedTuple):
    """One stretch: bytes [position, end) of the segment at `base_offset`, which is all that there
    is, or was, of the offsets [first_offset, next_offset)."""

    base_offset: int
    position: int
    end: int
    first_offset: int
    next_offset: int

    def without_bytes(self) -> DamagedRange:
        """As it is remembered when its bytes are no part of the log any more."""
        return DamagedRange(-1, 0, 0, self.first_offset, self.next_offset)

    def __str__(self) -> str:
        last = f" to {self.next_offset - 1}" if self.next_offset - 1 > self.first_offset else ""
        where = "" if self.base_offset < 0 else f", bytes {self.position} to {self.end}"
        return f"offset {self.first_offset}{last}{where}"


Holes = Mapping[int, DamagedRange]
"""The damaged ranges of one segment, by the position where each begins."""


def good_until(holes: Holes, position: int, limit: int) -> int:
    """Where the first damage at or after `position` begins, or `limit` if that comes first. That is
    `position` itself also where it lies in the middle of damage."""
    begins = (at for at, hole in holes.items() if max(at, hole.end - 1) >= position)
    return min(limit, max(position, min(begins, default=limit)))


def hole_of(holes: Holes, offset: int, position: int) -> DamagedRange | None:
    """The damage that has a batch with this offset at this position, as an index remembers it."""
    for hole in holes.values():
        if hole.first_offset <= offset < hole.next_offset and hole.position <= position < hole.end:
            return hole
    return None


class DamagedRanges:
    """The damaged ranges of one log, in order. Read in any thread; changed by one at a time."""

    __slots__ = ("_files", "_lock", "_path", "_written", "deleted", "ranges")

    def __init__(
        self, files: Files, directory: str, written: Iterable[DamagedRange] | None = ()
    ) -> None:
        """`written` is what the file says; None if nobody knows."""
        self._files = files
        self._path = f"{directory}/{DAMAGED_RANGES}"
        # Replaced, never changed: readers in other threads look through it.
        self.ranges = tuple(each for each in written or () if each.base_offset >= 0)
        # Those that are no part of the log any more.
        self.deleted = tuple(each for each in written or () if each.base_offset < 0)
        self._written = None if written is None else (*self.deleted, *self.ranges)
        self._lock = threading.Lock()

    @classmethod
    def load(cls, files: Files, directory: str, sizes: Mapping[str, int]) -> DamagedRanges:
        """Those that are written down. Raises CorruptCheckpoint if that cannot be read."""
        if DAMAGED_RANGES not in sizes:
            return cls(files, directory)
        data = files.read_whole(f"{directory}/{DAMAGED_RANGES}")
        return cls(files, directory, decode_ranges(data))

    def __len__(self) -> int:
        return len(self.ranges)

    def at(self, offset: int) -> DamagedRange | None:
        """The range that stands for an offset."""
        for damaged in self.ranges:
            if damaged.first_offset <= offset < damaged.next_offset:
                return damaged
        return None

    def count_from(self, offset: int) -> int:
        """How many offsets from this one on are damaged, or were when they were deleted."""
        # A crash in a repair leaves both of one.
        offsets = {damaged.without_bytes() for damaged in (*self.deleted, *self.ranges)}
        return sum(
            damaged.next_offset - max(offset, damaged.first_offset)
            for damaged in offsets
            if damaged.next_offset > offset
        )

    def lose(self, first_offset: int, next_offset: int) -> None:
        """Counts offsets as damaged that are no part of the log any more; `keep` records it."""
        with self._lock:
            others = (
                damaged
                for damaged in self.deleted
                if not first_offset <= damaged.first_offset < next_offset
            )
            self.deleted = (*others, DamagedRange(-1, 0, 0, first_offset, next_offset))

    def holes(self, base_offset: int) -> dict[int, DamagedRange]:
        """Those of one segment."""
        return {
            damaged.position: damaged
            for damaged in self.ranges
            if damaged.base_offset == base_offset
        }

    def add_to(self, segment: Segment, found: Iterable[DamagedRange]) -> list[DamagedRange]:
        """Takes over what was found in a segment; gives what was not known. If it cannot be written
        down now, `save` will try again."""
        with self._lock:
            new = [damaged for damaged in found if damaged not in self.ranges]
            if new:
                self.ranges = tuple(sorted({*self.ranges, *new}))
                segment.holes = self.holes(segment.base_offset)
                for damaged in new:
                    logger.error("%s is damaged: %s", segment.log_path, damaged)
                try:
                    self._write()
                except OSError as error:
                    logger.error("%s: damage could not be recorded: %s", self._path, error)
            return new

    def save(self) -> None:
        """Writes down what could not be when it was found."""
        with self._lock:
            self._write_new()

    def keep(
        self,
        segments: Sequence[Segment],
        log_start_offset: int,
        end_offset: int,
        *,
        known_to: int | None = None,
    ) -> None:
        """Forgets the ranges that are no part of the log any more, which has these segments and
        begins and ends at these offsets; durably. Some producer's last batch ends at `known_to`:
        what was damaged behind it is still to be counted. None: nobody knows yet."""
        with self._lock:
            sizes = {segment.base_offset: segment.size for segment in segments}
            # Also below the log's start: whoever reads the segment has to step over them.
            kept = tuple(
                damaged
                for damaged in self.ranges
                if damaged.end <= sizes.get(damaged.base_offset, -1)
                and damaged.first_offset < end_offset
            )
            deleted = (
                damaged.without_bytes()
                for damaged in self.ranges
                if damaged not in kept and damaged.next_offset <= log_start_offset
            )
            self.deleted = tuple(
                damaged
                for damaged in sorted({*self.deleted, *deleted})
                if known_to is None or damaged.next_offset > known_to
            )
            self.ranges = kept
            self._write_new()

    def _write_new(self) -> None:
        if self._written != (*self.deleted, *self.ranges):
            self._write()

    def _write(self) -> None:
        ranges = (*self.deleted, *self.ranges)
        if ranges:
            self._files.write_atomically(self._path, encode_ranges(ranges))
        else:
            self._files.remove(self._path)
        self._written = ranges


def encode_ranges(ranges: Iterable[DamagedRange]) -> bytes:
    """The file's bytes."""
    lines = [" ".join(map(str, damaged)) for damaged in ranges]
    body = "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()
    return body + f"{crc32c(body):08x}\n".encode()


def decode_ranges(data: bytes) -> list[DamagedRange]:
    """The ranges in a file. Raises CorruptCheckpoint."""
    body, crc = data[:-9], data[-9:]
    try:
        if int(crc, 16) != crc32c(body):
            raise CorruptCheckpoint("the CRC does not match")
        version, count, *lines = body.decode().splitlines()
        ranges = [DamagedRange(*map(int, line.split(" "))) for line in lines]
    except (ValueError, TypeError) as error:
        raise CorruptCheckpoint(str(error)) from error
    if version != _VERSION or int(count) != len(ranges):
        raise CorruptCheckpoint(f"version {version}, {count} ranges in {len(ranges)} lines")
    return ranges
