"""Kafka's wire types as construct classes: the parts of which `codec.py` builds its `Struct`s.

A type that has a length is one class for both encodings: the construct that reads the length makes
the difference. Classic lengths are int16 or int32 with -1 for null; compact ones (KIP-482) are
unsigned varints of the length plus one, with 0 for null, which `CompactLength` hides.

These classes are interpreted: they show what the bytes mean (`parse` in `codec.py`), and they are
the reference that the code made by `compiler.py` is held equal to. They favour plainness over
speed, but they check as much: a length is compared with the bytes that are left before anything is
read or allocated for it.

    string, bytes, records   length, then as many bytes (UTF-8 in a string)
    array                    length, then as many items
    nullable struct          int8: negative is null, 1 is followed by the struct (KIP-893)
    tagged fields            uvarint count, then for each: uvarint tag, uvarint size, value
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Any, BinaryIO, Final

import construct
from construct import Bytes, Construct, Container, FormatField, StringError
from construct.core import StreamError, stream_read, stream_size, stream_tell, stream_write

from asyncbroker.protocol.varints import UVARINT_BYTES_MAX, UVARINT_MAX, encode_uvarint

STRING_BYTES_MAX: Final = 32767
# So long a string is no longer than that whatever of it is not UTF-8.
SHORT_STRING_BYTES_MAX: Final = STRING_BYTES_MAX // 3

INT8: Final = FormatField(">", "b")
INT16: Final = FormatField(">", "h")
INT32: Final = FormatField(">", "l")

FIXED: Final[dict[str, Construct]] = {
    "int8": INT8,
    "int16": INT16,
    "int32": INT32,
    "int64": FormatField(">", "q"),
    "uint16": FormatField(">", "H"),
    "uint32": FormatField(">", "L"),
    "float64": FormatField(">", "d"),
    "bool": FormatField(">", "?"),
    "uuid": Bytes(16),
}
"""The types of one size, by Kafka's names."""


class WireConstruct(Construct):  # type: ignore[misc]  # construct has no type information
    """The base of the classes below, in which construct calls `_parse` and `_build`."""


class UnsignedVarint(WireConstruct):
    """Seven bits a byte, the lowest first, the top bit says that more follow; at most 32 bits."""

    def _parse(self, stream: BinaryIO, context: Container, path: str) -> int:
        value = 0
        for shift in range(0, 7 * UVARINT_BYTES_MAX, 7):
            byte: int = stream_read(stream, 1, path)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise StreamError(f"varint of more than {UVARINT_BYTES_MAX} bytes", path=path)
        if value > UVARINT_MAX:
            raise StreamError("varint of more than 32 bits", path=path)
        return value

    def _build(self, value: int, stream: BinaryIO, context: Container, path: str) -> int:
        data = encode_uvarint(value)
        stream_write(stream, data, len(data), path)
        return value


def decode_text(data: bytes | bytearray | memoryview) -> str | None:
    """Text in UTF-8. What is none becomes U+FFFD, as in Kafka: clients in C send names in the
    encoding that they were given them in. None where the text has more bytes than a classic length
    can say, however its length was sent: Kafka refuses those too, and they could not go on into
    records, which are classic. A U+FFFD has three, and stands for at least one."""
    if len(data) > STRING_BYTES_MAX:
        return None
    text = str(data, "utf-8", "replace")
    if len(data) > SHORT_STRING_BYTES_MAX and len(text.encode()) > STRING_BYTES_MAX:
        return None
    return text


class CompactLength(WireConstruct):
    """A length plus one as an unsigned varint; null (0) reads as -1, as in a classic length."""

    def _parse(self, stream: BinaryIO, context: Container, path: str) -> int:
        length: int = UVARINT._parse(stream, context, path)
        return length - 1

    def _build(self, length: int, stream: BinaryIO, context: Container, path: str) -> int:
        UVARINT._build(length + 1, stream, context, path)
        return length


UVARINT: Final = UnsignedVarint()
COMPACT_LENGTH: Final = CompactLength()


class Sized(WireConstruct):
    """Bytes after their length, or null."""

    def __init__(self, length: Construct, is_nullable: bool) -> None:
        super().__init__()
        self.length = length
        self.is_nullable = is_nullable

    def _parse(self, stream: BinaryIO, context: Container, path: str) -> Any:
        length = _parse_length(self, stream, context, path)
        return None if length is None else self._decode(stream_read(stream, length, path), path)

    def _build(self, value: Any, stream: BinaryIO, context: Container, path: str) -> Any:
        data = None if value is None else self._encode(value, path)
        _build_length(self, data, stream, context, path)
        if data is not None:
            stream_write(stream, data, len(data), path)
        return value

    def _decode(self, data: bytes, path: str) -> Any:
        return data

    def _encode(self, value: Any, path: str) -> bytes:
        return bytes(memoryview(value))


class String(Sized):
    """Text in UTF-8, as `decode_text` reads it."""

    def _decode(self, data: bytes, path: str) -> str:
        text = decode_text(data)
        if text is None:
            raise StringError(f"a string of {len(data)} bytes", path=path)
        return text

    def _encode(self, value: str, path: str) -> bytes:
        return value.encode("utf-8")


class ByteString(Sized):
    """Opaque bytes, which a decoder copies out of the frame."""


