"""Messages in the JSON form that Kafka itself has for them.

It is how golden messages are kept, and how Kafka's Java classes are given messages to encode (see
`golden/`). Names are Kafka's in camelCase, bytes are base64, ids are Kafka's URL-safe base64. Only
fields of the version are written, and tagged ones only when they differ from their default.
"""

from __future__ import annotations

from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from asyncbroker.protocol.schema import Array, Nested, Primitive, WireType, defaults_of, table_of


def to_json(message: Any, version: int) -> dict[str, Any]:
    defaults = defaults_of(type(message))
    fields = {}
    for name, field in table_of(type(message)).items():
        value = getattr(message, name)
        is_tagged = field.tag is not None and version in field.tagged
        if version in field.versions and not (is_tagged and value == defaults[name]):
            fields[camel_case(name)] = _value_to_json(field.type, value, version)
    return fields


def from_json(message_class: type, fields: dict[str, Any]) -> Any:
    table = {camel_case(name): (name, field) for name, field in table_of(message_class).items()}
    values = {}
    for json_name, value in fields.items():
        name, field = table[json_name]
        values[name] = _value_from_json(field.type, value)
    return message_class(**values)


def camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _value_to_json(wire_type: WireType, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(wire_type, Array):
        return [_value_to_json(wire_type.item, item, version) for item in value]
    if isinstance(wire_type, Nested):
        return to_json(value, version)
    if wire_type.name == "uuid":
        return urlsafe_b64encode(value).decode().rstrip("=")
    if wire_type.name in ("bytes", "records"):
        return b64encode(value).decode()
    return value


def _value_from_json(wire_type: Primitive | Nested | Array, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(wire_type, Array):
        return [_value_from_json(wire_type.item, item) for item in value]
    if isinstance(wire_type, Nested):
        return from_json(wire_type.message, value)
    if wire_type.name == "uuid":
        return urlsafe_b64decode(value + "==")
    if wire_type.name in ("bytes", "records"):
        return b64decode(value)
    return value
