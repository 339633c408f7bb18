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
    for schema in [*schemas.values(), *readers(schemas, reader).values()]:
        for record in _records_of(schema):
            names.update(dict.fromkeys(field["name"] for field in record["fields"]))
    return list(names)


def readers(schemas: dict[int | None, Any], text: str | None) -> dict[int | None, Any]:
    """The schema that what is written by each is read as: the one given, or that of the highest id
    which has a record of the same name, without its namespace, or by an alias. Values of a topic
    may be of several records that have nothing to do with each other. Raises as `parsed_schemas`.
    """
    if text is not None:
        given = parsed_schemas(AVRO, text)[None]
        return dict.fromkeys(schemas, given)
    newest_first = sorted(schemas.items(), key=lambda one: one[0] or 0, reverse=True)
    found = {}
    for schema_id, schema in schemas.items():
        names = {_short(record["name"]) for record in _records_of(schema)}
        found[schema_id] = next(
            (newer for _, newer in newest_first if names & _names_known_to(newer)), schema
        )
    return found


def _records_of(schema: Any) -> list[Any]:
    """A union may have records among others."""
    types = schema if isinstance(schema, list) else [schema]
    return [one for one in types if isinstance(one, dict) and one["type"] == "record"]


def _names_known_to(schema: Any) -> set[str]:
    records = _records_of(schema)
    names = [record["name"] for record in records]
    return {_short(name) for name in names + [a for one in records for a in one.get("aliases", ())]}


def _short(name: str) -> str:
    return name.rpartition(".")[2]


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
