"""All connections of one broker: who may come in, what they share, and who has been too slow.

Shared are the landing buffer for incoming bytes (nothing stays in it between two callbacks), the
budget of bytes in flight, the dispatcher and the counters. Once a second each connection is asked
to look at its deadlines: one timer for all of them, and no timer to set and cancel per request.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from asyncbroker.budget import ByteBudget
from asyncbroker.clock import Clock, Timer
from asyncbroker.connection import Connection
from asyncbroker.context import Address
from asyncbroker.dispatch import Serving
from asyncbroker.listeners import SaslRules
from asyncbroker.log.native import MakeAnswer
from asyncbroker.metrics import Metrics
from asyncbroker.peer_watch import ConnectionLimits
from asyncbroker.protocol.framing import LANDING_BYTES
from asyncbroker.workers import Workers

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 1.0

# Such a part of the bytes in flight those may hold besides who have not logged in.
STRANGERS_PART: Final = 8


@dataclass(frozen=True, slots=True)
class AcceptLimits:
    """How many connections there may be: in all, of one address, and of some addresses; and in all
    as far as file descriptors go, of which logs need some as well."""

    connections_max: int
    per_host_max: int
    per_host_overrides: Mapping[str, int]
    descriptors_max: int = sys.maxsize


class Connections:
    """The registry. `accept_limits` is asked anew for each connection, since it may be altered."""

    def __init__(
        self,
        dispatcher: Serving,
        *,
        clock: Clock,
        workers: Workers,
        metrics: Metrics,
        limits: ConnectionLimits,
        accept_limits: Callable[[], AcceptLimits],
        bytes_in_flight_max: int,
        may_sendfile: bool = True,
        make_answer: Callable[[], MakeAnswer | None] = lambda: None,
    ) -> None:
        """`make_answer` gives what makes answers that another thread sends, if there is one."""
        self.dispatcher = dispatcher
        self.workers = workers
        self.metrics = metrics
        self.limits = limits
        self.may_sendfile = may_sendfile
        self.make_answer = make_answer
        self.landing = bytearray(LANDING_BYTES)
        self.budget = ByteBudget(bytes_in_flight_max, metrics)
        self.strangers_budget = ByteBudget(bytes_in_flight_max // STRANGERS_PART, metrics)
        self.now = clock.monotonic()
        self.clock = clock
        self._accept_limits = accept_limits
        # In the order in which they came.
        self._open: dict[Connection, None] = {}
        self._counts: Counter[str] = Counter()
        self._last_id = 0
        self._timer: Timer | None = None
        self._is_stopping = False
        self._all_gone: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    def start(self) -> None:
        """Begins to watch the deadlines."""
        self._timer = self.clock.call_at(self.now + CHECK_SECONDS, self._check)

    def refusal(self, host: str) -> str | None:
        """Why a peer at this address may not connect now; None when it may."""
        limits = self._accept_limits()
        if self._is_stopping:
            return "the broker stops"
        if len(self._open) >= limits.connections_max:
            return f"max.connections={limits.connections_max} are open"
        if len(self._open) >= limits.descriptors_max:
            return f"{limits.descriptors_max} are open, and logs need the other file descriptors"
        per_host_max = limits.per_host_overrides.get(host, limits.per_host_max)
        if self._counts[host] >= per_host_max:
            return f"max.connections.per.ip={per_host_max} are open from there"
        return None

    def create(self, listener: Address, peer: Address, sasl: SaslRules | None = None) -> Connection:
        """A connection from `peer` through a listener that is advertised as `listener`, and where
        with `sasl` one must log in. It counts from now on, and until `remove`."""
        self._last_id += 1
        connection = Connection(self, self._last_id, listener, peer, sasl)
        self._open[connection] = None
        self._counts[peer.host] += 1
        self.metrics.connections_accepted += 1
        self.metrics.connections_open = len(self._open)
        return connection

    def remove(self, connection: Connection, held_bytes: int = 0) -> None:
        """It is gone, or never came to be."""
        if connection not in self._open:
            return
        connection.budget.leave(connection, held_bytes)
        del self._open[connection]
        host = connection.context.client_host
        self._counts[host] -= 1
        if not self._counts[host]:
            del self._counts[host]
        self.metrics.connections_open = len(self._open)
        if self._all_gone is not None and not self._open and not self._all_gone.done():
            self._all_gone.set_result(None)

    def begin_stop(self) -> None:
        """Lets in nobody and no further request; idle connections close, others when answered."""
        self._is_stopping = True
        for connection in list(self._open):
            connection.stop()

    async def finish_stop(self, seconds_max: float) -> None:
        """Waits for the last answers to leave, then drops who is still there."""
        if self._open:
            self._all_gone = asyncio.get_running_loop().create_future()
            timer = self.clock.call_at(self.clock.monotonic() + seconds_max, self._drop_all)
            await self._all_gone
            timer.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _drop_all(self) -> None:
        logger.warning("dropped %d connections that did not end in time", len(self._open))
        for connection in list(self._open):
            connection.abort()

    def _check(self) -> None:
        self.now = self.clock.monotonic()
        for connection in list(self._open):
            connection.check(self.now)
        self._timer = self.clock.call_at(self.now + CHECK_SECONDS, self._check)
