"""Reads Avro values, bare or in the wire format of schema registries.

In that format a value is a byte of zero, the id of its schema as int32, and then what Avro wrote.
There is no registry to ask: the schemas come with the options, either one for all ids or an object
{"id": schema, ...} with one for each. `fastavro` is imported when there is a schema to be parsed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any, Final

from asyncbroker.spark.formats import CONFLUENT_AVRO

_HEAD_BYTES: Final = 5


def field_names(form: str, text: str) -> list[str]:
    """The names of the fields that a value may have, by any of the schemas, in their order. Raises
    as `avro_reader`."""
    names: dict[str, None] = {}
    for schema in _parsed(form, text).values():
        # A union may have records among others.
        for kind in schema if isinstance(schema, list) else [schema]:
            if isinstance(kind, dict):
                names.update(dict.fromkeys(field["name"] for field in kind.get("fields", ())))
    return list(names)


def avro_reader(form: str, text: str) -> Callable[[bytes], Any]:
    """What reads one value; raises ValueError for a schema that is none, ImportError."""
    schemas = _parsed(form, text)
    for_all = schemas.get(None)
    from fastavro import schemaless_reader

    def read(value: bytes, schema: Any) -> Any:
        stream = io.BytesIO(value)
        row = schemaless_reader(stream, schema, None)
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes after the value")
        return row

    def read_framed(value: bytes) -> Any:
        if len(value) < _HEAD_BYTES or value[0] != 0:
            raise ValueError("a value without the id of its schema")
        schema = for_all or schemas[int.from_bytes(value[1:_HEAD_BYTES], "big")]
        return read(value[_HEAD_BYTES:], schema)

    return read_framed if form == CONFLUENT_AVRO else lambda value: read(value, for_all)


def _parsed(form: str, text: str) -> dict[int | None, Any]:
    """The schemas by id; None stands for every id."""
    try:
        from fastavro import parse_schema
    except ImportError as error:
        raise ImportError(
            "the format avro needs fastavro: pip install asyncbroker[avro]"
        ) from error

    try:
        schemas = json.loads(text)
        by_id = isinstance(schemas, dict) and bool(schemas) and all(map(str.isdigit, schemas))
        if form == CONFLUENT_AVRO and by_id:
            return {int(key): parse_schema(one) for key, one in schemas.items()}
        return {None: parse_schema(schemas)}
    except Exception as error:
        raise ValueError(f"the schema is not one of Avro's: {error}") from error
