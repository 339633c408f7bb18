"""A compacted segment: how it is written beside those it is made of, and takes their place.

    <base>.log.cleaned   being written; an open removes it
    <base>.log.swap      whole and durable; an open puts it in the place of those in its range
    <base>.log           the log

Likewise the two indexes. A crash anywhere leaves the old segments or the new one, in names that
`recovery.finish_leftovers` knows. In a process that goes on, readers may hold segments of either
kind: until the files have their final names all of these keep their file open (`Segment.pin`), so
that nobody opens another file by the name of theirs. The bytes of an old one stay readable as long
as somebody has the segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Final

from asyncbroker.log.append_checks import POSITION_MAX
from asyncbroker.log.errors import CorruptLog
from asyncbroker.log.index import OFFSET_INDEX, TIME_INDEX
from asyncbroker.log.recovery import CLEANED_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX
from asyncbroker.log.renaming import Renaming
from asyncbroker.log.segment import LOG_SUFFIX, Segment
from asyncbroker.protocol.batches import BatchHeader
from asyncbroker.protocol.compression import Buffer

if TYPE_CHECKING:
    from asyncbroker.log.partition_log import PartitionLog

_WRITE_BYTES: Final = 1 << 20
_WRITEBACK_BYTES: Final = 8 << 20
_SUFFIXES_WRITTEN: Final = (OFFSET_INDEX.suffix, TIME_INDEX.suffix, LOG_SUFFIX)


class CleanedSegment:
    """Writes one `.cleaned` segment, and puts it in the place of others."""

    def __init__(self, log: PartitionLog, base_offset: int, created_ms: int) -> None:
        self._log = log
        self._files = log.files
        self._directory = log.directory
        self.segment = Segment(
            log.files,
            log.open_segments,
            log.directory,
            base_offset,
            sizes={},
            index_interval_bytes=log.config.index_interval_bytes,
            created_ms=created_ms,
        )
        _set_suffix(self.segment, CLEANED_SUFFIX)
        self.remove()  # what an earlier attempt has left
        self.segment.pin(create=True)
        self._waiting = bytearray()
        self._written_back = 0

    def append(self, header: BatchHeader, batch: Buffer) -> None:
        """Adds a batch with this header; it is copied."""
        position = self._next_position(header.size)
        self.segment.note(position, header.last_offset, header.max_timestamp)
        self._add(batch)

    def append_run(self, batches: bytes, places: bytes) -> None:
        """Adds batches; of each three int64: where it begins in them, its last offset, its max
        timestamp."""
        position = self._next_position(len(batches))
        cells = iter(memoryview(places).cast("q"))
        for begin, last_offset, max_timestamp in zip(cells, cells, cells, strict=True):
            self.segment.note(position + begin, last_offset, max_timestamp)
        self._add(batches)

    def _next_position(self, size: int) -> int:
        """Where so many bytes will lie that come next."""
        position = self.segment.size + len(self._waiting)
        if position + size > POSITION_MAX:
            reason = "the compacted segment would be too large"
            raise CorruptLog(self.segment.log_path, reason)
        return position

    def _add(self, batches: Buffer) -> None:
        self._waiting += batches
        if len(self._waiting) >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        segment = self.segment
        if self._waiting:
            file = segment.open_file()
            file.pwrite(self._waiting, segment.size)
            segment.size += len(self._waiting)
            self._waiting = bytearray()
            if segment.size - self._written_back >= _WRITEBACK_BYTES:
                # Or the fsync at the end would take all the time.
                file.start_writeback(self._written_back, segment.size - self._written_back)
                self._written_back = segment.size

    def finish(self) -> None:
        """Makes the segment whole and durable."""
        self._write()
        segment = self.segment
        segment.finish()
        segment.persist_indexes(sync=True)
        segment.open_file().datasync()
        segment.flushed_size = segment.size
        self._files.sync_directory(self._directory)

    def remove(self) -> None:
        """Takes back what was written."""
        for suffix in _SUFFIXES_WRITTEN:
            self._files.remove(self.segment.path + suffix + CLEANED_SUFFIX)

    def swap_in(self, replaced: Sequence[Segment]) -> None:
        """Gives the files their final names and removes those that they replace, which
        `PartitionLog.replace_segments` has done for readers. Nothing can be taken back from here
        on: what an error leaves undone is done later (`renaming.py`)."""
        with self._rewriting(replaced) as renaming:
            renaming.add(self._steps(replaced, renaming))
            renaming.finish()

    def prepare_swap(self, replaced: Sequence[Segment]) -> None:
        """Does what `swap_in` would write first, while all can be taken back."""
        with self._rewriting(replaced):
            pass

    def _rewriting(self, replaced: Sequence[Segment]) -> AbstractContextManager[Renaming]:
        bases = (segment.base_offset for segment in self._log.segments)
        return self._log.rewriting(next(base for base in bases if base > replaced[-1].base_offset))

    def _steps(
        self, replaced: Sequence[Segment], renaming: Renaming
    ) -> Iterator[Callable[[], object]]:
        """Each of the three stages is durable before the next one: two segments with the same
        offsets would be no log, and without either of them there would be none."""
        for suffix in _SUFFIXES_WRITTEN:
            yield partial(self._rename, suffix, CLEANED_SUFFIX, SWAP_SUFFIX)
        yield renaming.sync
        for old in replaced:
            for suffix in SEGMENT_SUFFIXES:
                if old.base_offset != self.segment.base_offset or suffix != LOG_SUFFIX:
                    yield partial(self._files.remove, old.path + suffix)
        if len(replaced) > 1:
            yield renaming.sync
        for suffix in _SUFFIXES_WRITTEN:
            yield partial(self._rename, suffix, SWAP_SUFFIX, "")
        yield renaming.sync
        yield self._named

    def _rename(self, suffix: str, before: str, after: str) -> None:
        segment, path = self.segment, self.segment.path + suffix
        if self._files.exists(path + before):  # an index without entries has no file
            self._files.rename(path + before, path + after)
        for index in (segment.offset_index, segment.time_index):
            if index.layout.suffix == suffix:
                # It may be written anew, and a name of an earlier stage would undo a later one.
                index.path = path + after

    def _named(self) -> None:
        _set_suffix(self.segment, "")
        self._log.open_segments.unpinned(self.segment)


def _set_suffix(segment: Segment, suffix: str) -> None:
    """The segment's files are called so, with a suffix after their own; "" for none."""
    segment.log_path = segment.path + LOG_SUFFIX + suffix
    for index in (segment.offset_index, segment.time_index):
        index.path = segment.path + index.layout.suffix + suffix
