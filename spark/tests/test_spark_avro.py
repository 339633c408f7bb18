"""Avro decoded many values at a time, held equal to fastavro value by value."""

from __future__ import annotations

import io
import json
from datetime import datetime, timezone
from decimal import Decimal, localcontext
from math import inf
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncbroker.spark.avro_columns import NotColumnar, columns_reader
from asyncbroker.spark.avro_decoder import AvroDecoder
from asyncbroker.spark.avro_rows import one_by_one
from asyncbroker.spark.typed_avro import parsed_schemas

UTC = pa.timestamp("us", tz="UTC")
WHOLE: Any = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64()]


def logical(form: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": form, "logicalType": logical_type, **more}


# Each type of Avro's that is read many at a time, and what it may become.
KINDS: list[tuple[Any, list[Any]]] = [
    ("null", [pa.string(), pa.int32()]),
    ("boolean", [pa.bool_()]),
    ("int", WHOLE),
    ("long", WHOLE),
    ("float", [pa.float32(), pa.float64()]),
    ("double", [pa.float32(), pa.float64()]),
    ("bytes", [pa.binary(), pa.string()]),
    ({"type": "string", "avro.java.string": "String"}, [pa.string(), pa.binary()]),
    (logical("string", "uuid"), [pa.string()]),
    (logical("int", "date"), [pa.date32()]),
    (logical("int", "time-millis"), [pa.int32()]),
    (logical("long", "timestamp-millis"), [UTC, pa.timestamp("us")]),
    (logical("long", "timestamp-micros"), [UTC]),
    (logical("long", "local-timestamp-millis"), [pa.timestamp("us")]),
    (logical("long", "local-timestamp-micros"), [pa.timestamp("us")]),
    (logical("bytes", "decimal", precision=5, scale=2), [pa.decimal128(p, 2) for p in (4, 5, 9)]),
    (logical("bytes", "decimal", precision=30, scale=3), [pa.decimal128(38, 3)]),
    ({"type": "enum", "name": "E<n>", "symbols": ["A", "B", "C"]}, [pa.string()]),
    ({"type": "fixed", "name": "F<n>", "size": 3}, [pa.binary()]),
    (
        logical("fixed", "decimal", name="D<n>", size=12, precision=20, scale=1),
        [pa.decimal128(20, 1)],
    ),
]


@st.composite
def plain_kinds(draw: st.DrawFn, name: str) -> tuple[Any, Any]:
    """A type of Avro's and one of Arrow's, perhaps with null."""
    schema, wanted = draw(st.sampled_from(KINDS))
    named = json.loads(json.dumps(schema).replace("<n>", name))
    around = [named] if named == "null" else draw(st.sampled_from([[named], [named, "null"], None]))
    if around and draw(st.booleans()):
        around = around[::-1]
    return (named if around is None or named == "null" else around), draw(st.sampled_from(wanted))


@st.composite
def records(draw: st.DrawFn, path: str = "R", depth: int = 1) -> tuple[Any, list[Any]]:
    """A record's schema, and the fields that are wanted of it."""
    fields, wanted = [], []
    for number in range(draw(st.integers(1, 4))):
        name = f"f{number}"
        if depth and draw(st.integers(0, 4)) == 0:
            schema, inner = draw(records(path + name, depth - 1))
            # Of what is not in the schema there are nulls.
            kind = pa.struct([*inner, ("missing", pa.int32())])
            schema = draw(st.sampled_from([schema, ["null", schema]]))
        else:
            schema, kind = draw(plain_kinds(path + name))
        fields.append({"name": name, "type": schema})
        wanted.append((name, kind))
    return {"type": "record", "name": path, "fields": fields}, wanted


# The first and last of days, milliseconds and microseconds that are dates, and their neighbours.
LIMITS = [-719162, 2932896, -62_135_596_800_000, 253_402_300_799_999]
LIMITS += [LIMITS[2] * 1000, LIMITS[3] * 1000 + 999, 1 << 7, 1 << 15, 1 << 31, 1 << 53, -(1 << 53)]
edges = st.builds(int.__add__, st.sampled_from(LIMITS), st.integers(-1, 1))
numbers = st.integers(-(1 << 17), 1 << 17) | edges | st.integers(-(1 << 63), (1 << 63) - 1)
# Longer than they have to be, or than they may be.
odd_numbers = st.builds(
    lambda head, count, last: head * count + last,
    st.sampled_from([b"\x80", b"\xff"]),
    st.integers(1, 10),
    st.sampled_from([b"\0", b"\1", b"\2", b"\x7f"]),
)


def zigzag(number: int) -> bytes:
    value, found = number << 1 ^ number >> 63, bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def encoded(draw: Any, schema: Any) -> bytes:
    """Bytes of a value, drawn as they lie there: not all of them are ones that anybody means."""
    if isinstance(schema, list):
        chosen = draw(st.integers(0, len(schema) - 1))
        return zigzag(chosen) + encoded(draw, schema[chosen])
    form = schema if isinstance(schema, str) else schema["type"]
    if form in ("int", "long"):
        return bytes(draw(st.builds(zigzag, numbers) | odd_numbers))
    if form in ("bytes", "string"):
        is_text = form == "string" or draw(st.booleans())
        content = (
            draw(st.text("aé€\U0001f600", max_size=8)).encode()
            if is_text
            else draw(st.binary(max_size=18))
        )
        return zigzag(len(content)) + bytes(content)
    if form == "record":
        return b"".join(encoded(draw, field["type"]) for field in schema["fields"])
    if form == "enum":
        return zigzag(draw(st.integers(0, 2)))
    sizes = {"null": 0, "boolean": 1, "float": 4, "double": 8}
    size = schema["size"] if form == "fixed" else sizes[form]
    sign = draw(st.sampled_from([b"", b"\0" * size, b"\xff" * size]))
    found: bytes = sign + bytes(draw(st.binary(min_size=size, max_size=size)))
    return found[max(0, len(sign) - 4) :][:size]


def damaged(draw: Any, value: bytes) -> bytes:
    place = draw(st.integers(0, len(value)))
    how = draw(st.sampled_from(["whole"] * 4 + ["cut", "changed", "longer"]))
    if how == "changed" and place < len(value):
        byte = draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]))
        return value[:place] + bytes([byte]) + value[place + 1 :]
    more: bytes = draw(st.sampled_from([b"\0", b"\xff" * 11, b"\1"]))
    return {"cut": value[:place], "longer": value + more}.get(how, value)


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_many_values_are_what_each_is_to_fastavro(data: st.DataObject) -> None:
    written, fields = data.draw(records())
    wanted = pa.schema(fields)
    values: list[bytes | None] = [
        None
        if data.draw(st.integers(0, 6)) == 0
        else damaged(data.draw, encoded(data.draw, written))
        for _ in range(data.draw(st.integers(0, 8)))
    ]
    text = json.dumps(written)
    parsed = parsed_schemas("avro", text)[None]
    columns_reader(parsed, wanted)
    array = pa.array([b"before", *values, b"behind"], pa.binary()).slice(1, len(values))
    columns, failed = AvroDecoder("avro", text, wanted).decode(array)
    for index, value in enumerate(values):
        found = {name: column[index].as_py() for name, column in columns.items()}
        if value is None:
            assert not failed[index]
            assert set(found.values()) <= {None}
            continue
        (expected, bad) = one_by_one([value], parsed, wanted)
        if failed[index]:
            assert set(found.values()) <= {None}
            assert bad[0] or is_written_otherwise(value, parsed)
        else:
            assert not bad[0]
            assert repr(found) == repr({name: one[0].as_py() for name, one in expected.items()})
    for column, field in zip(columns.values(), wanted, strict=True):
        assert column.type == field.type
        column.validate(full=True)


