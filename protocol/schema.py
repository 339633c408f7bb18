"""Declares messages: how a table of fields, with version ranges, hangs on a dataclass.

A message is a slotted dataclass. Each field is declared with `wire(...)`, which carries its wire
type, the versions that have it, its default and the rest of its row in Kafka's message schema:

    @dataclass(slots=True)
    class HeartbeatRequest:
        group_id: str = wire(STRING)
        generation_id: int = wire(INT32)
        member_id: str = wire(STRING)
        group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)

Messages do not know versions: a field that a version lacks holds its default after decoding, and is
left out in encoding (a value other than the default is then an error unless the field is
`ignorable`). The codecs themselves are made in `codec.py` (one construct `Struct` per version) and
`compiler.py` (straight-line functions lowered from that `Struct`). This file imports neither, so
that a message can be declared without paying for construct.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final, Protocol

Buffer = bytes | bytearray | memoryview
"""What decoders read from: a whole frame."""

VERSION_MAX: Final = 32767

ZERO_UUID: Final = bytes(16)


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions; `first > last` is the empty range."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Reads Kafka's notation: "3+", "0-5", "4" or "none"."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), VERSION_MAX)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


NO_VERSIONS: Final = Versions(0, -1)


@dataclass(frozen=True, slots=True)
class Primitive:
    """A wire type without parts; its name is Kafka's. STRING, BYTES, RECORDS become compact in
    flexible versions. A UUID is 16 `bytes`; BYTES decode to `bytes`; RECORDS to a `memoryview` of
    the received frame, without a copy."""

    name: str
    default: Any


INT8: Final = Primitive("int8", 0)
INT16: Final = Primitive("int16", 0)
INT32: Final = Primitive("int32", 0)
INT64: Final = Primitive("int64", 0)
UINT16: Final = Primitive("uint16", 0)
UINT32: Final = Primitive("uint32", 0)
FLOAT64: Final = Primitive("float64", 0.0)
BOOL: Final = Primitive("bool", False)
STRING: Final = Primitive("string", "")
BYTES: Final = Primitive("bytes", b"")
RECORDS: Final = Primitive("records", None)
UUID: Final = Primitive("uuid", ZERO_UUID)


class SizedPart(Protocol):
    """Bytes that lie elsewhere, such as a range of a file; an encoder needs only their number."""

    @property
    def size(self) -> int: ...


RecordBytes = bytes | bytearray | memoryview | SizedPart | None
"""What a RECORDS field may hold. Decoding gives a `memoryview`; a `SizedPart` can only be sent."""


@dataclass(frozen=True, slots=True)
class Nested:
    """A struct field: another message class, encoded in place."""

    message: type


@dataclass(frozen=True, slots=True)
class Array:
    """A list of primitives or of nested messages; compact in flexible versions."""

    item: Primitive | Nested


WireType = Primitive | Nested | Array


def array(item: Primitive | type) -> Array:
    """The type of a list: `array(INT32)` or `array(SomeMessage)`."""
    return Array(item if isinstance(item, Primitive) else Nested(item))


@dataclass(frozen=True, slots=True)
class Field:
    """One row of a message's table. `flexible` overrides the message's flexible range for the type
    of this field alone (the client id of a request header is never compact)."""

    type: WireType
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    ignorable: bool
    never_compact: bool


_MISSING: Final = object()


def wire(
    type: Primitive | Array | type,
    versions: str = "0+",
    *,
    default: Any = _MISSING,
    nullable: str = "none",
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    never_compact: bool = False,
) -> Any:
    """Declares a field: a `dataclasses.field` that carries its row of the table.

    Without `default` the type's own default holds: 0, false, "", an empty list, an empty struct.
    `tagged` is the range in which the field is a tagged one; it defaults to `versions` when `tag`
    is given. A tagged struct is declared with `default=None`, which stands for its absence, so
    that the many responses without one do not build it.
    """
    wire_type: WireType = type if isinstance(type, (Primitive, Array)) else Nested(type)
    field_versions = Versions.parse(versions)
    row = Field(
        type=wire_type,
        versions=field_versions,
        nullable=Versions.parse(nullable),
        tag=tag,
        tagged=NO_VERSIONS if tag is None else Versions.parse(tagged or versions),
        ignorable=ignorable,
        never_compact=never_compact,
    )
    metadata = {"wire": row}
    if default is not _MISSING:
        return dataclasses.field(default=default, metadata=metadata)
    if isinstance(wire_type, Array):
        return dataclasses.field(default_factory=list, metadata=metadata)
    if isinstance(wire_type, Nested):
        return dataclasses.field(default_factory=wire_type.message, metadata=metadata)
    return dataclasses.field(default=wire_type.default, metadata=metadata)


def table_of(message: type) -> dict[str, Field]:
    """The rows of a message by field name, in wire order."""
    return {field.name: field.metadata["wire"] for field in dataclasses.fields(message)}


def defaults_of(message: type) -> dict[str, Any]:
    """The default of every field of a message by name, each a fresh object."""
    return {
        field.name: (
            field.default
            if field.default_factory is dataclasses.MISSING
            else field.default_factory()
        )
        for field in dataclasses.fields(message)
    }
