"""Turns record batches into Arrow record batches, many records at a time.

Batches are collected until there are enough rows or bytes; then their payloads, decompressed, are
joined into one buffer, `fields.py` finds where the fields lie, and the columns are copied out of
the buffer by Arrow: an array with interleaved offsets [start, end, start, end, ...] over the buffer
holds the wanted pieces at its even places, and `take` copies those without a loop in Python. Only
the columns that are asked for are made; when none of them lies inside the records, the records are
not even decompressed.

Not known here: where batches come from, and which of them to leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from asyncbroker.client.cluster import TopicPartition
from asyncbroker.protocol.records import BatchHeader, CorruptBatch, TimestampType, payload_of
from asyncbroker.spark.columns import HEADERS
from asyncbroker.spark.fields import PADDING, Fields, Integers, Spans, locate_fields

# Enough rows or bytes to make the fixed cost of a batch small, in Arrow and in the JVM.
ROWS_PER_BATCH: Final = 65_536
BYTES_PER_BATCH: Final = 8 << 20

ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS: pa.list_(
        pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
    ),
}

# The columns that lie inside the records; the others follow from the headers of batches.
_RECORD_COLUMNS: Final = frozenset({"key", "value", "timestamp", HEADERS})

# As many milliseconds as are microseconds in 64 bits.
_MILLISECONDS_MAX: Final = (1 << 63) // 1000 - 1


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
    ) -> None:
        """`names` are what the columns are called in the result, when that is something else."""
        self.schema = pa.schema(
            [
                pa.field(name, ARROW_TYPES[column])
                for column, name in zip(columns, names or columns, strict=True)
            ]
        )
        self._columns = columns
        self._partition = partition
        self._start = start
        self._end = end
        self._needs_records = not _RECORD_COLUMNS.isdisjoint(columns)
        self._headers: list[BatchHeader] = []
        self._payloads: list[bytes | bytearray | memoryview] = []
        self._rows = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time for `take`."""
        return self._rows >= ROWS_PER_BATCH or self._bytes >= BYTES_PER_BATCH

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        """Takes a batch, whose bytes must stay as they are until `take`; raises CorruptBatch."""
        if header.record_count == 0:
            return
        payload: bytes | bytearray | memoryview = b""
        if self._needs_records or _has_gaps(header):
            try:
                payload = payload_of(batch, header)
            except CorruptBatch as error:
                raise self._corrupt(error, header, header) from error
        self._headers.append(header)
        self._payloads.append(payload)
        self._rows += header.record_count
        self._bytes += len(payload)

    def take(self) -> list[pa.RecordBatch]:
        """The records of all batches since the last time, as far as they are in the range.

        Raises CorruptBatch; the batches are gone all the same.
        """
        headers, payloads, size = self._headers, self._payloads, self._bytes
        self._headers, self._payloads, self._rows, self._bytes = [], [], 0, 0
        if not headers:
            return []
        try:
            records = self._record_batch(headers, payloads)
        except CorruptBatch as error:
            raise self._corrupt(error, headers[0], headers[-1]) from error
        # One batch of the log may hold more than is good to send as one.
        rows = min(ROWS_PER_BATCH * 2, max(1, 2 * BYTES_PER_BATCH * len(records) // (size + 1)))
        return [records.slice(start, rows) for start in range(0, len(records), rows)]

    def _record_batch(
        self, headers: list[BatchHeader], payloads: list[bytes | bytearray | memoryview]
    ) -> pa.RecordBatch:
        if self._needs_records:
            chunk = _decode(headers, payloads, with_headers=HEADERS in self._columns)
        else:
            chunk = _Chunk(headers, _offsets_without_records(headers, payloads), None, None)
        arrays = [_COLUMN_MAKERS[column](self, chunk) for column in self._columns]
        records = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        wanted = (chunk.offsets >= self._start) & (chunk.offsets < self._end)
        return records if wanted.all() else records.filter(pa.array(wanted))

    def _corrupt(self, error: CorruptBatch, first: BatchHeader, last: BatchHeader) -> CorruptBatch:
        return CorruptBatch(
            f"{self._partition}, offsets {first.base_offset} to {last.last_offset}: {error}"
        )

    # One method for each column.

    def _key(self, chunk: _Chunk) -> pa.Array:
        return _binary(chunk.buffer, chunk.located.keys)

    def _value(self, chunk: _Chunk) -> pa.Array:
        return _binary(chunk.buffer, chunk.located.values)

    def _topic_name(self, chunk: _Chunk) -> pa.Array:
        return pa.repeat(pa.scalar(self._partition.topic, pa.string()), len(chunk.offsets))

    def _partition_index(self, chunk: _Chunk) -> pa.Array:
        return pa.repeat(pa.scalar(self._partition.partition, pa.int32()), len(chunk.offsets))

    def _offset(self, chunk: _Chunk) -> pa.Array:
        return pa.array(chunk.offsets)

    def _timestamp(self, chunk: _Chunk) -> pa.Array:
        milliseconds = np.clip(chunk.timestamps(), -_MILLISECONDS_MAX, _MILLISECONDS_MAX)
        return pa.array(milliseconds * 1000).view(ARROW_TYPES["timestamp"])

    def _timestamp_type(self, chunk: _Chunk) -> pa.Array:
        return pa.array(
            chunk.repeated([header.timestamp_type for header in chunk.headers], np.int32)
        )

    def _record_headers(self, chunk: _Chunk) -> pa.Array:
        headers = chunk.located.headers
        assert headers is not None
        keys = _strings(_binary(chunk.buffer, headers.keys))
        values = _binary(chunk.buffer, headers.values)
        kind = ARROW_TYPES[HEADERS]
        structs = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
        places = np.append(np.int32(0), np.cumsum(headers.counts, dtype=np.int32))
        return pa.ListArray.from_arrays(
            pa.array(places), structs, type=kind, mask=pa.array(headers.counts == 0)
        )


@dataclass(slots=True)
class _Chunk:
    """The batches that are being worked off, with their records as columns."""

    headers: list[BatchHeader]
    offsets: Integers
    fields: Fields | None
    buffer: pa.Buffer | None

    @property
    def located(self) -> Fields:
        assert self.fields is not None, "a column that lies inside the records"
        return self.fields

    def repeated(self, numbers: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A number of each batch, for each of its records."""
        return np.repeat(np.array(numbers, dtype), [header.record_count for header in self.headers])

    def timestamps(self) -> Integers:
        """In ms; those of LogAppendTime batches are all their max timestamp."""
        base = self.repeated([header.base_timestamp for header in self.headers], np.int64)
        delta = self.located.timestamp_deltas
        timestamps = base + delta
        if ((base ^ timestamps) & (delta ^ timestamps) < 0).any():
            raise CorruptBatch("a timestamp of more than 64 bits")
        types = self.repeated([header.timestamp_type for header in self.headers], np.int8)
        if types.any():
            append_times = self.repeated([h.max_timestamp for h in self.headers], np.int64)
            timestamps = np.where(types == TimestampType.LOG_APPEND_TIME, append_times, timestamps)
        return timestamps


def _decode(
    headers: list[BatchHeader],
    payloads: Sequence[bytes | bytearray | memoryview],
    *,
    with_headers: bool,
) -> _Chunk:
    data = b"".join([*payloads, PADDING])
    fields = locate_fields(
        data,
        [len(payload) for payload in payloads],
        [header.record_count for header in headers],
        with_headers=with_headers,
    )
    chunk = _Chunk(headers, fields.offset_deltas, fields, pa.py_buffer(data))
    last_deltas = chunk.repeated([header.last_offset_delta for header in headers], np.int64)
    if ((fields.offset_deltas < 0) | (fields.offset_deltas > last_deltas)).any():
        raise CorruptBatch("an offset that is not in its batch")
    base_offsets = chunk.repeated([header.base_offset for header in headers], np.int64)
    chunk.offsets = base_offsets + fields.offset_deltas
    return chunk


def _has_gaps(header: BatchHeader) -> bool:
    """Whether only the records can tell the offsets that there are (compaction took some)."""
    return header.record_count != header.last_offset_delta + 1


def _offsets_without_records(
    headers: list[BatchHeader], payloads: Sequence[bytes | bytearray | memoryview]
) -> Integers:
    parts = []
    for header, payload in zip(headers, payloads, strict=True):
        if _has_gaps(header):
            parts.append(_decode([header], [payload], with_headers=False).offsets)
        else:
            parts.append(np.arange(header.base_offset, header.next_offset, dtype=np.int64))
    return np.concatenate(parts)


def _binary(buffer: pa.Buffer, spans: Spans) -> pa.Array:
    """The pieces of the buffer as one binary array, copied; `spans` ascend."""
    count = len(spans.starts)
    if count == 0:
        return pa.array([], pa.binary())
    ends = np.empty(2 * count, np.int32)
    ends[0::2] = spans.starts
    ends[1::2] = spans.starts + np.maximum(spans.sizes, 0)
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(ends), buffer])
    places = np.arange(0, 2 * count - 1, 2, dtype=np.int64)
    nulls = spans.sizes < 0
    return pieces.take(pa.array(places, mask=nulls if nulls.any() else None))


def _strings(array: pa.Array) -> pa.Array:
    """Binary as strings; malformed UTF-8 gets replacement characters, as it does in Java."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([piece.decode("utf-8", "replace") for piece in array.to_pylist()])


_COLUMN_MAKERS: Final[dict[str, Callable[[Decoder, _Chunk], pa.Array]]] = {
    "key": Decoder._key,
    "value": Decoder._value,
    "topic": Decoder._topic_name,
    "partition": Decoder._partition_index,
    "offset": Decoder._offset,
    "timestamp": Decoder._timestamp,
    "timestampType": Decoder._timestamp_type,
    HEADERS: Decoder._record_headers,
}
