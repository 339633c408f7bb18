"""The records of many batches as columns of Arrow, with the compiled extension or with numpy.

`decode_records` has two ways, which give the same arrays for the same bytes, and refuse the same
bytes, each in its own words. Only the columns that are asked for are made.

The portable one joins the payloads into one buffer, has `fields.py` find where the fields lie, and
lets Arrow copy: an array with interleaved offsets [start, end, start, end, ...] over the buffer
holds the wanted pieces at its even places, and `take` copies those without a loop in Python.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from asyncbroker.protocol.batches import LOG_APPEND_TIME_BIT
from asyncbroker.protocol.records import CorruptBatch
from asyncbroker.spark.batch_table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    RECORD_COUNT,
    Rows,
)
from asyncbroker.spark.columns import HEADERS
from asyncbroker.spark.extension import EXTENSION
from asyncbroker.spark.fields import PADDING, Fields, Integers, Spans, locate_fields

Payload = bytes | bytearray | memoryview

OFFSET: Final = "offset"
TIMESTAMP: Final = "timestamp"
TIMESTAMP_TYPE: Final = "timestampType"
KEY: Final = "key"
VALUE: Final = "value"

ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    KEY: pa.binary(),
    VALUE: pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    OFFSET: pa.int64(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    TIMESTAMP_TYPE: pa.int32(),
    HEADERS: pa.list_(
        pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
    ),
}

# As many milliseconds as are microseconds in 64 bits.
_MILLISECONDS_MAX: Final = (1 << 63) // 1000 - 1


@dataclass(slots=True)
class Decoded:
    """How many records there are, and the columns that were asked for."""

    count: int
    columns: dict[str, pa.Array]


def decode_records(
    payloads: list[Payload],
    rows: Rows,
    start: int,
    end: int,
    wanted: Collection[str],
    extension: ModuleType | None = EXTENSION,
) -> Decoded:
    """The records at offsets from `start` to before `end` in the payloads of the batches `rows`.

    Raises CorruptBatch.
    """
    if extension is None:
        return _decode_portable(payloads, rows, start, end, wanted)
    return _decode_compiled(payloads, rows, start, end, wanted, extension)


def _decode_compiled(
    payloads: list[Payload],
    rows: Rows,
    start: int,
    end: int,
    wanted: Collection[str],
    extension: ModuleType,
) -> Decoded:
    try:
        found = extension.decode(
            payloads,
            rows,
            start,
            end,
            OFFSET in wanted,
            TIMESTAMP in wanted,
            TIMESTAMP_TYPE in wanted,
            KEY in wanted,
            VALUE in wanted,
            HEADERS in wanted,
        )
    except ValueError as error:
        raise CorruptBatch(str(error)) from None
    return _decoded(found)


def read_records(
    data: memoryview,
    position: int,
    start: int,
    end: int,
    wanted: Collection[str],
    extension: ModuleType,
    *,
    rows_enough: int,
    bytes_enough: int,
    checks_crcs: bool,
) -> tuple[int, Decoded]:
    """The records of plain batches as they were fetched, from a position on until there is enough,
    and where the next batch begins, if it is not as plain; none of their columns is `headers`."""
    position, found = extension.read(
        data,
        position,
        start,
        end,
        rows_enough,
        bytes_enough,
        checks_crcs,
        OFFSET in wanted,
        TIMESTAMP in wanted,
        TIMESTAMP_TYPE in wanted,
        KEY in wanted,
        VALUE in wanted,
    )
    return position, _decoded(found)


def _decoded(found: tuple[Any, ...]) -> Decoded:
    """What the extension has found as arrays; its buffers may be longer than they need be."""
    count, offsets, timestamps, types, keys, values, headers = found
    columns = {}
    for name, data in ((OFFSET, offsets), (TIMESTAMP, timestamps), (TIMESTAMP_TYPE, types)):
        if data is not None:
            columns[name] = pa.Array.from_buffers(
                ARROW_TYPES[name], count, [None, pa.py_buffer(data)]
            )
    for name, pieces in ((KEY, keys), (VALUE, values)):
        if pieces is not None:
            columns[name] = _pieces(count, pieces)
    if headers is not None:
        validity, places, header_keys, header_values = headers
        header_count = len(header_keys[1]) // 4 - 1
        structs = pa.StructArray.from_arrays(
            [
                strings(_pieces(header_count, header_keys)),
                _pieces(header_count, header_values),
            ],
            fields=list(ARROW_TYPES[HEADERS].value_type),
        )
        columns[HEADERS] = pa.Array.from_buffers(
            ARROW_TYPES[HEADERS], count, [_buffer(validity), _buffer(places)], children=[structs]
        )
    return Decoded(count, columns)


def _pieces(count: int, pieces: tuple[bytes | None, bytes, bytes]) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), count, [_buffer(part) for part in pieces])


def _buffer(part: bytes | None) -> pa.Buffer | None:
    return None if part is None else pa.py_buffer(part)


def _decode_portable(
    payloads: list[Payload], rows: Rows, start: int, end: int, wanted: Collection[str]
) -> Decoded:
    data = b"".join([*payloads, PADDING])
    fields = locate_fields(
        data,
        [len(payload) for payload in payloads],
        rows[:, RECORD_COUNT].tolist(),
        with_headers=HEADERS in wanted,
    )
    if ((fields.offset_deltas < 0) | (fields.offset_deltas > _each(rows, LAST_OFFSET_DELTA))).any():
        raise CorruptBatch("an offset that is not in its batch")
    offsets = _each(rows, BASE_OFFSET) + fields.offset_deltas
    if (offsets < 0).any():
        raise CorruptBatch("an offset of more than 64 bits")
    buffer = pa.py_buffer(data)
    columns: dict[str, pa.Array] = {}
    if OFFSET in wanted:
        columns[OFFSET] = pa.array(offsets)
    if TIMESTAMP in wanted:
        milliseconds = np.clip(_timestamps(rows, fields), -_MILLISECONDS_MAX, _MILLISECONDS_MAX)
        columns[TIMESTAMP] = pa.array(milliseconds * 1000).view(ARROW_TYPES[TIMESTAMP])
    if TIMESTAMP_TYPE in wanted:
        columns[TIMESTAMP_TYPE] = pa.array(_are_append_times(rows).astype(np.int32))
    if KEY in wanted:
        columns[KEY] = pieces_of(buffer, fields.keys)
    if VALUE in wanted:
        columns[VALUE] = pieces_of(buffer, fields.values)
    if HEADERS in wanted:
        columns[HEADERS] = _header_lists(buffer, fields)
    inside = (offsets >= start) & (offsets < end)
    if not inside.all():
        mask = pa.array(inside)
        columns = {name: array.filter(mask) for name, array in columns.items()}
    return Decoded(int(inside.sum()), columns)


def _each(rows: Rows, column: int) -> Integers:
    """A number of each batch, for each of its records."""
    return np.repeat(rows[:, column], rows[:, RECORD_COUNT])


def _are_append_times(rows: Rows) -> npt.NDArray[np.bool_]:
    are: npt.NDArray[np.bool_] = (_each(rows, ATTRIBUTES) & LOG_APPEND_TIME_BIT) != 0
    return are


def _timestamps(rows: Rows, fields: Fields) -> Integers:
    """In ms; those of LogAppendTime batches are all their max timestamp."""
    base = _each(rows, BASE_TIMESTAMP)
    delta = fields.timestamp_deltas
    timestamps = base + delta
    if ((base ^ timestamps) & (delta ^ timestamps) < 0).any():
        raise CorruptBatch("a timestamp of more than 64 bits")
    return np.where(_are_append_times(rows), _each(rows, MAX_TIMESTAMP), timestamps)


def _header_lists(buffer: pa.Buffer, fields: Fields) -> pa.Array:
    headers = fields.headers
    assert headers is not None
    structs = pa.StructArray.from_arrays(
        [strings(pieces_of(buffer, headers.keys)), pieces_of(buffer, headers.values)],
        fields=list(ARROW_TYPES[HEADERS].value_type),
    )
    places = np.append(np.int32(0), np.cumsum(headers.counts, dtype=np.int32))
    return pa.ListArray.from_arrays(
        pa.array(places), structs, type=ARROW_TYPES[HEADERS], mask=pa.array(headers.counts == 0)
    )


def pieces_of(buffer: pa.Buffer, spans: Spans) -> pa.Array:
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


def strings(array: pa.Array) -> pa.Array:
    """Binary as strings; malformed UTF-8 gets replacement characters, as it does in Java."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        replaced: list[Any] = [
            None if piece is None else piece.decode("utf-8", "replace")
            for piece in array.to_pylist()
        ]
        return pa.array(replaced, pa.string())