PERSON = {
    "type": "record",
    "name": "Person",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
}


def written(schema: Any, *rows: Any) -> pa.Array:
    values = []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
        values.append(stream.getvalue())
    return pa.array(values, pa.binary())


@pytest.mark.parametrize(
    ("kind", "wanted", "value"),
    [
        ({"type": "array", "items": "int"}, pa.list_(pa.int32()), [1, 2]),
        (["null", "int", "string"], pa.string(), "a"),
        ({"type": "map", "values": "int"}, None, {"a": 1}),
        (["null", "R"], None, {"x": None, "id": 5}),
        ("int", pa.decimal128(5, 2), Decimal("7.00")),
    ],
)
def test_what_has_no_columns_is_read_value_by_value(kind: Any, wanted: Any, value: Any) -> None:
    fields = [{"name": "x", "type": kind}, {"name": "id", "type": "long"}]
    schema = {"type": "record", "name": "R", "fields": fields}
    asked = pa.schema([("id", pa.int64()), *([("x", wanted)] if wanted else [])])
    parsed = parsed_schemas("avro", json.dumps(schema))[None]
    with pytest.raises(NotColumnar):
        columns_reader(parsed, asked)
    columns, failed = AvroDecoder("avro", json.dumps(schema), asked).decode(
        written(schema, {"x": value, "id": 3}, {"x": value, "id": 4})
    )
    assert not failed.any()
    assert columns["id"].to_pylist() == [3, 4]
    assert not wanted or columns["x"].to_pylist() == [value, value]


