"""Unions of several types: structs of their members, or the wider of two numbers."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from asyncbroker.spark.avro_columns import NotColumnar, columns_reader
from asyncbroker.spark.avro_decoder import AvroDecoder
from asyncbroker.spark.avro_resolution import resolved
from asyncbroker.spark.formats import Formats
from asyncbroker.spark.tests.test_spark_avro import written
from asyncbroker.spark.typed_avro import parsed_schemas
from asyncbroker.spark.typed_schema import typed_fields

POINT = {"type": "record", "name": "n.Point", "fields": [{"name": "x", "type": "int"}]}
MIXED = ["int", "null", "string", POINT]
VALUES = [5, None, "é", {"x": 7}]
POINT_KIND = pa.struct([("x", pa.int64())])
MEMBERS = pa.struct([("member0", pa.int32()), ("member1", pa.string()), ("member2", POINT_KIND)])
FOUND = [
    {"member0": 5, "member1": None, "member2": None},
    None,
    {"member0": None, "member1": "é", "member2": None},
    {"member0": None, "member1": None, "member2": {"x": 7}},
]


def record(kind: Any, *more: Any) -> dict[str, Any]:
    fields = [{"name": "u", "type": kind}, *more, {"name": "id", "type": "long"}]
    return {"type": "record", "name": "R", "fields": fields}


def decoded(schema: Any, kind: pa.DataType, values: list[Any], **more: Any) -> Any:
    asked = pa.schema([("u", kind), ("id", pa.int64())])
    decoder = AvroDecoder("avro", json.dumps(schema), asked)
    rows = ({"u": value, "id": place, **more} for place, value in enumerate(values))
    columns, failed = decoder.decode(written(schema, *rows))
    assert not failed.any()
    assert columns["id"].to_pylist() == list(range(len(values)))
    assert columns["u"].type == kind
    columns["u"].validate(full=True)
    return columns["u"].to_pylist()


def test_a_union_is_a_struct_of_its_members() -> None:
    schema = record(MIXED)
    schema["fields"][0]["default"] = 5
    parsed = parsed_schemas("avro", json.dumps(schema))[None]
    asked = pa.schema([("u", MEMBERS)])
    columns_reader(resolved(parsed, parsed, asked), asked)
    assert decoded(schema, MEMBERS, VALUES) == FOUND


def test_members_are_the_same_where_values_are_read_one_by_one() -> None:
    schema = record(MIXED, {"name": "list", "type": {"type": "array", "items": "int"}})
    parsed = parsed_schemas("avro", json.dumps(schema))[None]
    asked = pa.schema([("u", MEMBERS)])
    with pytest.raises(NotColumnar):
        columns_reader(resolved(parsed, parsed, asked), asked)
    assert decoded(schema, MEMBERS, VALUES, list=[1]) == FOUND


def test_members_may_have_the_names_of_their_types() -> None:
    kind = pa.struct([("member_point", POINT_KIND), ("member_int", pa.int64())])
    assert decoded(record(MIXED), kind, VALUES) == [
        {"member_point": None, "member_int": 5},
        None,
        {"member_point": None, "member_int": None},
        {"member_point": {"x": 7}, "member_int": None},
    ]


@pytest.mark.parametrize(
    ("around", "kind"),
    [
        (lambda of: {"type": "array", "items": of}, pa.list_(MEMBERS)),
        (lambda of: {"type": "map", "values": of}, pa.map_(pa.string(), MEMBERS)),
    ],
)
def test_unions_inside_arrays_and_maps_have_members(around: Any, kind: pa.DataType) -> None:
    is_list = pa.types.is_list(kind)
    value = VALUES if is_list else {str(place): one for place, one in enumerate(VALUES)}
    found = FOUND if is_list else [(str(place), one) for place, one in enumerate(FOUND)]
    assert decoded(record(around(MIXED)), kind, [value]) == [found]


@pytest.mark.parametrize(
    ("union", "kind", "values"),
    [
        (["int", "long"], pa.int64(), [1, 1 << 40]),
        (["null", "long", "int"], pa.int64(), [None, 1 << 40, 2]),
        (["float", "null", "double"], pa.float64(), [0.5, None, 1.5]),
    ],
)
def test_two_sizes_of_a_number_are_the_wider(
    union: Any, kind: pa.DataType, values: list[Any]
) -> None:
    parsed = parsed_schemas("avro", json.dumps(record(union)))[None]
    columns_reader(parsed, pa.schema([("u", kind)]))
    assert decoded(record(union), kind, values) == values


def test_a_damaged_member_damages_its_value_alone() -> None:
    values = written(record(MIXED), *({"u": value, "id": 1} for value in VALUES)).to_pylist()
    values[2] = values[2][:3]
    values.append(b"\x08\x02")
    asked = pa.schema([("u", MEMBERS)])
    columns, failed = AvroDecoder("avro", json.dumps(record(MIXED)), asked).decode(
        pa.array(values, pa.binary())
    )
    assert failed.tolist() == [False, False, True, False, True]
    assert columns["u"].to_pylist() == [FOUND[0], None, None, FOUND[3], None]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["member0", "member3"], "'u.member3' is no member of the union, whose members are"),
        (["member0", "other"], "'u.other' is no member"),
        (["member1", "member_string"], "both by their place and by"),
    ],
)
def test_what_is_no_member_is_refused_at_planning(names: list[str], message: str) -> None:
    formats = Formats(value="avro", value_schema=json.dumps(record(MIXED)))
    union = StructType([StructField(name, StringType()) for name in names])
    schema = StructType([StructField("u", union)])
    with pytest.raises(ValueError, match=message):
        typed_fields(schema, formats)


def test_a_type_used_again_has_members_as_they_are_asked_for_there() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "m", "type": ["int", "string"]}]}
    schema = {**record(inner, {"name": "b", "type": "I"})}
    by_place = pa.struct([("m", pa.struct([("member0", pa.int32())]))])
    by_name = pa.struct([("m", pa.struct([("member_string", pa.string())]))])
    values = written(schema, {"u": {"m": 5}, "b": {"m": "x"}, "id": 1})
    for kinds in ([("u", by_place), ("b", by_name)], [("b", by_name)]):
        columns, failed = AvroDecoder("avro", json.dumps(schema), pa.schema(kinds)).decode(values)
        assert not failed.any()
        assert columns["b"].to_pylist() == [{"m": {"member_string": "x"}}]
        assert "u" not in columns or columns["u"].to_pylist() == [{"m": {"member0": 5}}]


def test_types_of_one_short_name_are_told_apart_by_their_places_alone() -> None:
    other = {"type": "record", "name": "m.point", "fields": [{"name": "y", "type": "string"}]}
    schema = record([POINT, "null", other, "int"])
    kind = pa.struct([("member0", POINT_KIND), ("member1", pa.struct([("y", pa.string())]))])
    assert decoded(schema, kind, [{"x": 7}, None, {"y": "a"}]) == [
        {"member0": {"x": 7}, "member1": None},
        None,
        {"member0": None, "member1": {"y": "a"}},
    ]
    formats = Formats(value="avro", value_schema=json.dumps(schema))
    union = StructType([StructField("member_point", StringType())])
    with pytest.raises(ValueError, match=r"'u.member_point' is the name of several types.*member0"):
        typed_fields(StructType([StructField("u", union)]), formats)
