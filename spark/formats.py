"""The options for how keys and values are decoded: `valueFormat`, `valueSchema` and the others.

Nothing here knows PySpark, which whoever plans a query without Spark need not have. What the fields
of a schema mean by these formats is in `typed_schema.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BINARY: Final = "binary"
STRING: Final = "string"
JSON: Final = "json"
AVRO: Final = "avro"
# A byte of zero and the id of a schema (int32) before what Avro wrote.
CONFLUENT_AVRO: Final = "confluent-avro"
AVRO_FORMATS: Final = (AVRO, CONFLUENT_AVRO)
FORMATS: Final = (BINARY, STRING, JSON, *AVRO_FORMATS)

FAIL: Final = "fail"
NULL: Final = "null"
DROP: Final = "drop"
ERROR_MODES: Final = (FAIL, NULL, DROP)

CORRUPT_COLUMN: Final = "_corrupt_record"


@dataclass(frozen=True, slots=True)
class Formats:
    """How keys and values are decoded; the schemas are Avro's, as JSON, where it is the format."""

    key: str = BINARY
    value: str = BINARY
    key_schema: str | None = None
    value_schema: str | None = None
    on_error: str = FAIL
    corrupt_column: str = CORRUPT_COLUMN
    # What values are read as, where that is not the newest schema that they were written by.
    reader_schema: str | None = None

    @property
    def are_typed(self) -> bool:
        return self.key != BINARY or self.value != BINARY

    def of(self, side: str) -> str:
        return self.key if side == "key" else self.value

    def schema_of(self, side: str) -> str | None:
        return self.key_schema if side == "key" else self.value_schema

    def reader_of(self, side: str) -> str | None:
        return self.reader_schema if side == "value" else None


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
        reader_schema=_reader_schema(given, value),
    )


def _one_of(given: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    text = given.get(name.lower(), default).strip().lower()
    if text not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not '{text}'")
    return text


def _reader_schema(given: Mapping[str, str], form: str) -> str | None:
    """`avroSchema`, as Spark's `from_avro` calls it."""
    text = given.get("avroschema")
    if text is not None and form not in AVRO_FORMATS:
        raise ValueError(f"avroSchema is for valueFormat {' and '.join(AVRO_FORMATS)}, not {form}")
    return text


def _avro_schema(given: Mapping[str, str], side: str, form: str) -> str | None:
    """The text of `valueSchema`, or of the file that `valueSchemaFile` names."""
    text, file = given.get(f"{side}schema"), given.get(f"{side}schemafile")
    if form not in AVRO_FORMATS:
        if text is not None or file is not None:
            raise ValueError(
                f"{side}Schema and {side}SchemaFile are for {side}Format "
                f"{' and '.join(AVRO_FORMATS)}, not {form}"
            )
        return None
    if (text is None) == (file is None):
        raise ValueError(f"{side}Format {form} needs either {side}Schema or {side}SchemaFile")
    if text is not None:
        return text
    try:
        return Path(str(file)).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ValueError(f"{side}SchemaFile '{file}' cannot be read: {error}") from None
