"""Keys and values decoded at the source: what comes out, and what of what cannot be decoded."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from decimal import Decimal
from math import inf
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from asyncbroker.client.cluster import TopicPartition
from asyncbroker.spark.options import ReadOptions
from asyncbroker.spark.range_reader import RangeReader
from asyncbroker.spark.source import AsyncbrokerDataSource
from asyncbroker.spark.typed_schema import typed_fields
from asyncbroker.spark.typed_values import TypedColumns, UndecodableValue

PARTITION = TopicPartition("t", 3)


def schema_of(text: str) -> StructType:
    """A schema in Spark's words; parsing those takes a JVM, so only simple ones."""
    fields = [field.rsplit(" ", 1) for field in text.split(", ")]
    simple = {"int": "integer", "bigint": "long", "smallint": "short", "tinyint": "byte"}
    kinds: Any = {name: simple.get(kind, kind) for name, kind in fields}
    return struct_of(**kinds)


def struct_of(**fields: Any) -> StructType:
    return StructType.fromJson(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": True, "metadata": {}}
                for name, kind in fields.items()
            ],
        }
    )


def options_of(**options: str) -> ReadOptions:
    return ReadOptions.parse({"kafka.bootstrap.servers": "b", "subscribe": "t", **options})


def rows(
    values: Sequence[bytes | None],
    schema: StructType,
    *,
    keys: Sequence[bytes | None] | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    parsed = options_of(**options)
    fields = typed_fields(schema, parsed.formats)
    count = len(values)
    records = pa.RecordBatch.from_arrays(
        [
            pa.array(keys or [None] * count, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(range(100, 100 + count), pa.int64()),
        ],
        ["key", "value", "offset"],
    )
    # As a slice of something longer, which is how they may come.
    padded = pa.concat_tables([pa.table(records)] * 3).combine_chunks().to_batches()[0]
    found = TypedColumns(fields, parsed.formats, PARTITION).rows(padded.slice(count, count))
    found.validate(full=True)
    wanted = to_arrow_schema(schema, timezone="UTC")
    assert found.schema.equals(wanted), (found.schema, wanted)
    return list(found.to_pylist())


FLAT = schema_of("name string, number int, offset bigint")


def test_fields_of_json_stand_beside_columns_of_the_source() -> None:
    values = [
        b'{"name":"a","number":1,"more":[{}]}',
        None,
        b' {"number":null}\n',
        b'{"name":"\\u00e9"}',
    ]
    assert rows(values, FLAT, valueFormat="json") == [
        {"name": "a", "number": 1, "offset": 100},
        {"name": None, "number": None, "offset": 101},
        {"name": None, "number": None, "offset": 102},
        {"name": "é", "number": None, "offset": 103},
    ]


def test_a_whole_value_is_a_struct() -> None:
    schema = struct_of(
        value=struct_of(
            a="short",
            d="date",
            t="timestamp",
            n="timestamp_ntz",
            x="double",
            f="decimal(6,2)",
            b="boolean",
            l={"type": "array", "elementType": "date", "containsNull": True},
            s=struct_of(i="byte").jsonValue(),
        ).jsonValue(),
        key="string",
    )
    full: dict[str, Any] = {
        "a": 5,
        "d": "2024-02-29",
        "t": "2024-02-29T10:00:00.5Z",
        "n": "2024-02-29 10:00:00",
        "x": 1.5,
        "f": "12.50",
        "b": True,
        "l": ["2024-01-01", None],
        "s": {"i": 7},
    }
    found = rows(
        [json.dumps(full).encode(), None, b"{}"],
        schema,
        keys=[b"k", "é".encode(), None],
        valueFormat="json",
        keyFormat="string",
    )
    assert [row["key"] for row in found] == ["k", "é", None]
    assert found[1]["value"] is None
    assert found[2]["value"] == dict.fromkeys(full)
    assert {name: str(part) for name, part in found[0]["value"].items()} == {
        "a": "5",
        "d": "2024-02-29",
        "t": "2024-02-29 10:00:00.500000+00:00",
        "n": "2024-02-29 10:00:00",
        "x": "1.5",
        "f": "12.50",
        "b": "True",
        "l": "[datetime.date(2024, 1, 1), None]",
        "s": "{'i': 7}",
    }


BAD_JSON = [
    b"",
    b"x",
    b"[1]",
    b"1",
    b"{",
    b'{"number":1',
    b'{"number":1}}',
    b'{"number":1}{"number":2}',
    b'{"number":1}\n{"number":2}',
    b'{"number":"1"}',
    b'{"number":1.5}',
    b'{"number":99999999999}',
    b'{"name":"\xff"}',
    b'{"name":"a}',
    b'{"number":{}',
    b'{"number":1,"number":2}',
]


# Which only a schema makes wrong.
TYPED_WRONG = {
    b'{"number":"1"}',
    b'{"number":1.5}',
    b'{"number":99999999999}',
    b'{"number":1,"number":2}',
}


@pytest.mark.parametrize("bad", BAD_JSON)
def test_bad_json_is_told_from_the_good_around_it(bad: bytes) -> None:
    good = b'{"name":"g","number":1}'
    values = [good, bad, good, None, bad, bad]
    schema = schema_of("name string, number int, _corrupt_record string")
    found = rows(values, schema, valueFormat="json", onDecodeError="null")
    text = bad.decode(errors="replace")
    null = {"name": None, "number": None}
    assert found == [
        {"name": "g", "number": 1, "_corrupt_record": None},
        {**null, "_corrupt_record": text},
        {"name": "g", "number": 1, "_corrupt_record": None},
        {**null, "_corrupt_record": None},
        {**null, "_corrupt_record": text},
        {**null, "_corrupt_record": text},
    ]
    corrupt = schema_of("_corrupt_record string")
    alone = rows(values, corrupt, valueFormat="json", onDecodeError="null")
    typed = bad in TYPED_WRONG
    assert [row["_corrupt_record"] for row in alone] == [
        None if typed else row["_corrupt_record"] for row in found
    ]
    dropped = rows(values, FLAT, valueFormat="json", onDecodeError="drop")
    assert [row["offset"] for row in dropped] == [100, 102, 103]
    with pytest.raises(UndecodableValue, match="t-3, offset 101: the value is not"):
        rows(values, FLAT, valueFormat="json")


pieces = st.sampled_from(
    [
        b"{",
        b"}",
        b'"',
        b"number",
        b'"number":',
        b"1",
        b",",
        b"\n",
        b" ",
        b"[",
        b"]",
        b"a",
        b'{"name":"',
    ]
)
texts = st.lists(pieces, max_size=6).map(b"".join) | st.sampled_from([b'{"number":1}', b"{}"])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.none() | texts, min_size=1, max_size=6))
def test_neighbours_make_no_difference(values: list[bytes | None]) -> None:
    """No value may borrow a brace or a quote from the next one."""
    schema = schema_of("name string, number int, _corrupt_record string")
    kind: Any = {"valueFormat": "json", "onDecodeError": "null"}
    alone = [rows([value], schema, **kind)[0] for value in values]
    assert rows(values, schema, **kind) == alone
    for value, row in zip(values, alone, strict=True):
        if value is not None and row["_corrupt_record"] is None:
            assert isinstance(json.loads(value), dict)