class Records(Sized):
    """Record batches. Here they are bytes; compiled decoders give slices of the frame instead."""


class Array(WireConstruct):
    """Items after their count, or null. Every item takes at least one byte."""

    def __init__(self, length: Construct, item: Construct, is_nullable: bool) -> None:
        super().__init__()
        self.length = length
        self.item = item
        self.is_nullable = is_nullable

    def _parse(self, stream: BinaryIO, context: Container, path: str) -> list[Any] | None:
        count = _parse_length(self, stream, context, path)
        if count is None:
            return None
        return [self.item._parsereport(stream, context, path) for _ in range(count)]

    def _build(self, items: Any, stream: BinaryIO, context: Container, path: str) -> Any:
        _build_length(self, items, stream, context, path)
        for item in items or ():
            self.item._build(item, stream, context, path)
        return items


class NullableStruct(WireConstruct):
    """A struct after an int8: negative for null, 1 when the struct follows (KIP-893)."""

    def __init__(self, struct: Construct) -> None:
        super().__init__()
        self.struct = struct

    def _parse(self, stream: BinaryIO, context: Container, path: str) -> Any:
        if INT8._parsereport(stream, context, path) < 0:
            return None
        return self.struct._parsereport(stream, context, path)

    def _build(self, value: Any, stream: BinaryIO, context: Container, path: str) -> Any:
        INT8._build(-1 if value is None else 1, stream, context, path)
        if value is not None:
            self.struct._build(value, stream, context, path)
        return value


@dataclass(frozen=True, slots=True)
class TaggedField:
    """A field that is only sent when it differs from its default."""

    name: str
    value: Construct


class TaggedFields(WireConstruct):
    """The section at the end of every struct of a flexible version.

    Parses to the fields that were sent, by name; unknown ones are skipped, and show as raw bytes
    under their number. As in Kafka's own readers, the order is not checked and a repeated tag
    overwrites. Builds the fields that it is given, in the order of their tags.
    """

    def __init__(self, fields: dict[int, TaggedField]) -> None:
        super().__init__()
        self.fields = fields

    def _parse(self, stream: BinaryIO, context: Container, path: str) -> Container:
        values = Container()
        for _ in range(UVARINT._parse(stream, context, path)):
            tag = UVARINT._parse(stream, context, path)
            size = UVARINT._parse(stream, context, path)
            payload = stream_read(stream, size, path)
            field = self.fields.get(tag)
            if field is None:
                values[tag] = payload
                continue
            payload_stream = BytesIO(payload)
            values[field.name] = field.value._parsereport(payload_stream, context, path)
            if _bytes_left(payload_stream, path):
                raise StreamError(f"tagged field {field.name} is too long", path=path)
        return values

    def _build(
        self, values: dict[str, Any], stream: BinaryIO, context: Container, path: str
    ) -> dict[str, Any]:
        sent = [(tag, field) for tag, field in sorted(self.fields.items()) if field.name in values]
        UVARINT._build(len(sent), stream, context, path)
        for tag, field in sent:
            payload_stream = BytesIO()
            field.value._build(values[field.name], payload_stream, context, path)
            payload = payload_stream.getvalue()
            UVARINT._build(tag, stream, context, path)
            UVARINT._build(len(payload), stream, context, path)
            stream_write(stream, payload, len(payload), path)
        return values


class MessageStruct(construct.Struct):  # type: ignore[misc]  # construct has no type information
    """The fields of one message in one version, and after them the section of tagged ones.

    It knows its message class, for what a `Struct` cannot say: which fields the version lacks.
    `tagged` is None in versions that have no such section.
    """

    def __init__(
        self,
        message: type,
        version: int,
        untagged: dict[str, Construct],
        tagged: dict[int, TaggedField] | None,
    ) -> None:
        fields = [name / field for name, field in untagged.items()]
        if tagged is not None:
            fields.append(TAGGED_FIELDS / TaggedFields(tagged))
        super().__init__(*fields)
        self.message = message
        self.version = version
        self.untagged = untagged
        self.tagged = tagged

    def names(self) -> set[str]:
        """The fields that this version has."""
        return {*self.untagged, *(field.name for field in (self.tagged or {}).values())}


TAGGED_FIELDS: Final = "_tagged_fields"
"""The name of the section of tagged fields in a `MessageStruct`."""


def _parse_length(
    wire_type: Sized | Array, stream: BinaryIO, context: Container, path: str
) -> int | None:
    """The length of a value, or None for null; never more than the bytes that are left."""
    length: int = wire_type.length._parsereport(stream, context, path)
    if length == -1 and wire_type.is_nullable:
        return None
    left = _bytes_left(stream, path)
    if not 0 <= length <= left:
        raise StreamError(f"length {length} with {left} bytes left", path=path)
    return length


def _build_length(
    wire_type: Sized | Array, value: Any, stream: BinaryIO, context: Container, path: str
) -> None:
    if value is None and not wire_type.is_nullable:
        raise StreamError("null where the version has none", path=path)
    wire_type.length._build(-1 if value is None else len(value), stream, context, path)


def _bytes_left(stream: BinaryIO, path: str) -> int:
    size: int = stream_size(stream)
    position: int = stream_tell(stream, path)
    return size - position
