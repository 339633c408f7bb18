"""Codecs: one message class in one version, between bytes and version-free dataclasses.

`struct_of` turns the table of a message into a construct `Struct`, which is the readable form of
one version. `Codec` lowers that `Struct` to a straight-line decoder and encoder when they are first
used (`compiler.py`); `parse` and `build` do the same work by interpreting it, ten to fifty times
slower, as the reference for the tests and for whoever wants to see what the bytes mean.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from io import BytesIO
from struct import error as StructError
from typing import Any, Final, Generic, TypeVar

from construct import Construct, ConstructError, Container

from asyncbroker.protocol import compiler
from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.primitives import (
    COMPACT_LENGTH,
    FIXED,
    INT16,
    INT32,
    TAGGED_FIELDS,
    Array,
    ByteString,
    MessageStruct,
    NullableStruct,
    Records,
    String,
    TaggedField,
)
from asyncbroker.protocol.schema import Array as ArrayType
from asyncbroker.protocol.schema import (
    Buffer,
    Field,
    Nested,
    Primitive,
    SizedPart,
    defaults_of,
    table_of,
)

ARRAY_ITEMS_MAX: Final = 1_000_000
"""How many array items one message may have in all, unless the caller sets another limit.

An item takes a byte or two on the wire and a hundred times that as an object, so a limit on the
size of frames alone would not bound the memory that a hostile one takes.
"""

Message = TypeVar("Message")
Decoder = Callable[[Buffer, int, int], tuple[Message, int]]
EncoderToParts = Callable[[Message], list[Any]]


class Codec(Generic[Message]):
    """Decodes and encodes `message_class` as `version` has it."""

    __slots__ = ("_decoder", "_encoder", "_struct", "is_flexible", "message_class", "version")

    def __init__(self, message_class: type[Message], version: int, is_flexible: bool) -> None:
        self.message_class = message_class
        self.version = version
        self.is_flexible = is_flexible
        self._struct: MessageStruct | None = None
        self._decoder: Decoder[Message] | None = None
        self._encoder: EncoderToParts[Message] | None = None

    def __str__(self) -> str:
        return f"{self.message_class.__name__} v{self.version}"

    @property
    def struct(self) -> MessageStruct:
        """The construct `Struct` of this version: parse it to see a message field by field."""
        if self._struct is None:
            self._struct = struct_of(self.message_class, self.version, self.is_flexible)
        return self._struct

    def decode(
        self, buffer: Buffer, position: int = 0, *, items_max: int = ARRAY_ITEMS_MAX
    ) -> Message:
        """The message that fills `buffer` from `position` to its end.

        RECORDS are `memoryview`s of `buffer`, everything else is copied out of it. Raises
        ProtocolError on anything that is not such a message, bytes left over included.
        """
        message, stop = self.decode_prefix(buffer, position, items_max=items_max)
        if stop != len(buffer):
            raise ProtocolError(f"{self}: {len(buffer) - stop} bytes left over")
        return message

    def decode_prefix(
        self, buffer: Buffer, position: int = 0, *, items_max: int = ARRAY_ITEMS_MAX
    ) -> tuple[Message, int]:
        """The message at `position` and the position after it, whatever follows there."""
        decoder = self._decoder
        if decoder is None:
            decoder = self._decoder = compiler.compile_decoder(self.struct)
        try:
            return decoder(buffer, position, items_max)
        except (StructError, IndexError):
            # A field of fixed size, or a length, lies past the end of the buffer.
            raise ProtocolError(f"{self}: ends early, after {len(buffer)} bytes") from None

    def encode(self, message: Message) -> bytes:
        """The bytes of `message`. Raises ValueError when this version cannot express it: a field
        that it lacks is set, a null or a number does not fit."""
        parts = self.encode_parts(message)
        try:
            return b"".join(parts)  # type: ignore[arg-type]  # a SizedPart is the caller's mistake
        except TypeError as error:
            raise ValueError(f"{self} has records that lie elsewhere: {error}") from error

    def encode_parts(self, message: Message) -> list[bytes | bytearray | memoryview | SizedPart]:
        """The bytes of `message` in parts: the values of RECORDS fields, as they were given, and
        the bytes between them. Raises as `encode` does."""
        encoder = self._encoder
        if encoder is None:
            encoder = self._encoder = compiler.compile_encoder(self.struct)
        try:
            return encoder(message)
        except (StructError, TypeError, AttributeError) as error:
            raise ValueError(f"{self} cannot hold {message!r}: {error}") from error


def codec_for(message_class: type[Message], version: int, flexible: bool) -> Codec[Message]:
    """The codec of a message class in one version; the same object for the same arguments."""
    key: Any = message_class  # since mypy does not see that classes are hashable
    codec: Codec[Message] = _codec_for(key, version, flexible)
    return codec


@cache
def _codec_for(message_class: type, version: int, flexible: bool) -> Codec[Any]:
    # A function of its own, since `cache` would hide the type parameter of `codec_for`.
    return Codec(message_class, version, flexible)


def struct_of(message_class: type, version: int, flexible: bool) -> MessageStruct:
    """The construct `Struct` of one version of a message."""
    untagged: dict[str, Construct] = {}
    tagged: dict[int, TaggedField] = {}
    for name, field in table_of(message_class).items():
        if version not in field.versions:
            continue
        value = _construct_of(field, version, flexible)
        if field.tag is not None and version in field.tagged:
            tagged[field.tag] = TaggedField(name, value)
        else:
            untagged[name] = value
    if tagged and not flexible:
        raise TypeError(f"{message_class.__name__} v{version} has tags but is not flexible")
    return MessageStruct(message_class, version, untagged, tagged if flexible else None)


def _construct_of(field: Field, version: int, flexible: bool) -> Construct:
    is_compact = flexible and not field.never_compact
    is_nullable = version in field.nullable
    if isinstance(field.type, ArrayType):
        if isinstance(field.type.item, Nested):
            item = struct_of(field.type.item.message, version, flexible)
        else:
            item = _primitive(field.type.item, is_compact, is_nullable=False)
        return Array(COMPACT_LENGTH if is_compact else INT32, item, is_nullable)
    if isinstance(field.type, Nested):
        struct = struct_of(field.type.message, version, flexible)
        return NullableStruct(struct) if is_nullable else struct
    return _primitive(field.type, is_compact, is_nullable)


def _primitive(primitive: Primitive, is_compact: bool, is_nullable: bool) -> Construct:
    if primitive.name in FIXED:
        return FIXED[primitive.name]
    if primitive.name == "string":
        return String(COMPACT_LENGTH if is_compact else INT16, is_nullable)
    kind = {"bytes": ByteString, "records": Records}[primitive.name]
    return kind(COMPACT_LENGTH if is_compact else INT32, is_nullable)


def parse(codec: Codec[Message], buffer: Buffer, position: int = 0) -> Message:
    """What `Codec.decode` does, by interpreting the `Struct`; RECORDS are copied."""
    stream = BytesIO(bytes(buffer[position:]))
    try:
        values = codec.struct.parse_stream(stream)
    except ConstructError as error:
        raise ProtocolError(f"{codec}: {error}") from error
    left_over = len(stream.read())
    if left_over:
        raise ProtocolError(f"{codec}: {left_over} bytes left over")
    message: Message = _message(codec.struct, values)
    return message


def build(codec: Codec[Message], message: Message) -> bytes:
    """What `Codec.encode` does, by interpreting the `Struct`."""
    try:
        data: bytes = codec.struct.build(_values(codec.struct, message))
    except (ConstructError, TypeError, AttributeError) as error:
        raise ValueError(f"{codec} cannot hold {message!r}: {error}") from error
    return data


def _message(construct: Construct, value: Any) -> Any:
    """Turns what a construct has parsed into what a message holds: containers become objects."""
    if value is None:
        return None
    if isinstance(construct, Array):
        return [_message(construct.item, item) for item in value]
    if isinstance(construct, NullableStruct):
        return _message(construct.struct, value)
    if not isinstance(construct, MessageStruct):
        return value
    fields = {name: _message(field, value[name]) for name, field in construct.untagged.items()}
    for field in (construct.tagged or {}).values():
        if field.name in value[TAGGED_FIELDS]:
            fields[field.name] = _message(field.value, value[TAGGED_FIELDS][field.name])
    return construct.message(**fields)


def _values(construct: Construct, value: Any) -> Any:
    """Turns what a message holds into what a construct builds from, the opposite of `_message`."""
    if value is None:
        if isinstance(construct, MessageStruct):
            # construct would build a struct of nothing.
            raise ValueError(f"null instead of {construct.message.__name__} v{construct.version}")
        return None
    if isinstance(construct, Array):
        return [_values(construct.item, item) for item in value]
    if isinstance(construct, NullableStruct):
        return _values(construct.struct, value)
    if not isinstance(construct, MessageStruct):
        return value
    defaults = defaults_of(construct.message)
    for name, row in table_of(construct.message).items():
        is_lost = name not in construct.names() and not row.ignorable
        if is_lost and getattr(value, name) != defaults[name]:
            raise ValueError(f"v{construct.version} has no {name}: {value!r}")
    values = Container()
    for name, field in construct.untagged.items():
        values[name] = _values(field, getattr(value, name))
    values[TAGGED_FIELDS] = {
        field.name: _values(field.value, getattr(value, field.name))
        for field in (construct.tagged or {}).values()
        if getattr(value, field.name) != defaults[field.name]
    }
    return values
