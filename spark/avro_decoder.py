"""Decodes Avro values into columns: many at a time where that is possible, else one by one.

`avro_columns.py` reads most schemas many values at a time. What it has no table for is read by
fastavro, value by value: whole schemas, and single values that it leaves undecided. Both ways give
the same columns for the same bytes, but for bytes that Avro does not allow and fastavro lets pass,
such as a negative index into a union: they are damaged here.

Values in the wire format of registries are read for each schema together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

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
from asyncbroker.spark.avro_resolution import resolved
from asyncbroker.spark.avro_rows import one_by_one
from asyncbroker.spark.fields import Integers
from asyncbroker.spark.formats import CONFLUENT_AVRO
from asyncbroker.spark.typed_avro import parsed_schemas, readers

_HEAD_BYTES: Final = 5
Piece = tuple[Integers, dict[str, pa.Array]]
"""Columns of the values at these places."""


class AvroDecoder:
    """Reads values by one schema, or by one for each id, into the fields of `wanted`, as a reader's
    schema or the newest one has them."""

    def __init__(self, form: str, text: str, wanted: pa.Schema, reader: str | None = None) -> None:
        """Raises ValueError for a schema that is none, ImportError."""
        self._has_heads = form == CONFLUENT_AVRO
        self._wanted = wanted
        schemas = parsed_schemas(form, text)
        self._schemas = {
            schema_id: resolved(schemas[schema_id], to_reader, wanted)
            for schema_id, to_reader in readers(schemas, reader).items()
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
