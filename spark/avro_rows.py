"""Decodes Avro values one by one, by fastavro: what cannot be decoded many at a time.

Arrow makes columns of what fastavro has read; where it would make another value of one without a
word, the value is one that cannot be decoded.
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
import pyarrow as pa

from asyncbroker.spark.avro_columns import Mask

_REFUSALS: Final = (
    *(pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError),
    *(UnicodeDecodeError, ValueError, TypeError, OverflowError),
)

_FLOAT_LIMIT: Final = (2 - 2**-24) * 2.0**127
"""From here on numbers become infinite as floats of 32 bits."""


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
