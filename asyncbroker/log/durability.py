"""How far a log is durable, and how it becomes so.

There are two ways: `sync` makes its files durable, and a commit round may write what is new to the
journal that all logs share (`journal.py`), so that its files can wait. What was promised is the
larger of two ends; `flushed_end_offset` is what the files themselves hold whatever happens to the
journal, and thus what a recovery point may say.

`sync` may run in one worker while the log is appended to: what is published when it begins is
durable when it returns. A failed fsync is final. The system may drop the pages that it could not
write and mark them clean, so that a second fsync would say all is well (PostgreSQL's fsyncgate of
2018): nothing is claimed, synced or appended any more, until a restart.

A restart reads from memory what such an fsync has not written (ext4 and XFS keep those pages), and
no fsync will write it: so what was read after a crash is written once more before it is promised.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from typing import Final

from asyncbroker.log.checkpoints import PARTITION_METADATA
from asyncbroker.log.files import File, Files
from asyncbroker.log.segment import Segment

# Too many open files: nothing was synced, and nothing was lost.
NOT_THE_DISK: Final = frozenset({errno.EMFILE, errno.ENFILE})

_COPY_BYTES: Final = 1 << 20


class Durability:
    """The durable end of one log. Hold `lock` while using `sync`, or writing the log's other
    files; whoever appends only calls `names_changed` and `cut_back`, and reads the rest. One thread
    at a time takes stretches to the journal."""

    __slots__ = (
        "_cut_back",
        "_directory",
        "_files",
        "_is_metadata_synced",
        "_is_parent_synced",
        "_names_changed_count",
        "_names_synced_count",
        "_written_back",
        "failure",
        "flushed_end_offset",
        "journaled_end_offset",
        "lock",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        is_new: bool,
        end_offset: int,
    ) -> None:
        """`end_offset` is what is durable already, in the files. `is_new`: the directory was just
        made."""
        self._files = files
        self._directory = directory
        self.flushed_end_offset = end_offset
        self.journaled_end_offset = end_offset
        self.failure: OSError | None = None
        self.lock = threading.Lock()
        # Two counts, so that a name which comes while the directory is synced is not forgotten.
        self._names_changed_count = 1
        self._names_synced_count = 0
        self._is_parent_synced = not is_new
        # An earlier life may have written it and been killed before it was synced.
        self._is_metadata_synced = False
        self._written_back: tuple[Segment, int] | None = None
        # Appended to by whoever appends to the log, shortened from the front by `sync`.
        self._cut_back: list[Segment] = []

    @property
    def is_journal_needed(self) -> bool:
        """Whether something that was promised is not in the files for sure."""
        return self.journaled_end_offset > self.flushed_end_offset

    def names_changed(self) -> None:
        """There is a new file in the directory."""
        self._names_changed_count += 1

    def cut_back(self, segment: Segment) -> None:
        """A part of a batch was written and taken back. The disk may have the longer file, which a
        crash would bring back in front of newer segments, although its size tells nothing of it."""
        self._cut_back.append(segment)

    def may_journal(self, base_offset: int) -> bool:
        """Whether the journal may have what is new of the segment that begins at this offset: all
        before it is durable, and a crash leaves every file where it is, of no more than its size,
        in a directory that can be told."""
        return (
            (self.flushed_end_offset >= base_offset or self.journaled_end_offset >= base_offset)
            and not self._cut_back
            and self._names_changed_count == self._names_synced_count
            and self.failure is None
        )

    def fail_if_failed(self) -> None:
        if self.failure is not None:
            raise OSError(self.failure.errno, f"{self._directory} is offline: {self.failure}")

    def sync(self, end_offset: int, segments: Sequence[Segment]) -> None:
        """Makes the log durable up to `end_offset`, which the caller read before the segments."""
        self.fail_if_failed()
        changed_count = self._names_changed_count
        cut_back = self._cut_back[:]
        dirty = self.dirty(segments)
        for segment in dirty:
            _write_again(segment)
        metadata: File | None = None
        if not self._is_metadata_synced and changed_count != self._names_synced_count:
            # Replay finds a partition by its topic's id.
            metadata = self._files.open(f"{self._directory}/{PARTITION_METADATA}")
        try:
            if cut_back:
                dirty = [each for each in segments if each in cut_back or each in dirty]
            for segment in dirty:
                size = segment.size
                segment.open_file().datasync()
                segment.flushed_size = size
            if changed_count != self._names_synced_count:
                if metadata is not None:
                    metadata.datasync()
                self._files.sync_directory(self._directory)
                if not self._is_parent_synced:
                    self._files.sync_directory(os.path.dirname(self._directory))
        except OSError as error:
            if error.errno not in NOT_THE_DISK:
                self.failure = error
            raise
        finally:
            if metadata is not None:
                metadata.close()
        self._names_synced_count = changed_count
        self._is_parent_synced = self._is_metadata_synced = True
        del self._cut_back[: len(cut_back)]
        self.flushed_end_offset = end_offset

    def truncated(self, end_offset: int) -> None:
        """The log was cut back, to an end that is durable."""
        self.flushed_end_offset = self.journaled_end_offset = end_offset
        self._written_back = None
        # What was removed, snapshots of the longer log too, must be gone for good before the next
        # promise: the log may grow beyond them again.
        self._names_changed_count += 1

    def dirty(self, segments: Sequence[Segment]) -> list[Segment]:
        """The segments with bytes in their files that were not synced; oldest first, so that what
        is durable is always a beginning of the log."""
        dirty: list[Segment] = []
        for segment in reversed(segments):
            if segment.is_dirty:
                dirty.append(segment)
            if segment.base_offset <= self.flushed_end_offset:
                break
        return dirty[::-1]

    def start_writeback(self, segments: Sequence[Segment]) -> None:
        """Asks the system to begin writing what came since the last call, so that dirty pages do
        not pile up until it throttles whoever writes next. It may block itself."""
        last_segment, last_size = self._written_back or (None, 0)
        for segment in self.dirty(segments):
            if last_segment is not None and segment.base_offset < last_segment.base_offset:
                continue
            begin = last_size if segment is last_segment else segment.flushed_size
            size = segment.size
            if size > begin:
                segment.open_file().start_writeback(begin, size - begin)
            self._written_back = (segment, size)


def _write_again(segment: Segment) -> None:
    """Has the system write what was read after a crash and need not be on the disk: see above."""
    if segment.recovered_size:
        file = segment.open_file()
        end = min(segment.size, segment.recovered_size)
        for position in range(segment.flushed_size, end, _COPY_BYTES):
            size = min(_COPY_BYTES, end - position)
            file.pwrite(file.pread(size, position), position)
        segment.recovered_size = 0
