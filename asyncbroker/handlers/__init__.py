"""The one list of what the broker supports; the ApiVersions answer is computed from it.

A handler is a function `handle(broker, context, request)` in the module of its API. It returns the
response, `None` when nothing is to be written (Produce with acks=0), or an awaitable of either; one
that need not wait returns at once, so that dispatch can answer without a task. Modules are imported
when their API is first asked for.

An API may have a shortcut for its commonest request: `shortcut(broker, context, frame, position,
correlation_id)` is asked first, before the body is decoded. It returns None for all that is not for
it, and has done nothing then; otherwise what `handle` would, or the whole response as bytes, which
is a success. Who wants to see messages stands in the place of the `Handler`, and has no shortcut.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from asyncbroker.protocol.api import API_BY_KEY, Api
from asyncbroker.protocol.schema import Versions

Handle = Callable[[Any, Any, Any], "Any | Awaitable[Any]"]
Shortcut = Callable[[Any, Any, bytearray, int, int], Any]


@dataclass(frozen=True, slots=True)
class Handler:
    """What the broker does with one API: versions it advertises, and those it truly serves."""

    api: Api
    advertised: Versions
    served: Versions
    shortcut_module: str = ""

    def load(self) -> Handle:
        """Imports the handler's module and returns its function."""
        handle: Handle = import_module(f"asyncbroker.handlers.{self.api.module}").handle
        return handle

    def load_shortcut(self) -> Shortcut | None:
        """The same of its shortcut, if it has one."""
        if not self.shortcut_module:
            return None
        shortcut: Shortcut = import_module(f"asyncbroker.handlers.{self.shortcut_module}").shortcut
        return shortcut


def _handler(key: int, advertised: str, served: str | None = None, shortcut: str = "") -> Handler:
    versions = Versions.parse(advertised), Versions.parse(served or advertised)
    return Handler(API_BY_KEY[key], *versions, shortcut)


HANDLERS: Final[dict[int, Handler]] = {
    handler.api.key: handler
    for handler in (
        # Produce 0 to 2 is advertised and not served, as in Kafka 4: librdkafka before 2.11 stops
        # compressing, or falls back to message format v0, when it does not see it (KAFKA-18659).
        _handler(0, "0-11", "3-11", shortcut="produce_single"),
        _handler(1, "4-17"),
        _handler(2, "1-10"),
        _handler(3, "0-13"),
        _handler(8, "2-10"),
        _handler(9, "1-10"),
        _handler(10, "0-5"),
        _handler(11, "0-9"),
        _handler(12, "0-4"),
        _handler(13, "0-5"),
        _handler(14, "0-5"),
        _handler(15, "0-6"),
        _handler(16, "0-5"),
        _handler(17, "0-1"),
        _handler(18, "0-4"),
        _handler(19, "0-7"),
        _handler(20, "0-6"),
        _handler(21, "0-2"),
        _handler(22, "0-5"),
        _handler(23, "2-4"),
        _handler(29, "1-3"),
        _handler(32, "0-4"),
        _handler(33, "0-2"),
        _handler(34, "1-2"),
        _handler(35, "1-4"),
        _handler(36, "0-2"),
        _handler(37, "0-3"),
        _handler(42, "0-2"),
        _handler(43, "0-2"),
        _handler(44, "0-1"),
        _handler(45, "0-1"),
        _handler(46, "0"),
        _handler(47, "0"),
        _handler(48, "0-1"),
        _handler(50, "0"),
        _handler(51, "0"),
        _handler(60, "0-2"),
        _handler(68, "0-1"),
        _handler(69, "0-1"),
        _handler(74, "0-1"),
        _handler(75, "0"),
    )
}
