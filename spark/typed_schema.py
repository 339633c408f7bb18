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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from asyncbroker.spark.columns import COLUMN_TYPES, projected_columns
from asyncbroker.spark.formats import AVRO_FORMATS, BINARY, JSON, STRING, Formats
from asyncbroker.spark.typed_avro import field_names, parsed_schemas, readers

_JSON_TYPES: Final = frozenset(
    {
        *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string"),
        *("date", "timestamp", "timestamp_ntz"),
    }
)


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
    for side in ("key", "value"):
        if formats.of(side) in AVRO_FORMATS:
            known = field_names(
                formats.of(side), formats.schema_of(side) or "", formats.reader_of(side)
            )
            for field in decoded_fields(found, side):
                if field.name not in known:
                    raise ValueError(
                        f"There is no field '{field.name}' in the schema of the {side}, whose "
                        f"fields are: {', '.join(known)}."
                    )
            _check_resolution(decoded_fields(found, side), formats, side)
    return found


def _check_resolution(fields: list[StructField], formats: Formats, side: str) -> None:
    """Raises ValueError for what is asked for as a member of a union and is none, and for defaults
    that cannot be what is asked for."""
    schemas = parsed_schemas(formats.of(side), formats.schema_of(side) or "")
    has_members = any("member" in field.dataType.simpleString() for field in fields)
    if len(schemas) < 2 and formats.reader_of(side) is None and not has_members:
        return
    # Arrow takes long to import, and is needed on the driver for nothing else.
    import pyarrow as pa

    from asyncbroker.spark.avro_resolution import resolved
    from asyncbroker.spark.typed_values import arrow_field

    wanted = pa.schema([arrow_field(field) for field in fields])
    for schema_id, reader in readers(schemas, formats.reader_of(side)).items():
        resolved(schemas[schema_id], reader, wanted)


def decoded_fields(fields: Sequence[TypedField], side: str) -> list[StructField]:
    """The fields that keys or values are decoded into."""
    found: list[StructField] = []
    for one in fields:
        kind = one.field.dataType
        if one.column == side and one.origin == "whole" and isinstance(kind, StructType):
            found += kind.fields
        elif one.column == side and one.origin in ("whole", "field"):
            found.append(one.field)
    return found


def _typed_field(field: StructField, formats: Formats) -> TypedField:
    name = field.name.lower()
    if name == formats.corrupt_column.lower():
        if not isinstance(field.dataType, StringType):
            raise ValueError(f"Column '{field.name}' is a string")
        _check_nullable(field.name, field.nullable)
        return TypedField(field, "corrupt", "value" if formats.value != BINARY else "key")
    is_raw = isinstance(field.dataType, BinaryType) or formats.of(name) == BINARY
    if name in ("key", "value") and not is_raw:
        _check_whole(field, formats.of(name))
        return TypedField(field, "whole", name)
    is_column = name in (known.lower() for known in COLUMN_TYPES)
    if is_column or formats.value in (BINARY, STRING):
        (column,) = projected_columns(StructType([field]))
        return TypedField(field, "column", column)
    _check_decodable(field.name, field.dataType, field.nullable, formats.value)
    return TypedField(field, "field", "value")


def _check_whole(field: StructField, form: str) -> None:
    wanted = StringType if form == STRING else StructType
    if not isinstance(field.dataType, wanted):
        raise ValueError(
            f"Column '{field.name}' in the format {form} is a {wanted.typeName()}, or binary to "
            f"have it as it is, not {field.dataType.simpleString()}"
        )
    _check_decodable(field.name, field.dataType, field.nullable, form)


def _check_decodable(name: str, kind: DataType, is_nullable: bool, form: str) -> None:
    _check_nullable(name, is_nullable)
    if isinstance(kind, StructType):
        for inner in kind.fields:
            _check_decodable(f"{name}.{inner.name}", inner.dataType, inner.nullable, form)
    elif isinstance(kind, ArrayType):
        _check_decodable(f"{name}.element", kind.elementType, kind.containsNull, form)
    elif isinstance(kind, MapType) and form != JSON and isinstance(kind.keyType, StringType):
        _check_decodable(f"{name}.value", kind.valueType, kind.valueContainsNull, form)
    elif not (
        kind.simpleString() in _JSON_TYPES
        or kind.simpleString().startswith("decimal")
        or (form != JSON and isinstance(kind, BinaryType))
    ):
        raise ValueError(f"Column '{name}' cannot be {kind.simpleString()} in the format {form}")


def _check_nullable(name: str, is_nullable: bool) -> None:
    """Spark believes NOT NULL, and a record may lack anything."""
    if not is_nullable:
        raise ValueError(f"Column '{name}' may be null, and cannot be NOT NULL")


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
