"""Values of an older schema as the newest one has them: Avro's schema resolution."""

from __future__ import annotations

import io
import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from asyncbroker.spark.avro_columns import NotColumnar, columns_reader
from asyncbroker.spark.avro_decoder import AvroDecoder
from asyncbroker.spark.avro_resolution import resolved
from asyncbroker.spark.avro_rows import one_by_one
from asyncbroker.spark.formats import Formats, formats_from
from asyncbroker.spark.tests.test_spark_avro import UTC, logical, written
from asyncbroker.spark.typed_avro import parsed_schemas
from asyncbroker.spark.typed_schema import typed_fields

ID = {"name": "id", "type": "long"}
# With it, a schema is read value by value.
LIST = {"name": "list", "type": {"type": "array", "items": "int"}}
POINT = {
    "type": "record",
    "name": "Point",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 9}],
}
POINT_KIND = pa.struct([("y", pa.int32()), ("x", pa.int64())])
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def decoded(
    older: Any, newer: Any, wanted: list[tuple[str, Any]], *rows: Any
) -> tuple[dict[str, list[Any]], list[bool]]:
    """Rows of the older schema."""
    heads = [b"\0\0\0\0\1" + value for value in written(older, *rows).to_pylist()]
    asked = pa.schema(wanted)
    decoder = AvroDecoder("confluent-avro", json.dumps({"1": older, "2": newer}), asked)
    columns, failed = decoder.decode(pa.array(heads, pa.binary()))
    for field in asked:
        assert columns[field.name].type == field.type
        columns[field.name].validate(full=True)
    return {name: column.to_pylist() for name, column in columns.items()}, failed.tolist()


