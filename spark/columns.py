"""The columns of the source: names and types are those of Spark's own Kafka connector.

A schema that the user gives (`.schema("value binary, offset bigint")`) is a projection: only those
columns are decoded and sent to the JVM. It may name any of the columns, in any case and order, with
the types that they have. Arrow's side of the types is in `record_columns.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADERS: Final = "headers"

COLUMN_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    # 0: the producer's time, 1: the broker's.
    "timestampType": IntegerType(),
    # Null, not empty, for a record without any.
    HEADERS: ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}

_NAME_BY_LOWER: Final = {name.lower(): name for name in COLUMN_TYPES}


def full_schema(*, include_headers: bool) -> StructType:
    """The schema when the user gives none."""
    return StructType(
        [
            StructField(name, data_type)
            for name, data_type in COLUMN_TYPES.items()
            if include_headers or name != HEADERS
        ]
    )


def chosen_schema(names: Sequence[str]) -> StructType:
    """The schema of these columns, in any case; raises ValueError for a name that is none."""
    return StructType([StructField(name, COLUMN_TYPES[column_called(name)]) for name in names])


def column_called(name: str) -> str:
    """The column of this name, in any case; raises ValueError."""
    column = _NAME_BY_LOWER.get(name.lower())
    if column is None:
        raise ValueError(f"There is no column '{name}'; the columns are: {_described()}.")
    return column


def projected_columns(schema: StructType) -> list[str]:
    """Which of the source's columns stands behind each field of `schema`.

    Raises ValueError for a field that is none of them, or has another type or no nulls.
    """
    if not schema.fields:
        raise ValueError(f"The schema names no column; the columns are: {_described()}.")
    columns = []
    for field in schema.fields:
        name = column_called(field.name)
        expected = COLUMN_TYPES[name]
        if field.dataType.simpleString() != expected.simpleString() or not field.nullable:
            not_null = "" if field.nullable else " NOT NULL"
            raise ValueError(
                f"Column '{name}' is {expected.simpleString()} and nullable, not "
                f"{field.dataType.simpleString()}{not_null}; cast it after reading."
            )
        columns.append(name)
    return columns


def _described() -> str:
    return ", ".join(f"{name} {kind.simpleString()}" for name, kind in COLUMN_TYPES.items())
