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
the journal that all logs share. `checkpoint` and `close` write what spares the next start work
(`persistence.py`); from the recovery point of the former recovery can rebuild what is newer.

The list of segments is kept in `log_segments.py`. Others work on them from outside: `checking.py`
holds them against their CRCs, and the cleaner makes new ones, which `replace_segments` shows, and
`rewriting` gives room to.

Not known here: requests, waiting, high watermarks, other partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from asyncbroker.log.append_checks import check_size, check_timestamps, is_roll_due, roll_limits
from asyncbroker.log.appended import Appended, Sent
from asyncbroker.log.batch_place import RELATIVE_OFFSET_MAX
from asyncbroker.log.cleaner_transactions import Decided
from asyncbroker.log.config import INT64_MAX, LogConfig
from asyncbroker.log.durability import Durability
from asyncbroker.log.file_range import FileRange, LogEnd
from asyncbroker.log.files import Files
from asyncbroker.log.journal import Stretch
from asyncbroker.log.log_segments import LogSegments
from asyncbroker.log.open_segments import OpenSegments
from asyncbroker.log.persistence import Persistence
from asyncbroker.log.reading import find_in_log
from asyncbroker.log.recovery import RecoveredLog, Recovery, check_topic_id
from asyncbroker.log.renaming import Renaming
from asyncbroker.log.reserve import Reserve
from asyncbroker.log.retention import Expired
from asyncbroker.log.segment import Segment
from asyncbroker.log.time_search import TimestampOffset, find_first_at_or_after, find_largest
from asyncbroker.log.together import write_together
from asyncbroker.protocol.batches import (
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    stamp,
    stamp_log_append_time,
)
from asyncbroker.protocol.errors import ErrorCode, KafkaError