def test_a_type_that_is_used_again_by_its_name_is_known() -> None:
    fields = [{"name": "a", "type": PERSON}, {"name": "b", "type": ["null", "Person"]}]
    schema = {"type": "record", "name": "Two", "namespace": "n", "fields": fields}
    person = pa.struct([("name", pa.string())])
    asked = pa.schema([("b", person), ("a", person)])
    columns_reader(parsed_schemas("avro", json.dumps(schema))[None], asked)
    rows = [{"a": {"id": 1, "name": "x"}, "b": b} for b in ({"id": 2, "name": "é"}, None)]
    columns, failed = AvroDecoder("avro", json.dumps(schema), asked).decode(written(schema, *rows))
    assert not failed.any()
    assert columns["a"].to_pylist() == [{"name": "x"}, {"name": "x"}]
    assert columns["b"].to_pylist() == [{"name": "é"}, None]


def test_values_of_several_schemas_keep_their_order() -> None:
    """One of them is read value by value."""
    newer = {
        **PERSON,
        "fields": [*PERSON["fields"], {"name": "more", "type": {"type": "array", "items": "int"}}],
    }
    text = json.dumps({"7": PERSON, "300": newer})
    older_values = written(PERSON, *({"id": i, "name": "o"} for i in range(3))).to_pylist()
    newer_values = written(
        newer, *({"id": i, "name": "n", "more": [i]} for i in range(3))
    ).to_pylist()
    values: list[bytes | None] = []
    for older_value, newer_value in zip(older_values, newer_values, strict=True):
        values += [b"\0\0\0\1\x2c" + newer_value, b"\0\0\0\0\7" + older_value]
        values += [None, b"\0\0\0\0\6" + older_value, b"\0\0\0", newer_value]
    asked = pa.schema([("id", pa.int32()), ("name", pa.string())])
    columns, failed = AvroDecoder("confluent-avro", text, asked).decode(pa.array(values))
    rows = zip(columns["id"].to_pylist(), columns["name"].to_pylist(), strict=True)
    none = [(None, None)] * 4
    assert list(rows) == [row for i in range(3) for row in [(i, "n"), (i, "o"), *none]]
    assert failed.tolist() == [False, False, False, True, True, True] * 3


def test_a_fraction_is_not_cut_to_a_whole_number() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "double"}]}
    decoder = AvroDecoder("avro", json.dumps(schema), pa.schema([("x", pa.int32())]))
    columns, failed = decoder.decode(written(schema, {"x": 1.5}, {"x": 2.0}))
    assert failed.all()
    assert columns["x"].to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("form", "value", "wanted"),
    [
        ({"type": "array", "items": "double"}, [2.0, 1.5], pa.list_(pa.int64())),
        ({"type": "map", "values": "double"}, {"k": 1.5}, pa.map_(pa.string(), pa.int64())),
        (
            {"type": "record", "name": "S", "fields": [{"name": "y", "type": "double"}]},
            {"y": 1.5},
            pa.struct([("y", pa.int64())]),
        ),
        (logical("bytes", "decimal", precision=6, scale=2), Decimal("1.50"), pa.int64()),
        ("double", 1.5, pa.date32()),
        ("double", 1.5, UTC),
    ],
    ids=["list", "map", "record", "decimal", "date", "timestamp"],
)
def test_a_fraction_is_not_cut_wherever_it_is(form: Any, value: Any, wanted: pa.DataType) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": form}]}
    decoder = AvroDecoder("avro", json.dumps(schema), pa.schema([("x", wanted)]))
    columns, failed = decoder.decode(written(schema, {"x": value}))
    assert failed.all()
    assert columns["x"].to_pylist() == [None]