DEFAULTS: list[tuple[Any, Any, Any, Any]] = [
    ("boolean", True, pa.bool_(), True),
    ("int", -5, pa.int32(), -5),
    ("long", 1 << 40, pa.int64(), 1 << 40),
    ("float", 1, pa.float32(), 1.0),
    ("double", 0.1, pa.float64(), 0.1),
    ("string", "é", pa.string(), "é"),
    ("bytes", "\u00ff\u0000a", pa.binary(), b"\xff\0a"),
    ({"type": "fixed", "name": "F", "size": 2}, "\u00fe\u0001", pa.binary(), b"\xfe\1"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", pa.string(), "B"),
    (logical("int", "date"), 3, pa.date32(), date(1970, 1, 4)),
    (logical("long", "timestamp-millis"), 0, UTC, EPOCH),
    (logical("long", "timestamp-micros"), 7, UTC, EPOCH.replace(microsecond=7)),
    (logical("long", "local-timestamp-millis"), 0, pa.timestamp("us"), datetime(1970, 1, 1)),
    (
        logical("bytes", "decimal", precision=5, scale=2),
        "\u0001\u0000",
        pa.decimal128(5, 2),
        Decimal("2.56"),
    ),
    (["null", "int"], None, pa.int32(), None),
    (["int", "null"], 4, pa.int32(), 4),
    (["null", "string"], "later", pa.string(), "later"),
    ({"type": "array", "items": "long"}, [1, 2], pa.list_(pa.int64()), [1, 2]),
    ({"type": "map", "values": "int"}, {"k": 1}, pa.map_(pa.string(), pa.int32()), [("k", 1)]),
    (POINT, {"x": 1}, POINT_KIND, {"y": 9, "x": 1}),
    (["null", "int", "string"], None, pa.struct([("member0", pa.int32())]), None),
    (
        ["string", "int", "null"],
        "s",
        pa.struct([("member1", pa.int32()), ("member0", pa.string())]),
        {"member1": None, "member0": "s"},
    ),
]


@pytest.mark.parametrize(("kind", "default", "wanted", "found"), DEFAULTS)
@pytest.mark.parametrize("is_bulk", [True, False], ids=["in bulk", "one by one"])
def test_a_field_that_was_not_written_is_the_default(
    kind: Any, default: Any, wanted: pa.DataType, found: Any, is_bulk: bool
) -> None:
    more = [] if is_bulk else [LIST]
    older = record(ID, *more)
    newer = record({"name": "new", "type": kind, "default": default}, ID, *more)
    asked: list[tuple[str, Any]] = [("new", wanted), ("id", pa.int64())]
    parsed = [parsed_schemas("avro", json.dumps(one))[None] for one in (older, newer)]
    changed = resolved(parsed[0], parsed[1], pa.schema(asked))
    if is_bulk:
        columns_reader(changed, pa.schema(asked))
    else:
        with pytest.raises(NotColumnar):
            columns_reader(changed, pa.schema(asked))
    columns, failed = decoded(older, newer, asked, *({"id": i, "list": [i]} for i in range(3)))
    assert failed == [False] * 3
    assert columns == {"new": [found] * 3, "id": [0, 1, 2]}


def test_records_in_records_arrays_maps_and_unions_have_their_defaults() -> None:
    old_point = record({"name": "x", "type": "int"}, name="Point")
    places: list[tuple[Any, Any, Any, Any]] = [
        ("Point", POINT_KIND, {"x": 1}, {"y": 9, "x": 1}),
        (["null", "Point"], POINT_KIND, {"x": 1}, {"y": 9, "x": 1}),
        ({"type": "array", "items": "Point"}, pa.list_(POINT_KIND), [{"x": 1}], [{"y": 9, "x": 1}]),
        (
            {"type": "map", "values": ["null", "Point"]},
            pa.map_(pa.string(), POINT_KIND),
            {"k": {"x": 1}, "n": None},
            [("k", {"y": 9, "x": 1}), ("n", None)],
        ),
        (
            ["int", "Point"],
            pa.struct([("member_point", POINT_KIND), ("member_int", pa.int32())]),
            {"x": 1},
            {"member_point": {"y": 9, "x": 1}, "member_int": None},
        ),
    ]
    for kind, wanted, value, found in places:
        fields = [{"name": "first", "type": old_point}, {"name": "u", "type": kind}]
        older = record(*fields)
        newer = record({"name": "first", "type": POINT}, *fields[1:])
        columns, failed = decoded(older, newer, [("u", wanted)], {"first": {"x": 5}, "u": value})
        assert failed == [False]
        assert columns["u"] == [found]


def test_a_record_inside_itself_has_its_default_on_each_level() -> None:
    node = record({"name": "next", "type": ["null", "Node"]}, name="Node")
    newer = record(*node["fields"], {"name": "v", "type": "int", "default": 3}, name="Node")
    inner = pa.struct([("v", pa.int32())])
    asked = [("next", pa.struct([("next", inner), ("v", pa.int32())])), ("v", pa.int32())]
    row = {"next": {"next": {"next": {"next": None}}}}
    columns, failed = decoded(node, newer, asked, row)
    assert failed == [False]
    assert columns == {"next": [{"next": {"v": 3}, "v": 3}], "v": [3]}


def test_a_field_without_a_default_that_was_not_written_is_null() -> None:
    newer = record(ID, {"name": "new", "type": "int"})
    columns, failed = decoded(record(ID), newer, [("new", pa.int32())], {"id": 1})
    assert failed == [False]
    assert columns["new"] == [None]


def test_a_field_is_found_by_its_aliases() -> None:
    older = record(ID, {"name": "old", "type": "string"}, {"name": "gone", "type": "int"})
    newer = record({"name": "new", "type": "string", "aliases": ["older", "old"], "default": ""})
    row = {"id": 1, "old": "a", "gone": 2}
    for name in ("new", "old"):
        columns, _ = decoded(older, newer, [(name, pa.string()), ("gone", pa.int32())], row)
        assert columns == {name: ["a"], "gone": [2]}


def test_a_fields_own_name_goes_before_the_alias_of_another() -> None:
    new = {"name": "new", "type": "int", "aliases": ["id"], "default": 7}
    columns, _ = decoded(
        record(ID), record(new, ID), [("new", pa.int32()), ("id", pa.int64())], {"id": 1}
    )
    assert columns == {"new": [7], "id": [1]}


def test_a_named_type_of_a_union_is_found_by_its_alias() -> None:
    older = record({"name": "u", "type": [record({"name": "x", "type": "int"}, name="P"), "int"]})
    newer = record({"name": "u", "type": ["string", "long", {**POINT, "aliases": ["P"]}]})
    kind = pa.struct([("member0", pa.string()), ("member1", pa.int64()), ("member2", POINT_KIND)])
    columns, failed = decoded(older, newer, [("u", kind)], {"u": {"x": 1}}, {"u": 5})
    assert failed == [False, False]
    assert columns["u"] == [
        {"member0": None, "member1": None, "member2": {"y": 9, "x": 1}},
        {"member0": None, "member1": 5, "member2": None},
    ]


@pytest.mark.parametrize("more", [[], [LIST]], ids=["in bulk", "one by one"])
@pytest.mark.parametrize(
    ("older", "newer", "wanted", "value", "found"),
    [
        ("int", "long", pa.int64(), 5, 5),
        ("int", "float", pa.float32(), (1 << 24) + 1, float(1 << 24)),
        ("long", "float", pa.float32(), (1 << 60) + (1 << 36) + 1, float((1 << 60) + (1 << 37))),
        ("long", "double", pa.float64(), (1 << 53) + 1, float(1 << 53)),
        ("int", "double", pa.float64(), 5, 5.0),
        ("float", "double", pa.float64(), 0.5, 0.5),
        ("string", "bytes", pa.binary(), "é", "é".encode()),
        ("bytes", "string", pa.string(), "é".encode(), "é"),
        ("int", ["null", "long"], pa.int64(), 5, 5),
        (["null", "int"], "long", pa.int64(), None, None),
        ("int", logical("int", "date"), pa.date32(), 3, date(1970, 1, 4)),
        ("int", logical("long", "timestamp-millis"), UTC, 0, EPOCH),
        (logical("int", "date"), "int", pa.int32(), date(1970, 1, 4), 3),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            {"type": "enum", "name": "E", "symbols": ["C", "A"], "default": "C"},
            pa.string(),
            "B",
            "C",
        ),
    ],
)
def test_a_value_is_promoted(
    older: Any, newer: Any, wanted: Any, value: Any, found: Any, more: list[Any]
) -> None:
    columns, failed = decoded(
        record({"name": "u", "type": older}, *more),
        record({"name": "u", "type": newer}, *more),
        [("u", wanted)],
        {"u": value, "list": [1]},
    )
    assert failed == [False]
    assert columns["u"] == [found]


