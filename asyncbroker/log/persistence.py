"""What makes a log outlive its process: the order in which its files are written and renamed.

Besides the batches a log has files that spare the next start work: indexes, snapshots of producers,
leader epochs, known damage. A checkpoint writes them now and then, a clean close always. None of
them is ever ahead of what is durable of the log, and none is missing when what it tells of goes.

One thread at a time changes these files: it holds the lock of `durability.py`, which says how bytes
become durable. That is a worker's, while others append and read. Not known here: what is appended,
and what readers see.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from asyncbroker.log.append_checks import is_index_full
from asyncbroker.log.config import LogConfig
from asyncbroker.log.damage import DamagedRanges
from asyncbroker.log.durability import Durability
from asyncbroker.log.file_range import LogEnd
from asyncbroker.log.files import Files
from asyncbroker.log.leader_epochs import LeaderEpochs
from asyncbroker.log.log_segments import LogSegments
from asyncbroker.log.open_segments import OpenSegments
from asyncbroker.log.producers import ProducerState, Snapshot
from asyncbroker.log.recovery import RecoveredLog, Recovery, cut_segments
from asyncbroker.log.renaming import Renaming
from asyncbroker.log.reserve import Reserve
from asyncbroker.log.segment import Segment
from asyncbroker.log.snapshots import SnapshotFiles
from asyncbroker.log.unclean_scan import put_aside, write_epochs

# After this much a checkpoint also writes indexes and snapshots: so much, roughly, is read again by
# recovery to rebuild what is newer.
CHECKPOINT_BYTES: Final = 16 << 20
# And so much of a segment lies between two snapshots of producers.
SNAPSHOT_BYTES: Final = 64 << 20


@dataclass(slots=True)
class Persistence:
    """The files of one log, since it was opened or cut back."""

    files: Files
    directory: str
    open_segments: OpenSegments
    durability: Durability
    segments: LogSegments
    epochs: LeaderEpochs
    producers: ProducerState
    snapshots: SnapshotFiles
    damaged: DamagedRanges
    # End and start of a log that was closed in order and is untouched since.
    closed_clean_at: tuple[int, int] | None
    renaming: Renaming = field(init=False)
    _checkpointed_bytes: int = field(init=False)
    _snapshot_position: int = 0

    def __post_init__(self) -> None:
        self._checkpointed_bytes = self.segments.written_bytes
        self.renaming = Renaming(self.files, self.directory)

    # ---- by whoever appends

    def roll(self, config: LogConfig, now_ms: int) -> LogEnd:
        """Begins a new segment at the end of the log, with a snapshot of the producers there."""
        end = self.segments.roll(config, now_ms)
        self.snapshots.add(self.producers)
        self._snapshot_position = 0
        self.durability.names_changed()
        return end

    def after_index_entry(self, segment: Segment, position: int, config: LogConfig) -> None:
        """What is due now and then, and not at every append."""
        segment.is_recently_used = True
        if is_index_full(segment, config):
            self.segments.roll_size = 0
        if position - self._snapshot_position > SNAPSHOT_BYTES:
            self._snapshot_position = position
            self.snapshots.add(self.producers)

    # ---- by workers

    def start_writeback(self) -> None:
        """See `Durability.start_writeback`."""
        segments = self.segments.all
        try:
            self.durability.start_writeback(segments)
        except FileNotFoundError:
            # A segment may be deleted meanwhile.
            if self.segments.all is segments:
                raise

    def flush(self) -> int:
        """See `PartitionLog.flush`."""
        with self.durability.lock:
            self._sync()
            return self.durability.flushed_end_offset

    def _sync(self) -> None:
        # In this order: a segment that leaves the log meanwhile is seen twice rather than never.
        end_offset = self.segments.end[0]
        segments = self.segments.all
        self.durability.sync(end_offset, [*self.segments.leaving, *segments])

    def checkpoint(self) -> int:
        """See `PartitionLog.checkpoint`."""
        durability, segments = self.durability, self.segments
        with durability.lock:
            durability.fail_if_failed()
            if segments.end[0] == 0:
                return 0
            if (
                self.snapshots.is_waiting
                or segments.written_bytes - self._checkpointed_bytes >= CHECKPOINT_BYTES
            ):
                self._sync()
                self._persist()
            elif self.open_segments.is_crowded:
                open_before = segments.all
                try:
                    self._sync()
                finally:
                    # Also when there was no descriptor left to sync the directory with.
                    self.open_segments.synced(open_before)
            elif durability.is_journal_needed:
                self._sync()
            self.write_epochs()
            return durability.flushed_end_offset

    def close(self, log_start_offset: int, *, clean: bool, reserve: Reserve | None) -> None:
        """See `PartitionLog.close`."""
        with self.durability.lock:
            try:
                if clean and self.segments.end[0] > 0:
                    if reserve is None:
                        self._close_clean(log_start_offset)
                    else:
                        reserve.with_room(lambda: self._close_clean(log_start_offset))
            finally:
                if self.durability.failure is None:
                    self.durability.failure = OSError(errno.EBADF, "the log is closed")
                for segment in self.segments.all:
                    segment.close()

    def _close_clean(self, log_start_offset: int) -> None:
        """Writes what the next start can trust. Of many partitions most were not touched since
        their last clean close, and need no fsync."""
        if (self.segments.end[0], log_start_offset) == self.closed_clean_at:
            self._persist()
            return
        self._sync()
        self.segments.all[-1].finish()
        self.snapshots.add(self.producers)
        self._persist(sync=True)

    def _persist(self, *, sync: bool = False) -> None:
        """Writes the indexes and the snapshots, these durably with `sync`."""
        # Before anything else: a segment may be rolled meanwhile, and its snapshot must not come
        # before the end of its indexes.
        snapshots = self._snapshots(0)
        self.write_epochs()
        written_bytes = self.segments.written_bytes
        segments = self.segments.all
        for segment in segments:
            segment.persist_indexes(sync=True)
        self.snapshots.write(snapshots, self._bases(segments), sync=sync)
        self.damaged.save()
        self._checkpointed_bytes = written_bytes

    def _snapshots(self, offset: int) -> list[Snapshot]:
        """Those that wait and are not ahead of what is durable; in any case those up to `offset`,
        before which something is about to go."""
        return self.snapshots.waiting_to(max(offset, self.durability.flushed_end_offset))

    def _bases(self, segments: list[Segment]) -> list[int]:
        """Whose snapshots are needed: a crash may bring back what is on its way out, and its
        beginning with it."""
        return [segment.base_offset for segment in [*self.segments.leaving, *segments]]

    def write_epochs(self) -> None:
        """Writes the leader epochs, if there are new ones: before any snapshot of producers, since
        the next start need not read the batches before that, from which it could tell them."""
        write_epochs(self.files, self.directory, self.epochs)

    # ---- what goes

    @contextmanager
    def rewriting(self, next_base_offset: int) -> Iterator[Renaming]:
        """See `PartitionLog.rewriting`."""
        with self.durability.lock:
            self.renaming.finish()
            self.snapshots.tidy(self._bases(self.segments.all))
            if not self.snapshots.is_secured(next_base_offset):
                self._secure_producers(next_base_offset)
            yield self.renaming

    def finish_renaming(self) -> None:
        """See `PartitionLog.finish_renaming`."""
        with self.durability.lock:
            self.renaming.finish()

    def _secure_producers(self, next_base_offset: int) -> None:
        """Writes what knows the producers of all before `next_base_offset`."""
        snapshots = self._snapshots(next_base_offset)
        self.write_epochs()
        for segment in self.segments.all if snapshots else ():
            segment.persist_indexes(sync=True)
        self.snapshots.write(snapshots, self._bases(self.segments.all), sync=True)
        # A checkpoint may have written it before, and then not durably.
        self.snapshots.secure(next_base_offset)

    def delete(self, segments: list[Segment]) -> list[str]:
        """See `PartitionLog.delete_segments`."""
        with self.rewriting(self.segments.all[0].base_offset):
            # Not while a compacted one gets its final names.
            paths = [path for segment in segments for path in put_aside(self.files, segment)]
            self.segments.left(segments)
        return paths

    def truncate(
        self, offset: int, log_start_offset: int, config: LogConfig, now_ms: int
    ) -> RecoveredLog:
        """See `PartitionLog.truncate_to`; what is left of the log."""
        durability = self.durability
        with durability.lock:
            durability.fail_if_failed()
            if durability.is_journal_needed:
                raise RuntimeError(f"{self.directory}: the journal would bring back what is cut")
            self.renaming.finish()
            self.write_epochs()
            end_offset = cut_segments(self.files, self.segments.all, offset)
            # The rest follows from the files, as after a crash.
            point = min(durability.flushed_end_offset, end_offset)
            durability.truncated(point)
            recovery = Recovery(
                self.files, self.directory, config, self.open_segments, now_ms, point
            )
            return recovery.run(is_clean=False, log_start_offset=log_start_offset)