def test_strings_that_are_not_utf_8_are_undecodable() -> None:
    schema = schema_of("value string, offset bigint")
    values = ["é".encode(), b"\xff", None, b""]
    found = rows(values, schema, valueFormat="string", onDecodeError="null")
    assert [row["value"] for row in found] == ["é", None, None, ""]
    with pytest.raises(
        UndecodableValue, match=r"offset 101: the value is not what valueFormat=str"
    ):
        rows(values, schema, valueFormat="string")


# ---- Avro

AVRO = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "name", "type": ["null", "string"]},
        {"name": "number", "type": "int"},
        {"name": "raw", "type": "bytes"},
    ],
}
AVRO_SCHEMA = schema_of("number int, name string, raw binary, offset bigint")


def avro(row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, AVRO, row)
    return stream.getvalue()


ROW = {"name": "a", "number": 7, "raw": b"\x00\xff"}


def test_avro_is_read_by_its_schema() -> None:
    whole = avro(ROW)
    values = [whole, whole[:-1], whole + b"x", None, b""]
    options: Any = {"valueFormat": "avro", "valueSchema": json.dumps(AVRO)}
    found = rows(values, AVRO_SCHEMA, onDecodeError="null", **options)
    null = {"name": None, "number": None, "raw": None}
    assert [{**row, "offset": None} for row in found] == [
        {**ROW, "offset": None},
        *[{**null, "offset": None}] * 4,
    ]
    kept = rows(values, AVRO_SCHEMA, onDecodeError="drop", **options)
    assert [row["offset"] for row in kept] == [100, 103]


