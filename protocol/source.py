"""Python source under construction, and what its writers ask about constructs.

Shared by `decoder_source.py` and `encoder_source.py`; see `compiler.py` for the whole picture.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any

from construct import Bytes, Construct, FormatField

from asyncbroker.protocol.primitives import (
    Array,
    CompactLength,
    MessageStruct,
    NullableStruct,
    Records,
    Sized,
)


class Source:
    """Lines of Python, and the global names that they use."""

    def __init__(self, title: str, names: dict[str, Any]) -> None:
        self.title = title
        self._names = names
        self._lines: list[str] = []
        self._depth = 0
        self._locals: dict[str, int] = {}

    def line(self, text: str) -> None:
        """Adds a line at the current depth."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Indents the lines that are added inside the `with` under `header`."""
        self.line(header + ":")
        self._depth += 1
        yield
        self._depth -= 1

    def local(self, name: str) -> str:
        """A local variable that is not yet in use."""
        number = self._locals[name] = self._locals.get(name, 0) + 1
        return name if number == 1 else f"{name}_{number}"

    def constant(self, name: str, value: Any) -> str:
        """Makes `value` known to the source under a global name."""
        if self._names.setdefault(name, value) is not value:
            raise TypeError(f"{self.title}: two different things are called {name}")
        return name

    def struct_method(self, method: str, formats: str) -> str:
        """The global name of `pack` or `unpack_from` of a big-endian `struct.Struct`."""
        name = f"{method}_{formats.replace('?', 't')}"
        self._names.setdefault(name, getattr(Struct(">" + formats), method))
        return name

    def compile(self, function: str) -> Callable[..., Any]:
        """Runs the source and returns the function that it defines under this name."""
        text = "\n".join(self._lines) + "\n"
        filename = f"<{function} {self.title}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self._names)
        compiled: Callable[..., Any] = self._names[function]
        return compiled


def title_of(struct: MessageStruct) -> str:
    """What errors call a message: `FetchRequest v12`."""
    return f"{struct.message.__name__} v{struct.version}"


def format_of(construct: Construct) -> str:
    """The format of a fixed-size type for the `struct` module, or "" for any other type."""
    if isinstance(construct, FormatField):
        format: str = construct.fmtstr[1:]
        return format
    return f"{construct.length}s" if isinstance(construct, Bytes) else ""


def size_least(construct: Construct) -> int:
    """The least number of bytes that a value takes; never 0, or counts could not be checked."""
    if isinstance(construct, MessageStruct):
        sections = 0 if construct.tagged is None else 1
        size = sections + sum(size_least(field) for field in construct.untagged.values())
        if size == 0:
            raise TypeError(f"{title_of(construct)} has no fields")
        return size
    if isinstance(construct, (Sized, Array)):
        return size_least(construct.length)
    if isinstance(construct, (NullableStruct, CompactLength)):
        return 1
    fixed_size: int = construct.length
    return fixed_size


def has_records(construct: Construct) -> bool:
    """Whether RECORDS are somewhere in a type."""
    if isinstance(construct, MessageStruct):
        return any(has_records(field) for field in construct.untagged.values())
    if isinstance(construct, Array):
        return has_records(construct.item)
    return isinstance(construct, Records)
