"""Two codecs that others wrote from Kafka's own schemas, to compare ours with.

`kio` has classes for every version that Kafka 4 still serves, and needs Python 3.11; `kafka-python`
reads the schemas at run time and so knows the older versions as well. Each decodes bytes to objects
of its own. Here they are brought to a common plain form: dicts by field name, lists, numbers, text
and bytes.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import importlib.util
from enum import Enum
from functools import cache
from io import BytesIO
from typing import Any
from uuid import UUID

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer  # noqa: F401
from kafka.protocol.api_message import ApiMessage

from asyncbroker.protocol.schema import ZERO_UUID, Nested, table_of
from asyncbroker.protocol.tests.message_strategies import Case

HAS_KIO = importlib.util.find_spec("kio") is not None

_EPOCH = datetime.datetime.fromtimestamp(0, datetime.timezone.utc)
_MILLISECOND = datetime.timedelta(milliseconds=1)


def plain(message: Any, version: int) -> Any:
    """A message of ours in the common form; an absent tagged struct shows its defaults."""
    fields = {}
    for name, row in table_of(type(message)).items():
        if version not in row.versions:
            continue
        value = getattr(message, name)
        if value is None and isinstance(row.type, Nested) and version not in row.nullable:
            value = row.type.message()
        if isinstance(value, list):
            value = [
                plain(item, version) if dataclasses.is_dataclass(item) else item for item in value
            ]
        elif dataclasses.is_dataclass(value):
            value = plain(value, version)
        fields[name] = value
    return fields


@cache
def kio_class(case: Case) -> Any:
    """kio's class for a message, or None when kio, or the version in it, is not there."""
    package = f"kio.schema.{case.api.module}.v{case.version}"
    if not HAS_KIO or importlib.util.find_spec(package) is None:
        return None
    module = importlib.import_module(f"{package}.{case.kind.lower()}")
    return getattr(module, case.api.name + case.kind)


def kio_header_class(kind: str, version: int) -> Any:
    """kio's class for a header: `RequestHeader` or `ResponseHeader`."""
    package = {"RequestHeader": "request_header", "ResponseHeader": "response_header"}[kind]
    return getattr(importlib.import_module(f"kio.schema.{package}.v{version}.header"), kind)


def kio_decode(message_class: Any, data: bytes) -> Any:
    from kio.serial import entity_reader

    message, size = entity_reader(message_class)(data, 0)
    assert size == len(data)
    return message


def kio_encode(message: Any) -> bytes:
    from kio.serial import entity_writer

    stream = BytesIO()
    entity_writer(type(message))(stream, message)
    return stream.getvalue()


def kio_plain(message: Any) -> Any:
    """A message of kio's in the common form. It has other names for times: `timeout` is a
    `timedelta`, where Kafka's schema says `timeout_ms`."""
    fields = {}
    for field in dataclasses.fields(message):
        name, value = field.name, getattr(message, field.name)
        kafka_type = field.metadata.get("kafka_type")
        if kafka_type == "uuid":
            value = ZERO_UUID if value is None else value.bytes
        elif kafka_type == "datetime_i64":
            name += "_ms"
            value = -1 if value is None else (value - _EPOCH) // _MILLISECOND
        elif isinstance(value, datetime.timedelta):
            name += "_ms"
            value //= _MILLISECOND
        elif isinstance(value, Enum):
            value = value.value
        elif isinstance(value, tuple):
            value = [kio_plain(v) if dataclasses.is_dataclass(v) else _bytes(v) for v in value]
        elif dataclasses.is_dataclass(value):
            value = kio_plain(value)
        fields[name] = value
    return fields


# Where kafka-python departs from the names of Kafka's schemas.
_RENAMED = {
    ("MetadataResponse", "authorized_operations"): "cluster_authorized_operations",
    ("MetadataResponseTopic", "authorized_operations"): "topic_authorized_operations",
    ("DescribeClusterResponse", "authorized_operations"): "cluster_authorized_operations",
}


@cache
def _kafka_python_classes() -> dict[str, Any]:
    return {message.__name__: message for message in ApiMessage.__subclasses__()}


def kafka_python_knows(case: Case) -> bool:
    """Whether kafka-python has the message; those of the consumer protocol (KIP-848) it has not."""
    return case.api.name + case.kind in _kafka_python_classes()


def kafka_python_decode(case: Case, data: bytes) -> Any:
    message_class = _kafka_python_classes()[case.api.name + case.kind]
    message = message_class.decode(data, version=case.version)
    message._header = None  # which encoding asks for, and decoding without a header leaves unset
    return message


def kafka_python_encode(case: Case, message: Any) -> bytes:
    data: bytes = message.encode(version=case.version)
    return data


def kafka_python_plain(message: Any, version: int) -> Any:
    """A message of kafka-python's in the common form."""
    fields = {}
    for name, field in message.fields.items():
        if not field.for_version_q(version):
            continue
        value = getattr(message, name)
        if field.is_struct():
            if value is not None or not field.nullable_for_version_q(version):
                value = kafka_python_plain(field() if value is None else value, version)
        elif field.is_struct_array() and value is not None:
            value = [kafka_python_plain(item, version) for item in value]
        elif field.type_str == "bitfield":
            name = _RENAMED.get((type(message).__name__, name), name)
            bits = {31} if value is None else value
            value = sum(1 << bit for bit in bits) - (1 << 32 if 31 in bits else 0)
        elif field.type_str == "uuid":
            value = UUID(bytes=ZERO_UUID) if value is None else value
        elif isinstance(value, list):
            value = [_bytes(item) for item in value]
        fields[name] = _bytes(value)
    return fields


def _bytes(value: Any) -> Any:
    """Ids as the bytes that we hold them in."""
    return value.bytes if isinstance(value, UUID) else value
