"""What a schema says of a field that is missing: its default, as the bytes that it is in Avro.

As bytes it is decoded by the same code as any value, and becomes what that would become.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final


def encoded_default(schema: Any, value: Any) -> bytes:
    """The bytes of a default, which is JSON, by its schema without names that stand for others.
    Raises ValueError for one that is no value of the schema's."""
    if isinstance(schema, list):
        return _encoded_branch(schema, value)
    encode, kinds = _ENCODERS[schema["type"]]
    if not isinstance(value, kinds) or isinstance(value, bool) is not (kinds is bool):
        raise ValueError(f"{value!r} is no {schema['type']}")
    return encode(schema, value)


def _encoded_branch(union: list[Any], value: Any) -> bytes:
    """By the first type of a union that the value fits, as of Avro 1.12; before, by the first."""
    for place, schema in enumerate(union):
        try:
            return _long(place) + encoded_default(schema, value)
        except ValueError:
            continue
    raise ValueError(f"{value!r} is none of the union's types")


def _long(number: int) -> bytes:
    bits, found = number << 1 ^ number >> 63, bytearray()
    while bits >= 0x80:
        found.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes([*found, bits])


def _whole(bits: int) -> Callable[[Any, int], bytes]:
    def encode(schema: Any, value: int) -> bytes:
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError(f"{value} does not fit into {bits} bits")
        return _long(value)

    return encode


def _float(form: str) -> Callable[[Any, float], bytes]:
    def encode(schema: Any, value: float) -> bytes:
        try:
            return struct.pack(form, value)
        except (OverflowError, struct.error):
            raise ValueError(f"{value} is too large") from None

    return encode


def _sized(content: bytes) -> bytes:
    return _long(len(content)) + content


def _fixed(schema: Any, value: str) -> bytes:
    content = value.encode("latin-1")
    if len(content) != schema["size"]:
        raise ValueError(f"{value!r} has not {schema['size']} bytes")
    return content


def _items(schema: Any, value: list[Any]) -> bytes:
    items = b"".join(encoded_default(schema["items"], item) for item in value)
    return (_long(len(value)) + items if value else b"") + b"\0"


def _entries(schema: Any, value: dict[str, Any]) -> bytes:
    entries = b"".join(
        _sized(key.encode()) + encoded_default(schema["values"], item)
        for key, item in value.items()
    )
    return (_long(len(value)) + entries if value else b"") + b"\0"


def _record(schema: Any, value: dict[str, Any]) -> bytes:
    """A field that is not there is that field's own default."""
    found = b""
    for field in schema["fields"]:
        name = field["name"]
        if name not in value and "default" not in field:
            raise ValueError(f"{value!r} has no '{name}'")
        found += encoded_default(field["type"], value.get(name, field.get("default")))
    return found


# Bytes are strings in JSON, of which each character is a byte.
_ENCODERS: Final[dict[str, tuple[Callable[[Any, Any], bytes], Any]]] = {
    "null": (lambda schema, value: b"", type(None)),
    "boolean": (lambda schema, value: bytes([value]), bool),
    "int": (_whole(32), int),
    "long": (_whole(64), int),
    "float": (_float("<f"), (int, float)),
    "double": (_float("<d"), (int, float)),
    "bytes": (lambda schema, value: _sized(value.encode("latin-1")), str),
    "string": (lambda schema, value: _sized(value.encode()), str),
    "fixed": (_fixed, str),
    "enum": (lambda schema, value: _long(schema["symbols"].index(value)), str),
    "array": (_items, list),
    "map": (_entries, dict),
    "record": (_record, dict),
}
