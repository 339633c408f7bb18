"""Opens the files of a partition: what was interrupted is finished, what was torn is cut.

After a clean stop only the end of the newest segment is looked at. After anything else every batch
from the recovery point on (up to there the log was fsynced, or came out of the journal, which is
replayed before) is read and its CRC checked, and the indexes, the leader epochs and the producers'
state follow from what is there; `unclean_scan.py` says what is done where the batches stop making
sense. Damage that is known from before (`damage.py`) is stepped over.

`.cleaned` files are leftovers to remove, and so are `.deleted` ones; these may be many and large,
and are for whoever has the time. `.swap` files are finished replacements for the segments in their
range (Kafka's LogLoader).
"""

from __future__ import annotations

import itertools
import logging
import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from asyncbroker.log.batch_scan import BatchScan, GoodBatch
from asyncbroker.log.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    CorruptCheckpoint,
    decode_epochs,
    decode_partition_metadata,
    encode_partition_metadata,
    is_damaged_id,
)
from asyncbroker.log.config import INT64_MAX, LogConfig
from asyncbroker.log.damage import DAMAGED_RANGES, DamagedRanges
from asyncbroker.log.damage_search import find_damage
from asyncbroker.log.errors import CorruptLog
from asyncbroker.log.files import TEMPORARY_SUFFIX, Files
from asyncbroker.log.index import RecentBatches
from asyncbroker.log.leader_epochs import LeaderEpochs
from asyncbroker.log.open_segments import OpenSegments
from asyncbroker.log.producers import SNAPSHOT_SUFFIX, ProducerState
from asyncbroker.log.segment import LOG_SUFFIX, Segment
from asyncbroker.log.snapshots import SnapshotFiles
from asyncbroker.log.unclean_scan import (
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    QUARANTINED_SUFFIX,
    PromiseInDoubt,
    UncleanScan,
    Unread,
    add_to_producers,
    quarantine_segment,
    remove_segment,
)
from asyncbroker.protocol.batches import verify_crc

logger = logging.getLogger(__name__)

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, *INDEX_SUFFIXES)

_NAME_DIGITS: Final = 20


@dataclass(slots=True)
class RecoveredLog:
    """A partition's files, ready for appending."""

    segments: list[Segment]
    log_start_offset: int
    end_offset: int
    durable_end_offset: int
    epochs: LeaderEpochs
    producers: ProducerState
    snapshots: SnapshotFiles
    damaged: DamagedRanges
    # Files to be removed, which are no part of it.
    half_deleted: list[str]
    # All of it is as the last stop left it, in order and durable.
    was_closed_clean: bool


