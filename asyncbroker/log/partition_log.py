"""The log of one partition: segments, and what they contain by offset, by time and by producer.

Appending. One thread at a time appends (the event loop, or the partition's worker); others may read
meanwhile and one may flush. An append checks the batch against the topic's settings and the
producer's history, writes offset and leader epoch into it, writes it to the newest segment with one
call and only then publishes the new end: as one tuple, so that a reader in another thread sees an
offset and the position that belongs to it, never a half of each.

Reading. `locate` finds whole batches and gives their place in a file, not their bytes, so that they
can be sent from the page cache without passing through here. The positions of the newest batches
are in memory; older ones are found by the index.

Durability. `flush` makes durable what is there when it begins; `durability.py` says how, and what a
failed fsync means. `stretch_for_journal` gives what a commit round can make durable at less cost in
the journal that all logs share. Indexes, producer snapshots and leader epochs are written by
`checkpoint`; from the recovery point that it returns, recovery can rebuild what is newer.

Others work on the segments of a log from outside: `checking.py` holds them against their CRCs, and
the cleaner makes new ones, which `replace_segments` shows, and `rewriting` gives room to.

Not known here: requests, waiting, high watermarks, other partitions.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from asyncbroker.log.append_checks import (
    check_size,
    check_timestamps,
    is_index_full,
    is_roll_due,
    roll_limits,
)
from asyncbroker.log.batch_place import RELATIVE_OFFSET_MAX
from asyncbroker.log.checking import find_what_was_seen
from asyncbroker.log.checkpoints import LEADER_EPOCHS, encode_epochs
from asyncbroker.log.cleaner_transactions import Aborted
from asyncbroker.log.config import INT64_MAX, LogConfig
from asyncbroker.log.durability import Durability
from asyncbroker.log.errors import CorruptLog, WouldBlock
from asyncbroker.log.file_range import FileRange, LogEnd, find_range, segment_at
from asyncbroker.log.files import File, Files
from asyncbroker.log.index import RecentBatches
from asyncbroker.log.journal import Stretch
from asyncbroker.log.open_segments import OpenSegments
from asyncbroker.log.recovery import (
    RecoveredLog,
    Recovery,
    check_topic_id,
    cut_segments,
)
from asyncbroker.log.reserve import Reserve
from asyncbroker.log.retention import Expired, find_expired
from asyncbroker.log.segment import Segment
from asyncbroker.log.time_search import TimestampOffset, first_at_or_after, first_of_largest
from asyncbroker.log.unclean_scan import put_aside
from asyncbroker.protocol.batches import (
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    stamp,
    stamp_log_append_time,
)
from asyncbroker.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

# After this much a checkpoint also writes indexes and snapshots: so much, roughly, is read again by
# recovery to rebuild what is newer.
CHECKPOINT_BYTES: Final = 16 << 20
SNAPSHOT_BYTES: Final = 64 << 20


class Appended(NamedTuple):
    """Where a batch is in the log. `log_append_time_ms` is -1 if the records keep their times."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool


