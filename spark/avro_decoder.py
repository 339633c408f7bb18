"""Decodes Avro values into columns: many at a time where that is possible, else one by one.

`avro_columns.py` reads most schemas many values at a time. What it has no table for is read by
fastavro, value by value: whole schemas, and single values that it leaves undecided. Both ways give
the same columns for the same bytes, but for bytes that Avro does not allow and fastavro lets pass,
such as a negative index into a union: they are damaged here.

Values in the wire format of registries are read for each schema together.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from functools import cache
from math import inf
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from asyncbroker.spark.avro_columns import (
    PADDING_BYTES,
    Cursor,
    Mask,
    NotColumnar,
    columns_reader,
    spread,
)
from asyncbroker.spark.avro_members import with_members
from asyncbroker.spark.fields import Integers
from asyncbroker.spark.formats import CONFLUENT_AVRO
from asyncbroker.spark.typed_avro import parsed_schemas

_HEAD_BYTES: Final = 5
_REFUSALS: Final = (
    *(pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError),
    *(UnicodeDecodeError, ValueError, TypeError, OverflowError),
)

_FLOAT_LIMIT: Final = (2 - 2**-24) * 2.0**127
"""From here on numbers become infinite as floats of 32 bits."""

Piece = tuple[Integers, dict[str, pa.Array]]
"""Columns of the values at these places."""


class AvroDecoder:
    """Reads values by one schema, or by one for each id, into the fields of `wanted`."""

    def __init__(self, form: str, text: str, wanted: pa.Schema) -> None:
        """Raises ValueError for a schema that is none, ImportError."""
        self._has_heads = form == CONFLUENT_AVRO
        self._wanted = wanted
        self._schemas = {
            schema_id: with_members(schema, wanted)
            for schema_id, schema in parsed_schemas(form, text).items()
        }
        self._readers: dict[int | None, Callable[[Cursor], dict[str, pa.Array]]] = {}
        for schema_id, schema in self._schemas.items():
            try:
                self._readers[schema_id] = columns_reader(schema, wanted)
            except NotColumnar:
                continue

    def decode(self, values: pa.Array) -> tuple[dict[str, pa.Array], Mask]:
        """The fields by name, null where a value is null or cannot be read, and which cannot."""
        count = len(values)
        data, limits = _padded(values)
        starts, ends = limits[:-1], limits[1:]
        failed = np.zeros(count, np.bool_)
        places = np.flatnonzero(np.asarray(values.is_valid()))
        if self._has_heads:
            has_none = (ends[places] - starts[places] < _HEAD_BYTES) | (data[starts[places]] != 0)
            failed[places[has_none]] = True
            places = places[~has_none]
        pieces: list[Piece] = []
        for schema_id, chosen in self._by_schema(data, starts, places, failed):
            cursor = Cursor.over(data, starts[chosen] + self._head_bytes, ends[chosen])
            pieces += self._pieces(schema_id, cursor, chosen, failed)
        return self._joined(pieces, count), failed

    @property
    def _head_bytes(self) -> int:
        return _HEAD_BYTES if self._has_heads else 0

    def _by_schema(
        self, data: npt.NDArray[np.uint8], starts: Integers, places: Integers, failed: Mask
    ) -> list[tuple[int | None, Integers]]:
        """The places of values for each schema; an id that there is none for has failed."""
        if None in self._schemas:
            return [(None, places)] if len(places) else []
        heads = starts[places]
        ids = np.zeros(len(places), np.int64)
        for byte in range(1, _HEAD_BYTES):
            ids = ids << 8 | data[heads + byte]
        failed[places] = ~np.isin(ids, [one for one in self._schemas if one is not None])
        found = [(one, places[ids == one]) for one in self._schemas]
        return [(one, chosen) for one, chosen in found if len(chosen)]

    def _pieces(
        self, schema_id: int | None, cursor: Cursor, places: Integers, failed: Mask
    ) -> list[Piece]:
        pieces: list[Piece] = []
        starts, undecided = cursor.position, np.arange(len(places))
        if (read := self._readers.get(schema_id)) is not None:
            columns = read(cursor)
            failed[places[cursor.damaged]] = True
            good = ~cursor.damaged & ~cursor.undecided
            if not good.all():
                mask = pa.array(good)
                columns = {name: array.filter(mask) for name, array in columns.items()}
            pieces.append((places[good], columns))
            undecided = np.flatnonzero(cursor.undecided & ~cursor.damaged)
        if len(undecided):
            single = [
                cursor.data[starts[place] : cursor.end[place]].tobytes() for place in undecided
            ]
            columns, bad = one_by_one(single, self._schemas[schema_id], self._wanted)
            failed[places[undecided]] = bad
            pieces.append((places[undecided], columns))
        return pieces

    def _joined(self, pieces: list[Piece], count: int) -> dict[str, pa.Array]:
        if len(pieces) == 1 and len(pieces[0][0]) == count:
            return pieces[0][1]
        if not pieces:
            return {field.name: pa.nulls(count, field.type) for field in self._wanted}
        places = np.concatenate([places for places, _ in pieces])
        return {
            field.name: spread(
                pa.concat_arrays([columns[field.name] for _, columns in pieces]), places, count
            )
            for field in self._wanted
        }


def _padded(values: pa.Array) -> tuple[npt.NDArray[np.uint8], Integers]:
    """The bytes of a binary array with padding behind them, and where each value begins, and the
    last one ends."""
    count = len(values)
    _, offsets, data = values.buffers()
    if not count:
        return np.zeros(PADDING_BYTES, np.uint8), np.zeros(1, np.int64)
    limits = np.frombuffer(offsets, np.int32)[values.offset : values.offset + count + 1]
    first, last = int(limits[0]), int(limits[-1])
    padded = np.zeros(last - first + PADDING_BYTES, np.uint8)
    if last > first:
        padded[: last - first] = np.frombuffer(data, np.uint8)[first:last]
    return padded, limits.astype(np.int64) - first


def one_by_one(
    values: list[bytes], schema: Any, wanted: pa.Schema
) -> tuple[dict[str, pa.Array], Mask]:
    """The fields of values and which cannot be read, by fastavro."""
    from fastavro import schemaless_reader

    rows: list[Any] = []
    failed = np.zeros(len(values), np.bool_)
    for index, value in enumerate(values):
        stream = io.BytesIO(value)
        try:
            row = schemaless_reader(stream, schema, None)
        except Exception:
            # fastavro raises whatever comes up: IndexError, EOFError, OverflowError, ...
            row = None
        failed[index] = not isinstance(row, dict) or stream.tell() < len(value)
        rows.append({} if failed[index] else row)
    try:
        columns = _columns_of(rows, wanted)
    except _REFUSALS:
        for index, row in enumerate(rows):
            try:
                _columns_of([row], wanted)
            except _REFUSALS:
                failed[index], rows[index] = True, {}
        columns = _columns_of(rows, wanted)
    return columns, failed


def _columns_of(rows: list[Any], wanted: pa.Schema) -> dict[str, pa.Array]:
    columns = {}
    for field in wanted:
        items = [row.get(field.name) for row in rows]
        is_cut = _cutting(field.type)
        if is_cut is not None and any(map(is_cut, items)):
            raise TypeError(f"what does not fit into {field.type}")
        columns[field.name] = pa.array(items, field.type)
    return columns


@cache
def _cutting(kind: pa.DataType) -> Callable[[Any], bool] | None:
    """What says of an item whether Arrow would make another value of it, without a word, for it to
    be one of that type; None where it never does."""
    if pa.types.is_date(kind):
        return lambda item: isinstance(item, datetime) or _is_fraction(item)
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return _is_fraction
    if pa.types.is_floating(kind):
        limit = _FLOAT_LIMIT if kind == pa.float32() else inf
        return lambda item: (
            isinstance(item, bool) or (isinstance(item, float) and limit <= abs(item) < inf)
        )
    if pa.types.is_struct(kind):
        found = [(field.name, _cutting(field.type)) for field in kind]
        parts = [(name, is_cut) for name, is_cut in found if is_cut is not None]
        if not parts:
            return None
        return lambda item: (
            isinstance(item, dict) and any(is_cut(item.get(name)) for name, is_cut in parts)
        )
    if pa.types.is_list(kind) and (of_items := _cutting(kind.value_type)) is not None:
        return lambda item: isinstance(item, list) and any(map(of_items, item))
    if pa.types.is_map(kind) and (of_values := _cutting(kind.item_type)) is not None:
        return lambda item: isinstance(item, dict) and any(map(of_values, item.values()))
    return None


def _is_fraction(item: Any) -> bool:
    """Decimals may be whole by their scale; what is a float may be any number."""
    return isinstance(item, float) or (isinstance(item, Decimal) and item % 1 != 0)
