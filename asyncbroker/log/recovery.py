"""Opens the files of a partition: what was interrupted is finished, what was torn is cut.

After a clean stop only the end of the newest segment is looked at. After anything else every batch
from the recovery point on (up to there the log was fsynced) is read and its CRC checked, and the
indexes, the leader epochs and the producers' state follow from what is there. Where the batches
stop making sense, one of three things happened:

- Before the recovery point: promised data is damaged or gone. CorruptLog; nothing is touched.
- After it, with nothing sensible behind: a torn tail, the usual end of a crash. It is cut off.
- After it, with whole batches behind: pages of which a power cut kept the later ones only. Nothing
  of this was promised, so the log is cut there too, but what is cut off is kept in files that end
  in `.quarantined`, in case the disk and not the power was at fault.

`.deleted` and `.cleaned` files are leftovers to remove; `.swap` files are finished replacements for
the segments in their range (Kafka's LogLoader).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from asyncbroker.log.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    CorruptCheckpoint,
    decode_epochs,
    decode_partition_metadata,
    encode_partition_metadata,
)
from asyncbroker.log.config import LogConfig
from asyncbroker.log.errors import CorruptLog
from asyncbroker.log.files import TEMPORARY_SUFFIX, File, Files
from asyncbroker.log.index import OFFSET_INDEX, TIME_INDEX
from asyncbroker.log.leader_epochs import LeaderEpochs
from asyncbroker.log.open_segments import OpenSegments
from asyncbroker.log.producers import SNAPSHOT_SUFFIX, ProducerState
from asyncbroker.log.segment import LOG_SUFFIX, Segment
from asyncbroker.log.snapshots import SnapshotFiles
from asyncbroker.protocol.batches import (
    BATCH_HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    read_header,
    verify_crc,
)
from asyncbroker.protocol.compression import CorruptBatch

logger = logging.getLogger(__name__)

DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
QUARANTINED_SUFFIX: Final = ".quarantined"
INDEX_SUFFIXES: Final = (OFFSET_INDEX.suffix, TIME_INDEX.suffix, ".txnindex")
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, *INDEX_SUFFIXES)

_NAME_DIGITS: Final = 20
_COPY_BYTES: Final = 1 << 20
# How far after the cut a batch can lie in offsets: what one segment may hold.
_OFFSETS_AHEAD_MAX: Final = 1 << 31


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

    def run(self, *, is_clean: bool, log_start_offset: int) -> RecoveredLog:
        """Raises CorruptLog if durable data is damaged or missing, OSError for the disk."""
        sizes = finish_leftovers(self.files, self.directory)
        segments = self._segments(sizes)
        snapshots = SnapshotFiles(self.files, self.directory, _offsets_with(sizes, SNAPSHOT_SUFFIX))
        epochs = self._read_epochs(sizes)
        found_epochs = LeaderEpochs() if epochs is None else epochs
        found = None
        if is_clean and segments:
            try:
                found = self._open_clean(segments, snapshots)
            except CorruptLog as damage:
                logger.warning("%s, although the stop was clean: reading the log", damage)
        is_durable = was_closed_clean = found is not None
        end_offset, producers = found or self._scan(segments, snapshots, found_epochs)
        if end_offset < self.recovery_point:
            raise CorruptLog(
                self.directory,
                f"the log ends at offset {end_offset}, but was durable to {self.recovery_point}",
            )
        if end_offset < log_start_offset or not segments:
            # Records were deleted up to an offset that then was lost: it is not given again.
            was_closed_clean = False
            for segment in segments:
                remove_segment(self.files, segment)
            end_offset = log_start_offset
            producers = ProducerState()
            snapshots.drop_after(-1)
            segments = [self._new_segment(end_offset)]
        elif epochs is None:
            found_epochs = _epochs_of(segments)
        found_epochs.truncate_to(end_offset)
        producers.end_offset = end_offset
        snapshots.drop_after(end_offset)
        active = segments[-1]
        if active.size:
            active.first_timestamp = active.header_at(0).max_timestamp
        return RecoveredLog(
            segments,
            max(log_start_offset, segments[0].base_offset),
            end_offset,
            end_offset if is_durable else min(self.recovery_point, end_offset),
            found_epochs,
            producers,
            snapshots,
            was_closed_clean,
        )

    # ---- to the end of the log

    def _open_clean(
        self, segments: list[Segment], snapshots: SnapshotFiles
    ) -> tuple[int, ProducerState]:
        """Trusts all but the last few kilobytes; no CRCs."""
        active = segments[-1]
        end_offset = active.base_offset
        for header, position, _ in active.walk(active.resume(), active.size):
            active.note(position, header.last_offset, header.max_timestamp)
            end_offset = header.next_offset
        beginning = segments[0].base_offset
        producers = snapshots.read(end_offset, self.now_ms, beginning=beginning, is_clean=True)
        if producers.end_offset < end_offset:
            self._replay(producers, segments)
        return end_offset, producers

    def _scan(
        self, segments: list[Segment], snapshots: SnapshotFiles, epochs: LeaderEpochs
    ) -> tuple[int, ProducerState]:
        """Reads from the recovery point on, or from the last good snapshot before it."""
        # Of the snapshots beyond the recovery point only that at the log's beginning is no claim
        # about what may be torn; what it tells of is deleted.
        beginning = segments[0].base_offset if segments else 0
        promised = max(self.recovery_point, beginning)
        producers = snapshots.read(promised, self.now_ms, beginning=beginning, is_clean=False)
        start = min(self.recovery_point, producers.end_offset)
        first = max(
            (at for at, held in enumerate(segments) if held.base_offset <= start), default=0
        )
        next_offset = segments[first].base_offset if segments else 0
        for at in range(first, len(segments)):
            segment = segments[at]
            if segment.base_offset < next_offset:
                damage = CorruptLog(segment.log_path, f"the log is at {next_offset} already", 0)
                self._cut(segments, at - 1, segments[at - 1].size, next_offset, damage)
                break
            if segment.base_offset > next_offset:
                # Only compaction may do this; readers would pass over the rest without a word.
                logger.warning(
                    "%s: offsets %d to %d are in no segment: they were compacted away, or are lost",
                    self.directory,
                    next_offset,
                    segment.base_offset - 1,
                )
                next_offset = segment.base_offset
            good_size = durable_size = segment.rewind(max(start, segment.base_offset))
            # Compaction leaves gaps, but never in the newest segment; the base offset, which is not
            # under the CRC, can be checked there.
            is_contiguous = segment is segments[-1] and good_size == 0
            try:
                for header, position, batch in segment.walk(
                    good_size, segment.size, whole_from=self.recovery_point
                ):
                    if batch is not None and not verify_crc(batch, header):
                        raise CorruptLog(segment.log_path, "the CRC does not match", position)
                    if is_contiguous and header.base_offset != next_offset:
                        raise CorruptLog(
                            segment.log_path,
                            f"offset {header.base_offset}, not {next_offset}",
                            position,
                        )
                    is_contiguous = segment is segments[-1]
                    segment.note(position, header.last_offset, header.max_timestamp)
                    epochs.assign(header.partition_leader_epoch, header.base_offset)
                    self._add(producers, segment, header, position)
                    next_offset = header.next_offset
                    good_size = position + header.size
                    if next_offset <= self.recovery_point:
                        durable_size = good_size
            except CorruptLog as damage:
                self._cut(segments, at, good_size, next_offset, damage)
                break
            segment.flushed_size = durable_size
        return next_offset, producers

    def _cut(
        self,
        segments: list[Segment],
        at: int,
        good_size: int,
        next_offset: int,
        damage: CorruptLog,
    ) -> None:
        """Ends the log within `segments[at]`, if that breaks no promise."""
        segment, later = segments[at], segments[at + 1 :]
        if next_offset < self.recovery_point:
            raise CorruptLog(
                damage.path,
                f"{damage}; the log was durable to offset {self.recovery_point}",
                damage.position,
            ) from damage
        is_torn = not any(held.size for held in later) and not _has_batch(
            segment.open_file(), good_size, segment.size, next_offset
        )
        logger.warning(
            "%s: cutting the log at offset %d, after which %d bytes %s",
            damage,
            next_offset,
            segment.size - good_size + sum(held.size for held in later),
            "hold no batch" if is_torn else "are kept in " + QUARANTINED_SUFFIX + " files",
        )
        if not is_torn:
            self._quarantine_tail(segment, good_size)
        for held in later:
            if not is_torn:
                self.files.rename(held.log_path, held.log_path + QUARANTINED_SUFFIX)
            remove_segment(self.files, held)
        del segments[at + 1 :]
        segment.cut(good_size)
        # Else a second crash could bring the old tail back behind new batches.
        segment.open_file().datasync()
        self.files.sync_directory(self.directory)

    def _quarantine_tail(self, segment: Segment, position: int) -> None:
        source = segment.open_file()
        target = self.files.open(f"{segment.path}.{position}{QUARANTINED_SUFFIX}", create=True)
        try:
            for at in range(position, segment.size, _COPY_BYTES):
                target.pwrite(source.pread(_COPY_BYTES, at), at - position)
            target.datasync()
        finally:
            target.close()

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

    def _replay(self, producers: ProducerState, segments: list[Segment]) -> None:
        """Brings the producers' state up to the end of the log."""
        for at, segment in enumerate(segments):
            if at + 1 < len(segments) and segments[at + 1].base_offset <= producers.end_offset:
                continue
            start = segment.position_of(producers.end_offset, segment.size)
            if start is not None:
                for header, position, _ in segment.walk(start, segment.size):
                    self._add(producers, segment, header, position)

    def _add(
        self, producers: ProducerState, segment: Segment, header: BatchHeader, position: int
    ) -> None:
        if header.base_offset < producers.end_offset:
            return
        batch = segment.read_batch(header, position) if header.is_control else None
        try:
            producers.add(header, self.now_ms, batch)
        except CorruptBatch as damage:
            raise CorruptLog(segment.log_path, str(damage), position) from damage


