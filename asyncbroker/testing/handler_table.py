"""Tables of handlers with something in front of each handler's function.

The dispatcher serves what its table says. A test's broker has layers of such tables: that of the
broker, cut down to the versions of an older release, seen by one of several nodes, and watched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from asyncbroker.handlers import Handle, Handler
    from asyncbroker.protocol.api import Api
    from asyncbroker.protocol.schema import Versions

Table = Mapping[int, "Handler"]


@dataclass(frozen=True, slots=True)
class Wrapped:
    """What `Handler` is to the dispatcher."""

    api: Api
    advertised: Versions
    served: Versions
    load: Callable[[], Handle]

    def load_shortcut(self) -> None:
        """None: every message goes through what is in front."""


Wrap = Callable[["Api", "Handle"], "Handle"]


def wrapped(table: Table, wrap: Wrap) -> Table:
    """The table with `wrap` around each function, which is loaded when it is first needed."""
    return {key: wrap_handler(handler, wrap) for key, handler in table.items()}


def wrap_handler(
    handler: Handler,
    wrap: Wrap,
    *,
    advertised: Versions | None = None,
    served: Versions | None = None,
) -> Handler:
    """One handler with `wrap` around its function, and with other versions if there are any."""

    def load() -> Handle:
        return wrap(handler.api, handler.load())

    return cast(
        "Handler",
        Wrapped(handler.api, advertised or handler.advertised, served or handler.served, load),
    )
