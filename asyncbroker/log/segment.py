"""A segment: one `.log` file of record batches with its two indexes.

The log is batches one after another, byte for byte as on the wire, so a range of whole batches can
be sent as it lies. `size` says how much of the file is there to be read; it is raised after the
bytes are written. A position is found by the sparse index and a walk over batch headers from there.
An index entry is held against the batch that it points at; if it lies, the indexes are built anew
from the log, which is the only truth.

Methods with `may_block=False` never wait for a disk: they raise WouldBlock instead. The others are
for worker threads, or for files that are surely in memory.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Iterator
from typing import Final

from asyncbroker.log import time_entries
from asyncbroker.log.batch_place import header_in_place
from asyncbroker.log.damage import DamagedRange, Holes, hole_of
from asyncbroker.log.errors import CorruptIndex, CorruptLog, WouldBlock
from asyncbroker.log.files import File, Files
from asyncbroker.log.index import OFFSET_INDEX, TIME_INDEX, SparseIndex
from asyncbroker.log.open_segments import OpenSegments
from asyncbroker.log.trusted import FOREVER, Trusted
from asyncbroker.protocol.batches import (
    BATCH_HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
)

logger = logging.getLogger(__name__)

LOG_SUFFIX: Final = ".log"

# Base offset, batch length, magic, last offset delta: all that a step to the next batch needs.
_STEP: Final = struct.Struct(">qi4xb6xi")
_BATCH_LENGTH_MIN: Final = BATCH_HEADER_BYTES - LENGTH_OVERHEAD
# A log of this size is walked through sooner than its index is built anew.
_UNINDEXED_BYTES_MAX: Final = 64 << 10
_HEADERS_CHUNK_BYTES: Final = 8 << 10
_BATCHES_CHUNK_BYTES: Final = 1 << 20


def segment_name(base_offset: int) -> str:
    """The name, without suffix, of the files of a segment or of a snapshot taken at an offset."""
    return f"{base_offset:020d}"


class Segment:
    """One segment of a log. Its owner appends; others read below a position that they know."""

    __slots__ = (
        "_files",
        "_largest_timestamp",
        "_may_lack_index",
        "_open_segments",
        "_opening",
        "base_offset",
        "created_ms",
        "file",
        "first_timestamp",
        "flushed_size",
        "holes",
        "index_interval_bytes",
        "indexed_position",
        "indexed_timestamp",
        "is_pinned",
        "is_recently_used",
        "journaled_size",
        "log_path",
        "offset_index",
        "offset_of_largest_timestamp",
        "path",
        "recovered_size",
        "size",
        "time_index",
        "trusted",
    )

    def __init__(
        self,
        files: Files,
        open_segments: OpenSegments,
        directory: str,
        base_offset: int,
        *,
        sizes: dict[str, int],
        index_interval_bytes: int,
        created_ms: int,
    ) -> None:
        """`sizes` are the files of the directory; what is not among them is made when written."""
        name = segment_name(base_offset)
        self._files = files
        self._open_segments = open_segments
        self.base_offset = base_offset
        self.index_interval_bytes = index_interval_bytes
        # When it was made or opened: its age as long as no record has a timestamp.
        self.created_ms = created_ms
        self.path = f"{directory}/{name}"
        self.log_path = self.path + LOG_SUFFIX
        self.size = sizes.get(name + LOG_SUFFIX, 0)
        self.flushed_size = self.size
        self.recovered_size = 0  # Up to here it was read after a crash: see `Durability`.
        # How much of the file is durable by the journal, if that is more.
        self.journaled_size = 0
        # What is known to be damaged: readers step over it. Replaced, never changed.
        self.holes: Holes = {}
        # What may be sent without a look at its CRCs.
        self.trusted = Trusted(self.size)
        self.file: File | None = None
        self.is_recently_used = False
        # Whether the file stays open, whoever else wants to open one.
        self.is_pinned = False
        self._opening = threading.Lock()
        self.offset_index, self.time_index = (
            SparseIndex(files, open_segments, layout, self.path, sizes.get(name + layout.suffix))
            for layout in (OFFSET_INDEX, TIME_INDEX)
        )
        # Index files can be lost; nobody looks for that before they are needed.
        self._may_lack_index = self.size > 0
        # And the last offset of the first batch that has it. None: nobody has looked yet.
        self._largest_timestamp: int | None = None if self.size else NO_TIMESTAMP
        self.offset_of_largest_timestamp = base_offset
        # The max timestamp of the first batch, by which the segment's age is told. None: no batch.
        self.first_timestamp: int | None = None
        # Where the batch with the last offset index entry begins; the last time index entry.
        self.indexed_position = 0
        self.indexed_timestamp = NO_TIMESTAMP

    @property
    def is_dirty(self) -> bool:
        """Whether there are bytes in the file that were not synced."""
        return self.size != self.flushed_size

    def open_file(self, *, create: bool = False, may_block: bool = True) -> File:
        """The log's file, opened if it is not. Hold it while using it."""
        file = self.file
        if file is None:
            if not may_block:
                raise WouldBlock(self.log_path)
            with self._opening:
                file = self.file
                if file is None:
                    file = self.file = self._files.open(self.log_path, create=create)
            self._open_segments.opened(self)
        self.is_recently_used = True
        return file

    def close(self) -> None:
        self._open_segments.closed(self)

    def pin(self, *, create: bool = False) -> None:
        """Keeps the file open from here on: its name is about to become that of another."""
        with self._opening:
            self._open_segments.pinned(self)
            if self.file is None:
                self.file = self._files.open(self.log_path, create=create)

    # ---- appending and recovering

    def note(self, position: int, last_offset: int, max_timestamp: int) -> bool:
        """Takes the batch at `position` into account; tells whether it got an index entry.

        The rule is Kafka's (LogSegment.append), so that the files come out the same; a segment that
        is recovered comes through here too. The largest timestamp so far must be known.
        """
        if max_timestamp > self._largest_timestamp:  # type: ignore[operator]
            self._largest_timestamp = max_timestamp
            self.offset_of_largest_timestamp = last_offset
        if position - self.indexed_position <= self.index_interval_bytes:
            return False
        self.indexed_position = position
        self.offset_index.append(last_offset - self.base_offset, position)
        self.finish()
        return True

    def finish(self) -> None:
        """Gives the largest timestamp so far an entry: beside each entry of the offset index, and
        when the segment is rolled or closed."""
        largest = self.largest_timestamp()
        if largest > self.indexed_timestamp:
            self.indexed_timestamp = largest
            self.time_index.append(largest, self.offset_of_largest_timestamp - self.base_offset)

    def persist_indexes(self, *, sync: bool) -> None:
        """Writes what is new in the indexes to their files. One thread at a time."""
        self.offset_index.persist(sync=sync)
        self.time_index.persist(sync=sync)

    def resume(self) -> int:
        """After a clean stop: takes the indexes as they are, and gives the position from which on
        `note` must see every batch."""
        try:
            entry = self.offset_index.last()
            largest = self.time_index.last()
            position = 0 if entry is None else entry[1]
            if (entry is None or self.offset_entry_is_true(entry)) and (
                position == 0 if largest is None else time_entries.is_true(self, largest, entry)
            ):
                self._start_from(entry, largest)
                return position
        except (CorruptIndex, CorruptLog) as damage:
            logger.warning("%s; building the index anew", damage)
        return self._start_over()

    def rewind(self, offset: int) -> int:
        """After an unclean stop: forgets the index from its last entry below `offset` on, and gives
        the position of that entry's batch: from there on `note` must see every batch."""
        try:
            entry = self.offset_index.floor_by_key(offset - self.base_offset - 1)
            if entry is not None and self.offset_entry_is_true(entry):
                self.offset_index.drop_after_value(entry[1] - 1)
                before = self.offset_index.last()
                self.time_index.drop_after_value(-1 if before is None else before[0])
                largest = self.time_index.last()
                # What came before is known only if both indexes tell the truth about it.
                if (
                    before is not None
                    and largest is not None
                    and time_entries.is_true(self, largest, before)
                    and self.offset_index.last() == before
                ):
                    self._start_from(before, largest)
                    return entry[1]
        except (CorruptIndex, CorruptLog) as damage:
            logger.warning("%s; building the index anew", damage)
        return self._start_over()

    def _start_over(self) -> int:
        self.offset_index.clear()
        self.time_index.clear()
        self._start_from(None, None)
        return 0

    def _start_from(self, entry: tuple[int, int] | None, largest: tuple[int, int] | None) -> None:
        """Sets what `note` counts from: the last entries of the two indexes."""
        timestamp, key = largest or (NO_TIMESTAMP, 0)
        self._may_lack_index = False
        self.indexed_position = 0 if entry is None else entry[1]
        self.indexed_timestamp = timestamp
        self._largest_timestamp = timestamp
        self.offset_of_largest_timestamp = self.base_offset + key

    def cut(self, size: int) -> None:
        """Makes the file end at `size`; `rewind` and `note` see to the indexes."""
        self.open_file().truncate(size)
        self.size = size
        self.flushed_size = min(self.flushed_size, size)
        self.journaled_size = min(self.journaled_size, size)
        self.trusted.add(size, FOREVER)

    # ---- positions

    def position_of(self, offset: int, limit: int, *, may_block: bool = True) -> int | None:
        """Where the batch that contains `offset` begins, or the first one after it (compaction
        leaves gaps); None if there is no such batch below the position `limit`."""
        return self.place_of(offset, limit, may_block=may_block)[0]

    def place_of(
        self, offset: int, limit: int, *, may_block: bool = True
    ) -> tuple[int | None, tuple[int, int] | None]:
        """As `position_of`; and, if no batch has the offset, where the one before begins and ends
        that was looked at on the way: were it damaged, the offset might be in what it covers."""
        try:
            entry = self.offset_index.floor_by_key(offset - self.base_offset, may_block=may_block)
            key, start = entry or (None, 0)
            if entry is not None and (hole := self._hole_of(entry)) is not None:
                key, start = None, hole.position
            if self._may_lack_index and limit > _UNINDEXED_BYTES_MAX and not len(self.offset_index):
                raise CorruptIndex(f"{self.offset_index.path} has no entries")
            if start >= self.size and key is not None:
                raise CorruptIndex(f"{self.offset_index.path}: {entry} is beyond the end")
            before = None
            for base_offset, last_offset, position, size in self.steps(start, limit, may_block):
                if key is not None and last_offset - self.base_offset != key:
                    raise CorruptIndex(f"{self.offset_index.path}: no batch ends with entry {key}")
                if last_offset >= offset:
                    return position, before if base_offset > offset else None
                before = position, position + size
                key = None
            return None, before
        except CorruptIndex as damage:
            self._rebuild(str(damage), may_block)
        except CorruptLog as damage:
            if entry is None or damage.position != entry[1]:
                raise
            self._rebuild(f"{self.offset_index.path} points at no batch: {damage}", may_block)
        return self.place_of(offset, limit, may_block=may_block)

    def end_of_batches(
        self, position: int, stop: int, limit: int, *, may_block: bool = True
    ) -> int:
        """The end of the last whole batch, from the one at `position` on, that ends by `stop`;
        `position` if even the first does not. May leave out an eighth where the index suffices."""
        start = self._last_boundary(stop, may_block)
        if start <= position:
            start = position
        elif (stop - start) * 8 < stop - position:
            return start
        for _, _, begin, size in self.steps(start, min(stop, limit), may_block):
            if begin + size > stop:
                break
            start = begin + size
        return start

    def batch_size_at(self, position: int, *, may_block: bool = True) -> int:
        _, _, _, size = next(self.steps(position, position + _STEP.size, may_block))
        return size

    def header_at(self, position: int) -> BatchHeader:
        """The header of the batch that begins at `position`, below `size`, or behind the damage
        that does. Raises CorruptLog, also if that goes on to the end."""
        found = next(self.walk(position, self.size), None)
        if found is None:
            raise CorruptLog(self.log_path, "damaged to its end", position)
        return found[0]

    def walk(
        self, position: int, limit: int, *, whole_from: int | None = None
    ) -> Iterator[tuple[BatchHeader, int, memoryview | None]]:
        """Header, position and bytes of each batch from `position` to `limit`, from the disk.

        The bytes are there from the batch with offset `whole_from` on; without it only headers are
        read. Raises CorruptLog, with its position, at what cannot be a batch in this place.
        """
        file = self.open_file()
        chunk_bytes = _HEADERS_CHUNK_BYTES if whole_from is None else _BATCHES_CHUNK_BYTES
        chunk = b""
        start = position  # of the chunk
        next_offset = self.base_offset
        while position < limit:
            if self.holes and (hole := self.holes.get(position)) is not None:
                next_offset, position = hole.next_offset, hole.end
                continue
            at = position - start
            if not 0 <= at <= len(chunk) - BATCH_HEADER_BYTES:
                chunk = file.pread(min(chunk_bytes, limit - position), position)
                start, at = position, 0
            header = header_in_place(
                chunk, at, self.log_path, self.base_offset, position, limit, next_offset
            )
            batch = None
            if whole_from is not None and header.last_offset >= whole_from:
                if at + header.size > len(chunk):
                    wanted = max(chunk_bytes, header.size)
                    chunk = file.pread(min(wanted, limit - position), position)
                    start, at = position, 0
                batch = memoryview(chunk)[at : at + header.size]
                if len(batch) < header.size:
                    raise CorruptLog(self.log_path, "the file ends within a batch", position)
            yield header, position, batch
            next_offset = header.next_offset
            position += header.size

    def read_batch(self, header: BatchHeader, position: int) -> bytes:
        """The bytes of the batch at `position`."""
        batch = self.open_file().pread(header.size, position)
        if len(batch) < header.size:
            raise CorruptLog(self.log_path, "the file ends within a batch", position)
        return batch

    # ---- time

    def largest_timestamp(self) -> int:
        """The largest timestamp in the segment, -1 if no record has one. May read the disk."""
        if self._largest_timestamp is None:
            reason = "no timestamps are known"
            try:
                last = self.time_index.last()
                if (
                    last is not None
                    and time_entries.is_true(self, last)
                    and time_entries.is_largest(self, last[0])
                ):
                    self.offset_of_largest_timestamp = self.base_offset + last[1]
                    self._largest_timestamp = self.indexed_timestamp = last[0]
                    return last[0]
            except CorruptIndex as damage:
                reason = str(damage)
            self._rebuild(reason, may_block=True)
        return NO_TIMESTAMP if self._largest_timestamp is None else self._largest_timestamp

    def first_offset_by_time(self, timestamp: int) -> int:
        """An offset before which all timestamps in the segment are below `timestamp`; as near to
        the first record that is not as the index can tell. May read the disk."""
        try:
            entry = self.time_index.floor_by_key(timestamp - 1)
            if entry is None:
                return self.base_offset
            if time_entries.is_true(self, entry):
                return self.base_offset + entry[1] + 1
            reason = f"{self.time_index.path}: no batch has timestamp {entry[0]}"
        except CorruptIndex as damage:
            reason = str(damage)
        self._rebuild(reason, may_block=True)
        return self.base_offset

    # ---- helpers

    def steps(
        self, position: int, limit: int, may_block: bool
    ) -> Iterator[tuple[int, int, int, int]]:
        """First and last offset, position and size of each batch from `position` on that begins
        below `limit`."""
        file = self.open_file(may_block=may_block)
        while position < limit:
            size = min(_HEADERS_CHUNK_BYTES, limit - position)
            chunk = file.pread(size, position) if may_block else file.pread_nowait(size, position)
            if chunk is None:
                raise WouldBlock(self.log_path)
            at = 0
            holes = self.holes
            while at + _STEP.size <= len(chunk):
                if holes and (hole := holes.get(position + at)) is not None:
                    at = hole.end - position
                    continue
                base_offset, length, magic, last_offset_delta = _STEP.unpack_from(chunk, at)
                if (
                    length < _BATCH_LENGTH_MIN
                    or magic != MAGIC
                    or last_offset_delta < 0
                    or base_offset < self.base_offset
                ):
                    raise CorruptLog(self.log_path, "no batch begins here", position + at)
                size = length + LENGTH_OVERHEAD
                if position + at + size > self.size:
                    raise CorruptLog(self.log_path, f"a batch of {size} bytes", position + at)
                yield base_offset, base_offset + last_offset_delta, position + at, size
                at += size
            if at == 0:
                if limit - position < _STEP.size:
                    return  # `limit` is not the end of a batch
                raise CorruptLog(self.log_path, "the file is shorter than it was", position)
            position += at

    def _last_boundary(self, position: int, may_block: bool) -> int:
        """The last begin of a batch at or before `position` that the index knows."""
        try:
            entry = self.offset_index.floor_by_value(position, may_block=may_block)
            if entry is not None and (hole := self._hole_of(entry)) is not None:
                return hole.position
            if entry is None or self.offset_entry_is_true(entry, may_block=may_block):
                return 0 if entry is None else entry[1]
            reason = f"{self.offset_index.path} points at no batch: {entry}"
        except CorruptIndex as damage:
            reason = str(damage)
        self._rebuild(reason, may_block)
        return self._last_boundary(position, may_block)

    def offset_entry_is_true(self, entry: tuple[int, int], *, may_block: bool = True) -> bool:
        key, position = entry
        if position + _STEP.size > self.size or position in self.holes:
            return False
        try:
            steps = self.steps(position, position + _STEP.size, may_block)
            return next(steps)[1] - self.base_offset == key
        except CorruptLog:
            return False  # the bytes there are not a batch, so the entry is not true

    def _hole_of(self, entry: tuple[int, int]) -> DamagedRange | None:
        return hole_of(self.holes, self.base_offset + entry[0], entry[1]) if self.holes else None

    def _rebuild(self, reason: str, may_block: bool) -> None:
        """Builds the stored part of both indexes anew, in memory, from the log."""
        if not may_block:
            raise WouldBlock(self.log_path)
        with self._open_segments.rebuild_lock:
            logger.warning("%s: building the indexes anew: %s", self.log_path, reason)
            fresh_start = self.offset_index.first_fresh_value()
            limit = self.size if fresh_start is None else fresh_start
            built = Segment(
                self._files,
                self._open_segments,
                self.path.rpartition("/")[0],
                self.base_offset,
                sizes={},
                index_interval_bytes=self.index_interval_bytes,
                created_ms=self.created_ms,
            )
            for header, position, _ in self.walk(0, limit):
                built.note(position, header.last_offset, header.max_timestamp)
            largest = self._largest_timestamp
            if largest is None or (
                self.indexed_timestamp >= largest and self.time_index.first_fresh_value() is None
            ):
                # Nobody appends here any more, or not since the last entry.
                built.finish()
            if largest is None:
                self.offset_of_largest_timestamp = built.offset_of_largest_timestamp
                self._largest_timestamp = self.indexed_timestamp = built.largest_timestamp()
            self._may_lack_index = False
            self.offset_index.replace_stored(built.offset_index.fresh_entries())
            self.time_index.replace_stored(built.time_index.fresh_entries())