def test_the_wire_format_of_registries_names_a_schema_of_the_file(tmp_path: Any) -> None:
    file = tmp_path / "schemas.json"
    values = [b"\0\0\0\0\x05" + avro(ROW), b"\0\0\0\0\x06" + avro(ROW), b"\1\0\0\0\x05", b"\0"]
    options: Any = {"valueFormat": "confluent-avro", "valueSchemaFile": str(file)}
    for schemas, expected in (({"5": AVRO}, [7, None, None, None]), (AVRO, [7, 7, None, None])):
        file.write_text(json.dumps(schemas))
        found = rows(values, AVRO_SCHEMA, onDecodeError="null", **options)
        assert [row["number"] for row in found] == expected


def test_a_map_of_avro_is_a_map() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "long"}]}
    maps = [
        {"type": "map", "values": ["null", "int"]},
        {"type": "array", "items": {"type": "map", "values": inner}},
    ]
    fields = [{"name": name, "type": kind} for name, kind in zip("mn", maps, strict=True)]
    written = {"type": "record", "name": "M", "fields": fields}

    def map_to(value: Any) -> Any:
        return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": True}

    inside = struct_of(x="long").jsonValue()
    many = {"type": "array", "elementType": map_to(inside), "containsNull": True}
    schema = struct_of(m=map_to("integer"), n=many)
    value = {"m": {"a": 1, "b": None}, "n": [{"k": {"x": 5}}, {}]}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(written), value)
    options: Any = {"valueFormat": "avro", "valueSchema": json.dumps(written)}
    assert rows([stream.getvalue(), None], schema, **options) == [
        {"m": [("a", 1), ("b", None)], "n": [[("k", {"x": 5})], []]},
        {"m": None, "n": None},
    ]
    with pytest.raises(ValueError, match="cannot be map"):
        rows([b"{}"], schema, valueFormat="json")


def test_a_number_of_json_too_large_for_a_float_is_undecodable() -> None:
    schema = struct_of(
        f="float",
        s=struct_of(g="float").jsonValue(),
        a={"type": "array", "elementType": "float", "containsNull": True},
    )
    values = [b'{"f": 1e300}', b'{"s": {"g": -1e39}}', b'{"a": [1, 1e39]}', b'{"f": 3e38}']
    found = rows(values, schema, valueFormat="json", onDecodeError="drop")
    assert [row["f"] for row in found] == [pytest.approx(3e38)]


def test_what_is_infinite_in_json_is_so_as_a_double_and_as_a_float() -> None:
    found = rows(
        [b'{"d": Infinity, "f": -Infinity}'],
        schema_of("d double, f float"),
        valueFormat="json",
        onDecodeError="drop",
    )
    assert found == [{"d": inf, "f": -inf}]


def test_a_number_of_json_too_large_for_a_decimal_is_undecodable() -> None:
    schema = struct_of(
        d="decimal(4,2)",
        s=struct_of(e="decimal(4,2)").jsonValue(),
        a={"type": "array", "elementType": "decimal(4,2)", "containsNull": True},
    )
    large = [b'{"d": 100}', b'{"d": "-100.00"}', b'{"s": {"e": 100}}', b'{"a": [1, 1000.5]}']
    found = rows([*large, b'{"d": -99.99}'], schema, valueFormat="json", onDecodeError="drop")
    assert [row["d"] for row in found] == [Decimal("-99.99")]


def test_a_value_that_does_not_fit_the_users_type_is_undecodable() -> None:
    schema = schema_of("number int, name int")
    options: Any = {"valueFormat": "avro", "valueSchema": json.dumps(AVRO), "onDecodeError": "null"}
    values: list[bytes | None] = [avro({**ROW, "name": None}), avro(ROW)]
    assert rows(values, schema, **options) == [
        {"number": 7, "name": None},
        {"number": None, "name": None},
    ]


