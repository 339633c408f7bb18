"""Turns Arrow columns into record batches, many records at a time.

Rows that go to one partition become batches of about `bytes_max` bytes. The compiled extension does
that where it is there; else numpy and pyarrow do, to the same bytes: what stands between keys and
values (lengths, deltas) is made as arrays of small pieces, and Arrow joins the pieces of each row.

Not known here: partitions, producers, and where the columns come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from asyncbroker.protocol.batches import RECORD_BYTES_MIN
from asyncbroker.protocol.records import Compression, encode_varint, frame_records
from asyncbroker.spark.extension import EXTENSION
from asyncbroker.spark.partitioner import binary_buffers

Integers = npt.NDArray[np.int64]

_VARINT_BYTES_MAX: Final = 10
_NO_HEADERS: Final = encode_varint(0)
_NULL: Final = encode_varint(-1)


@dataclass(frozen=True, slots=True)
class Columns:
    """What records are made of: binary arrays, None for nothing but nulls, timestamps in ms, and
    headers as a list of structs of key (string) and value (binary)."""

    keys: pa.Array | None
    values: pa.Array
    timestamps: Integers
    headers: pa.Array | None


@dataclass(frozen=True, slots=True)
class Encoded:
    """A batch, which is nobody's yet, and the rows that are in it."""

    batch: bytearray
    rows: Integers


class Encoder:
    """Makes batches of some columns, of about `bytes_max` bytes each."""

    def __init__(self, columns: Columns, bytes_max: int, compression: Compression) -> None:
        self._columns = columns
        self._bytes_max = bytes_max
        self._compression = compression
        self._encoded_part = _portable if EXTENSION is None else _compiled
        # Once for all rows: there may be many partitions.
        self._prepared = _sizes_by_row(columns) if EXTENSION is None else _buffers(columns)

    def batches(self, rows: Integers) -> Iterator[Encoded]:
        """Batches of the records at `rows`, in order. Raises ValueError for a header without a
        key."""
        while len(rows):
            payload, count, base, largest = self._encoded_part(
                self._columns, self._prepared, rows, self._bytes_max
            )
            batch = frame_records(payload, count, base, largest, self._compression)
            yield Encoded(batch, rows[:count])
            rows = rows[count:]


Part = tuple[bytes, int, int, int]
"""The records, how many there are, the first and the largest timestamp."""


# ---- compiled


def _compiled(columns: Columns, buffers: Any, rows: Integers, bytes_max: int) -> Part:
    assert EXTENSION is not None
    keys, values, headers = buffers
    part: Part = EXTENSION.encode(
        np.ascontiguousarray(rows), columns.timestamps, keys, values, headers, bytes_max
    )
    return part


def _buffers(columns: Columns) -> Any:
    headers = None
    if columns.headers is not None:
        array = columns.headers
        validity, places = array.buffers()[:2]
        # All of them, whatever part of them the array has: its places count from their beginning.
        structs = array.values
        pairs = [binary_buffers(structs.field(i).cast(pa.binary())) for i in (0, 1)]
        headers = (array.offset, validity, places, *pairs)
    keys = None if columns.keys is None else binary_buffers(columns.keys)
    return keys, binary_buffers(columns.values), headers


# ---- portable


def _sizes_by_row(columns: Columns) -> Integers:
    """At least so many bytes has the record of each row."""
    sizes = _sizes(columns.values) + RECORD_BYTES_MIN
    return sizes if columns.keys is None else sizes + _sizes(columns.keys)