NOON = datetime(2024, 1, 2, 12, tzinfo=timezone.utc)

# What Arrow would take for another value: half a day, an infinite number, one for true.
NOT_THE_SAME: list[tuple[Any, Any, pa.DataType]] = [
    (logical("long", "timestamp-millis"), NOON, pa.date32()),
    (logical("long", "local-timestamp-micros"), NOON.replace(tzinfo=None), pa.date32()),
    ("double", 1e300, pa.float32()),
    ("boolean", True, pa.float64()),
]


@pytest.mark.parametrize(("form", "value", "wanted"), NOT_THE_SAME)
def test_a_value_that_does_not_fit_is_made_into_no_other(
    form: Any, value: Any, wanted: pa.DataType
) -> None:
    parts: list[tuple[Any, Any, pa.DataType]] = [
        (form, value, wanted),
        (["null", form], value, wanted),
        ([form, "bytes", "null"], value, wanted),
        ({"type": "array", "items": form}, [value], pa.list_(wanted)),
        ({"type": "map", "values": ["null", form]}, {"k": value}, pa.map_(pa.string(), wanted)),
    ]
    for kind, content, column in parts:
        schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
        decoder = AvroDecoder("avro", json.dumps(schema), pa.schema([("x", column)]))
        columns, failed = decoder.decode(written(schema, {"x": content}))
        assert failed.all(), kind
        assert columns["x"].to_pylist() == [None]


def test_what_is_infinite_stays_so() -> None:
    for kind in ("double", {"type": "array", "items": "double"}):
        schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
        is_list = isinstance(kind, dict)
        column = pa.list_(pa.float32()) if is_list else pa.float32()
        found = [[number] if is_list else number for number in (inf, -inf, 0.5)]
        decoder = AvroDecoder("avro", json.dumps(schema), pa.schema([("x", column)]))
        columns, failed = decoder.decode(written(schema, *({"x": one} for one in found)))
        assert not failed.any()
        assert columns["x"].to_pylist() == found


def test_a_decimal_that_is_whole_may_be_a_whole_number() -> None:
    kind = logical("bytes", "decimal", precision=6, scale=2)
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
    decoder = AvroDecoder("avro", json.dumps(schema), pa.schema([("x", pa.int64())]))
    values = written(schema, {"x": Decimal("2.00")}, {"x": Decimal("1.50")})
    columns, failed = decoder.decode(values)
    assert failed.tolist() == [False, True]
    assert columns["x"].to_pylist() == [2, None]


def test_a_number_may_be_microseconds() -> None:
    fields = [{"name": "t", "type": "long"}]
    schema = {"type": "record", "name": "R", "fields": fields}
    values = written(schema, {"t": 1}, {"t": -(1 << 63)}, {"t": (1 << 63) - 1})
    columns, failed = AvroDecoder("avro", json.dumps(schema), pa.schema([("t", UTC)])).decode(
        values
    )
    assert not failed.any()
    assert columns["t"].type == UTC
    assert columns["t"].cast(pa.int64()).to_pylist() == [1, -(1 << 63), (1 << 63) - 1]


def test_a_decimal_of_any_size_is_read() -> None:
    kind = logical("bytes", "decimal", precision=38, scale=2)
    schema = {"type": "record", "name": "R", "fields": [{"name": "d", "type": kind}]}
    numbers = [0, -1, 10**18 - 1, 10**18, 1 << 63, -(10**37), 10**38 - 1]
    asked = pa.schema([("d", pa.decimal128(38, 2))])
    with localcontext() as context:
        context.prec = 38
        amounts = [Decimal(number).scaleb(-2) for number in numbers]
        values = written(schema, *({"d": amount} for amount in amounts))
        columns, failed = AvroDecoder("avro", json.dumps(schema), asked).decode(values)
    assert not failed.any()
    assert columns["d"].to_pylist() == amounts


def is_written_otherwise(value: bytes, schema: Any) -> bool:
    """Whether fastavro reads what it would not write: it lets pass indexes below zero and numbers
    of more than 64 bits."""
    row, stream = fastavro.schemaless_reader(io.BytesIO(value), schema, None), io.BytesIO()
    try:
        fastavro.schemaless_writer(stream, schema, row)
    except ValueError:
        return True
    return stream.getvalue() != value