@dataclass(slots=True)
class Recovery:
    """One opening of one partition. Blocking: for a worker thread."""

    files: Files
    directory: str
    config: LogConfig
    open_segments: OpenSegments
    now_ms: int
    recovery_point: int
    damaged: DamagedRanges = field(init=False)
    unread: list[Unread] = field(init=False, default_factory=list)

    def run(self, *, is_clean: bool, log_start_offset: int) -> RecoveredLog:
        """Raises CorruptLog if durable data is gone or not to be read, OSError for the disk."""
        sizes = finish_leftovers(self.files, self.directory)
        segments = self._segments(sizes)
        is_damage_known = self._load_damage(segments, sizes, log_start_offset)
        snapshots = SnapshotFiles(self.files, self.directory, _offsets_with(sizes, SNAPSHOT_SUFFIX))
        found = None
        if is_clean and segments and is_damage_known:
            try:
                found = self._open_clean(segments, snapshots, sizes, log_start_offset)
            except CorruptLog as damage:
                logger.warning("%s, although the stop was clean: reading the log", damage)
        is_durable = was_closed_clean = found is not None
        if found is None:
            found = self._recover(
                segments, snapshots, sizes, log_start_offset, is_checked=not is_damage_known
            )
        end_offset, producers, epochs = found
        if max(end_offset, log_start_offset) < self.recovery_point:
            raise CorruptLog(
                self.directory,
                f"no segment is left of a log that was durable to {self.recovery_point}",
            )
        if end_offset < log_start_offset or not segments:
            # Records were deleted up to an offset that then was lost: it is not given again.
            was_closed_clean = False
            if any(segment.size for segment in segments):
                logger.error(
                    "%s ends at offset %d, before its beginning at %d: what it has is kept in %s "
                    "files",
                    self.directory,
                    end_offset,
                    log_start_offset,
                    QUARANTINED_SUFFIX,
                )
            for segment in segments:
                quarantine_segment(self.files, segment)
            end_offset = log_start_offset
            producers = ProducerState()
            snapshots.drop_after(-1)
            segments = [self._new_segment(end_offset)]
            epochs = epochs or LeaderEpochs()
        elif epochs is None:
            epochs = self._epochs_of(segments)
        # In this order: it may be said to begin where the log ends.
        epochs.reach_back(max(log_start_offset, segments[0].base_offset))
        epochs.truncate_to(end_offset)
        producers.end_offset = end_offset
        snapshots.drop_after(end_offset)
        self._find_unread(segments, end_offset)
        self.damaged.keep(segments, log_start_offset, end_offset, known_to=producers.known_to())
        active = segments[-1]
        # One that is damaged is for a reader to find.
        with suppress(CorruptLog):
            first = next(active.walk(0, active.size), None)
            if first is not None:
                active.first_timestamp = first[0].max_timestamp
        return RecoveredLog(
            segments,
            max(log_start_offset, segments[0].base_offset),
            end_offset,
            end_offset if is_durable else min(self.recovery_point, end_offset),
            epochs,
            producers,
            snapshots,
            self.damaged,
            [f"{self.directory}/{name}" for name in sizes if name.endswith(DELETED_SUFFIX)],
            was_closed_clean,
        )

    # ---- damage that is known

    def _load_damage(
        self, segments: list[Segment], sizes: dict[str, int], log_start_offset: int
    ) -> bool:
        """Takes over the damage that is known; False if that cannot be told any more."""
        try:
            self.damaged = DamagedRanges.load(self.files, self.directory, sizes)
        except CorruptCheckpoint as damage:
            path = f"{self.directory}/{DAMAGED_RANGES}"
            logger.warning("%s: %s; reading the whole log", path, damage)
            self.damaged = DamagedRanges(self.files, self.directory, None)
            return False
        self.damaged.keep(segments, log_start_offset, INT64_MAX)
        for segment in segments if self.damaged.ranges else ():
            segment.holes = self.damaged.holes(segment.base_offset)
        return True

    def _epochs_of(self, segments: list[Segment]) -> LeaderEpochs:
        """The leader epochs as the batches tell them, around damage that nobody has met yet."""
        epochs = LeaderEpochs()
        for segment, after in itertools.zip_longest(segments, segments[1:]):
            try:
                for header, _, _ in segment.walk(0, segment.size):
                    epochs.assign(header.partition_leader_epoch, header.base_offset)
            except CorruptLog:
                scan = BatchScan(
                    segment.open_file(),
                    segment.base_offset,
                    segment.size,
                    end_offset=None if after is None else after.base_offset,
                    promised_offset=self.recovery_point,
                    batch_bytes_max=self.config.max_message_bytes,
                    holes=segment.holes,
                )
                for found in scan.run(0, segment.base_offset):
                    if isinstance(found, GoodBatch):
                        header = found.header
                        epochs.assign(header.partition_leader_epoch, header.base_offset)
        return epochs

    # ---- to the end of the log

    def _open_clean(
        self,
        segments: list[Segment],
        snapshots: SnapshotFiles,
        sizes: dict[str, int],
        log_start_offset: int,
    ) -> tuple[int, ProducerState, LeaderEpochs | None]:
        """Trusts all but the last few kilobytes. Of those the CRCs are looked at only where no
        recovery point tells that the offsets are right."""
        active = segments[-1]
        end_offset = active.base_offset
        whole_from = None if self.recovery_point else 0
        for header, position, batch in active.walk(
            active.resume(), active.size, whole_from=whole_from
        ):
            if batch is not None and not verify_crc(batch, header):
                raise CorruptLog(active.log_path, "the CRC does not match", position)
            active.note(position, header.last_offset, header.max_timestamp)
            end_offset = header.next_offset
        end_offset = max([end_offset, *(hole.next_offset for hole in active.holes.values())])
        if self.recovery_point not in (0, end_offset):
            reason = f"it ends at offset {end_offset}, and was durable to {self.recovery_point}"
            raise CorruptLog(active.log_path, reason)
        beginning = _beginning(segments, log_start_offset)
        producers = self._read_producers(snapshots, end_offset, beginning, is_clean=True)
        if producers.end_offset < end_offset:
            self._replay(producers, segments)
        return end_offset, producers, self._read_epochs(sizes)

    def _recover(
        self,
        segments: list[Segment],
        snapshots: SnapshotFiles,
        sizes: dict[str, int],
        log_start_offset: int,
        *,
        is_checked: bool,
    ) -> tuple[int, ProducerState, LeaderEpochs | None]:
        """Reads from the recovery point on, or from the last good snapshot before it; everything,
        if `is_checked`."""
        # Of the snapshots beyond the recovery point only those up to the log's beginning are no
        # claim about what may be torn; what they tell of is deleted.
        beginning = _beginning(segments, log_start_offset)
        promised = max(self.recovery_point, beginning, log_start_offset)
        # The scan writes anew what there is to tell of. One that stayed could be of a log that was
        # longer and is lost, and would be believed when this one has grown beyond it.
        snapshots.drop_after(promised)
        start = 0 if is_checked else self.recovery_point
        while True:
            self.unread.clear()
            epochs = self._read_epochs(sizes)
            producers = self._read_producers(snapshots, promised, beginning, is_clean=False)
            scan = UncleanScan(
                files=self.files,
                directory=self.directory,
                segments=segments,
                damaged=self.damaged,
                recovery_point=self.recovery_point,
                log_start_offset=log_start_offset,
                batch_bytes_max=self.config.max_message_bytes,
                new_segment=self._new_segment,
                snapshots=snapshots,
                has_epochs=epochs is not None,
                is_checked=is_checked,
                unread=self.unread,
            )
            try:
                found_epochs = epochs or LeaderEpochs()
                end_offset = scan.run(min(start, producers.end_offset), found_epochs, producers)
            except PromiseInDoubt as doubt:
                logger.warning(
                    "%s; the log was durable to offset %d: checking the CRCs of what is there",
                    doubt,
                    self.recovery_point,
                )
                is_checked = True
            else:
                return end_offset, producers, None if epochs is None else found_epochs

    # ---- parts

    def _segments(self, sizes: dict[str, int]) -> list[Segment]:
        bases = _offsets_with(sizes, LOG_SUFFIX)
        return [self._segment(base_offset, sizes) for base_offset in bases]

    def _segment(self, base_offset: int, sizes: dict[str, int]) -> Segment:
        return Segment(
            self.files,
            self.open_segments,
            self.directory,
            base_offset,
            sizes=sizes,
            index_interval_bytes=self.config.index_interval_bytes,
            created_ms=self.now_ms,
        )

    def _new_segment(self, base_offset: int) -> Segment:
        segment = self._segment(base_offset, {})
        segment.open_file(create=True)
        return segment

    def _read_epochs(self, sizes: dict[str, int]) -> LeaderEpochs | None:
        if LEADER_EPOCHS not in sizes:
            return None
        try:
            data = self.files.read_whole(f"{self.directory}/{LEADER_EPOCHS}")
            return LeaderEpochs(decode_epochs(data))
        except CorruptCheckpoint as damage:
            logger.warning("%s/%s: %s; asking the log", self.directory, LEADER_EPOCHS, damage)
            return None

    def _read_producers(
        self, snapshots: SnapshotFiles, limit: int, beginning: int, *, is_clean: bool
    ) -> ProducerState:
        """What the snapshots up to `limit` tell of a log that holds all from `beginning` on. If the
        newest are damaged, what lies before that may have been batches of the producers."""
        producers = snapshots.read(limit, beginning=beginning, is_clean=is_clean)
        if len(producers) and producers.end_offset < beginning:
            self.damaged.lose(producers.end_offset, beginning)
        return producers

    def _replay(self, producers: ProducerState, segments: list[Segment]) -> None:
        """Brings the producers' state up to the end of the log."""
        for at, segment in enumerate(segments):
            if at + 1 < len(segments) and segments[at + 1].base_offset <= producers.end_offset:
                continue
            start = segment.position_of(producers.end_offset, segment.size)
            if start is not None:
                for header, position, _ in segment.walk(start, segment.size):
                    if not add_to_producers(producers, segment, header, position):
                        self.unread.append((segment, position))

    def _find_unread(self, segments: list[Segment], end_offset: int) -> None:
        """Looks into the batches that told nothing of their producers: each of these goes on behind
        the damage, of which it has to be known how far it reaches."""
        active = segments[-1]
        for segment, position in self.unread:
            found = find_damage(
                segment,
                (position, position + 1),
                segments,
                (end_offset, active, active.size, RecentBatches()),
                batch_bytes_max=self.config.max_message_bytes,
                on_good=lambda header: None,
            )
            self.damaged.add_to(segment, found)