@pytest.mark.parametrize("more", [[], [LIST]], ids=["in bulk", "one by one"])
def test_a_type_of_a_union_that_the_newest_has_not_cannot_be_decoded(more: list[Any]) -> None:
    older = record({"name": "u", "type": ["int", "boolean", "null"]}, *more)
    new = {"name": "new", "type": "string", "default": "d"}
    newer = record({"name": "u", "type": ["string", "int"]}, new, *more)
    for name in ("member0", "member1"):
        kind = pa.struct([(name, pa.string() if name == "member0" else pa.int32())])
        rows = [{"u": value, "list": [1]} for value in (5, True, None, False)]
        columns, failed = decoded(older, newer, [("u", kind), ("new", pa.string())], *rows)
        assert failed == [False, True, False, True]
        assert columns["new"] == ["d", None, "d", None]
        assert columns["u"] == [{name: 5 if name == "member1" else None}, None, None, None]


def test_a_field_like_a_member_that_only_the_newest_has_is_null_or_the_default() -> None:
    branches = [record(ID, name="A"), record({"name": "a", "type": "int"}, name="B")]
    for more, found in (({}, None), ({"default": "d"}, "d")):
        newer = [record(ID, {"name": "member_id", "type": "string", **more}, name="A"), branches[1]]
        text = json.dumps({"1": branches, "2": newer})
        fields = [StructField("id", IntegerType()), StructField("member_id", StringType())]
        typed_fields(StructType(fields), Formats(value="confluent-avro", value_schema=text))
        asked: list[tuple[str, Any]] = [("id", pa.int32()), ("member_id", pa.string())]
        columns, failed = decoded(branches, newer, asked, {"id": 5}, {"a": 6})
        assert failed == [False, False]
        assert columns == {"id": [5, None], "member_id": [found, None]}


@pytest.mark.parametrize(
    ("kind", "default", "message"),
    [
        ("int", "x", "must match schema type: int"),
        ({"type": "fixed", "name": "F", "size": 2}, "x", "default of 'new' is not of its type"),
        ("int", 1 << 31, "does not fit into 32 bits"),
        ("string", "x", "default of 'new', 'x', cannot be int32"),
    ],
)
def test_a_default_that_cannot_be_is_refused_at_planning(
    kind: Any, default: Any, message: str
) -> None:
    newer = record(ID, {"name": "new", "type": kind, "default": default})
    text = json.dumps({"1": record(ID), "2": newer})
    schema = StructType([StructField("new", IntegerType())])
    with pytest.raises(ValueError, match=message):
        typed_fields(schema, Formats(value="confluent-avro", value_schema=text))