class PartitionLog:
    """See the head of this file. Open it with `open`, in a worker thread."""

    __slots__ = (
        "_checkpointed_size",
        "_closed_clean_at",
        "_durability",
        "_end",
        "_has_surplus",
        "_leaving",
        "_roll_size",
        "_roll_timestamp",
        "_segments",
        "_snapshot_position",
        "_snapshots",
        "aborted",
        "config",
        "damaged",
        "directory",
        "end_offset",
        "epochs",
        "files",
        "half_deleted",
        "has_transactions",
        "leader_epoch",
        "log_start_offset",
        "open_segments",
        "producers",
        "size",
        "topic_id",
    )

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        *,
        topic_id: bytes,
        config: LogConfig,
        leader_epoch: int,
        is_clean: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        now_ms: int,
        open_segments: OpenSegments | None = None,
    ) -> PartitionLog:
        """Opens the partition in `directory`, or makes it. Blocking.

        `is_clean`: the directory was closed and nobody wrote to it since. `recovery_point`: up to
        which offset the log is known to be durable. Raises CorruptLog if what is durable cannot be
        read, or belongs to another topic; OSError for the disk.
        """
        is_new = not files.exists(directory)
        if is_new:
            files.make_directory(directory)
        check_topic_id(files, directory, topic_id)
        open_segments = open_segments or OpenSegments()
        recovery = Recovery(files, directory, config, open_segments, now_ms, recovery_point)
        found = recovery.run(is_clean=is_clean, log_start_offset=log_start_offset)
        found.epochs.assign(leader_epoch, found.end_offset)
        durability = Durability(
            files,
            directory,
            is_new=is_new,
            end_offset=found.durable_end_offset,
        )
        return cls(files, directory, topic_id, config, open_segments, durability, found)

    def __init__(
        self,
        files: Files,
        directory: str,
        topic_id: bytes,
        config: LogConfig,
        open_segments: OpenSegments,
        durability: Durability,
        found: RecoveredLog,
    ) -> None:
        self.files = files
        self.open_segments = open_segments
        self.directory = directory
        self.topic_id = topic_id
        self.config = config
        self._durability = durability
        self._take(found)

    def _take(self, found: RecoveredLog) -> None:
        """Makes what recovery found the state of the log."""
        # Replaced, never changed: readers in other threads iterate over it.
        self._segments = found.segments
        # Oldest first: no part of the log any more, but their files may be, after a crash.
        self._leaving: list[Segment] = []
        active = found.segments[-1]
        self.log_start_offset = found.log_start_offset
        self.end_offset = found.end_offset
        self.size = sum(segment.size for segment in found.segments)
        self._end: LogEnd = (found.end_offset, active, active.size, RecentBatches())
        self.epochs = found.epochs
        self.leader_epoch = found.epochs.latest
        self.producers = found.producers
        self._snapshots = found.snapshots
        self.damaged = found.damaged
        self.half_deleted = found.half_deleted
        # What `checking.py` has found: whether a range has batches of transactions (what this
        # process appends has none), and which were aborted; None: nobody has looked yet.
        self.has_transactions = False
        self.aborted: list[Aborted] | None = None
        self._snapshot_position = 0
        # Behind the end there may be a part of a batch that could not be taken back.
        self._has_surplus = False
        self._checkpointed_size = self.size
        # End and start of a log that was closed in order and is untouched since.
        self._closed_clean_at = (
            (found.end_offset, found.log_start_offset) if found.was_closed_clean else None
        )
        self._roll_size, self._roll_timestamp = roll_limits(active, self.config)

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided."""
        undecided = self.producers.first_undecided_offset
        return self.end_offset if undecided is None else undecided

    @property
    def failure(self) -> OSError | None:
        """Why the log takes no more appends: an fsync that failed, or that it was closed."""
        return self._durability.failure

    @property
    def durable_end_offset(self) -> int:
        """Below it everything survives a crash of the machine."""
        return self._durability.end_offset

    @property
    def flushed_end_offset(self) -> int:
        """Below it everything is durable in the log's own files, without the journal."""
        return self._durability.flushed_end_offset

    @property
    def is_journal_needed(self) -> bool:
        """Whether something that was promised is not in the log's own files for sure."""
        return self._durability.is_journal_needed

    @property
    def active_base_offset(self) -> int:
        """Where the newest segment begins; older ones do not change any more."""
        return self._end[1].base_offset

    @property
    def active_size(self) -> int:
        """How many bytes the newest segment has."""
        return self._end[2]

    @property
    def end(self) -> LogEnd:
        """The end of the log, as a reader in another thread may use it."""
        return self._end

    @property
    def segments(self) -> list[Segment]:
        """The segments as they are now: this list does not change."""
        return self._segments

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    # ---- appending

    def append(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        *,
        leader_epoch: int,
        now_ms: int,
        is_client: bool = True,
    ) -> Appended:
        """Appends one batch, which was checked and is `header`'s, writing its offset into both.

        Raises KafkaError for what the topic or the producer's history forbids;
        OSError when it could not be written, and then nothing was. `is_client` is false for the
        coordinators, whose batches carry no sequences and may be of any size: a refusal would reach
        all their groups, and not the one that has many members.
        """
        if self._durability.failure is not None:
            self._durability.fail_if_failed()
        config = self.config
        size = header.size
        if (size > config.max_message_bytes or size > config.segment_bytes) and is_client:
            check_size(size, config)
        log_append_time_ms = NO_TIMESTAMP
        if config.is_log_append_time:
            stamp_log_append_time(batch, now_ms)
            header.max_timestamp = log_append_time_ms = now_ms
        elif (
            header.max_timestamp > now_ms + config.message_timestamp_after_max_ms
            or header.max_timestamp < header.base_timestamp
            or header.attributes & LOG_APPEND_TIME_BIT
            or config.message_timestamp_before_max_ms != INT64_MAX
        ):
            check_timestamps(batch, header, config, now_ms)
        producer_id = header.producer_id
        if producer_id >= 0:
            repeated = self.producers.check(header, is_client=is_client)
            if repeated is not None:
                return Appended(
                    repeated.first_offset,
                    repeated.last_offset,
                    repeated.timestamp if config.is_log_append_time else NO_TIMESTAMP,
                    self.log_start_offset,
                    True,
                )
        base_offset, last_offset = self._write(batch, header, leader_epoch, now_ms)
        return Appended(base_offset, last_offset, log_append_time_ms, self.log_start_offset, False)

    def _write(
        self, batch: bytearray | memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> tuple[int, int]:
        """Writes a batch that may come in at the end of the log; its first and last offset."""
        config = self.config
        size = header.size
        base_offset, segment, position, recent = self._end
        last_offset = base_offset + header.last_offset_delta
        if (
            position + size > self._roll_size
            or header.max_timestamp > self._roll_timestamp
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        ) and is_roll_due(segment, header, last_offset, config, now_ms):
            _, segment, position, recent = self._roll(now_ms)
        stamp(batch, base_offset, leader_epoch)
        header.base_offset = base_offset
        header.partition_leader_epoch = leader_epoch
        file = segment.file or segment.open_file()
        try:
            file.pwrite(batch, position)
        except OSError:
            self._undo_write(segment, file, position)
            raise
        # It is in the log: nothing from here on may fail. Readers go by `_end`, which is set last.
        segment.size = position + size
        if leader_epoch != self.leader_epoch:
            self.epochs.assign(leader_epoch, base_offset)
            self.leader_epoch = leader_epoch
        if header.producer_id >= 0:
            self.producers.add(header, now_ms, batch)
        else:
            self.producers.end_offset = last_offset + 1
        if position == 0:
            segment.first_timestamp = header.max_timestamp
            self._roll_size, self._roll_timestamp = roll_limits(segment, config)
        if segment.note(position, last_offset, header.max_timestamp):
            self._after_index_entry(segment, position)
        recent.append(base_offset, position)
        self.size += size
        self._end = (last_offset + 1, segment, position + size, recent)
        self.end_offset = last_offset + 1
        return base_offset, last_offset

    def _undo_write(self, segment: Segment, file: File, position: int) -> None:
        """Takes back the part of a batch that was written before the disk refused the rest."""
        try:
            file.truncate(position)
        except OSError as error:
            # Harmless at the end of the log: the next append writes over it, recovery would cut it.
            logger.warning("%s: a partial batch at %d stays: %s", file.path, position, error)
            self._has_surplus = True
        self._durability.cut_back(segment)

    def _roll(self, now_ms: int) -> LogEnd:
        """Begins a new segment at the end of the log."""
        end_offset, full, size, _ = self._end
        if self._has_surplus:
            full.open_file().truncate(size)
            self._has_surplus = False
        segment = Segment(
            self.files,
            self.open_segments,
            self.directory,
            end_offset,
            sizes={},
            index_interval_bytes=self.config.index_interval_bytes,
            created_ms=now_ms,
        )
        # If this fails nothing has changed.
        segment.open_file(create=True)
        full.finish()
        self._snapshots.add(self.producers)
        self._snapshot_position = 0
        self._durability.names_changed()
        self._segments = [*self._segments, segment]
        self._roll_size, self._roll_timestamp = roll_limits(segment, self.config)
        self._end = (end_offset, segment, 0, RecentBatches())
        return self._end

    def _after_index_entry(self, segment: Segment, position: int) -> None:
        """What is due now and then, and not at every append."""
        segment.is_recently_used = True
        if is_index_full(segment, self.config):
            self._roll_size = 0
        if position - self._snapshot_position > SNAPSHOT_BYTES:
            self._snapshot_position = position
            self._snapshots.add(self.producers)

    # ---- reading

    def locate(
        self,
        offset: int,
        bytes_max: int,
        *,
        end_offset: int,
        always_one: bool = True,
        may_block: bool = True,
    ) -> FileRange | None:
        """Whole batches from the one that contains `offset` on, below `end_offset`, of one segment,
        up to the first damage that is known.

        At most `bytes_max` bytes, but with `always_one` at least one batch; None if there is
        nothing. Raises KafkaError: OFFSET_OUT_OF_RANGE, or CORRUPT_MESSAGE for an offset that is
        damaged; WouldBlock, only without `may_block`, if memory does not hold what must be looked
        at, or if damage has to be looked into.
        """
        end = self._end
        if not self.log_start_offset <= offset <= end[0]:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset}; the log is {self.log_start_offset} to {end[0]}",
            )
        if offset >= end_offset or offset == end[0]:
            return None
        if self.damaged.ranges:
            self._check_undamaged(offset)
        try:
            return find_range(
                self._segments,
                end,
                offset,
                bytes_max,
                end_offset=end_offset,
                always_one=always_one,
                may_block=may_block,
            )
        except FileNotFoundError as error:
            if offset >= self.log_start_offset:
                raise
            # The segment was deleted while it was looked into.
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is gone") from error
        except CorruptLog as damage:
            if not may_block:
                raise WouldBlock(damage.path) from damage
            if not find_what_was_seen(self, damage):
                raise
        # It is known now, and may lie elsewhere than at this offset.
        return self.locate(offset, bytes_max, end_offset=end_offset, always_one=always_one)

    @property
    def damaged_range_count(self) -> int:
        """How many stretches of the log are known to be damaged."""
        return len(self.damaged.ranges)

    def _check_undamaged(self, offset: int) -> None:
        damaged = self.damaged.at(offset)
        if damaged is not None:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.directory}: damaged: {damaged}")

    def offset_for_timestamp(self, timestamp_ms: int, end_offset: int) -> TimestampOffset | None:
        """The first record below `end_offset` whose timestamp is at least `timestamp_ms`.
        Blocking."""
        return self._search(
            lambda segments, start: first_at_or_after(segments, timestamp_ms, start, end_offset)
        )

    def max_timestamp(self, end_offset: int) -> TimestampOffset | None:
        """The first record that has the largest timestamp of the log. Blocking."""
        return self._search(lambda segments, start: first_of_largest(segments, start, end_offset))

    def _search(
        self, search: Callable[[list[Segment], int], TimestampOffset | None]
    ) -> TimestampOffset | None:
        while True:
            start = self.log_start_offset
            segments = self._segments
            try:
                return search(segments[segment_at(segments, start) :], start)
            except FileNotFoundError:
                # The oldest segments may be deleted meanwhile; then there is a new beginning.
                if start == self.log_start_offset:
                    raise

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """See `LeaderEpochs.end_offset_of`."""
        return self.epochs.end_offset_of(epoch, self.end_offset)

    # ---- durability: in a worker, while others append and read

    @property
    def undurable_bytes(self) -> int:
        """How much a crash of the machine could take."""
        dirty = self._durability.dirty(self._segments)
        return sum(segment.size - segment.durable_size for segment in dirty)

    @property
    def bytes_since_writeback(self) -> int:
        """How much was appended to the newest segment since `start_writeback` or `flush`."""
        return self._durability.bytes_since_writeback(self._segments[-1])

    def start_writeback(self) -> None:
        """Asks the system to begin writing; see `Durability.start_writeback`."""
        segments = self._segments
        try:
            self._durability.start_writeback(segments)
        except FileNotFoundError:
            # A segment may be deleted meanwhile.
            if self._segments is segments:
                raise

    def stretch_for_journal(self, partition: int, bytes_max: int) -> Stretch | None:
        """All that is not durable, if a frame of the journal can hold it: it is not too much, lies
        in one segment, and a crash cannot take that file's name. None asks for `flush`."""
        durability = self._durability
        end_offset, segment, size, _ = self._end
        position = segment.durable_size
        if (
            not 0 < size - position <= bytes_max
            or durability.end_offset < segment.base_offset
            or not durability.are_files_durable()
            or durability.failure is not None
        ):
            return None
        return Stretch(self, partition, segment, position, size - position, end_offset)

    def journaled(self, stretch: Stretch) -> None:
        """A stretch of this log is durable in the journal."""
        stretch.segment.journaled_size = stretch.position + stretch.size
        self._durability.journaled_end_offset = stretch.end_offset

    def flush(self) -> int:
        """Makes the files durable with all that was appended before the call; the offset up to
        which they are then. After an OSError the log takes nothing more."""
        with self._durability.lock:
            self._sync()
            return self._durability.flushed_end_offset

    def _sync(self) -> None:
        # In this order: a segment that leaves the log meanwhile is seen twice rather than never.
        end_offset = self.end_offset
        segments = self._segments
        self._durability.sync(end_offset, [*self._leaving, *segments])

    def checkpoint(self) -> int:
        """Writes what spares recovery its work, if enough was appended; the recovery point. What
        only the journal has becomes durable in the files, so that the journal can be freed; and
        where too many segments are open only because they are not durable, this one's become so."""
        with self._durability.lock:
            self._durability.fail_if_failed()
            if self.end_offset == 0:
                return 0
            if (
                self._snapshots.is_waiting
                or self.size - self._checkpointed_size >= CHECKPOINT_BYTES
            ):
                self._sync()
                self._persist()
            elif self.open_segments.is_crowded:
                segments = self._segments
                try:
                    self._sync()
                finally:
                    # Also when there was no descriptor left to sync the directory with.
                    self.open_segments.synced(segments)
            elif self._durability.is_journal_needed:
                self._sync()
            self._write_epochs()
            return self._durability.flushed_end_offset

    def close(self, *, clean: bool = True, reserve: Reserve | None = None) -> None:
        """Ends all use. A clean close makes everything durable, so that opening the log again
        reads next to nothing; after an unclean one recovery has its work. On a full disk a clean
        one needs a `reserve`."""
        with self._durability.lock:
            try:
                if clean and self.end_offset > 0 and reserve is not None:
                    reserve.with_room(self._close_clean)
                elif clean and self.end_offset > 0:
                    self._close_clean()
            finally:
                if self._durability.failure is None:
                    self._durability.failure = OSError(errno.EBADF, "the log is closed")
                for segment in self._segments:
                    segment.close()

    def _close_clean(self) -> None:
        """Writes what the next start can trust. Of many partitions most were not touched since
        their last clean close, and need no fsync."""
        if (self.end_offset, self.log_start_offset) == self._closed_clean_at:
            self._persist()
            return
        self._sync()
        self._segments[-1].finish()
        self._snapshots.add(self.producers)
        self._persist(sync=True)
        self._write_epochs()

    def _persist(self, *, sync: bool = False) -> None:
        """Writes the indexes and the snapshots, these durably with `sync`."""
        size = self.size
        segments = self._segments
        for segment in segments:
            segment.persist_indexes(sync=True)
        self._snapshots.write((segment.base_offset for segment in segments), sync=sync)
        self.damaged.save()
        self._checkpointed_size = size

    def _write_epochs(self) -> None:
        if self.epochs.is_dirty:
            entries = self.epochs.entries
            path = f"{self.directory}/{LEADER_EPOCHS}"
            self.files.write_atomically(path, encode_epochs(entries))
            self.epochs.is_dirty = self.epochs.entries is not entries

    def find_expired(self, high_watermark: int, now_ms: int) -> Expired | None:
        """What retention lets go of; see `find_expired` of `retention.py`. Blocking."""
        end_offset = self.end_offset
        segments = self._segments
        try:
            return find_expired(
                segments,
                self.config,
                log_start_offset=self.log_start_offset,
                end_offset=end_offset,
                high_watermark=high_watermark,
                now_ms=now_ms,
            )
        except FileNotFoundError:
            # Segments may be deleted meanwhile by somebody else.
            if self._segments is segments:
                raise
            return None

    # ---- changes by whoever appends, between appends

    def set_config(self, config: LogConfig) -> None:
        """Takes over new settings, from the next append on."""
        active = self._segments[-1]
        self.config = config
        active.index_interval_bytes = config.index_interval_bytes
        self._roll_size, self._roll_timestamp = roll_limits(active, config)

    def expire_producers(self, now_ms: int) -> None:
        """Forgets producers that were silent for `producer.id.expiration.ms`."""
        self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    def roll(self, now_ms: int) -> None:
        """Begins a new segment, if the newest one has records."""
        if self._end[1].size > 0:
            self._roll(now_ms)

    def advance_log_start(self, offset: int) -> list[Segment]:
        """Moves the begin of the log up to `offset` (never down); gives the segments that are
        wholly below and no longer part of it, for `delete_segments`. If records of the segment
        that stays must not come back, the caller records the new start durably before it answers.
        """
        if offset > self.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} > {self.end_offset}")
        self.log_start_offset = max(self.log_start_offset, offset)
        segments = self._segments
        count = segment_at(segments, self.log_start_offset)
        # Until the new start is recorded a crash brings them back, and what is newer is promised.
        self._leaving = [*self._leaving, *segments[:count]]
        self._segments = segments[count:]
        freed = sum(segment.size for segment in segments[:count])
        self.size -= freed
        # Or it would take as much again until the next checkpoint writes anything.
        self._checkpointed_size -= freed
        self.epochs.advance_start(self.log_start_offset)
        return segments[:count]

    def durable_start(self) -> int:
        """Where the log begins, once all before that is durable: a log that a crash leaves with an
        earlier end is emptied, and with it goes what it knew of its producers. Blocking."""
        start = self.log_start_offset
        if self.durable_end_offset < start:
            self.flush()
        return start

    def delete_segments(self, segments: list[Segment]) -> list[str]:
        """Takes their names away from the files of segments that `advance_log_start` gave, oldest
        first, and gives the new ones, to be removed at leisure; an open does so too. Readers keep
        what they hold. Blocking; only once the log's start is recorded durably, or a replay of
        what was written to the segments could not tell that it must not be."""
        if not segments:
            return []
        with self.rewriting(self._segments[0].base_offset):
            # Not while a compacted one gets its final names.
            paths = [path for segment in segments for path in put_aside(self.files, segment)]
            self._leaving = [each for each in self._leaving if each not in segments]
        self.damaged.keep(self._segments, self.log_start_offset, self.end_offset)
        return paths

    # ---- compaction

    def replace_segments(self, replaced: list[Segment], cleaned: Segment) -> bool:
        """Shows readers the compacted segment from here on; False, and nothing is changed, if those
        that it was made of are no longer all part of the log. Its `swap_in` must follow."""
        segments = self._segments
        at = segment_at(segments, replaced[0].base_offset)
        if segments[at : at + len(replaced)] != replaced:
            return False
        self._segments = [*segments[:at], cleaned, *segments[at + len(replaced) :]]
        freed = sum(segment.size for segment in replaced) - cleaned.size
        self.size -= freed
        self._checkpointed_size -= freed
        return True

    @contextmanager
    def rewriting(self, next_base_offset: int) -> Iterator[None]:
        """For the change of the files of all segments before the one that begins there: nobody else
        changes files meanwhile, and what goes of the producers' batches a snapshot knows."""
        with self._durability.lock:
            self._snapshots.write([segment.base_offset for segment in self._segments], sync=True)
            # A checkpoint may have written it before, and then not durably.
            self._snapshots.secure(next_base_offset)
            yield

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Removes `offset` and all that follows, with the whole batch that contains it. Blocking,
        and nobody else may use the log. `LogDirectory.lower_recovery_point` comes first: it takes
        back what was promised, also in the journal."""
        if offset < self.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} < {self.log_start_offset}")
        if offset >= self.end_offset:
            return
        with self._durability.lock:
            self._durability.fail_if_failed()
            if self._durability.is_journal_needed:
                raise RuntimeError(f"{self.directory}: the journal would bring back what is cut")
            self._write_epochs()
            end_offset = cut_segments(self.files, self._segments, offset)
            # The rest follows from the files, as after a crash.
            recovery_point = min(self._durability.flushed_end_offset, end_offset)
            recovery = Recovery(
                self.files,
                self.directory,
                self.config,
                self.open_segments,
                now_ms,
                recovery_point,
            )
            self._durability.truncated(recovery_point)
            self._take(recovery.run(is_clean=False, log_start_offset=self.log_start_offset))
