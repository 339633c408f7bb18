"""The compiled writer, where the installation has it: see `_writer.c`.

It is there on Linux, if there was a compiler. Whoever wants one has another way, which does the
same by threads of Python; `INTERFACE` tells one that was built from another state of a checkout.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final, Protocol

INTERFACE: Final = 2


class Answer(Protocol):
    """Bytes for a socket, which leave when a write is durable."""

    def end(self) -> int:
        """How many of them have been sent; from now on none will be."""


MakeAnswer = Callable[[int, bytes], Answer]
"""Of a descriptor, which must stay open until `end`, and what to send."""


class Writer(Protocol):
    """Writes to files, durably, one at a time, beside the interpreter."""

    @property
    def make_answer(self) -> MakeAnswer:
        """For the lists that `submit` takes."""

    def serve(self) -> None:
        """The life of its thread, until `end`."""

    def submit(self, file: int, data: bytes, position: int, answers: list[Answer], /) -> None:
        """Begins to write; the descriptor must stay open until the outcome is taken. When all is
        durable, the answers are sent."""

    def outcome(self) -> tuple[int, float] | None:
        """An errno, or 0 if all is durable, and how many seconds it took; None before that."""

    def end(self) -> None:
        """Has `serve` return, after what is under way."""

    def fileno(self) -> int:
        """Readable while there is an outcome to take."""


def make_writer() -> Writer | None:
    """None where it is not there, or the system has no descriptor for it."""
    try:
        module = import_module("asyncbroker.log._writer")
    except ImportError:
        return None
    if getattr(module, "INTERFACE", None) != INTERFACE:
        return None
    try:
        writer: Writer = module.Writer()
    except OSError:
        return None
    return writer