def test_values_of_one_schema_are_read_as_another_that_is_given() -> None:
    older, newer = record(ID), record({"name": "new", "type": "string", "default": "d"}, ID)
    options = {"valueformat": "avro", "valueschema": json.dumps(older)}
    formats = formats_from({**options, "avroschema": json.dumps(newer)})
    schema = StructType([StructField("new", StringType())])
    typed_fields(schema, formats)
    with pytest.raises(ValueError, match="There is no field 'new' in the schema of the value"):
        typed_fields(schema, formats_from(options))
    asked = pa.schema([("new", pa.string())])
    decoder = AvroDecoder("avro", json.dumps(older), asked, formats.reader_of("value"))
    columns, failed = decoder.decode(written(older, {"id": 1}, {"id": 2}))
    assert not failed.any()
    assert columns["new"].to_pylist() == ["d", "d"]
    with pytest.raises(ValueError, match="avroSchema is for valueFormat avro and confluent-avro"):
        formats_from({"valueformat": "json", "avroschema": json.dumps(newer)})
    with pytest.raises(ValueError, match="the schema is not one of Avro's"):
        typed_fields(schema, formats_from({**options, "avroschema": "{}"}))


def test_a_record_of_another_name_has_no_defaults_of_the_newest_one() -> None:
    new = {"name": "new", "type": "int", "default": 7}
    schemas = {
        "3": record(ID, name="n.Taxi"),
        "4": record(ID, new, name="n.Cab") | {"aliases": ["Taxi"]},
        "5": record(ID, name="n.Bus"),
        "20": record(ID, {**new, "default": 8}, name="n.Train"),
        "9": record(ID, {**new, "default": 6}, name="n.Cab"),
        "1": record(ID, name="Train"),
    }
    values = [b"\0\0\0\0" + bytes([schema_id, 2]) for schema_id in (3, 5, 1)]
    decoder = AvroDecoder("confluent-avro", json.dumps(schemas), pa.schema([("new", pa.int32())]))
    columns, failed = decoder.decode(pa.array(values, pa.binary()))
    assert not failed.any()
    assert columns["new"].to_pylist() == [7, None, 8]


def test_a_name_that_a_type_without_one_has_says_nothing() -> None:
    named: Any = {"type": "string", "name": "text"}
    older = record({"name": "u", "type": named}, {"name": "v", "type": ["null", named]})
    newer = record({"name": "u", "type": "string"}, {"name": "v", "type": ["string", "null"]})
    asked: list[tuple[str, Any]] = [("u", pa.string()), ("v", pa.string())]
    columns, failed = decoded(older, newer, asked, {"u": "a", "v": "b"})
    assert failed == [False]
    assert columns == {"u": ["a"], "v": ["b"]}


SAMPLES: dict[str, Any] = {
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 53), 1 << 53),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=5),
    "bytes": st.text("aé", max_size=5).map(str.encode),
    "boolean": st.booleans(),
}
LARGER = {
    "int": ["int", "long", "double"],
    "long": ["long", "double"],
    "string": ["string", "bytes"],
    "bytes": ["bytes", "string"],
}
COLUMNS: dict[str, Any] = {
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "boolean": pa.bool_(),
}
JSON_DEFAULTS: dict[str, Any] = {
    "int": -1,
    "long": 1 << 40,
    "double": 0.5,
    "string": "é",
    "boolean": True,
}


