"""Compacts a log: of each key only the last record stays, at its offset and in its place.

Two passes, as Apache Kafka's cleaner has them. The first reads the dirty part of the log into a map
from keys to their last offsets (`cleaner_keys.py`), as far as that has room. The second goes over
the log from its beginning, group of segments by group, and writes what is kept of each batch
(`cleaner_filter.py`) to a new segment, which then takes the place of the group (`cleaner_swap.py`).
Older groups come first, so that a crash in between never brings back what a tombstone had deleted.

Every batch is held against its CRC before anything is made of it. Damage ends the cleaning of its
log with CorruptLog, and the damaged bytes stay where they are.

`Cleaning.steps` is a generator, so that whoever drives it decides on time and order: it yields the
bytes that it read or wrote since, every millisecond or so, or a `Replacement` that must be shown to
readers between two appends. Closing it takes back what is not finished. It does not know of topics
and the event loop.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from asyncbroker.log.cleaner_filter import (
    RECORDS_AT_ONCE,
    BatchFilter,
    payload_in,
)
from asyncbroker.log.cleaner_keys import KeyOffsets
from asyncbroker.log.cleaner_plan import CleaningPlan, group_segments
from asyncbroker.log.cleaner_runs import RECORDS_UNDIVIDED_MAX, SegmentReader, run_of_one
from asyncbroker.log.cleaner_swap import CleanedSegment
from asyncbroker.log.cleaner_transactions import Aborted, Transactions, find_aborted
from asyncbroker.log.errors import CorruptLog
from asyncbroker.log.file_range import segment_at
from asyncbroker.log.segment import Segment
from asyncbroker.protocol.batches import COMPRESSION_MASK, BatchHeader, read_header
from asyncbroker.protocol.compression import CorruptBatch
from asyncbroker.protocol.record_columns import RecordColumns, record_chunks

if TYPE_CHECKING:
    from asyncbroker.log.partition_log import PartitionLog

# So much is read between two steps: about a millisecond.
STEP_BYTES: Final = 32 << 10


class CleaningAborted(Exception):
    """What was being compacted is no longer part of the log."""


class CleaningImpossible(Exception):
    """The log cannot be compacted with these settings."""


@dataclass(slots=True)
class Replacement:
    """A finished segment. Whoever shows it to readers sets `is_shown`."""

    replaced: list[Segment]
    cleaned: Segment
    is_shown: bool = False


Steps = Generator[int | Replacement, None, None]


@dataclass(slots=True)
class CleaningStats:
    """What a cleaning did, in bytes and counts."""

    mapped_bytes: int = 0
    read_bytes: int = 0
    kept_bytes: int = 0
    record_count: int = 0
    kept_record_count: int = 0


@dataclass(slots=True)
class Cleaning:
    """One cleaning of one log."""

    log: PartitionLog
    plan: CleaningPlan
    now_ms: int
    # For the map of keys.
    key_bytes_max: int
    stats: CleaningStats = field(default_factory=CleaningStats)
    # Up to where the log is clean when all is done.
    end_offset: int = -1
    # When the first of the tombstones that are left may go.
    next_horizon_ms: int | None = None
    # While what knows the producers is made durable: only an error that passes may be met again.
    is_preparing: bool = False
    # While files get their final names: unless an error passes only an open can sort that out.
    is_swapping: bool = False

    def steps(self) -> Steps:
        """See the head of this file. Raises CorruptLog, OSError, CleaningImpossible; and
        CleaningAborted when others deleted what it works on."""
        plan = self.plan
        self.is_swapping = True
        self.log.finish_renaming()
        self.is_swapping = False
        keys = KeyOffsets(self.key_bytes_max, plan.start_offset)
        with self._watching(plan.segments):
            yield from self._map(keys)
        if keys.end_offset <= plan.start_offset < plan.end_offset:
            raise CleaningImpossible(
                "log.cleaner.dedupe.buffer.size is too small for the keys of one batch"
            )
        segments = [each for each in plan.segments if each.base_offset < keys.end_offset]
        batches = self._filter(keys)
        for group in group_segments(segments, self.log.config, plan.end_offset):
            with self._watching(group):
                yield from self._rewrite(group, batches)
        self.stats.record_count = batches.record_count
        self.stats.kept_record_count = batches.kept_record_count
        self.next_horizon_ms = batches.next_horizon_ms
        self.end_offset = keys.end_offset

    @contextmanager
    def _watching(self, segments: Sequence[Segment]) -> Iterator[None]:
        """A file that is gone is no fault of the disk if its segment was deleted meanwhile."""
        try:
            yield
        except FileNotFoundError as error:
            if set(segments).issubset(self.log.segments):
                raise
            raise CleaningAborted(str(error)) from error

    # ---- the first pass

    def _map(self, keys: KeyOffsets) -> Generator[int, None, None]:
        plan = self.plan
        transactions = self._transactions()
        stepped = 0
        for segment in plan.segments[segment_at(plan.segments, plan.start_offset) :]:
            position = segment.position_of(plan.start_offset, segment.size)
            if position is None:
                continue
            _check_whole(segment)
            reader = SegmentReader(segment, position)
            while not reader.is_at_end:
                begin = reader.position
                taken = keys.add_run(reader.run(plan.start_offset, plan.end_offset))
                reader.take(*taken)
                next_offset = taken.next_offset
                if not taken.end:
                    header, at, batch = reader.next()
                    if not (
                        yield from self._map_batch(keys, transactions, segment, header, at, batch)
                    ):
                        return
                    next_offset = header.next_offset
                stepped += reader.position - begin
                self.stats.mapped_bytes += reader.position - begin
                keys.end_offset = next_offset
                if stepped >= STEP_BYTES:
                    yield stepped
                    stepped = 0
        keys.end_offset = plan.end_offset
        yield stepped

    def _map_batch(
        self,
        keys: KeyOffsets,
        transactions: Transactions,
        segment: Segment,
        header: BatchHeader,
        position: int,
        batch: memoryview,
    ) -> Generator[int, None, bool]:
        """Whether all of the batch is in the map."""
        if header.is_control or transactions.is_aborted(header) or not header.record_count:
            return True
        limit = self.log.config.decompressed_bytes_max
        is_large = header.record_count > RECORDS_UNDIVIDED_MAX
        at_once = RECORDS_AT_ONCE if is_large else RECORDS_UNDIVIDED_MAX
        done = 0
        try:
            payload = payload_in(batch, header, limit)
            if header.attributes & COMPRESSION_MASK and not is_large:
                run = run_of_one(batch, payload, self.plan.start_offset)
                if keys.add_run(run).end:
                    return True
            for columns in record_chunks(bytes(payload), header, at_once):
                if not self._map_records(keys, header, columns):
                    return False
                if is_large:
                    yield columns.ends[-1] - done
                    done = columns.ends[-1]
        except CorruptBatch as damage:
            raise CorruptLog(segment.log_path, str(damage), position) from damage
        return True

    def _map_records(self, keys: KeyOffsets, header: BatchHeader, columns: RecordColumns) -> bool:
        """Whether these records of a batch are all in the map."""
        if True in columns.are_tombstones and not keys.note_tombstones(header.base_offset):
            return False
        offset_deltas, names = columns.offset_deltas, columns.keys
        first = self.plan.start_offset - header.base_offset
        if offset_deltas[0] < first:
            count = bisect_left(offset_deltas, first)
            offset_deltas, names = offset_deltas[count:], names[count:]
        return keys.add(names, offset_deltas, header.base_offset)

    # ---- the second pass

    def _filter(self, keys: KeyOffsets) -> BatchFilter:
        return BatchFilter(
            keys=keys,
            transactions=self._transactions(),
            end_offset=self.plan.end_offset,
            now_ms=self.now_ms,
            delete_retention_ms=self.log.config.delete_retention_ms,
            last_batches=self.log.producers.last_batches(),
            decompressed_bytes_max=self.log.config.decompressed_bytes_max,
        )

    def _rewrite(self, group: list[Segment], batches: BatchFilter) -> Steps:
        """Compacts the segments of a group into one."""
        cleaned = CleanedSegment(self.log, group[0].base_offset, group[-1].created_ms)
        replacement = Replacement(group, cleaned.segment)
        try:
            for segment in group:
                yield from self._filter_segment(segment, batches, cleaned)
            cleaned.finish()
            for segment in group:
                _check_whole(segment)  # others may have found damage meanwhile
                segment.pin()
            self.is_preparing = True
            cleaned.prepare_swap(group)
            self.is_preparing = False
            yield replacement
            if not replacement.is_shown:
                raise CleaningAborted(f"{group[0].path} is no longer part of the log")
        finally:
            if not replacement.is_shown:
                cleaned.remove()
                for segment in group:
                    self.log.open_segments.unpinned(segment)
        self.stats.kept_bytes += cleaned.segment.size
        self.is_swapping = True
        cleaned.swap_in(group)
        self.is_swapping = False

    def _filter_segment(
        self, segment: Segment, batches: BatchFilter, cleaned: CleanedSegment
    ) -> Generator[int, None, None]:
        stepped = 0
        _check_whole(segment)
        reader = SegmentReader(segment, 0)
        while not reader.is_at_end:
            run = batches.kept_of_run(reader)
            if run is not None:
                cleaned.append_run(run.batches, run.places)
                stepped += run.end + len(run.batches)
                self.stats.read_bytes += run.end
                if stepped >= STEP_BYTES:
                    yield stepped
                    stepped = 0
                continue
            header, position, batch = reader.next()
            try:
                if header.record_count <= RECORDS_UNDIVIDED_MAX:
                    kept = batches.kept(header, batch)
                else:
                    kept = yield from batches.kept_in_steps(header, batch)
            except CorruptBatch as damage:
                raise CorruptLog(segment.log_path, str(damage), position) from damage
            if kept is batch:
                cleaned.append(header, kept)
                stepped += header.size
            elif kept is not None:
                cleaned.append(read_header(kept), kept)
                stepped += len(kept)
            stepped += header.size
            self.stats.read_bytes += header.size
            if stepped >= STEP_BYTES:
                yield stepped
                stepped = 0
        yield stepped

    # ---- parts

    def _transactions(self) -> Transactions:
        return Transactions(self._find_aborted)

    def _find_aborted(self, start: int) -> list[Aborted]:
        segments = self.log.segments
        aborted, in_doubt = find_aborted(segments, start, self.plan.end_offset)
        if in_doubt:
            path = segments[segment_at(segments, in_doubt[0].last_offset)].log_path
            raise CorruptLog(path, f"nobody knows how a transaction ended: {in_doubt[0]}")
        return aborted


def _check_whole(segment: Segment) -> None:
    """Of a segment with a hole nothing may be moved or left out."""
    if segment.holes:
        raise CorruptLog(segment.log_path, "damage is known in it", min(segment.holes))