def _portable(columns: Columns, sizes_min: Integers, rows: Integers, bytes_max: int) -> Part:
    # No more rows than may fit, so that the rest is not copied again and again.
    rows = rows[: max(1, bytes_max // RECORD_BYTES_MIN)]
    rows = rows[: max(1, int(np.searchsorted(np.cumsum(sizes_min[rows]), bytes_max, "right")))]
    indexes = pa.array(rows)
    values = columns.values.take(indexes)
    keys = None if columns.keys is None else columns.keys.take(indexes)
    headers = _header_pieces(columns.headers, indexes)
    sizes = _sizes(values) + _sizes(headers)
    if keys is not None:
        sizes = sizes + _sizes(keys)
    timestamps = columns.timestamps[rows]
    count = _fitting(sizes, timestamps, keys, values, bytes_max)
    joined = _joined(
        None if keys is None else keys[:count],
        values[:count],
        headers[:count],
        sizes[:count],
        timestamps[:count] - timestamps[0],
    )
    return joined, count, int(timestamps[0]), int(timestamps[:count].max())


def _fitting(
    sizes: Integers, timestamps: Integers, keys: pa.Array | None, values: pa.Array, bytes_max: int
) -> int:
    """How many of the records fit, at least one."""
    deltas = timestamps - timestamps[0]
    places = np.arange(len(sizes))
    bodies = _body_sizes(keys, values, sizes, deltas, places)
    ends = np.cumsum(bodies + _varint_sizes(bodies))
    return max(1, int(np.searchsorted(ends, bytes_max, "right")))


def _body_sizes(
    keys: pa.Array | None, values: pa.Array, sizes: Integers, deltas: Integers, places: Integers
) -> Integers:
    fixed = 1 + _varint_sizes(deltas) + _varint_sizes(places)
    lengths = _varint_sizes(_lengths(values))
    lengths = lengths + (1 if keys is None else _varint_sizes(_lengths(keys)))
    return fixed + lengths + sizes


def _joined(
    keys: pa.Array | None,
    values: pa.Array,
    headers: pa.Array,
    sizes: Integers,
    deltas: Integers,
) -> bytes:
    count = len(values)
    places = np.arange(count)
    bodies = _body_sizes(keys, values, sizes, deltas, places)
    key_lengths = np.full(count, -1) if keys is None else _lengths(keys)
    heads = _pieces(bodies, None, deltas, places, key_lengths)
    parts = [heads]
    if keys is not None:
        parts.append(keys)
    parts += [_pieces(_lengths(values)), values, headers]
    records = pc.binary_join_element_wise(
        *parts, b"", null_handling="replace", null_replacement=b""
    )
    _, offsets, data = records.buffers()
    if data is None:
        return b""
    ends = np.frombuffer(offsets, np.int32)
    return bytes(data[: int(ends[records.offset + count])])


def _lengths(array: pa.Array) -> Integers:
    """In bytes; -1 for null."""
    lengths = pc.fill_null(pc.binary_length(array), -1)
    return np.asarray(lengths).astype(np.int64)


def _sizes(array: pa.Array) -> Integers:
    return np.maximum(_lengths(array), 0)


def _header_pieces(headers: pa.Array | None, indexes: pa.Array) -> pa.Array:
    """The headers of each row, encoded; nearly always of none."""
    if headers is None:
        return pa.repeat(pa.scalar(_NO_HEADERS, pa.binary()), len(indexes))
    return pa.array([_header_piece(row) for row in headers.take(indexes).to_pylist()], pa.binary())


def _header_piece(row: list[dict[str, Any]] | None) -> bytes:
    parts = [encode_varint(len(row or ()))]
    for header in row or ():
        if header is None or header["key"] is None:
            raise ValueError("the columns are no records")
        key, value = header["key"].encode(), header["value"]
        parts += [encode_varint(len(key)), key]
        parts += [_NULL] if value is None else [encode_varint(len(value)), value]
    return b"".join(parts)


def _zigzag(numbers: Integers) -> npt.NDArray[np.uint64]:
    return ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)


def _varint_sizes(numbers: Integers) -> Integers:
    words = _zigzag(numbers)
    sizes = np.ones(len(numbers), np.int64)
    for size in range(1, _VARINT_BYTES_MAX):
        larger = words >= np.uint64(1 << (7 * size))
        if not larger.any():
            break
        sizes += larger
    return sizes


def _pieces(*columns: Integers | None) -> pa.Array:
    """For each row its numbers as varints, one after the other; None stands for a byte of zero."""
    count = next(len(column) for column in columns if column is not None)
    grids: list[npt.NDArray[np.uint8]] = []
    masks: list[npt.NDArray[np.bool_]] = []
    for column in columns:
        if column is None:
            grids.append(np.zeros((count, 1), np.uint8))
            masks.append(np.ones((count, 1), np.bool_))
            continue
        sizes = _varint_sizes(column)
        width = int(sizes.max())
        shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
        septets = (_zigzag(column)[:, None] >> shifts[None, :]).astype(np.uint8) & np.uint8(0x7F)
        places = np.arange(width)
        more = places[None, :] < sizes[:, None] - 1
        grids.append(septets | (more.astype(np.uint8) << np.uint8(7)))
        masks.append(places[None, :] < sizes[:, None])
    mask = np.concatenate(masks, axis=1)
    data = np.concatenate(grids, axis=1)[mask]
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(mask.sum(axis=1), out=ends[1:])
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)])