@st.composite
def evolutions(draw: st.DrawFn, path: str = "R", depth: int = 2) -> tuple[Any, Any, Any, Any]:
    """A record's older and newer schema, the fields that are wanted, and what draws a value."""
    older, newer, wanted, values = [], [], [], {}
    for number in range(draw(st.integers(1, 4))):
        name = f"f{number}"
        if depth and draw(st.integers(0, 2)) == 0:
            old, new, kind, value = draw(evolutions(path + name, depth - 1))
            kind = pa.struct(kind)
        else:
            old = draw(st.sampled_from(sorted(SAMPLES)))
            new = draw(st.sampled_from(LARGER.get(old, [old])))
            kind, value = COLUMNS[new], SAMPLES[old]
        around = draw(st.sampled_from(["", "", "null", "array", "map"]))
        if around == "null":
            old, new, value = ["null", old], [new, "null"], value | st.none()
        elif around == "array":
            old, new = ({"type": "array", "items": one} for one in (old, new))
            kind, value = pa.list_(kind), st.lists(value, max_size=2)
        elif around == "map":
            old, new = ({"type": "map", "values": one} for one in (old, new))
            kind = pa.map_(pa.string(), kind)
            value = st.dictionaries(st.sampled_from("ab"), value, max_size=2)
        values[name] = value
        older.append({"name": name, "type": old})
        if draw(st.integers(0, 4)):
            renamed = draw(st.booleans())
            more = {"name": f"n{number}", "aliases": [name]} if renamed else {"name": name}
            newer.append({**more, "type": new})
            wanted.append((more["name"], kind))
    for number, form in enumerate(draw(st.lists(st.sampled_from(sorted(JSON_DEFAULTS))))):
        name = f"added{number}"
        newer.append({"name": name, "type": form, "default": JSON_DEFAULTS[form]})
        wanted.append((name, COLUMNS[form]))
    # A struct without fields is none.
    newer.append({"name": "last", "type": "int", "default": 5})
    wanted.append(("last", pa.int32()))
    old, new = (
        {"type": "record", "name": path, "fields": draw(st.permutations(fields))}
        for fields in (older, newer)
    )
    return old, new, draw(st.permutations(wanted)), st.fixed_dictionaries(values)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_values_are_what_fastavro_makes_of_both_schemas(data: st.DataObject) -> None:
    older, newer, wanted, values = data.draw(evolutions())
    rows = data.draw(st.lists(values, max_size=4))
    columns, failed = decoded(older, newer, wanted, *rows)
    assert not any(failed)
    parsed = [fastavro.parse_schema(one) for one in (older, newer)]
    expected: list[Any] = [
        fastavro.schemaless_reader(io.BytesIO(value), parsed[0], parsed[1])
        for value in written(older, *rows).to_pylist()
    ]
    for field in pa.schema(wanted):
        found = pa.array([row[field.name] for row in expected], field.type)
        assert columns[field.name] == found.to_pylist()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_cut_or_too_long_is_damaged_in_bulk_and_one_by_one(data: st.DataObject) -> None:
    older, newer, fields, values = data.draw(evolutions())
    wanted = pa.schema(fields)
    parsed = [parsed_schemas("avro", json.dumps(one))[None] for one in (older, newer)]
    whole = written(older, *data.draw(st.lists(values, min_size=1, max_size=3))).to_pylist()
    some = [value[: data.draw(st.integers(0, len(value)))] for value in whole]
    some += [whole[0] + b"\0", *whole]
    expected, bad = one_by_one(some, resolved(parsed[0], parsed[1], wanted), wanted)
    decoder = AvroDecoder("avro", json.dumps(older), wanted, json.dumps(newer))
    columns, failed = decoder.decode(pa.array(some, pa.binary()))
    assert failed.tolist() == bad.tolist()
    for field in wanted:
        found = pc.if_else(pa.array(bad), pa.scalar(None, field.type), expected[field.name])
        assert columns[field.name].to_pylist() == found.to_pylist()


INNER = record({"name": "x", "type": "boolean"}, name="I")
UNION_SAMPLES: dict[str, Any] = {
    "null": None,
    "int": 5,
    "long": 1 << 40,
    "double": 0.5,
    "string": "é",
    "bytes": b"a",
    "I": {"x": True},
}
UNION_COLUMNS: dict[str, Any] = COLUMNS | {"I": pa.struct([("x", pa.bool_())])}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_each_type_of_an_older_union_is_a_member_of_the_newest_ones(data: st.DataObject) -> None:
    subsets = st.lists(st.sampled_from(sorted(UNION_SAMPLES)), unique=True, min_size=1, max_size=6)
    older, newer = data.draw(subsets), data.draw(subsets)
    members = [name for name in newer if name != "null"]
    asked = data.draw(st.lists(st.sampled_from(members), unique=True)) if members else []
    if len(members) < 2 or not asked:
        return
    stable = data.draw(st.booleans())
    names = {
        name: f"member_{name.lower()}" if stable else f"member{place}"
        for place, name in enumerate(members)
    }
    kind = pa.struct([(names[name], UNION_COLUMNS[name]) for name in asked])
    more = data.draw(st.sampled_from([[], [LIST]]))
    schemas = [
        record({"name": "u", "type": [INNER if name == "I" else name for name in union]}, *more)
        for union in (older, newer)
    ]
    for place, name in enumerate(older):
        value = UNION_SAMPLES[name]
        only = record({"name": "u", "type": INNER if name == "I" else name}, *more)
        (body,) = written(only, {"u": value, "list": [1]}).to_pylist()
        decoder = AvroDecoder(
            "confluent-avro",
            json.dumps({"1": schemas[0], "2": schemas[1]}),
            pa.schema([("u", kind)]),
        )
        values = pa.array([b"\0\0\0\0\1" + bytes([2 * place]) + body], pa.binary())
        columns, failed = decoder.decode(values)
        (found,) = columns["u"].to_pylist()
        fitting = [one for one in members if one in LARGER.get(name, [])]
        member = name if name in members else next(iter(fitting), None)
        assert failed[0] == (member is None and name != "null")
        if member is None:
            assert found is None
            continue
        promoted = {"string": "a", "bytes": "é".encode()}.get(member, value)
        content = value if member == name else promoted
        assert found == {names[one]: content if one == member else None for one in asked}
