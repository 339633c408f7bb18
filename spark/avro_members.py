"""Unions of several types as structs, as Spark's own `from_avro` has them.

Such a struct has a field for each type of the union but null: `member0`, `member1`, ... in their
order, or, as with `enableStableIdentifiersForUnionType`, `member_` and the type's name in lower
case. One of them holds the value, the others are null.

A record with a single field is written as that field is, without a byte more. So a schema in which
each type of the union stands inside a record with the member as its field reads the same bytes, and
has the members' names: both ways of decoding take it for what it is (`avro_resolution.py`).
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

_MEMBER: Final = re.compile(r"member(\d+|_\w+)")


def member_names(types: list[Any], kind: pa.DataType | None, path: str) -> list[str] | None:
    """The member that each type of a union is, null not among them; None if no members are asked
    for. Raises ValueError for a field that is no member, and for one that might be two."""
    names = [one.name for one in fields_of(kind)]
    if len(types) < 2 or not names:
        return None
    known = [(f"member{place}", f"member_{_short_name(one)}") for place, one in enumerate(types)]
    if not _are_asked_for(types, names, known):
        return None
    for name in names:
        if name not in {one for pair in known for one in pair}:
            members = ", ".join(f"{index} or {name}" for index, name in known)
            raise ValueError(
                f"'{path}.{name}' is no member of the union, whose members are: {members}."
            )
        places = [place for place, stable in known if stable == name]
        if len(places) > 1:
            raise ValueError(
                f"'{path}.{name}' is the name of several types of the union, which are: "
                f"{', '.join(places)}."
            )
    if len({name.startswith("member_") for name in names}) > 1:
        raise ValueError(f"'{path}' has members both by their place and by their type's name.")
    return [stable if stable in names else place for place, stable in known]


def _are_asked_for(types: list[Any], names: list[str], known: list[tuple[str, str]]) -> bool:
    """Records of a union may have fields of such names, or lack them as any others."""
    fields = {field["name"] for one in types for field in one.get("fields", ())}
    like_members = {name for name in names if _MEMBER.fullmatch(name)} - fields
    if all(one["type"] == "record" for one in types):
        like_members &= {name for pair in known for name in pair}
    return bool(like_members)


def fields_of(kind: pa.DataType | None) -> list[pa.Field]:
    return list(kind) if kind is not None and pa.types.is_struct(kind) else []


def _short_name(schema: Any) -> str:
    return str(schema.get("name", schema["type"])).rpartition(".")[2].lower()
