"""What compaction keeps of a batch: all of it, some records, its head alone, or nothing.

The rules are those of Kafka's cleaner. A record stays if no later one of the map has its key, and
if it is no tombstone whose time is over. A tombstone goes in two passes: the first that meets it
writes the delete horizon into its batch, `delete.retention.ms` from now, and a later one drops it
when that has come (KIP-534): so whoever reads the log within that time sees it. A batch of which
nothing is left stays without records if it is the last of a producer that is still known, whose
next sequence follows from it, or the last of what is cleaned, so that its end does not move.

What stays as a whole is given back as it is, byte for byte.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Final

from asyncbroker.log import cleaner_runs
from asyncbroker.log.cleaner_keys import KeyOffsets
from asyncbroker.log.cleaner_runs import Kept, SegmentReader, run_of_one
from asyncbroker.log.cleaner_transactions import Transactions
from asyncbroker.protocol.batches import (
    BATCH_HEADER_BYTES,
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    BatchHeader,
)
from asyncbroker.protocol.compression import Buffer
from asyncbroker.protocol.record_columns import (
    RecordColumns,
    Thinning,
    record_chunks,
    record_columns,
    record_ends,
    with_codec,
    with_records,
    without_records,
)
from asyncbroker.protocol.records import payload_of

# So many records are looked at in about a millisecond.
RECORDS_AT_ONCE: Final = 2048


@dataclass(slots=True)
class BatchFilter:
    """The rules of one cleaning. `end_offset` is that of all that may be cleaned."""

    keys: KeyOffsets
    transactions: Transactions
    end_offset: int
    now_ms: int
    delete_retention_ms: int
    last_batches: Mapping[int, tuple[int, int]]
    decompressed_bytes_max: int
    record_count: int = 0
    kept_record_count: int = 0
    # When the first of the tombstones and markers that were kept may go.
    next_horizon_ms: int | None = None
    _stopping: array[int] | None = None

    def kept(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        """What takes the place of this batch, whose CRC is right; None for nothing. The batches of
        the log come in order. Raises CorruptBatch."""
        self.record_count += header.record_count
        if header.is_control:
            kept = self._kept_control(header, batch)
        elif self.transactions.is_aborted(header):
            kept = None
        else:
            kept = self._kept_records(header, batch)
        if kept is None and self._must_stay(header):
            return batch if not header.record_count else without_records(header)
        return kept

    def kept_of_run(self, reader: SegmentReader) -> Kept | None:
        """What takes the place of the plain batches that come next, as many as there are; None if
        there is none."""
        keys = self.keys
        first_offset = reader.first_offset()
        if not 0 <= first_offset < keys.end_offset:
            return None
        if first_offset < keys.start_offset:
            run = reader.run(0, keys.start_offset)
            taken, survivors = keys.survivors_of_run(run)
            run = run._replace(data=memoryview(run.data)[: taken.end], bytes_max=taken.end)
            found = cleaner_runs.keep(run, survivors, self._stops())
        else:
            run = reader.run(keys.start_offset, keys.end_offset)
            found = cleaner_runs.keep(run, keys.all_survivors(), self._stops())
        if found is not None:
            reader.take(found.end, found.next_offset)
            self.record_count += found.record_count
            self.kept_record_count += found.kept_record_count
        return found

    def _stops(self) -> array[int]:
        """Offsets of those batches that are not plain though they look so: they may have to stay
        without records, or have tombstones."""
        if self._stopping is None:
            last_offsets = {last_offset for last_offset, _ in self.last_batches.values()}
            stops = {self.end_offset - 1, *last_offsets, *self.keys.with_tombstones}
            self._stopping = array("q", sorted(stops))
        return self._stopping

    def _must_stay(self, header: BatchHeader) -> bool:
        """Whether the batch stays even without records."""
        if header.next_offset == self.end_offset:
            return True
        last = self.last_batches.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        last_offset, epoch = last
        if last_offset >= 0:
            return header.last_offset == last_offset
        # Its last word was a marker, whose epoch fences off older ones.
        return header.is_control and header.producer_epoch == epoch

    def _kept_control(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        may_discard = self.transactions.may_discard(header, batch)
        if not header.record_count:
            return None
        horizon_ms = _delete_horizon_ms(header)
        if may_discard and horizon_ms is not None and horizon_ms <= self.now_ms:
            return None
        self.kept_record_count += header.record_count
        if not may_discard:
            return batch
        if horizon_ms is not None:
            self._kept_until(horizon_ms)
            return batch
        payload = self._payload(header, batch)
        ends = record_columns(payload, header).ends
        return with_records(header, payload, ends, range(len(ends)), self._new_horizon_ms())

    def _kept_records(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        if not header.record_count:
            return None
        if header.base_offset >= self.keys.end_offset:
            # Beyond the map only a tombstone is looked for, and that has time until the next round.
            self.kept_record_count += header.record_count
            return batch
        if not header.attributes & DELETE_HORIZON_BIT:
            survivors = self.keys.survivors(header.base_offset, header.last_offset)
            if survivors is None and header.last_offset < self.keys.start_offset:
                run = run_of_one(batch, self._payload(header, batch), 0)
                taken, found = self.keys.survivors_of_run(run)
                survivors = array("q", found) if taken.end else None
            if survivors is not None:
                return self._kept_survivors(header, batch, survivors)
        return self._kept_of_columns(header, batch)

    def _kept_survivors(
        self, header: BatchHeader, batch: memoryview, survivors: array[int]
    ) -> Buffer | None:
        """Of a batch without tombstones of which the map told the survivors."""
        self.kept_record_count += len(survivors)
        if len(survivors) == header.record_count:
            return batch
        if not survivors:
            return None
        payload = self._payload(header, batch)
        found = cleaner_runs.keep(run_of_one(batch, payload, 0), survivors, b"")
        if found is not None:
            return with_codec(found.batches, header.compression)
        base_offset = header.base_offset
        if header.last_offset_delta + 1 == header.record_count:
            # Its offsets have no gaps, so that a record's tells which it is.
            ends = record_ends(payload, header.record_count, 0, len(payload))
            kept = [offset - base_offset for offset in survivors]
        else:
            deltas, _, _, ends = record_columns(payload, header)
            kept = [bisect_left(deltas, offset - base_offset) for offset in survivors]
        return with_records(header, payload, ends, kept, None)

    def _kept_of_columns(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        """By a look at each record's key."""
        payload = self._payload(header, batch)
        columns = record_columns(payload, header)
        kept = self._kept_indexes(header, columns)
        has_tombstones = any(columns.are_tombstones[index] for index in kept)
        self.kept_record_count += len(kept)
        if not kept:
            return None
        new_horizon_ms = self._horizon_for(header, has_tombstones=has_tombstones)
        if len(kept) == header.record_count and new_horizon_ms is None:
            return batch
        return with_records(header, payload, columns.ends, kept, new_horizon_ms)

    def kept_in_steps(
        self, header: BatchHeader, batch: memoryview
    ) -> Generator[int, None, Buffer | None]:
        """As `kept`, for a batch of very many records: yields the bytes of records that it has gone
        through, a millisecond's worth at a time, and never has all of them as objects."""
        if (
            header.is_control
            or header.base_offset >= self.keys.end_offset
            or self.transactions.is_aborted(header)
        ):
            return self.kept(header, batch)
        survivors = self.keys.survivors(header.base_offset, header.last_offset)
        is_plain = not header.attributes & DELETE_HORIZON_BIT
        if is_plain and survivors is not None and len(survivors) in (0, header.record_count):
            return self.kept(header, batch)
        self.record_count += header.record_count
        payload = self._payload(header, batch)
        kept_count = begin = 0
        has_tombstones = False
        for columns in record_chunks(payload, header, RECORDS_AT_ONCE):
            kept = self._kept_indexes(header, columns)
            kept_count += len(kept)
            has_tombstones |= any(columns.are_tombstones[index] for index in kept)
            yield columns.ends[-1] - begin
            begin = columns.ends[-1]
        self.kept_record_count += kept_count
        if not kept_count:
            return without_records(header) if self._must_stay(header) else None
        new_horizon_ms = self._horizon_for(header, has_tombstones=has_tombstones)
        if kept_count == header.record_count and new_horizon_ms is None:
            return batch
        thinning = Thinning(header, new_horizon_ms)
        begin = 0
        for columns in record_chunks(payload, header, RECORDS_AT_ONCE):
            thinning.keep(payload, [begin, *columns.ends], self._kept_indexes(header, columns))
            yield columns.ends[-1] - begin
            begin = columns.ends[-1]
        return thinning.batch()

    def _kept_indexes(self, header: BatchHeader, columns: RecordColumns) -> list[int]:
        """Which of some records of a batch stay."""
        base_offset = header.base_offset
        end_offset = self.keys.end_offset
        deltas, keys, are_tombstones, _ = columns
        kept = [
            index
            for index, (latest, delta) in enumerate(
                zip(self.keys.latest(keys), deltas, strict=True)
            )
            if (base_offset + delta >= end_offset)
            or (keys[index] is not None and (latest is None or base_offset + delta >= latest))
        ]
        horizon_ms = _delete_horizon_ms(header)
        if horizon_ms is None or horizon_ms > self.now_ms or True not in are_tombstones:
            return kept
        return [
            index
            for index in kept
            if not are_tombstones[index] or base_offset + deltas[index] >= end_offset
        ]

    def _horizon_for(self, header: BatchHeader, *, has_tombstones: bool) -> int | None:
        """The delete horizon that a batch gets now, if it keeps tombstones and has none."""
        if not has_tombstones:
            return None
        horizon_ms = _delete_horizon_ms(header)
        if horizon_ms is None:
            return self._new_horizon_ms()
        self._kept_until(horizon_ms)
        return None

    def _payload(self, header: BatchHeader, batch: memoryview) -> bytes:
        return bytes(payload_in(batch, header, self.decompressed_bytes_max))

    def _new_horizon_ms(self) -> int:
        horizon_ms = self.now_ms + self.delete_retention_ms
        self._kept_until(horizon_ms)
        return horizon_ms

    def _kept_until(self, horizon_ms: int) -> None:
        if self.next_horizon_ms is None or horizon_ms < self.next_horizon_ms:
            self.next_horizon_ms = horizon_ms


def payload_in(batch: memoryview, header: BatchHeader, bytes_max: int) -> Buffer:
    """The records of a batch, decompressed. Raises CorruptBatch."""
    if not header.attributes & COMPRESSION_MASK:
        return batch[BATCH_HEADER_BYTES:]
    return payload_of(batch, header, decompressed_bytes_max=bytes_max)


def _delete_horizon_ms(header: BatchHeader) -> int | None:
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None
