"""Writes the source of an encoder; see `compiler.py`.

An encoder appends small `bytes` to a list and joins them. Where a message has RECORDS, the list is
joined in front of each, and the value itself becomes a part of the result, uncopied. The encoder
of the example in `compiler.py`:

    def encode(message):
        parts = []
        append = parts.append
        data = message.name.encode()
        size = len(data)
        n = size + 1
        if n < 128:
            append(pack_iB(message.index, n))
        else:
            append(pack_i(message.index) + uvarint(n))
        if size > 0:
            append(data)
        append(b'\\x00')
        return [b''.join(parts)]
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import is_dataclass
from struct import Struct, pack
from typing import Any

from construct import Construct

from asyncbroker.protocol.primitives import (
    Array,
    CompactLength,
    MessageStruct,
    NullableStruct,
    Records,
    Sized,
    String,
    TaggedField,
)
from asyncbroker.protocol.schema import defaults_of, table_of
from asyncbroker.protocol.source import Source, format_of, has_records, title_of
from asyncbroker.protocol.varints import encode_uvarint


class EncoderSource:
    """The source of `encode(message) -> parts`.

    `_run` holds fixed-size values that are yet to be written, all in one call: the format of each
    and the expression, or the number, that gives it. `_append` is how the source appends.
    """

    def __init__(self, struct: MessageStruct) -> None:
        names = {
            "pack": pack,
            "uvarint": encode_uvarint,
            "uvarint_bytes": tuple(encode_uvarint(n) for n in range(128)),
            "buffers": (bytes, bytearray, memoryview),
            "lacks": _lacks,
            "bad_size": _bad_size,
        }
        self.source = Source(title_of(struct), names)
        self._run: list[tuple[str, str | int]] = []
        self._append = "append"
        with self.source.block("def encode(message)"):
            self.source.line("parts = []")
            self.source.line("append = parts.append")
            if has_records(struct):
                self.source.line("done = []")
            self._struct(struct, self.source.local("message"))
            self._flush()
            if has_records(struct):
                with self.source.block("if parts"):
                    self.source.line("done.append(b''.join(parts))")
                self.source.line("return done")
            else:
                self.source.line("return [b''.join(parts)]")

    def _value(self, construct: Construct, value: str) -> None:
        """Writes the value of the expression `value`, of any type."""
        if format := format_of(construct):
            self._fixed(format, value)
        elif isinstance(construct, Sized):
            self._sized(construct, value)
        elif isinstance(construct, Array):
            self._array(construct, value)
        elif isinstance(construct, NullableStruct):
            self._nullable_struct(construct, value)
        else:
            self._nested(construct, value)

    def _fixed(self, format: str, value: str) -> None:
        if format.endswith("s"):
            # `struct` would cut or fill up a value of another size without a word.
            size = format.removesuffix("s")
            with self.source.block(f"if len({value}) != {size}"):
                self.source.line(f"raise bad_size({self.source.title!r}, {value}, {size})")
        self._run.append((format, value))

    def _flush(self) -> None:
        """Writes the pending run."""
        if self._run:
            self.source.line(f"{self._append}({self._packed()})")
            self._run.clear()

    def _packed(self) -> str:
        """The expression for the bytes of the pending run."""
        formats = "".join(format for format, _ in self._run)
        values = [value for _, value in self._run]
        if all(isinstance(value, int) for value in values):
            return repr(Struct(">" + formats).pack(*values))
        return f"{self.source.struct_method('pack', formats)}({', '.join(map(str, values))})"

    def _uvarint(self, variable: str) -> None:
        """Writes the pending run and an unsigned varint, which joins the run if it is one byte."""
        source = self.source
        if not self._run:
            short, long = f"uvarint_bytes[{variable}]", f"uvarint({variable})"
            source.line(f"{self._append}({short} if {variable} < 128 else {long})")
            return
        long = f"{self._packed()} + uvarint({variable})"
        self._run.append(("B", variable))
        short = self._packed()
        self._run.clear()
        with source.block(f"if {variable} < 128"):
            source.line(f"{self._append}({short})")
        with source.block("else"):
            source.line(f"{self._append}({long})")

    def _length(self, construct: Construct) -> None:
        """Writes the pending run and the length in `size`, in which -1 stands for null."""
        if isinstance(construct, CompactLength):
            self.source.line("n = size + 1")
            self._uvarint("n")
        else:
            self._run.append((format_of(construct), "size"))
            self._flush()

    def _sized(self, construct: Sized, value: str) -> None:
        source = self.source
        source.line(f"data = {value}")
        if construct.is_nullable:
            with source.block("if data is None"):
                source.line("size = -1")
        with source.block("else") if construct.is_nullable else nullcontext():
            if isinstance(construct, String):
                source.line("data = data.encode()")
            if isinstance(construct, Records):
                source.line("size = len(data) if isinstance(data, buffers) else data.size")
            else:
                source.line("size = len(data)")
        self._length(construct.length)
        with source.block("if size > 0"):
            if isinstance(construct, Records):
                source.line("done.append(b''.join(parts))")
                source.line("done.append(data)")
                source.line("parts.clear()")
            else:
                source.line(f"{self._append}(data)")

    def _array(self, construct: Array, value: str) -> None:
        source = self.source
        items = source.local("items")
        source.line(f"{items} = {value}")
        if construct.is_nullable:
            source.line(f"size = -1 if {items} is None else len({items})")
        else:
            source.line(f"size = len({items})")
        self._length(construct.length)
        format = format_of(construct.item)
        if len(format) == 1:
            with source.block("if size > 0"):
                source.line(f"{self._append}(pack(f'>{{size}}{format}', *{items}))")
            return
        item = source.local("item")
        with source.block(f"for {item} in {items}{' or ()' if construct.is_nullable else ''}"):
            if isinstance(construct.item, MessageStruct):
                self._struct(construct.item, item)
            else:
                self._value(construct.item, item)
            self._flush()

    def _nullable_struct(self, construct: NullableStruct, value: str) -> None:
        self._flush()
        with self.source.block(f"if {value} is None"):
            self.source.line(self._append + r"(b'\xff')")
        with self.source.block("else"):
            self._run.append(("b", 1))
            self._nested(construct.struct, value)
            self._flush()

    def _nested(self, struct: MessageStruct, value: str) -> None:
        nested = self.source.local("nested")
        self.source.line(f"{nested} = {value}")
        self._struct(struct, nested)

    def _struct(self, struct: MessageStruct, variable: str) -> None:
        """Writes the fields of the object in `variable`, and refuses those that are not in the
        version but have a value."""
        defaults = defaults_of(struct.message)
        names = struct.names()
        for name, row in table_of(struct.message).items():
            if name not in names and not row.ignorable:
                with self.source.block(f"if {self._differs(f'{variable}.{name}', defaults[name])}"):
                    self.source.line(f"raise lacks({self.source.title!r}, {name!r}, {variable})")
        for name, construct in struct.untagged.items():
            self._value(construct, f"{variable}.{name}")
        if struct.tagged is not None:
            self._tagged_fields(struct.tagged, defaults, variable)

    def _differs(self, value: str, default: Any) -> str:
        """The condition that a field does not have its default."""
        if default is None:
            return f"{value} is not None"
        if is_dataclass(default):
            name = self.source.constant(self.source.local("default"), default)
            return f"{value} != {name}"
        return f"{value} != {default!r}"

    def _tagged_fields(
        self, tagged: dict[int, TaggedField], defaults: dict[str, Any], variable: str
    ) -> None:
        """Writes those tagged fields that differ from their defaults, in the order of tags."""
        if not tagged:
            self._run.append(("B", 0))
            return
        self._flush()
        source = self.source
        tags, payload = source.local("tags"), source.local("payload")
        source.line(f"{tags} = []")
        for number, field in sorted(tagged.items()):
            value = f"{variable}.{field.name}"
            with source.block(f"if {self._differs(value, defaults[field.name])}"):
                source.line(f"{payload} = []")
                outer, self._append = self._append, f"{payload}.append"
                self._value(field.value, value)
                self._flush()
                self._append = outer
                source.line(f"data = b''.join({payload})")
                tag = repr(encode_uvarint(number))
                source.line(f"{tags}.append({tag} + uvarint(len(data)) + data)")
        with source.block(f"if {tags}"):
            source.line(f"{self._append}(uvarint(len({tags})) + b''.join({tags}))")
        with source.block("else"):
            source.line(f"{self._append}({bytes(1)!r})")


def _lacks(title: str, name: str, message: Any) -> ValueError:
    return ValueError(f"{title} has no {name}, which is {getattr(message, name)!r}")


def _bad_size(title: str, value: Any, size: int) -> ValueError:
    return ValueError(f"{title}: {value!r} is not {size} bytes")