def check_topic_id(files: Files, directory: str, topic_id: bytes) -> None:
    """Holds a directory's topic id against the expected one; writes it where there is none."""
    path = f"{directory}/{PARTITION_METADATA}"
    if files.exists(path):
        try:
            found = decode_partition_metadata(files.read_whole(path))
        except CorruptCheckpoint as damage:
            # It is not synced before the first batch is: a crash can leave it empty.
            problem = str(damage)
        else:
            if found == topic_id:
                return
            if not is_damaged_id(found, topic_id):
                raise CorruptLog(path, "this is the directory of another topic of the same name")
            problem = "the topic id is damaged"
        logger.warning("%s: %s; writing it anew", path, problem)
        try:
            files.write_whole(path, encode_partition_metadata(topic_id))
        except OSError as error:
            logger.error("%s: %s; it stays as it is", path, error)
    else:
        files.write_whole(path, encode_partition_metadata(topic_id))


def finish_leftovers(files: Files, directory: str) -> dict[str, int]:
    """Removes what was being made, finishes replacements; the files then, with sizes."""
    sizes = files.list_files(directory)
    doomed = [name for name in sizes if name.endswith((CLEANED_SUFFIX, TEMPORARY_SUFFIX))]
    cleaned = [_offset_of(name) for name in sizes if name.endswith(CLEANED_SUFFIX)]
    swaps = [name for name in sizes if name.endswith(SWAP_SUFFIX)]
    if cleaned:
        # Part of splitting a segment that did not come to its end (KAFKA-6264).
        doomed += [name for name in swaps if _offset_of(name) >= min(cleaned)]
        swaps = [name for name in swaps if _offset_of(name) < min(cleaned)]
    logs = [name for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    if logs:
        first = min(_offset_of(name) for name in logs)
        # Only older segments are ever replaced, never the newest one.
        newest = max(_offsets_with(sizes, LOG_SUFFIX), default=-1)
        limit = newest if newest > first else INT64_MAX
        end = max(_end_offset_of(files, directory, name, limit) for name in logs)
        doomed += [
            name
            for name in sizes
            if name.endswith(SEGMENT_SUFFIXES) and first <= _offset_of(name) < end
        ]
    known = set(_offsets_with(sizes, LOG_SUFFIX)) | {_offset_of(name) for name in logs}
    doomed += [
        name
        for name in sizes
        if name.endswith(INDEX_SUFFIXES) and name not in doomed and _offset_of(name) not in known
    ]
    # What is replaced may only go when it is sure that its replacement stays, and the replacement
    # may only have its name when it is sure that the other is gone.
    if swaps:
        files.sync_directory(directory)
    for name in doomed:
        files.remove(f"{directory}/{name}")
    if swaps and doomed:
        files.sync_directory(directory)
    # In ascending order: after a crash in between, what is done lies below all that is left to do.
    for name in sorted(swaps):
        files.rename(f"{directory}/{name}", f"{directory}/{name[: -len(SWAP_SUFFIX)]}")
    return files.list_files(directory) if doomed or swaps else sizes


def cut_segments(files: Files, segments: list[Segment], offset: int) -> int:
    """Cuts a log at the batch that contains `offset`, newest files first, and closes what is left;
    gives the offset at which the log ends now."""
    at = max(at for at, segment in enumerate(segments) if at == 0 or segment.base_offset <= offset)
    for segment in reversed(segments[at + 1 :]):
        remove_segment(files, segment)
    last = segments[at]
    if last is not segments[-1]:
        # Else a crash could bring them back, behind what is appended next.
        files.sync_directory(os.path.dirname(last.path))
    position = last.position_of(offset, last.size)
    end_offset = offset
    if position is not None:
        end_offset = min(offset, last.header_at(position).base_offset)
        last.cut(position)
        last.open_file().datasync()
    for segment in segments[: at + 1]:
        segment.persist_indexes(sync=False)
        segment.close()
    return end_offset


def _end_offset_of(files: Files, directory: str, name: str, limit: int) -> int:
    """The offset after the last good batch in a log file, all of which was written before its
    `.swap`. It must not be one that damage claims, since what lies before is removed: what may
    belong to a damaged end stays."""
    end_offset = _offset_of(name)
    file = files.open(f"{directory}/{name}")
    try:
        scan = BatchScan(file, end_offset, file.size(), end_offset=limit)
        for found in scan.run(0, end_offset):
            if isinstance(found, GoodBatch):
                end_offset = found.header.next_offset
    finally:
        file.close()
    return end_offset


def _offset_of(name: str) -> int:
    """The offset that a file is named by; -1 for other files."""
    digits = name[:_NAME_DIGITS]
    return int(digits) if len(digits) == _NAME_DIGITS and digits.isdigit() else -1


def _beginning(segments: list[Segment], log_start_offset: int) -> int:
    """From where on the log holds everything. Of the segments before, which wait to be deleted, a
    crash may leave any."""
    bases = [segment.base_offset for segment in segments]
    return max((base for base in bases if base <= log_start_offset), default=min(bases, default=0))


def _offsets_with(sizes: dict[str, int], suffix: str) -> list[int]:
    """The offsets of the files `<20 digits><suffix>`, in order."""
    names = (name for name in sizes if name.endswith(suffix))
    offsets = (_offset_of(name) for name in names if len(name) == _NAME_DIGITS + len(suffix))
    return sorted(offset for offset in offsets if offset >= 0)
