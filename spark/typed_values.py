"""Decodes keys and values at the source, many at a time, into the columns of the user's schema.

JSON is parsed by Arrow: the values of a batch are joined by line feeds and read as one document a
line. That is right only if each value is one object. Each has to begin with `{` and to end with
`}`, and then nothing but whole objects can be made of them together: no value that ends inside an
object can be gone on with by one that begins with `{`, and a line feed cannot be inside a string.
So there are as many objects as values only if each value is one. What Arrow refuses together is
looked at one by one, to tell the bad ones from the others.

Avro is in `avro_decoder.py`.

A null key or value is not decoded: its fields are null. One that cannot be decoded is, by
`onDecodeError`, an error that names topic, partition and offset; null; or its row is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)

from asyncbroker.client.cluster import TopicPartition
from asyncbroker.spark.avro_decoder import AvroDecoder
from asyncbroker.spark.formats import DROP, FAIL, JSON, STRING, Formats
from asyncbroker.spark.record_columns import ARROW_TYPES, strings
from asyncbroker.spark.typed_schema import TypedField, decoded_fields

Mask = npt.NDArray[np.bool_]

_NO_ROWS: Final = np.zeros(0, np.bool_)
_ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


class UndecodableValue(Exception):
    """A key or value that is not what its format says."""


def arrow_type(kind: DataType) -> pa.DataType:
    """The type that Spark expects for one of its own."""
    if isinstance(kind, StructType):
        return pa.struct([arrow_field(field) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType), kind.containsNull))
    if isinstance(kind, MapType):
        item = pa.field("value", arrow_type(kind.valueType), kind.valueContainsNull)
        return pa.map_(pa.field("key", arrow_type(kind.keyType), False), item)
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return _ARROW_TYPES[kind.simpleString()]


def arrow_field(field: StructField) -> pa.Field:
    return pa.field(field.name, arrow_type(field.dataType), field.nullable)


class TypedColumns:
    """Makes rows of the user's schema of rows with the source's columns."""

    def __init__(
        self, fields: Sequence[TypedField], formats: Formats, partition: TopicPartition
    ) -> None:
        self._fields = fields
        self._formats = formats
        self._partition = partition
        self.schema = pa.schema(
            [
                pa.field(one.field.name, ARROW_TYPES[one.column])
                if one.origin == "column"
                else arrow_field(one.field)
                for one in fields
            ]
        )
        used = {one.column for one in fields if one.origin != "column"}
        self._decoders = {
            side: _decoder_of(side, fields, formats) for side in ("key", "value") if side in used
        }

    def rows(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Raises UndecodableValue."""
        decoded: dict[str, dict[str, pa.Array]] = {}
        failed: dict[str, Mask] = {}
        for side, decode in self._decoders.items():
            values = records.column(side)
            decoded[side], failed[side] = decode(values)
            if failed[side].any() and self._formats.on_error == FAIL:
                raise self._error(side, records, int(np.argmax(failed[side])))
        arrays = [self._array(one, records, decoded, failed) for one in self._fields]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if self._formats.on_error == DROP and failed:
            bad = np.logical_or.reduce(list(failed.values()))
            if bad.any():
                rows = rows.filter(pa.array(~bad))
        return rows

    def _array(
        self,
        one: TypedField,
        records: pa.RecordBatch,
        decoded: dict[str, dict[str, pa.Array]],
        failed: dict[str, Mask],
    ) -> pa.Array:
        values = records.column(one.column)
        match one.origin:
            case "column":
                return values
            case "field":
                return decoded[one.column][one.field.name]
            case "corrupt":
                bad = pa.array(failed[one.column])
                return strings(pc.if_else(bad, values, pa.scalar(None, values.type)))
        if not isinstance(one.field.dataType, StructType):
            return decoded[one.column][one.field.name]
        kind = arrow_type(one.field.dataType)
        absent = failed[one.column] | np.asarray(values.is_null())
        children = [decoded[one.column][name] for name in one.field.dataType.fieldNames()]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.array(absent))

    def _error(self, side: str, records: pa.RecordBatch, index: int) -> UndecodableValue:
        raw: bytes = records.column(side)[index].as_py()
        return UndecodableValue(
            f"{self._partition}, offset {records.column('offset')[index].as_py()}: the {side} is "
            f"not what {side}Format={self._formats.of(side)} and the schema say: {raw[:80]!r}. "
            "With onDecodeError=null such records come as nulls, with drop not at all."
        )


Decode = Callable[[pa.Array], tuple[dict[str, pa.Array], Mask]]


def _decoder_of(side: str, fields: Sequence[TypedField], formats: Formats) -> Decode:
    """What decodes a key or value column into fields by name, and tells which rows it cannot."""
    schema = pa.schema([arrow_field(field) for field in decoded_fields(fields, side)])
    form = formats.of(side)
    if form == STRING:
        return lambda values: _decode_by_value(values, schema, _read_strings, _readable)
    if form == JSON:
        return lambda values: _decode_by_value(values, schema, _read_json, _readable_json)
    schemas = formats.schema_of(side) or ""
    return AvroDecoder(form, schemas, schema, formats.reader_of(side)).decode


