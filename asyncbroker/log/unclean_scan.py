"""Reads a log that was not closed in order, from where it need not be intact, to its end.

On the way the indexes, the leader epochs and the producers' state follow from the batches. Where
the batches stop making sense:

- nothing of it was promised: the log is cut there. If whole batches lie behind, of which a power
  cut kept the later pages only, they are kept in files that end in `.quarantined`, in case the disk
  and not the power was at fault. Segments behind a gap are such a case; so compaction, which makes
  gaps, has to stay below the recovery point that is recorded on the disk.
- the next segment begins with the very offset that is due: no record is missing, only these bytes
  are cut. They are a part of a batch that did not fit on the disk and was taken back. Before that
  all CRCs are checked, as below: a damaged offset may have led there.
- it was promised, or the headers of promised batches have led there: PromiseInDoubt, and nothing
  is touched. Below the recovery point only headers are read, so who is to blame is not known yet.
  With `is_checked` all CRCs are, and what turns out damaged becomes a hole (`damage.py`): its bytes
  and what follows it stay, and its offsets are not given again. Where the end of the promised log
  is damaged or gone, the log goes on behind it in a new segment. Damage that goes on beyond the
  promise is a hole up to there, and the log is cut behind it: a batch ended there, and what came
  next is torn or damaged as well.

Not known here: leftovers of interrupted work, clean stops, where the log begins (`recovery.py`).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from asyncbroker.log.batch_scan import BatchScan, Damage, GoodBatch, has_batch
from asyncbroker.log.checkpoints import LEADER_EPOCHS, encode_epochs
from asyncbroker.log.damage import DamagedRange, DamagedRanges
from asyncbroker.log.errors import CorruptLog
from asyncbroker.log.files import File, Files
from asyncbroker.log.index import OFFSET_INDEX, TIME_INDEX
from asyncbroker.log.leader_epochs import LeaderEpochs
from asyncbroker.log.old_format import is_old_format
from asyncbroker.log.producers import ProducerState
from asyncbroker.log.segment import LOG_SUFFIX, Segment
from asyncbroker.log.snapshots import SnapshotFiles
from asyncbroker.protocol.batches import NO_PRODUCER_ID, BatchHeader, verify_crc
from asyncbroker.protocol.compression import CorruptBatch

logger = logging.getLogger(__name__)

QUARANTINED_SUFFIX: Final = ".quarantined"
DELETED_SUFFIX: Final = ".deleted"
INDEX_SUFFIXES: Final = (OFFSET_INDEX.suffix, TIME_INDEX.suffix, ".txnindex")

_COPY_BYTES: Final = 1 << 20


Unread = tuple[Segment, int]
"""A batch, by its position in a segment, that tells nothing of its producer."""


class PromiseInDoubt(Exception):
    """Promised data is damaged, or may be: it must be read with its CRCs."""


@dataclass(slots=True)
class UncleanScan:
    """One reading of a log. `segments` loses those behind a cut, and may get a new one."""

    files: Files
    directory: str
    segments: list[Segment]
    damaged: DamagedRanges
    # Up to which offset the log was promised.
    recovery_point: int
    # Where it begins: what is missing before that was deleted.
    log_start_offset: int
    batch_bytes_max: int
    # Makes an empty segment that begins at an offset.
    new_segment: Callable[[int], Segment]
    # Get one for where each segment begins, which is needed once what is before is deleted.
    snapshots: SnapshotFiles
    # Whether there is a checkpoint of leader epochs, which is to stay true.
    has_epochs: bool
    is_checked: bool
    # Gets the batches of producers that were found damaged, and are no holes yet.
    unread: list[Unread]

    def run(self, start: int, epochs: LeaderEpochs, producers: ProducerState) -> int:
        """Reads from the batch with the offset `start` on; the offset at which the log ends.

        Raises PromiseInDoubt, if not `is_checked`; CorruptLog for an older message format.
        """
        segments = self.segments
        first = max(
            (at for at, held in enumerate(segments) if held.base_offset <= start), default=0
        )
        next_offset = segments[first].base_offset if segments else 0
        # A cut ends this, wherever it is made: it leaves no later ones.
        for at, segment in itertools.islice(enumerate(segments), first, None):
            if segment.base_offset < next_offset:
                damage = CorruptLog(segment.log_path, f"the log is at {next_offset} already", 0)
                self._cut(at - 1, segments[at - 1].size, next_offset, damage)
                break
            if segment.base_offset > max(next_offset, self.log_start_offset):
                if next_offset >= self.recovery_point:
                    damage = CorruptLog(segment.log_path, f"the log ends at {next_offset}", 0)
                    self._cut(at - 1, segments[at - 1].size, next_offset, damage)
                    break
                # Only compaction may do this; readers would pass over the rest without a word.
                logger.warning(
                    "%s: offsets %d to %d are in no segment: they were compacted away, or are lost",
                    self.directory,
                    next_offset,
                    segment.base_offset - 1,
                )
            next_offset = segment.base_offset
            if at > first and producers.end_offset <= segment.base_offset:
                producers.end_offset = segment.base_offset
                self._keep_snapshot(segments[at - 1], epochs, producers)
            good_size = durable_size = segment.rewind(max(start, segment.base_offset))
            try:
                for found in self._batches(at, good_size):
                    if isinstance(found, GoodBatch):
                        header, position = found
                        segment.note(position, header.last_offset, header.max_timestamp)
                        epochs.assign(header.partition_leader_epoch, header.base_offset)
                        checked = self.is_checked or header.last_offset >= self.recovery_point
                        if not add_to_producers(
                            producers, segment, header, position, is_checked=checked
                        ):
                            self.unread.append((segment, position))
                        next_offset = header.next_offset
                        good_size = position + header.size
                    else:
                        next_offset, good_size = found.next_offset, found.end
                    if next_offset <= self.recovery_point:
                        durable_size = good_size
            except CorruptLog as damage:
                if is_old_format(segment.open_file(), damage.position or 0, segment.size):
                    raise
                if next_offset == self._end_of(at):
                    self._cut_surplus(segment, good_size, damage)
                else:
                    self._cut(at, good_size, next_offset, damage)
            segment.flushed_size, segment.recovered_size = durable_size, segment.size
            if at + 1 < len(segments):
                segment.finish()
        return self._keep_promise(next_offset) if segments else next_offset

    def _keep_snapshot(
        self, before: Segment, epochs: LeaderEpochs, producers: ProducerState
    ) -> None:
        """Writes a snapshot, and first what follows from the batches `before` it, which the next
        start will not read again: the indexes of that segment, and the leader epochs; but where
        there are none, that start asks the whole log. Without these on the disk it has to wait."""
        try:
            before.persist_indexes(sync=True)
            if self.has_epochs:
                write_epochs(self.files, self.directory, epochs)
        except OSError as error:
            logger.warning("%s: a snapshot has to wait: %s", self.directory, error)
            self.snapshots.add(producers)
            return
        self.snapshots.rewrite(producers)

    def _keep_promise(self, end_offset: int) -> int:
        """Lets the log go on where promised offsets end, if they are damaged or gone."""
        last = self.segments[-1]
        if end_offset < self.recovery_point:
            if not self.is_checked:
                raise PromiseInDoubt(f"{last.log_path} ends at offset {end_offset}")
            lost = DamagedRange(
                last.base_offset, last.size, last.size, end_offset, self.recovery_point
            )
            self.damaged.add_to(last, [lost])
            end_offset = self.recovery_point
        if any(hole.end >= last.size for hole in last.holes.values()):
            last.finish()
            self.segments.append(self.new_segment(end_offset))
            self.files.sync_directory(self.directory)
        return end_offset

    # ---- one segment

    def _batches(self, at: int, start: int) -> Iterator[GoodBatch | DamagedRange]:
        """The batches and the holes of a segment. Raises CorruptLog at what is neither."""
        segment = self.segments[at]
        if self.is_checked or segment.holes:
            yield from self._checked_batches(at, start)
            return
        # Compaction leaves gaps, but never in the newest segment; the base offset, which is not
        # under the CRC, can be checked there.
        next_offset = segment.base_offset if at + 1 == len(self.segments) and start == 0 else None
        ends_at = self._end_of(at)
        for header, position, batch in segment.walk(
            start, segment.size, whole_from=self.recovery_point
        ):
            if batch is not None and not verify_crc(batch, header):
                raise CorruptLog(segment.log_path, "the CRC does not match", position)
            if next_offset is not None and header.base_offset != next_offset:
                reason = f"offset {header.base_offset}, not {next_offset}"
                raise CorruptLog(segment.log_path, reason, position)
            if ends_at is None:
                next_offset = header.next_offset
            elif header.next_offset > ends_at:
                # Or this would be the log's end, and the offsets before it a hole.
                reason = f"offset {header.last_offset}, although the next segment is at {ends_at}"
                raise CorruptLog(segment.log_path, reason, position)
            yield GoodBatch(header, position)

    def _checked_batches(self, at: int, start: int) -> Iterator[GoodBatch | DamagedRange]:
        """As `_batches`, with all CRCs; damage of what was promised becomes a hole."""
        segment = self.segments[at]
        ends_at = self._end_of(at)
        scan = BatchScan(
            segment.open_file(),
            segment.base_offset,
            segment.size,
            end_offset=ends_at,
            promised_offset=self.recovery_point,
            batch_bytes_max=self.batch_bytes_max,
            holes=segment.holes,
        )
        next_offset = segment.header_at(start).base_offset if start else segment.base_offset
        for found in scan.run(start, next_offset):
            if isinstance(found, GoodBatch):
                yield found
            elif not found.reason:
                yield segment.holes[found.position]
            elif found.first_offset >= self.recovery_point or found.first_offset == ends_at:
                raise CorruptLog(segment.log_path, found.reason, found.position)
            else:
                yield self._hole_of(at, found)
                scan.limit = segment.size  # less than it was, if it was cut there

    def _hole_of(self, at: int, found: Damage) -> DamagedRange:
        """Remembers what was found damaged of what was promised; what was not is cut off."""
        segment = self.segments[at]
        if is_old_format(segment.open_file(), found.position, segment.size):
            reason = "batches of an older message format than v2"
            raise CorruptLog(segment.log_path, reason, found.position)
        promised = self.recovery_point
        if found.next_offset is not None and found.next_offset > max(
            promised, self.log_start_offset
        ):
            # Before it is remembered: a crash in between must find this again.
            lost = f"offsets {promised} to {found.next_offset - 1} are gone with damage before them"
            self._cut(at, found.end, promised, CorruptLog(segment.log_path, lost, found.position))
            found = found._replace(next_offset=promised)
        hole = found.range_in(segment.base_offset, promised)
        logger.error("%s at byte %d: %s", segment.log_path, found.position, found.reason)
        self.damaged.add_to(segment, [hole])
        return hole

    # ---- cutting

    def _end_of(self, at: int) -> int | None:
        """Where the segment after `segments[at]` begins, if there is one."""
        return self.segments[at + 1].base_offset if at + 1 < len(self.segments) else None

    def _cut_surplus(self, segment: Segment, good_size: int, damage: CorruptLog) -> None:
        """Cuts what a full segment has behind its last offset: a part of a batch that was taken
        back, which a power cut has brought back. No record can be missing there, unless a damaged
        header has led to that offset."""
        if not self.is_checked:
            raise PromiseInDoubt(str(damage)) from damage
        logger.warning(
            "%s: cutting %d bytes; the next segment begins with the next offset",
            damage,
            segment.size - good_size,
        )
        segment.cut(good_size)
        segment.open_file().datasync()

    def _cut(self, at: int, good_size: int, next_offset: int, damage: CorruptLog) -> None:
        """Ends the log within `segments[at]`, if that breaks no promise."""
        segment, later = self.segments[at], self.segments[at + 1 :]
        if not self.is_checked and segment.base_offset < self.recovery_point:
            raise PromiseInDoubt(str(damage)) from damage
        is_torn = not any(held.size for held in later) and not has_batch(
            segment.open_file(), good_size, segment.size, next_offset
        )
        logger.warning(
            "%s: cutting the log at offset %d, after which %d bytes %s",
            damage,
            next_offset,
            segment.size - good_size + sum(held.size for held in later),
            "hold no batch" if is_torn else "are kept in " + QUARANTINED_SUFFIX + " files",
        )
        if not is_torn and good_size < segment.size:
            quarantine_tail(self.files, segment, good_size)
        for held in later:
            quarantine_segment(self.files, held)
        del self.segments[at + 1 :]
        # The copy must have its name for good before the bytes go; and a second crash must not
        # bring the old tail back behind new batches.
        self.files.sync_directory(self.directory)
        segment.cut(good_size)
        segment.open_file().datasync()


def write_epochs(files: Files, directory: str, epochs: LeaderEpochs) -> None:
    """Writes the leader epochs of a log, if there are new ones."""
    if epochs.is_dirty:
        entries = epochs.entries
        files.write_atomically(f"{directory}/{LEADER_EPOCHS}", encode_epochs(entries))
        epochs.is_dirty = epochs.entries is not entries


def quarantine_segment(files: Files, segment: Segment) -> None:
    """Removes a segment, and keeps what it has under another name."""
    if segment.size:
        files.rename(segment.log_path, unused_name(files, segment.log_path))
    remove_segment(files, segment)


def quarantine_tail(files: Files, segment: Segment, position: int) -> None:
    """Copies what a segment has from `position` on to a file beside it, durably."""
    source = segment.open_file()
    path = unused_name(
        files,
        f"{segment.path}.{position}",
        or_if=lambda path: _is_begun(files, path, source, position),
    )
    target = files.open(path, create=True)
    try:
        for at in range(position, segment.size, _COPY_BYTES):
            target.pwrite(source.pread(_COPY_BYTES, at), at - position)
        target.datasync()
    finally:
        target.close()


def _is_begun(files: Files, path: str, source: File, position: int) -> bool:
    """Whether a file has nothing but a beginning of what the other one has from `position` on: a
    copy that a crash has interrupted."""
    begun = files.open(path)
    try:
        return all(
            begun.pread(_COPY_BYTES, at)
            == source.pread(min(_COPY_BYTES, begun.size() - at), position + at)
            for at in range(0, begun.size(), _COPY_BYTES)
        )
    finally:
        begun.close()


def unused_name(
    files: Files, path: str, *, or_if: Callable[[str], bool] = lambda path: False
) -> str:
    """The name under which a file is kept; with a number if there is one of that name already."""
    count, name = 0, path + QUARANTINED_SUFFIX
    while files.exists(name) and not or_if(name):
        count += 1
        name = f"{path}.{count}{QUARANTINED_SUFFIX}"
    return name


def remove_segment(files: Files, segment: Segment) -> None:
    """Removes a segment's files; the log last, since indexes without one are leftovers."""
    segment.close()
    for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
        files.remove(segment.path + suffix)


def put_aside(files: Files, segment: Segment) -> list[str]:
    """Renames a segment's files to what an open removes, and gives the new names; the log last, as
    in `remove_segment`."""
    segment.close()
    renamed: list[str] = []
    for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
        path = segment.path + suffix
        if files.exists(path):
            renamed.append(path + DELETED_SUFFIX)
            files.rename(path, renamed[-1])
    return renamed


def add_to_producers(
    producers: ProducerState,
    segment: Segment,
    header: BatchHeader,
    position: int,
    *,
    is_checked: bool = False,
) -> bool:
    """Takes a batch into the producers' state, unless that has it already. False for one that is
    damaged, of which nothing is taken: its epoch might shut its producer out."""
    if header.base_offset < producers.end_offset:
        return True
    batch = None
    if header.is_control or (header.producer_id != NO_PRODUCER_ID and not is_checked):
        batch = segment.read_batch(header, position)
        if not is_checked and not verify_crc(batch, header):
            return False
    try:
        producers.add(header, batch)
    except CorruptBatch as damage:
        # Its CRC is right: somebody wrote it so, and nothing is lost.
        logger.error("%s at byte %d: %s", segment.log_path, position, damage)
    return True
