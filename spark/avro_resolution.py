"""Makes of the schema that values were written by one that reads them as a newer one has them.

Avro's rules of schema resolution (specification, "Schema Resolution") are applied to the writer's
schema once, not to each value: what comes of it reads the same bytes, so that both ways of decoding
need no more than the one schema. In it

- a field has the name that it has to the reader, by the reader's aliases;
- a field that only the reader has is one of no bytes, with the default of the reader's schema;
- a whole number that is a float to the reader becomes one, and a symbol of an enum that the reader
  lacks becomes the reader's default, where there is one;
- a logical type that only the reader has is there;
- the types of a union that is a struct of members (`avro_members.py`) are the reader's members.

Where the rules call for an error, the writer's schema stands as it is: whether its values can be
what is asked for is found value by value. A field that only the writer has may still be asked for.
"""

from __future__ import annotations

import io
from typing import Any, Final

import pyarrow as pa

from asyncbroker.spark.avro_defaults import encoded_default
from asyncbroker.spark.avro_marks import (
    AS_DOUBLE,
    AS_FLOAT,
    AS_SYMBOL,
    CONSTANT,
    REFUSED,
    tell_fastavro,
)
from asyncbroker.spark.avro_members import fields_of, member_names
from asyncbroker.spark.avro_rows import one_by_one

_PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_NAMED: Final = ("record", "enum", "fixed")
_LOGICAL: Final = ("logicalType", "precision", "scale")


def resolved(writer: Any, reader: Any, wanted: pa.Schema) -> Any:
    """The schema, as fastavro has parsed it, that reads what `writer` wrote as `reader` has it, as
    far as the fields of `wanted` go; the same object if that needs no change. Raises ValueError for
    a field that is no member of its union, and a default that is not what it has to be."""
    from fastavro import parse_schema

    known = _linked(writer, {})
    resolver = _Resolver()
    kind = pa.struct(list(wanted))
    changed = resolver.part(known, known if reader is writer else _linked(reader, {}), kind, "")
    if not resolver.is_changed:
        return writer
    tell_fastavro()
    return parse_schema(changed)


def _linked(schema: Any, named: dict[str, Any]) -> Any:
    """The schema with the types themselves wherever they are used by their names."""
    if isinstance(schema, list):
        return [_linked(part, named) for part in schema]
    if isinstance(schema, str):
        return named.get(schema) or {"type": schema}
    if not isinstance(schema["type"], str) or schema["type"] in named:
        return _linked(schema["type"], named)
    found = {name: part for name, part in schema.items() if not name.startswith("__")}
    if _name_of(found):
        named[_name_of(found)] = found
    for name in ("items", "values"):
        if name in found:
            found[name] = _linked(found[name], named)
    if "fields" in found:
        found["fields"] = [
            {**field, "type": _linked(field["type"], named)} for field in found["fields"]
        ]
    return found