def _spread(
    arrays: Sequence[pa.Array], schema: pa.Schema, places: npt.NDArray[np.int64], count: int
) -> dict[str, pa.Array]:
    """The arrays by name, with their rows at `places` among `count`, the others null."""
    if len(places) == count:
        return dict(zip(schema.names, arrays, strict=True))
    indexes = np.full(count, -1, np.int64)
    indexes[places] = np.arange(len(places))
    taken = pa.array(indexes, mask=indexes < 0)
    return {name: array.take(taken) for name, array in zip(schema.names, arrays, strict=True)}


Read = Callable[[pa.Array, pa.Schema], list[pa.Array]]
"""Makes columns of values, none of them null; refuses all of them for a single bad one."""


def _decode_by_value(
    values: pa.Array,
    schema: pa.Schema,
    read: Read,
    readable: Callable[[pa.Array, pa.Schema, Read], Mask],
) -> tuple[dict[str, pa.Array], Mask]:
    """Reads all that is not null together and, if that fails, those that are `readable`."""
    count = len(values)
    places = np.flatnonzero(np.asarray(values.is_valid()))
    failed = np.zeros(count, np.bool_)
    present = values if len(places) == count else values.take(pa.array(places))
    try:
        return _spread(read(present, schema), schema, places, count), failed
    except _REFUSALS:
        good = readable(present, schema, read)
    failed[places[~good]] = True
    places = places[good]
    arrays = read(present.filter(pa.array(good)), schema)
    return _spread(arrays, schema, places, count), failed


_REFUSALS: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError, ValueError)


def _readable(values: pa.Array, schema: pa.Schema, read: Read) -> Mask:
    """Which of the values can be read, by halves: what can be read together needs no more."""
    count = len(values)
    if count == 0:
        return _NO_ROWS
    try:
        read(values, schema)
    except _REFUSALS:
        if count == 1:
            return np.zeros(1, np.bool_)
        half = count // 2
        first, second = values.slice(0, half), values.slice(half)
        return np.concatenate([_readable(first, schema, read), _readable(second, schema, read)])
    return np.ones(count, np.bool_)


# ---- string


def _read_strings(values: pa.Array, schema: pa.Schema) -> list[pa.Array]:
    text = values.cast(pa.string())
    return [text for _ in schema.names]


# ---- JSON


def _readable_json(values: pa.Array, schema: pa.Schema, read: Read) -> Mask:
    """Nearly all that is bad is no JSON at all, which Python tells faster than halves do."""
    good = np.fromiter(map(_is_object, values.to_pylist()), np.bool_, len(values))
    good[good] = _readable(values.filter(pa.array(good)), schema, read)
    return good


def _is_object(value: bytes) -> bool:
    try:
        return isinstance(json.loads(value), dict)
    except (ValueError, RecursionError):
        return False


def _read_json(values: pa.Array, schema: pa.Schema) -> list[pa.Array]:
    """The fields of values that are all objects; raises what Arrow raises for others."""
    from pyarrow import json as arrow_json

    count = len(values)
    if count == 0:
        return [pa.array([], field.type) for field in schema]
    _check_objects(values)
    # A string that is not UTF-8 is passed on by Arrow as it is.
    values.cast(pa.string())
    places = pa.array([0, count], pa.int32())
    joined = pc.binary_join(pa.ListArray.from_arrays(places, values), b"\n")
    document = joined[0].as_buffer()
    table = arrow_json.read_json(
        pa.BufferReader(document),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(document) + 1),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=pa.schema([(field.name, _read_as(field.type)) for field in schema]),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        ),
    )
    if table.num_rows != count:
        raise ValueError(f"{table.num_rows} objects in {count} values")
    table = table.combine_chunks()
    columns = [_one_chunk(table.column(field.name)) for field in schema]
    found = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
    for column, one in zip(columns, found, strict=True):
        _check_numbers(column, one)
    return found


def _check_numbers(array: pa.Array, found: pa.Array) -> None:
    """Raises ValueError for a number that is too large for its type and taken all the same: for a
    decimal by Arrow's reader, for a float by a cast, which makes it infinite."""
    kind = found.type
    if pa.types.is_struct(kind):
        for part, found_part in zip(array.flatten(), found.flatten(), strict=True):
            _check_numbers(part, found_part)
    elif pa.types.is_list(kind):
        _check_numbers(array.flatten(), found.flatten())
    elif pa.types.is_decimal(kind):
        found.validate(full=True)
    elif kind == pa.float32():
        grown = pc.not_equal(pc.is_inf(found), pc.is_inf(array))
        if pc.any(grown).as_py():
            raise ValueError("a number does not fit into a float")


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _read_as(kind: pa.DataType) -> pa.DataType:
    """Dates are strings to Arrow's reader, and floats are doubles; they are cast afterwards."""
    if pa.types.is_date(kind):
        return pa.string()
    if kind == pa.float32():
        return pa.float64()
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _read_as(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _read_as(kind.value_type)))
    return kind


def _check_objects(values: pa.Array) -> None:
    """Raises ValueError unless every value begins with { and ends with }, blanks aside."""
    trimmed = values
    for _ in range(2):
        offsets = np.frombuffer(trimmed.buffers()[1], np.int32)[trimmed.offset :][
            : len(trimmed) + 1
        ]
        data = np.frombuffer(trimmed.buffers()[2] or b"", np.uint8)
        if (offsets[1:] > offsets[:-1]).all() and (
            (data[offsets[:-1]] == ord("{")) & (data[offsets[1:] - 1] == ord("}"))
        ).all():
            return
        trimmed = pc.ascii_trim(values.cast(pa.string()), " \t\r\n")
    raise ValueError("a value is no JSON object")