def check_topic_id(files: Files, directory: str, topic_id: bytes) -> None:
    """Holds a directory's topic id against the expected one; writes it where there is none."""
    path = f"{directory}/{PARTITION_METADATA}"
    if files.exists(path):
        try:
            found = decode_partition_metadata(files.read_whole(path))
        except CorruptCheckpoint as damage:
            # It is not synced when it is made: a crash can leave it empty.
            logger.warning("%s: %s; writing it anew", path, damage)
        else:
            if found != topic_id:
                raise CorruptLog(path, "this is the directory of another topic of the same name")
            return
    files.write_whole(path, encode_partition_metadata(topic_id))


def finish_leftovers(files: Files, directory: str) -> dict[str, int]:
    """Removes what was being removed or made, finishes replacements; the files then, with sizes."""
    sizes = files.list_files(directory)
    doomed = [
        name for name in sizes if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX))
    ]
    cleaned = [_offset_of(name) for name in sizes if name.endswith(CLEANED_SUFFIX)]
    swaps = [name for name in sizes if name.endswith(SWAP_SUFFIX)]
    if cleaned:
        # Part of splitting a segment that did not come to its end (KAFKA-6264).
        doomed += [name for name in swaps if _offset_of(name) >= min(cleaned)]
        swaps = [name for name in swaps if _offset_of(name) < min(cleaned)]
    logs = [name for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    if logs:
        first = min(_offset_of(name) for name in logs)
        end = max(_end_offset_of(files, directory, name) for name in logs)
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
    for name in doomed:
        files.remove(f"{directory}/{name}")
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


def remove_segment(files: Files, segment: Segment) -> None:
    """Removes a segment's files; the log last, since indexes without one are leftovers."""
    segment.close()
    for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
        files.remove(segment.path + suffix)


def _epochs_of(segments: list[Segment]) -> LeaderEpochs:
    """The leader epochs as the batches tell them."""
    epochs = LeaderEpochs()
    for segment in segments:
        for header, _, _ in segment.walk(0, segment.size):
            epochs.assign(header.partition_leader_epoch, header.base_offset)
    return epochs


def _has_batch(file: File, position: int, limit: int, next_offset: int) -> bool:
    """Whether a whole batch with a good CRC and a later offset lies anywhere in a range."""
    while position + BATCH_HEADER_BYTES <= limit:
        chunk = file.pread(min(_COPY_BYTES, limit - position), position)
        at = chunk.find(MAGIC, MAGIC_AT)
        while 0 <= at - MAGIC_AT <= len(chunk) - BATCH_HEADER_BYTES:
            start = at - MAGIC_AT
            ahead = int.from_bytes(chunk[start : start + 8], "big", signed=True) - next_offset
            if 0 <= ahead < _OFFSETS_AHEAD_MAX and _is_batch(file, position + start, limit):
                return True
            at = chunk.find(MAGIC, at + 1)
        # Overlapping, so that no header is cut in two.
        position += max(1, len(chunk) - BATCH_HEADER_BYTES + 1)
    return False


def _is_batch(file: File, position: int, limit: int) -> bool:
    try:
        header = read_header(file.pread(BATCH_HEADER_BYTES, position))
    except CorruptBatch:
        return False
    return position + header.size <= limit and verify_crc(file.pread(header.size, position), header)


def _end_offset_of(files: Files, directory: str, name: str) -> int:
    """The offset after the last batch in a log file; all of it was written before its `.swap`."""
    base_offset = _offset_of(name)
    segment = Segment(
        files,
        OpenSegments(),
        directory,
        base_offset,
        sizes=files.list_files(directory),
        index_interval_bytes=1 << 31,
        created_ms=0,
    )
    end_offset = base_offset
    segment.log_path = f"{directory}/{name}"
    for header, _, _ in segment.walk(0, segment.open_file().size()):
        end_offset = header.next_offset
    segment.close()
    return end_offset


def _offset_of(name: str) -> int:
    """The offset that a file is named by; -1 for other files."""
    digits = name[:_NAME_DIGITS]
    return int(digits) if len(digits) == _NAME_DIGITS and digits.isdigit() else -1


def _offsets_with(sizes: dict[str, int], suffix: str) -> list[int]:
    """The offsets of the files `<20 digits><suffix>`, in order."""
    names = (name for name in sizes if name.endswith(suffix))
    offsets = (_offset_of(name) for name in names if len(name) == _NAME_DIGITS + len(suffix))
    return sorted(offset for offset in offsets if offset >= 0)
