"""Writes the source of a decoder; `compiler.py` shows what comes out and says why it is safe."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from struct import calcsize, unpack_from

from construct import Construct

from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.primitives import (
    SHORT_STRING_BYTES_MAX,
    STRING_BYTES_MAX,
    Array,
    CompactLength,
    MessageStruct,
    NullableStruct,
    Records,
    Sized,
    String,
    TaggedField,
    decode_text,
)
from asyncbroker.protocol.schema import Buffer, defaults_of
from asyncbroker.protocol.source import Source, format_of, has_records, size_least, title_of
from asyncbroker.protocol.varints import read_uvarint, read_uvarint_tail, skip_tagged_fields


class DecoderSource:
    """The source of `decode(buffer, position, items_left) -> (message, position)`.

    `_run` holds fixed-size fields that are yet to be read, all in one call: the format of each and
    the variable or attribute that takes it.
    """

    def __init__(self, struct: MessageStruct) -> None:
        names = {
            "new": object.__new__,
            "unpack_from": unpack_from,
            "read_uvarint": read_uvarint,
            "read_uvarint_tail": read_uvarint_tail,
            "skip_tagged_fields": skip_tagged_fields,
            "bad_length": _bad_length,
            "long_string": _long_string,
            "bad_count": _bad_count,
            "bad_tagged_field": _bad_tagged_field,
        }
        self.source = Source(title_of(struct), names)
        self._run: list[tuple[str, str]] = []
        with self.source.block("def decode(buffer, position, items_left)"):
            self.source.line("end = len(buffer)")
            if has_records(struct):
                self.source.line("view = memoryview(buffer)")
            self._struct(struct, self.source.local("message"), "")
            self._flush()
            self.source.line("return message, position")

    def _value(self, construct: Construct, target: str, path: str) -> None:
        """Reads one value of any type into `target`; `path` names it in errors."""
        if format := format_of(construct):
            self._run.append((format, target))
        elif isinstance(construct, Sized):
            self._sized(construct, target, path)
        elif isinstance(construct, Array):
            self._array(construct, target, path)
        elif isinstance(construct, NullableStruct):
            self._nullable_struct(construct, target, path)
        else:
            self._nested(construct, target, path)

    def _flush(self) -> None:
        """Reads the pending run."""
        if not self._run:
            return
        formats = "".join(format for format, _ in self._run)
        targets = ", ".join(target for _, target in self._run)
        if formats == "B":
            self.source.line(f"{targets} = buffer[position]")
        else:
            comma = "," if len(self._run) == 1 else ""
            unpack = self.source.struct_method("unpack_from", formats)
            self.source.line(f"{targets}{comma} = {unpack}(buffer, position)")
        self.source.line(f"position += {calcsize('>' + formats)}")
        self._run.clear()

    def _uvarint(self, target: str) -> None:
        """Reads the pending run and an unsigned varint, whose first byte joins the run."""
        self._run.append(("B", target))
        self._flush()
        with self.source.block(f"if {target} > 127"):
            self.source.line(f"{target}, position = read_uvarint_tail(buffer, position, {target})")

    def _length(self, construct: Construct) -> None:
        """Reads the pending run and a length into `n`; -1 stands for null."""
        if isinstance(construct, CompactLength):
            self._uvarint("n")
            self.source.line("n -= 1")
        else:
            self._run.append((format_of(construct), "n"))
            self._flush()

    @contextmanager
    def _unless_null(self, is_nullable: bool, target: str) -> Iterator[None]:
        """Assigns None when `n` says null; what is written inside the `with` does the rest."""
        if not is_nullable:
            yield
            return
        with self.source.block("if n == -1"):
            self.source.line(f"{target} = None")
        with self.source.block("else"):
            yield

    def _sized(self, construct: Sized, target: str, path: str) -> None:
        self._length(construct.length)
        with self._unless_null(construct.is_nullable, target):
            self.source.line("stop = position + n")
            with self.source.block("if n < 0 or stop > end"):
                self.source.line(f"raise bad_length({self._where(path)}, n, end - position)")
            if isinstance(construct, String):
                value = "str(buffer[position:stop], 'utf-8', 'replace')"
                with self.source.block(f"if n > {SHORT_STRING_BYTES_MAX}"):
                    self.source.line(f"long_string({self._where(path)}, buffer[position:stop])")
            elif isinstance(construct, Records):
                value = "view[position:stop]"
            else:
                value = "bytes(buffer[position:stop])"
            self.source.line(f"{target} = {value}")
            self.source.line("position = stop")

    def _array(self, construct: Array, target: str, path: str) -> None:
        source = self.source
        least = size_least(construct.item)
        size = "n" if least == 1 else f"n * {least}"
        self._length(construct.length)
        with self._unless_null(construct.is_nullable, target):
            source.line("items_left -= n")
            with source.block(f"if n < 0 or {size} > end - position or items_left < 0"):
                source.line(f"raise bad_count({self._where(path)}, n, end - position)")
            format = format_of(construct.item)
            if len(format) == 1:
                source.line(f"{target} = list(unpack_from(f'>{{n}}{format}', buffer, position))")
                source.line(f"position += {size}")
                return
            items, item = source.local("items"), source.local("item")
            source.line(f"{target} = {items} = []")
            with source.block("for _ in range(n)"):
                if isinstance(construct.item, MessageStruct):
                    self._struct(construct.item, item, path + "[]")
                else:
                    self._value(construct.item, item, path + "[]")
                self._flush()
                source.line(f"{items}.append({item})")

    def _nullable_struct(self, construct: NullableStruct, target: str, path: str) -> None:
        self._run.append(("b", "n"))
        self._flush()
        with self.source.block("if n < 0"):
            self.source.line(f"{target} = None")
        with self.source.block("else"):
            self._nested(construct.struct, target, path)
            self._flush()

    def _nested(self, struct: MessageStruct, target: str, path: str) -> None:
        nested = self.source.local("nested")
        self._struct(struct, nested, path)
        self.source.line(f"{target} = {nested}")

    def _struct(self, struct: MessageStruct, target: str, path: str) -> None:
        """Makes an object in the variable `target` and reads its fields."""
        self._new(struct.message, target, omit=struct.untagged)
        for name, construct in struct.untagged.items():
            self._value(construct, f"{target}.{name}", f"{path}.{name}")
        if struct.tagged is not None:
            self._tagged_fields(struct.tagged, target, path)

    def _new(self, message: type, target: str, omit: Container[str] = ()) -> None:
        """Makes an object with its defaults, but for the fields that will be read anyway."""
        self.source.line(f"{target} = new({self.source.constant(message.__name__, message)})")
        for name, default in defaults_of(message).items():
            if name in omit:
                continue
            if is_dataclass(default):
                nested = self.source.local("nested")
                self._new(type(default), nested)
                self.source.line(f"{target}.{name} = {nested}")
            else:
                self.source.line(f"{target}.{name} = {default!r}")

    def _tagged_fields(self, tagged: dict[int, TaggedField], target: str, path: str) -> None:
        source = self.source
        if not tagged:
            self._uvarint("n")
            with source.block("if n"):
                where = self._where(path)
                source.line(f"position = skip_tagged_fields({where}, buffer, position, n)")
            return
        count, tag, stop = source.local("count"), source.local("tag"), source.local("tag_stop")
        self._uvarint(count)
        with source.block(f"for _ in range({count})"):
            source.line(f"{tag}, position = read_uvarint(buffer, position)")
            source.line("n, position = read_uvarint(buffer, position)")
            source.line(f"{stop} = position + n")
            with source.block(f"if {stop} > end"):
                source.line(f"raise bad_length({self._where(path)}, n, end - position)")
            for number, field in tagged.items():
                with source.block(f"if {tag} == {number}"):
                    field_path = f"{path}.{field.name}"
                    self._value(field.value, f"{target}.{field.name}", field_path)
                    self._flush()
                    with source.block(f"if position != {stop}"):
                        where = self._where(field_path)
                        source.line(f"raise bad_tagged_field({where}, position - {stop})")
            source.line(f"position = {stop}")

    def _where(self, path: str) -> str:
        """The source of a string that names a field in an error."""
        return repr(f"{self.source.title}: {path.removeprefix('.')}")


def _bad_length(where: str, length: int, left: int) -> ProtocolError:
    if length == -1:
        return ProtocolError(f"{where} is null")
    return ProtocolError(f"{where} has length {length}, with {left} bytes left")


def _long_string(where: str, data: Buffer) -> None:
    if decode_text(data) is None:
        raise ProtocolError(f"{where} has {len(data)} bytes, more than {STRING_BYTES_MAX} as UTF-8")


def _bad_count(where: str, count: int, left: int) -> ProtocolError:
    if count == -1:
        return ProtocolError(f"{where} is null")
    return ProtocolError(f"{where} has {count} items, with {left} bytes left, or too many in all")


def _bad_tagged_field(where: str, excess: int) -> ProtocolError:
    return ProtocolError(f"{where} is {excess} bytes longer than its tag says")