class PartitionLog:
    """See the head of this file. Open it with `open`, in a worker thread."""

    __slots__ = (
        "_durability",
        "_persistence",
        "_segments",
        "config",
        "damaged",
        "decided",
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
            files, directory, is_new=is_new, end_offset=found.durable_end_offset
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
        self._segments = LogSegments(
            self.files,
            self.open_segments,
            self.directory,
            found.segments,
            found.end_offset,
            self.config,
        )
        self.log_start_offset = found.log_start_offset
        self.end_offset = found.end_offset
        self.epochs = found.epochs
        self.leader_epoch = found.epochs.latest
        self.producers = found.producers
        self.damaged = found.damaged
        self.half_deleted = found.half_deleted
        # What `checking.py` has found: whether a range has batches of transactions (what this
        # process appends has none), and how they ended; None: nobody has looked yet.
        self.has_transactions = False
        self.decided: Decided | None = None
        self._persistence = Persistence(
            self.files,
            self.directory,
            self.open_segments,
            self._durability,
            self._segments,
            self.epochs,
            self.producers,
            found.snapshots,
            self.damaged,
            (found.end_offset, found.log_start_offset) if found.was_closed_clean else None,
        )

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
        # No call of `max`: each acks=all asks, and each round.
        durability = self._durability
        flushed, journaled = durability.flushed_end_offset, durability.journaled_end_offset
        return flushed if flushed > journaled else journaled

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
        return self._segments.end[1].base_offset

    @property
    def active_size(self) -> int:
        """How many bytes the newest segment has."""
        return self._segments.end[2]

    @property
    def end(self) -> LogEnd:
        """The end of the log, as a reader in another thread may use it."""
        return self._segments.end

    @property
    def segments(self) -> list[Segment]:
        """The segments as they are now: this list does not change."""
        return self._segments.all

    @property
    def segment_count(self) -> int:
        return len(self._segments.all)

    @property
    def size(self) -> int:
        """How many bytes the log has."""
        return self._segments.size

    @property
    def damaged_range_count(self) -> int:
        """How many stretches of the log are known to be damaged."""
        return len(self.damaged.ranges)

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
        Raises KafkaError for what the topic or the producer's history forbids; OSError when it
        could not be written, and then nothing was. `is_client` is false for the coordinators, whose
        batches carry no sequences and may be of any size: a refusal would reach all their groups.
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
            or header.attributes & LOG_APPEND_TIME_BIT
            or config.message_timestamp_before_max_ms != INT64_MAX
        ):
            check_timestamps(batch, header, config, now_ms)
        producer_id = header.producer_id
        if producer_id >= 0:
            repeated = self.producers.check(header, self.damaged, is_client=is_client)
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

    def append_together(
        self, sent: Sequence[Sent], *, leader_epoch: int, now_ms: int, bytes_max: int
    ) -> bytes | None:
        """As `append` of each, with one write, which it gives; None: see `write_together`."""
        if leader_epoch != self.leader_epoch:
            return None
        log, config = self._persistence, self.config
        written = write_together(log, sent, config, leader_epoch, now_ms, bytes_max)
        self.end_offset = self._segments.end[0]
        return written

    def _write(
        self, batch: bytearray | memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> tuple[int, int]:
        """Writes a batch that may come in at the end of the log; its first and last offset."""
        config = self.config
        segments = self._segments
        size = header.size
        base_offset, segment, position, recent = segments.end
        last_offset = base_offset + header.last_offset_delta
        if (
            position + size > segments.roll_size
            or header.max_timestamp > segments.roll_timestamp
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        ) and is_roll_due(segment, header, last_offset, config, now_ms):
            _, segment, position, recent = self._persistence.roll(config, now_ms)
        stamp(batch, base_offset, leader_epoch)
        header.base_offset = base_offset
        header.partition_leader_epoch = leader_epoch
        file = segment.file or segment.open_file()
        try:
            file.pwrite(batch, position)
        except OSError:
            segments.take_back(file, position)
            self._durability.cut_back(segment)
            raise
        # It is in the log: nothing from here on may fail. Readers go by `end`, which is set last.
        segment.size = position + size
        if leader_epoch != self.leader_epoch:
            self.epochs.assign(leader_epoch, base_offset)
            self.leader_epoch = leader_epoch
        if header.producer_id >= 0:
            self.producers.add(header, batch)
        else:
            self.producers.end_offset = last_offset + 1
        if position == 0:
            segment.first_timestamp = header.max_timestamp
            segments.roll_size, segments.roll_timestamp = roll_limits(segment, config)
        if segment.note(position, last_offset, header.max_timestamp):
            self._persistence.after_index_entry(segment, position, config)
        recent.append(base_offset, position)
        segments.size += size
        segments.end = (last_offset + 1, segment, position + size, recent)
        self.end_offset = last_offset + 1
        return base_offset, last_offset

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
        return find_in_log(
            self,
            offset,
            bytes_max,
            end_offset=end_offset,
            always_one=always_one,
            may_block=may_block,
        )

    def offset_for_timestamp(self, timestamp_ms: int, end_offset: int) -> TimestampOffset | None:
        """The first record below `end_offset` whose timestamp is at least `timestamp_ms`.
        Blocking."""
        return find_first_at_or_after(self, timestamp_ms, end_offset)

    def max_timestamp(self, end_offset: int) -> TimestampOffset | None:
        """The first record that has the largest timestamp of the log. Blocking."""
        return find_largest(self, end_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """See `LeaderEpochs.end_offset_of`."""
        return self.epochs.end_offset_of(epoch, self.end_offset)

    # ---- durability: in a worker, while others append and read

    def start_writeback(self) -> None:
        """Asks the system to begin writing; see `Durability.start_writeback`."""
        self._persistence.start_writeback()

    def stretch_for_journal(self, partition: int, bytes_max: int) -> Stretch | None:
        """All that is not durable, if a frame of the journal can hold it: it is not too much, lies
        in one segment, and a crash cannot take that file's name. None asks for `flush`."""
        durability = self._durability
        end_offset, segment, size, _ = self._segments.end
        # Here too: each round asks each partition.
        position = segment.flushed_size
        if segment.journaled_size > position:
            position = segment.journaled_size
        size -= position
        if size <= 0 or size > bytes_max or not durability.may_journal(segment.base_offset):
            return None
        return Stretch(self, partition, segment, position, size, end_offset)

    def journaled(self, stretch: Stretch) -> None:
        """A stretch of this log is durable in the journal."""
        stretch.segment.journaled_size = stretch.position + stretch.size
        self._durability.journaled_end_offset = stretch.end_offset

    def flush(self) -> int:
        """Makes the files durable with all that was appended before the call; the offset up to
        which they are then. After an OSError the log takes nothing more."""
        return self._persistence.flush()

    def checkpoint(self) -> int:
        """Writes what spares recovery its work, if enough was appended; the recovery point. What
        only the journal has becomes durable in the files, so that the journal can be freed; and
        where too many segments are open only because they are not durable, this one's become so."""
        return self._persistence.checkpoint()

    def close(self, *, clean: bool = True, reserve: Reserve | None = None) -> None:
        """Ends all use. A clean close makes everything durable, so that opening the log again
        reads next to nothing; after an unclean one recovery has its work. On a full disk a clean
        one needs a `reserve`."""
        self._persistence.close(self.log_start_offset, clean=clean, reserve=reserve)

    def find_expired(self, high_watermark: int, now_ms: int) -> Expired | None:
        """What retention lets go of; see `find_expired` of `retention.py`. Blocking."""
        return self._segments.expired(
            self.config,
            log_start_offset=self.log_start_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
        )

    # ---- changes by whoever appends, between appends

    def set_config(self, config: LogConfig) -> None:
        """Takes over new settings, from the next append on."""
        self.config = config
        self._segments.configure(config)

    def expire_producers(self, now_ms: int) -> None:
        """Forgets producers that were silent for `producer.id.expiration.ms`."""
        self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    def roll(self, now_ms: int) -> None:
        """Begins a new segment, if the newest one has records."""
        if self.active_size > 0:
            self._persistence.roll(self.config, now_ms)

    def advance_log_start(self, offset: int) -> list[Segment]:
        """Moves the begin of the log up to `offset` (never down); gives the segments that are
        wholly below and no longer part of it, for `delete_segments`. If records of the segment
        that stays must not come back, the caller records the new start durably before it answers.
        """
        if offset > self.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} > {self.end_offset}")
        self.log_start_offset = max(self.log_start_offset, offset)
        dropped = self._segments.drop_before(self.log_start_offset)
        self.epochs.advance_start(self.log_start_offset)
        return dropped

    def durable_start(self) -> int:
        """Where the log begins, once all before that is durable in the files, since a replay of the
        journal passes over what lies before it: a log that a crash leaves with an earlier end is
        emptied, and with it goes what it knew of its producers. Blocking."""
        start = self.log_start_offset
        if self.flushed_end_offset < start:
            self.flush()
        return start

    def delete_segments(self, segments: list[Segment]) -> list[str]:
        """Takes their names away from the files of segments that `advance_log_start` gave, oldest
        first, and gives the new ones, to be removed at leisure; an open does so too. Readers keep
        what they hold. Blocking; only once the log's start is recorded durably, or a replay of
        what was written to the segments could not tell that it must not be."""
        if not segments:
            return []
        paths = self._persistence.delete(segments)
        known_to = self.producers.known_to()
        self.damaged.keep(self.segments, self.log_start_offset, self.end_offset, known_to=known_to)
        return paths

    # ---- compaction

    def replace_segments(self, replaced: list[Segment], cleaned: Segment) -> bool:
        """Shows readers the compacted segment from here on; False, and nothing is changed, if those
        that it was made of are no longer all part of the log. Its `swap_in` must follow."""
        return self._segments.replace(replaced, cleaned)

    def rewriting(self, next_base_offset: int) -> AbstractContextManager[Renaming]:
        """For the change of the files of all segments before the one that begins there: nobody else
        changes files meanwhile, and what goes of the producers' batches a snapshot knows."""
        return self._persistence.rewriting(next_base_offset)

    def finish_renaming(self) -> None:
        """Does what an error has left undone of a compaction. OSError."""
        self._persistence.finish_renaming()

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Removes `offset` and all that follows, with the whole batch that contains it. Blocking,
        and nobody else may use the log. `LogDirectory.lower_recovery_point` comes first: it takes
        back what was promised, also in the journal."""
        if offset < self.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} < {self.log_start_offset}")
        if offset >= self.end_offset:
            return
        found = self._persistence.truncate(offset, self.log_start_offset, self.config, now_ms)
        self._take(found)
