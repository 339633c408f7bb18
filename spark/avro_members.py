"""Unions of several types as structs, as Spark's own `from_avro` has them.

Such a struct has a field for each type of the union but null: `member0`, `member1`, ... in their
order, or, as with `enableStableIdentifiersForUnionType`, `member_` and the type's name in lower
case. One of them holds the value, the others are null.

A record with a single field is written as that field is, without a byte more. So a schema in which
each type of the union stands inside a record with the member as its field reads the same bytes, and
has the members' names: both ways of decoding take it for what it is.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

_MEMBER: Final = re.compile(r"member(\d+|_\w+)")


def with_members(schema: Any, wanted: pa.Schema) -> Any:
    """The schema, as fastavro has parsed it, with records for members of its unions where `wanted`
    has a struct of them; the same object if it has none. Raises ValueError for a field of such a
    struct that is no member."""
    from fastavro import parse_schema

    rewriter = _Rewriter()
    changed = rewriter.part(schema, pa.struct(list(wanted)), "")
    return parse_schema(changed) if rewriter.count else schema


class _Rewriter:
    def __init__(self) -> None:
        self.count = 0
        self._named: dict[str, Any] = {}
        self._kinds: dict[str, pa.DataType | None] = {}

    def part(self, schema: Any, kind: pa.DataType | None, path: str) -> Any:
        """The part of a schema that becomes `kind`, or is not asked for."""
        if isinstance(schema, list):
            return self._union(schema, kind, path)
        if not isinstance(schema, dict):
            self._check_again(schema, kind, path)
            return schema
        if isinstance(schema["type"], (dict, list)):
            return self.part(schema["type"], kind, path)
        found = {name: part for name, part in schema.items() if not name.startswith("__fastavro")}
        if "name" in schema:
            self._named[schema["name"]] = schema
            self._kinds[schema["name"]] = kind
        if schema["type"] == "record":
            found["fields"] = self._fields(schema, kind, path)
        elif schema["type"] == "array":
            items = kind.value_type if kind is not None and pa.types.is_list(kind) else None
            found["items"] = self.part(schema["items"], items, f"{path}.element")
        elif schema["type"] == "map":
            values = kind.item_type if kind is not None and pa.types.is_map(kind) else None
            found["values"] = self.part(schema["values"], values, f"{path}.value")
        return found

    def _fields(self, schema: Any, kind: pa.DataType | None, path: str) -> list[Any]:
        kinds = {field.name: field.type for field in _fields_of(kind)}
        fields = []
        for field in schema["fields"]:
            name = field["name"]
            inner = self.part(field["type"], kinds.get(name), f"{path}.{name}".lstrip("."))
            # Without its default, which is not one of a type that has been changed.
            fields.append({"name": name, "type": inner})
        return fields

    def _union(self, schema: list[Any], kind: pa.DataType | None, path: str) -> list[Any]:
        types = [part for part in schema if _name_of(part) != "null"]
        if len(types) < 2 or not _fields_of(kind) or not self._has_members(types, kind):
            return [self.part(part, kind, path) for part in schema]
        kinds = {field.name: field.type for field in _fields_of(kind)}
        changed: list[Any] = []
        known: list[str] = []
        for place, part in enumerate(types):
            names = (f"member{place}", f"member_{_name_of(part).rpartition('.')[2].lower()}")
            known += names
            name = next((name for name in names if name in kinds), names[0])
            inner = self.part(part, kinds.get(name), f"{path}.{name}")
            fields = [{"name": name, "type": inner}]
            self.count += 1
            changed.append({"type": "record", "name": f"__member{self.count}", "fields": fields})
        for name in kinds:
            if name not in known:
                members = ", ".join(
                    f"{index} or {name}"
                    for index, name in zip(known[::2], known[1::2], strict=True)
                )
                raise ValueError(
                    f"'{path}.{name}' is no member of the union, whose members are: {members}."
                )
        if _are_mixed(kinds):
            raise ValueError(f"'{path}' has members both by their place and by their type's name.")
        members_left = iter(changed)
        return [part if _name_of(part) == "null" else next(members_left) for part in schema]

    def _check_again(self, name: str, kind: pa.DataType | None, path: str) -> None:
        """Raises ValueError for a type that is used again by its name, if it is asked for members
        and has become something else where it is defined."""
        if kind is None or name not in self._named or self._kinds[name] == kind:
            return
        trial = _Rewriter()
        trial.part(self._named[name], kind, path)
        if trial.count:
            raise ValueError(
                f"'{path}' is asked for members of a union in {name}, which stands in the schema "
                f"before that, and has to be the same there: {self._kinds[name] or 'not read'}."
            )

    def _has_members(self, types: list[Any], kind: pa.DataType | None) -> bool:
        """Whether members are asked for; records of a union may have fields of such names."""
        fields = set()
        for part in types:
            record = self._named.get(part, part) if isinstance(part, str) else part
            if isinstance(record, dict) and record["type"] == "record":
                fields |= {field["name"] for field in record["fields"]}
        return any(
            _MEMBER.fullmatch(field.name) and field.name not in fields for field in _fields_of(kind)
        )


def _are_mixed(names: Any) -> bool:
    return len({name.startswith("member_") for name in names}) > 1


def _fields_of(kind: pa.DataType | None) -> list[pa.Field]:
    return list(kind) if kind is not None and pa.types.is_struct(kind) else []


def _name_of(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    return str(schema.get("name", schema["type"]))
