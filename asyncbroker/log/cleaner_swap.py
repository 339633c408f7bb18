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

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from asyncbroker.log.append_checks import POSITION_MAX
from asyncbroker.log.errors import CorruptLog
from asyncbroker.log.index import OFFSET_INDEX, TIME_INDEX
from asyncbroker.log.recovery import CLEANED_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX
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
        segment = self.segment
        position = segment.size + len(self._waiting)
        if position + header.size > POSITION_MAX:
            raise CorruptLog(segment.log_path, "the compacted segment would be too large")
        segment.note(position, header.last_offset, header.max_timestamp)
        self._waiting += batch
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
        on: what an error leaves undone is done by the next open."""
        with self._rewriting(replaced):
            self._rename(replaced)

    def prepare_swap(self, replaced: Sequence[Segment]) -> None:
        """Does what `swap_in` would write first, while all can be taken back."""
        with self._rewriting(replaced):
            pass

    def _rewriting(self, replaced: Sequence[Segment]) -> AbstractContextManager[None]:
        bases = (segment.base_offset for segment in self._log.segments)
        return self._log.rewriting(next(base for base in bases if base > replaced[-1].base_offset))

    def _rename(self, replaced: Sequence[Segment]) -> None:
        segment, files = self.segment, self._files
        for suffix in _SUFFIXES_WRITTEN:
            path = segment.path + suffix
            if files.exists(path + CLEANED_SUFFIX):  # an index without entries has no file
                files.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
        # Each of the three steps is durable before the next one: two segments with the same offsets
        # would be no log, and without either of them there would be none.
        files.sync_directory(self._directory)
        for old in replaced:
            for suffix in SEGMENT_SUFFIXES:
                if old.base_offset != segment.base_offset or suffix != LOG_SUFFIX:
                    files.remove(old.path + suffix)
        if len(replaced) > 1:
            files.sync_directory(self._directory)
        for suffix in _SUFFIXES_WRITTEN:
            path = segment.path + suffix
            if files.exists(path + SWAP_SUFFIX):
                files.rename(path + SWAP_SUFFIX, path)
        files.sync_directory(self._directory)
        _set_suffix(segment, "")
        self._log.open_segments.unpinned(segment)


def _set_suffix(segment: Segment, suffix: str) -> None:
    """The segment's files are called so, with a suffix after their own; "" for none."""
    segment.log_path = segment.path + LOG_SUFFIX + suffix
    for index in (segment.offset_index, segment.time_index):
        index.path = segment.path + index.layout.suffix + suffix