class _Resolver:
    """Goes through both schemas together. A type that is used in several ways becomes several."""

    def __init__(self) -> None:
        self.is_changed = False
        self._made: dict[tuple[int, int, pa.DataType | None], str] = {}
        self._count = 0

    def part(self, writer: Any, reader: Any, kind: pa.DataType | None, path: str) -> Any:
        """The part of a schema that becomes `kind`, or is not asked for."""
        if kind is None:
            reader = writer
        if isinstance(writer, list) or isinstance(reader, list):
            return self._union(writer, reader, kind, path)
        if _match(writer, [reader]) is None and writer["type"] != reader["type"]:
            reader = writer
        form = writer["type"]
        if form in _NAMED:
            return self._named(writer, reader, kind, path)
        if form == "array":
            inner = kind.value_type if kind is not None and pa.types.is_list(kind) else None
            items = self.part(writer["items"], reader["items"], inner, f"{path}.element")
            return {"type": "array", "items": items}
        if form == "map":
            inner = kind.item_type if kind is not None and pa.types.is_map(kind) else None
            values = self.part(writer["values"], reader["values"], inner, f"{path}.value")
            return {"type": "map", "values": values}
        return self._plain(writer, reader, kind)

    def _named(self, writer: Any, reader: Any, kind: pa.DataType | None, path: str) -> Any:
        key = (id(writer), id(reader), kind)
        if key in self._made:
            return self._made[key]
        name = self._made[key] = self._new_name()
        if writer["type"] == "record":
            fields = self._fields(writer, reader, kind, path)
            return {"type": "record", "name": name, "fields": fields}
        if writer["type"] == "fixed":
            return {**self._plain(writer, reader, kind), "name": name}
        found = {"type": "enum", "name": name, "symbols": writer["symbols"]}
        unknown = [one for one in writer["symbols"] if one not in reader["symbols"]]
        if unknown and "default" in reader:
            self.is_changed = True
            found |= {
                "logicalType": AS_SYMBOL,
                "becomes": dict.fromkeys(unknown, reader["default"]),
            }
        return found

    def _new_name(self) -> str:
        self._count += 1
        return f"__type{self._count}"

    def _fields(
        self, writer: Any, reader: Any, kind: pa.DataType | None, path: str
    ) -> list[dict[str, Any]]:
        kinds = {field.name: field.type for field in fields_of(kind)}
        found_as, missing = _paired(writer, reader)
        fields = []
        for field in writer["fields"]:
            to_reader = found_as.get(field["name"], field)
            name = to_reader["name"]
            if name not in kinds and field["name"] in kinds:
                name = field["name"]
            self.is_changed |= name != field["name"]
            inner_path = f"{path}.{name}".lstrip(".")
            inner = self.part(field["type"], to_reader["type"], kinds.get(name), inner_path)
            fields.append({"name": name, "type": inner})
        known = {field["name"] for field in fields}
        for field in missing:
            name = field["name"]
            if name in kinds and name not in known and "default" in field:
                self.is_changed = True
                constant = _constant(field, kinds[name], f"{path}.{name}".lstrip("."))
                fields.append({"name": name, "type": constant})
        return fields

    def _plain(self, writer: Any, reader: Any, kind: pa.DataType | None) -> Any:
        if kind is None:
            return writer
        form, to_reader = writer["type"], reader["type"]
        if form in ("int", "long") and to_reader in ("float", "double"):
            if not pa.types.is_floating(kind):
                return writer
            self.is_changed = True
            return {"type": form, "logicalType": AS_FLOAT if to_reader == "float" else AS_DOUBLE}
        has_moment = pa.types.is_temporal(kind) or pa.types.is_decimal(kind)
        own, to_become = writer.get("logicalType"), reader.get("logicalType")
        same_bytes = form == to_reader or form == "int"
        if own is None and to_become is not None and has_moment and same_bytes:
            self.is_changed = True
            size = {"size": writer["size"]} if form == "fixed" else {}
            logical = {name: reader[name] for name in _LOGICAL if name in reader}
            # An int is written as a long is.
            return {"type": to_reader if form == "int" else form, **size, **logical}
        if own is not None and to_become is None and not has_moment:
            self.is_changed = True
            return {name: part for name, part in writer.items() if name not in _LOGICAL}
        return writer

    def _union(self, writer: Any, reader: Any, kind: pa.DataType | None, path: str) -> Any:
        read = [part for part in _types_of(reader) if part["type"] != "null"]
        is_other = len(read) == 1 and read[0]["type"] != "record" and bool(fields_of(kind))
        if is_other and isinstance(writer, list):
            # Members are asked for as an older schema has them.
            reader = writer
            read = [part for part in writer if part["type"] != "null"]
        members = member_names(read, kind, path) if isinstance(reader, list) else None
        kinds = {field.name: field.type for field in fields_of(kind)}
        found: list[Any] = []
        for part in _types_of(writer):
            if part["type"] == "null":
                found.append("null")
                continue
            place = _match(part, read)
            if members is None:
                found.append(self.part(part, part if place is None else read[place], kind, path))
                continue
            self.is_changed = True
            if place is None:
                inner, member = {"type": "null", "logicalType": REFUSED}, members[0]
            else:
                member = members[place]
                inner = self.part(part, read[place], kinds.get(member), f"{path}.{member}")
            fields = [{"name": member, "type": inner}]
            found.append({"type": "record", "name": self._new_name(), "fields": fields})
        return found if isinstance(writer, list) else found[0]


def _constant(field: Any, kind: pa.DataType, path: str) -> Any:
    """A type of no bytes that is the default of a field."""
    from fastavro import parse_schema, schemaless_reader

    name = field["name"]
    wanted = pa.schema([(name, kind)])
    try:
        data = encoded_default(field["type"], field["default"])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The default of '{path}' is not of its type: {error}.") from None
    inner = _Resolver().part(field["type"], field["type"], kind, path)
    tell_fastavro()
    record = {"type": "record", "name": "__default", "fields": [{"name": name, "type": inner}]}
    schema = parse_schema(record)
    columns, failed = one_by_one([data], schema, wanted)
    if failed[0]:
        raise ValueError(f"The default of '{path}', {field['default']!r}, cannot be {kind}.")
    row: Any = schemaless_reader(io.BytesIO(data), schema, None)
    column = columns[name]
    return {"type": "null", "logicalType": CONSTANT, "value": row[name], "column": column}


def _paired(writer: Any, reader: Any) -> tuple[dict[str, Any], list[Any]]:
    """The reader's field for each of the writer's that has one, and those that were not written.
    A field's own name goes before another's alias."""
    left = {field["name"] for field in writer["fields"]}
    found_as = {field["name"]: field for field in reader["fields"] if field["name"] in left}
    left -= found_as.keys()
    missing = []
    for field in reader["fields"]:
        if field["name"] in found_as:
            continue
        alias = next((alias for alias in field.get("aliases", ()) if alias in left), None)
        if alias is None:
            missing.append(field)
        else:
            left.remove(alias)
            found_as[alias] = field
    return found_as, missing


def _types_of(schema: Any) -> list[Any]:
    return schema if isinstance(schema, list) else [schema]


def _name_of(schema: Any) -> str:
    """Other types than those with names may have one all the same, and it says nothing."""
    return str(schema["name"]) if schema["type"] in _NAMED else ""


def _match(writer: Any, readers: list[Any]) -> int | None:
    """The place of the type that the writer's is to the reader: the same, by its name, by an alias,
    by its name without a namespace, or a larger one."""
    form, name = writer["type"], _name_of(writer)
    short = name.rpartition(".")[2]
    same = [place for place, reader in enumerate(readers) if reader["type"] == form]
    for place in same:
        if readers[place] is writer or _name_of(readers[place]) == name:
            return place
    for place in same:
        aliases = readers[place].get("aliases", ())
        if name in aliases or short in (alias.rpartition(".")[2] for alias in aliases):
            return place
    for place in same:
        if _name_of(readers[place]).rpartition(".")[2] == short:
            return place
    for place, reader in enumerate(readers):
        if reader["type"] in _PROMOTIONS.get(form, ()):
            return place
    return None