# ---- what cannot be


@pytest.mark.parametrize(
    ("schema", "options", "words"),
    [
        (FLAT, {"valueFormat": "yaml"}, "valueFormat must be one of binary, string, json"),
        (FLAT, {"valueFormat": "json", "onDecodeError": "x"}, "onDecodeError must be one of fail"),
        (FLAT, {"valueFormat": "avro"}, "needs either valueSchema or valueSchemaFile"),
        (FLAT, {"valueFormat": "avro", "valueSchemaFile": "/no/such"}, "'/no/such' cannot be read"),
        (FLAT, {"valueFormat": "json", "valueSchema": "{}"}, "are for valueFormat avro and conf"),
        (FLAT, {"keySchemaFile": "/no/such"}, "are for keyFormat avro and confluent-avro, not bin"),
        (FLAT, {"valueFormat": "string"}, "There is no column 'name'"),
        (schema_of("value int"), {"valueFormat": "json"}, "is a struct, or binary"),
        (schema_of("value int"), {"valueFormat": "string"}, "is a string, or binary"),
        (schema_of("raw binary"), {"valueFormat": "json"}, "cannot be binary in the format json"),
        (schema_of("offset int"), {"valueFormat": "json"}, "'offset' is bigint"),
        (schema_of("_corrupt_record int"), {"valueFormat": "json"}, "is a string"),
        (
            struct_of(value=struct_of(a="integer").jsonValue(), b="integer"),
            {"valueFormat": "json"},
            "takes the whole value, so there can be no b",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_words(
    schema: StructType, options: dict[str, str], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        RangeReader(options_of(**options), schema)


@pytest.mark.parametrize(
    ("avro_schema", "schema", "words"),
    [
        ({"type": "nothing"}, AVRO_SCHEMA, "not one of Avro's"),
        (AVRO, schema_of("nmae string"), "no field 'nmae' .* whose fields are: name, number, raw"),
        (["null", AVRO], schema_of("nmae string"), "no field 'nmae'"),
        (AVRO, struct_of(value=struct_of(a="long").jsonValue()), "no field 'a'"),
        ("string", schema_of("name string"), "no field 'name'"),
    ],
)
@pytest.mark.parametrize("form", ["avro", "confluent-avro"])
def test_a_schema_of_avro_is_looked_at_before_anything_is_read(
    form: str, avro_schema: Any, schema: StructType, words: str
) -> None:
    options = {"valueFormat": form, "valueSchema": json.dumps(avro_schema)}
    with pytest.raises(ValueError, match=words):
        RangeReader(options_of(**options), schema)


@pytest.mark.parametrize(
    "field",
    [
        {"name": "number", "type": "integer"},
        {"name": "_corrupt_record", "type": "string"},
        {"name": "value", "type": struct_of(number="integer").jsonValue()},
    ],
)
def test_columns_that_may_be_null_are_not_promised_to_have_none(field: dict[str, Any]) -> None:
    fields = [{**field, "nullable": False, "metadata": {}}]
    schema = StructType.fromJson({"type": "struct", "fields": fields})
    with pytest.raises(ValueError, match=f"'{field['name']}' may be null, and cannot be NOT NULL"):
        RangeReader(options_of(valueFormat="json"), schema)
    inside = struct_of(outer=schema.jsonValue())
    with pytest.raises(ValueError, match=f"'outer.{field['name']}' may be null"):
        RangeReader(options_of(valueFormat="json"), inside)


def test_without_a_schema_strings_are_known_and_json_is_not() -> None:
    base = {"kafka.bootstrap.servers": "b", "subscribe": "t"}
    source = AsyncbrokerDataSource({**base, "valueFormat": "string", "columns": "value, key"})
    assert source.schema().simpleString() == "struct<value:string,key:binary>"
    with pytest.raises(ValueError, match="valueFormat json needs a schema"):
        AsyncbrokerDataSource({**base, "valueFormat": "json"}).schema()


def test_raw_values_may_stand_beside_decoded_keys() -> None:
    schema = struct_of(key=struct_of(id="long").jsonValue(), value="binary")
    found = rows([b"x"], schema, keys=[b'{"id":3}'], keyFormat="json", valueFormat="binary")
    assert found == [{"key": {"id": 3}, "value": b"x"}]
