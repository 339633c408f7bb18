"""Turns what was fetched of a partition into Arrow record batches, many records at a time.

Plain batches are decoded by the compiled extension as they lie in a large response. Others are
collected until there are enough rows or bytes; then their records, decompressed, are decoded
together (`record_columns.py`). Only the columns that are asked for are made; when none of
them lies inside the records, the records are not even decompressed.

Memory is bounded by what one response and one such collection hold. Not known here: where batches
come from, and what the rows are for.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Final

import numpy as np
import pyarrow as pa

from asyncbroker.client.cluster import TopicPartition
from asyncbroker.client.reader import Fetched
from asyncbroker.protocol.batches import COMPRESSION_MASK, LOG_APPEND_TIME_BIT, read_header
from asyncbroker.protocol.records import BATCH_HEADER_BYTES, CorruptBatch, payload_of
from asyncbroker.spark.batch_table import (
    ATTRIBUTES,
    BASE_OFFSET,
    CRC_MATCHES,
    LAST_OFFSET_DELTA,
    NOT_FOR_EVERYBODY,
    POSITION,
    RECORD_COUNT,
    SIZE,
    Rows,
    batch_table,
)
from asyncbroker.spark.columns import HEADERS
from asyncbroker.spark.extension import EXTENSION
from asyncbroker.spark.record_columns import (
    ARROW_TYPES,
    KEY,
    OFFSET,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    VALUE,
    Decoded,
    Payload,
    decode_records,
    numbers,
    offsets_of_ranges,
    read_records,
    repeated,
)
from asyncbroker.spark.transactions import AbortedTransactions

# Enough rows or bytes to make the fixed cost of a batch small, in Arrow and in the JVM, and so few
# that buffers stay in the processor's caches, and are used again instead of mapped anew.
ROWS_PER_BATCH: Final = 16_384
BYTES_PER_BATCH: Final = 4 << 20

# A response of so much is decoded without what came before or comes after it.
PLAIN_BYTES_MIN: Final = 256 << 10

# The columns that lie inside the records; the others follow from the headers of batches.
_RECORD_COLUMNS: Final = frozenset({KEY, VALUE, TIMESTAMP, HEADERS})
_DECODED_COLUMNS: Final = frozenset({*_RECORD_COLUMNS, OFFSET, TIMESTAMP_TYPE})


class Decoder:
    """Makes Arrow of the batches of one partition, for offsets from `start` to before `end`."""

    def __init__(
        self,
        columns: Sequence[str],
        partition: TopicPartition,
        start: int,
        end: int,
        *,
        names: Sequence[str] | None = None,
        checks_crcs: bool = True,
        extension: ModuleType | None = EXTENSION,
        plain_bytes_min: int = PLAIN_BYTES_MIN,
    ) -> None:
        """`names` are what the columns are called in the result, when that is something else; the
        batches of smaller responses than `plain_bytes_min` are collected."""
        self.schema = pa.schema(
            [
                pa.field(name, ARROW_TYPES[column])
                for column, name in zip(columns, names or columns, strict=True)
            ]
        )
        self._columns = columns
        self._decoded_columns = _DECODED_COLUMNS.intersection(columns)
        self._partition = partition
        self._start = start
        self._end = end
        self._checks_crcs = checks_crcs
        self._extension = extension
        self._needs_records = not _RECORD_COLUMNS.isdisjoint(columns)
        self._reads_plain = self._needs_records and HEADERS not in columns
        self._plain_bytes_min = plain_bytes_min
        # The longest that was needed so far; a shorter one is a slice of it.
        self._constants: dict[str, pa.Array] = {}
        self._rows: list[Rows] = []
        self._payloads: list[Payload] = []
        self._row_count = 0
        self._bytes = 0

    def decode(self, fetched: Fetched) -> Iterator[pa.RecordBatch]:
        """Takes what was fetched, whose bytes must stay as they are until `rest`; the records so
        far, whenever there are enough of them. Raises CorruptBatch."""
        fetched = yield from self._decode_plain(fetched)
        table = self._visible(fetched)
        if not self._needs_records:
            yield from self._decode_whole(fetched.records, table)
            return
        is_plain = not (table[:, ATTRIBUTES] & COMPRESSION_MASK).any()
        while len(table):
            count = self._add(fetched.records, table, is_plain=is_plain)
            table = table[count:]
            if self._row_count >= ROWS_PER_BATCH or self._bytes >= BYTES_PER_BATCH:
                yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The records of all batches since the last time; raises CorruptBatch."""
        if not self._rows:
            return
        rows, payloads, size = self._rows, self._payloads, self._bytes
        self._rows, self._payloads, self._row_count, self._bytes = [], [], 0, 0
        table = np.concatenate(rows)
        try:
            decoded = decode_records(
                payloads, table, self._start, self._end, self._decoded_columns, self._extension
            )
        except CorruptBatch as error:
            raise self._corrupt(error, table) from error
        yield from self._sent(decoded, size)

    # ---- batches without anything special

    def _decode_plain(self, fetched: Fetched) -> Generator[pa.RecordBatch, None, Fetched]:
        """Those at the beginning, if they are worth it, without a look at each in Python; returns
        the others. A batch that is wrong in any way is one of those."""
        records, extension = fetched.records, self._extension
        if not self._reads_plain or len(records) < self._plain_bytes_min or extension is None:
            return fetched
        position = 0
        while True:
            begin = position
            position, decoded = read_records(
                records,
                begin,
                self._start,
                self._end,
                self._decoded_columns,
                extension,
                rows_enough=ROWS_PER_BATCH,
                bytes_enough=BYTES_PER_BATCH,
                checks_crcs=self._checks_crcs,
            )
            if position == begin:
                return replace(fetched, records=records[position:]) if position else fetched
            yield from self.rest()
            yield from self._sent(decoded, position - begin)

    # ---- all other batches

    def _visible(self, fetched: Fetched) -> Rows:
        """The batches that have records for this reader, in the range."""
        table = batch_table(
            fetched.records, checks_crcs=self._checks_crcs, extension=self._extension
        )
        table = table[table[:, BASE_OFFSET] < self._end]
        if not table[:, CRC_MATCHES].all():
            damaged = table[table[:, CRC_MATCHES] == 0][0]
            raise CorruptBatch(
                f"{self._partition}, offset {damaged[BASE_OFFSET]}: the CRC of the batch does not "
                "match"
            )
        is_visible = table[:, RECORD_COUNT] > 0
        if (table[:, ATTRIBUTES] & NOT_FOR_EVERYBODY).any():
            aborted = AbortedTransactions(fetched.aborted_transactions)
            for index, row in enumerate(table):
                batch = _batch(fetched.records, row)
                if aborted.hides(read_header(batch), batch):
                    is_visible[index] = False
        return table if is_visible.all() else table[is_visible]

    def _add(self, records: memoryview, table: Rows, *, is_plain: bool) -> int:
        """Takes batches from the first one on, until there is enough; how many."""
        if is_plain:
            # Their heads say all, so many are taken at a time: a batch may hold a few records only.
            row_counts = self._row_count + np.cumsum(table[:, RECORD_COUNT])
            sizes = self._bytes + np.cumsum(table[:, SIZE] - BATCH_HEADER_BYTES)
            is_enough = (row_counts >= ROWS_PER_BATCH) | (sizes >= BYTES_PER_BATCH)
            count = int(np.argmax(is_enough)) + 1 if is_enough.any() else len(table)
            begins = table[:count, POSITION] + BATCH_HEADER_BYTES
            ends = table[:count, POSITION] + table[:count, SIZE]
            places = zip(begins.tolist(), ends.tolist(), strict=True)
            self._payloads += [records[begin:end] for begin, end in places]
            self._row_count, self._bytes = int(row_counts[count - 1]), int(sizes[count - 1])
        else:
            count = 1
            payload = self._payload_of(records, table[:1])
            self._payloads.append(payload)
            self._row_count += int(table[0, RECORD_COUNT])
            self._bytes += len(payload)
        self._rows.append(table[:count])
        return count

    def _payload_of(self, records: memoryview, row: Rows) -> Payload:
        try:
            return payload_of(_batch(records, row[0]))
        except CorruptBatch as error:
            raise self._corrupt(error, row) from error

    # ---- batches that are not looked into

    def _decode_whole(self, records: memoryview, table: Rows) -> Iterator[pa.RecordBatch]:
        """For queries without a column of the records themselves."""
        # Where compaction took some only the records can tell which offsets there are.
        has_gaps = table[:, RECORD_COUNT] != table[:, LAST_OFFSET_DELTA] + 1
        first = 0
        for index in np.flatnonzero(has_gaps).tolist():
            yield from self._sent(self._whole(table[first:index]), 0)
            first = index + 1
            self._add(records, table[index:first], is_plain=False)
            yield from self.rest()
        yield from self._sent(self._whole(table[first:]), 0)

    def _whole(self, rows: Rows) -> Decoded:
        firsts = np.maximum(rows[:, BASE_OFFSET], self._start)
        ends = np.minimum(rows[:, BASE_OFFSET] + rows[:, RECORD_COUNT], self._end)
        counts = np.maximum(ends - firsts, 0)
        columns = {}
        if OFFSET in self._columns:
            columns[OFFSET] = numbers(OFFSET, offsets_of_ranges(firsts, counts))
        if TIMESTAMP_TYPE in self._columns:
            types = ((rows[:, ATTRIBUTES] & LOG_APPEND_TIME_BIT) != 0).astype(np.int32)
            columns[TIMESTAMP_TYPE] = numbers(TIMESTAMP_TYPE, np.repeat(types, counts))
        return Decoded(int(counts.sum()), columns)

    # ---- rows

    def _sent(self, decoded: Decoded, size: int) -> Iterator[pa.RecordBatch]:
        if not decoded.count:
            return
        # One batch of the log may hold more than is good to send as one.
        rows = min(ROWS_PER_BATCH * 2, max(1, 2 * BYTES_PER_BATCH * decoded.count // (size + 1)))
        for start in range(0, decoded.count, rows):
            count = min(rows, decoded.count - start)
            arrays = [
                decoded.columns[column].slice(start, count)
                if column in self._decoded_columns
                else self._constant(column, count)
                for column in self._columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _constant(self, column: str, count: int) -> pa.Array:
        known = self._constants.get(column)
        if known is None or len(known) < count:
            known = repeated(column, getattr(self._partition, column), count)
            self._constants[column] = known
        return known.slice(0, count)

    def _corrupt(self, error: CorruptBatch, rows: Rows) -> CorruptBatch:
        first, last = rows[0], rows[-1]
        return CorruptBatch(
            f"{self._partition}, offsets {first[BASE_OFFSET]} to "
            f"{last[BASE_OFFSET] + last[LAST_OFFSET_DELTA]}: {error}"
        )


def _batch(records: memoryview, row: Rows) -> memoryview:
    return records[int(row[POSITION]) : int(row[POSITION] + row[SIZE])]
