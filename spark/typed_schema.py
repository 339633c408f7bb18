"""What the fields of a user's schema mean when keys or values are decoded at the source.

With `valueFormat` (or `keyFormat`) json or avro, a field of the schema is

- a column of the source (`offset`, `topic`, ...), by name, with that column's type;
- `value` (`key`) as a struct: the whole value, decoded into the struct's fields;
- the column for what could not be decoded (`columnNameOfCorruptRecord`), a string;
- anything else: a field of the value, by its name as it is spelled.

With the format string, `value` (`key`) is a string. Nothing here touches a record: see
`typed_values.py`. Raises ValueError for what cannot be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    StringType,
    StructField,
    StructType,
)

from asyncbroker.spark.columns import COLUMN_TYPES, projected_columns

BINARY: Final = "binary"
STRING: Final = "string"
JSON: Final = "json"
AVRO: Final = "avro"
# A byte of zero and the id of a schema (int32) before what Avro wrote.
CONFLUENT_AVRO: Final = "confluent-avro"
FORMATS: Final = (BINARY, STRING, JSON, AVRO, CONFLUENT_AVRO)

FAIL: Final = "fail"
NULL: Final = "null"
DROP: Final = "drop"
ERROR_MODES: Final = (FAIL, NULL, DROP)

CORRUPT_COLUMN: Final = "_corrupt_record"

_JSON_TYPES: Final = frozenset(
    {
        *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string"),
        *("date", "timestamp", "timestamp_ntz"),
    }
)


@dataclass(frozen=True, slots=True)
class Formats:
    """How keys and values are decoded; `schemas` are Avro's, as JSON, where the format has any."""

    key: str = BINARY
    value: str = BINARY
    key_schema: str | None = None
    value_schema: str | None = None
    on_error: str = FAIL
    corrupt_column: str = CORRUPT_COLUMN

    @property
    def are_typed(self) -> bool:
        return self.key != BINARY or self.value != BINARY

    def of(self, side: str) -> str:
        return self.key if side == "key" else self.value

    def schema_of(self, side: str) -> str | None:
        return self.key_schema if side == "key" else self.value_schema


def formats_from(given: Mapping[str, str]) -> Formats:
    """Reads the options, which have lower-case keys."""
    key, value = (_one_of(given, f"{side}Format", FORMATS, BINARY) for side in ("key", "value"))
    return Formats(
        key=key,
        value=value,
        key_schema=_avro_schema(given, "key", key),
        value_schema=_avro_schema(given, "value", value),
        on_error=_one_of(given, "onDecodeError", ERROR_MODES, FAIL),
        corrupt_column=given.get("columnnameofcorruptrecord", CORRUPT_COLUMN),
    )


def _one_of(given: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    text = given.get(name.lower(), default).strip().lower()
    if text not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not '{text}'")
    return text


def _avro_schema(given: Mapping[str, str], side: str, form: str) -> str | None:
    """The text of `valueSchema`, or of the file that `valueSchemaFile` names."""
    if form not in (AVRO, CONFLUENT_AVRO):
        return None
    text, file = given.get(f"{side}schema"), given.get(f"{side}schemafile")
    if (text is None) == (file is None):
        raise ValueError(f"{side}Format {form} needs either {side}Schema or {side}SchemaFile")
    if text is not None:
        return text
    try:
        return Path(str(file)).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ValueError(f"{side}SchemaFile '{file}' cannot be read: {error}") from None


@dataclass(frozen=True, slots=True)
class TypedField:
    """A field of the result: where it comes from, and the column that it is decoded from.

    `origin` is "column", "whole" (all of a key or value), "field" (of a value) or "corrupt".
    """

    field: StructField
    origin: str
    column: str


def typed_fields(schema: StructType, formats: Formats) -> list[TypedField]:
    """What each field of the schema is."""
    found = [_typed_field(field, formats) for field in schema.fields]
    has_whole = any(one.origin == "whole" and one.column == "value" for one in found)
    loose = [one.field.name for one in found if one.origin == "field"]
    if has_whole and loose:
        raise ValueError(
            f"'value' takes the whole value, so there can be no {', '.join(loose)} beside it"
        )
    return found


def _typed_field(field: StructField, formats: Formats) -> TypedField:
    name = field.name.lower()
    if name == formats.corrupt_column.lower():
        if not isinstance(field.dataType, StringType):
            raise ValueError(f"Column '{field.name}' is a string")
        return TypedField(field, "corrupt", "value" if formats.value != BINARY else "key")
    is_raw = isinstance(field.dataType, BinaryType) or formats.of(name) == BINARY
    if name in ("key", "value") and not is_raw:
        _check_whole(field, formats.of(name))
        return TypedField(field, "whole", name)
    is_column = name in (known.lower() for known in COLUMN_TYPES)
    if is_column or formats.value in (BINARY, STRING):
        (column,) = projected_columns(StructType([field]))
        return TypedField(field, "column", column)
    _check_decodable(field.name, field.dataType, formats.value)
    return TypedField(field, "field", "value")


def _check_whole(field: StructField, form: str) -> None:
    wanted = StringType if form == STRING else StructType
    if not isinstance(field.dataType, wanted):
        raise ValueError(
            f"Column '{field.name}' in the format {form} is a {wanted.typeName()}, or binary to "
            f"have it as it is, not {field.dataType.simpleString()}"
        )
    if isinstance(field.dataType, StructType):
        for inner in field.dataType.fields:
            _check_decodable(inner.name, inner.dataType, form)


def _check_decodable(name: str, kind: DataType, form: str) -> None:
    if isinstance(kind, StructType):
        for inner in kind.fields:
            _check_decodable(f"{name}.{inner.name}", inner.dataType, form)
    elif isinstance(kind, ArrayType):
        _check_decodable(f"{name}.element", kind.elementType, form)
    elif not (
        kind.simpleString() in _JSON_TYPES
        or kind.simpleString().startswith("decimal")
        or (form != JSON and isinstance(kind, BinaryType))
    ):
        raise ValueError(f"Column '{name}' cannot be {kind.simpleString()} in the format {form}")


def with_formats(schema: StructType, formats: Formats) -> StructType:
    """The source's columns with keys and values as strings, where that is their format."""
    fields = []
    for field in schema.fields:
        form = formats.of(field.name.lower()) if field.name.lower() in ("key", "value") else BINARY
        if form not in (BINARY, STRING):
            raise ValueError(
                f"{field.name.lower()}Format {form} needs a schema: "
                'spark.read.format("asyncbroker").schema("name string, number int, ...")'
            )
        fields.append(StructField(field.name, StringType()) if form == STRING else field)
    return StructType(fields)