def numbers(column: str, values: npt.NDArray[Any]) -> pa.Array:
    """A column of numbers, of its type already. `pa.array` makes the same, but first imports pandas
    if that is installed, to ask it what the values are: half a second of a worker's first task."""
    return pa.Array.from_buffers(ARROW_TYPES[column], len(values), [None, pa.py_buffer(values)])


def repeated(column: str, value: str | int, count: int) -> pa.Array:
    """A column with the same value `count` times, some ten thousand at most."""
    if isinstance(value, int):
        return numbers(column, np.full(count, value, np.int32))
    text = value.encode()
    places = np.arange(count + 1, dtype=np.int32) * np.int32(len(text))
    buffers = [None, pa.py_buffer(places), pa.py_buffer(text * count)]
    return pa.Array.from_buffers(ARROW_TYPES[column], count, buffers)


def offsets_of_ranges(firsts: Integers, counts: Integers) -> Integers:
    """`counts[i]` offsets from `firsts[i]` on, for each i."""
    if len(firsts) and (firsts[1:] == firsts[:-1] + counts[:-1]).all():
        # Without gaps between them, as nearly always: one range.
        return np.arange(firsts[0], firsts[0] + counts.sum(), dtype=np.int64)
    begins = np.cumsum(counts) - counts
    offsets: Integers = np.repeat(firsts - begins, counts)
    return offsets + np.arange(len(offsets), dtype=np.int64)
