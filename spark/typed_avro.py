"""The schemas of Avro values, bare or in the wire format of schema registries.

In that format a value is a byte of zero, the id of its schema as int32, and then what Avro wrote.
There is no registry to ask: the schemas come with the options, either one for all ids or an object
{"id": schema, ...} with one for each, and perhaps another that all are read as. `fastavro` is
imported when there is a schema to be parsed.
"""

from __future__ import annotations

import json
from typing import Any, Final

from asyncbroker.spark.formats import AVRO, CONFLUENT_AVRO

LOGICAL_TYPES: Final = (
    *("date", "decimal", "timestamp-millis", "timestamp-micros"),
    *("local-timestamp-millis", "local-timestamp-micros"),
)


def field_names(form: str, text: str, reader: str | None) -> list[str]:
    """The names of the fields that a value may have, by any of the schemas, in their order. Raises
    as `parsed_schemas`."""
    schemas = parsed_schemas(form, text)
    names: dict[str, None] = {}
    for schema in [*schemas.values(), parsed_reader(schemas, reader)]:
        # A union may have records among others.
        for kind in schema if isinstance(schema, list) else [schema]:
            if isinstance(kind, dict):
                names.update(dict.fromkeys(field["name"] for field in kind.get("fields", ())))
    return list(names)


def parsed_reader(schemas: dict[int | None, Any], text: str | None) -> Any:
    """The schema that queries are planned by: the one given, or that of the highest id. Raises as
    `parsed_schemas`."""
    if text is not None:
        return parsed_schemas(AVRO, text)[None]
    return schemas[max(schemas, key=lambda one: -1 if one is None else one)]


def parsed_schemas(form: str, text: str) -> dict[int | None, Any]:
    """The schemas by id, as fastavro has them; None stands for every id. Raises ValueError for a
    schema that is none, ImportError."""
    try:
        from fastavro import parse_schema
    except ImportError as error:
        raise ImportError(
            "the format avro needs fastavro: pip install asyncbroker[avro]"
        ) from error

    try:
        schemas = _without_unknown(json.loads(text))
        by_id = isinstance(schemas, dict) and bool(schemas) and all(map(str.isdigit, schemas))
        if form == CONFLUENT_AVRO and by_id:
            return {int(key): parse_schema(one) for key, one in schemas.items()}
        return {None: parse_schema(schemas)}
    except Exception as error:
        raise ValueError(f"the schema is not one of Avro's: {error}") from error


def _without_unknown(schema: Any) -> Any:
    """The schema without logical types that no type of Spark's stands for: such a value is what it
    is without one, as Spark's own `from_avro` has it. A uuid is a string, a time a number."""
    if isinstance(schema, list):
        return [_without_unknown(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _without_unknown(part)
        for name, part in schema.items()
        if name != "logicalType" or part in LOGICAL_TYPES
    }
