"""A thread that writes what a trace shows, so that a slow terminal never holds up the traffic.

Exchanges wait in a queue of bounded length. When it is full the newest are left out and counted,
and the next line that gets through says how many: a trace with gaps is better than a broker that
waits for a pager.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from typing import Final

from asyncbroker.tracing.exchange import Exchange

WAITING_MAX: Final = 10_000
CLOSE_SECONDS_MAX: Final = 2.0


class TraceWriter:
    """Calls `show` for each exchange, in order, in a thread of its own."""

    def __init__(self, show: Callable[[Exchange], None], *, waiting_max: int = WAITING_MAX) -> None:
        self._show = show
        self._queue: queue.Queue[Exchange | None] = queue.Queue(waiting_max)
        self._left_out = 0
        self._is_broken = False
        # A daemon: a terminal that takes nothing must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="trace", daemon=True)
        self._thread.start()

    def put(self, exchange: Exchange) -> None:
        """Takes one; never waits."""
        try:
            self._queue.put_nowait(exchange)
        except queue.Full:
            self._left_out += 1

    def close(self) -> None:
        """Writes what waits, if that does not take too long."""
        try:
            self._queue.put(None, timeout=CLOSE_SECONDS_MAX)
        except queue.Full:
            return
        self._thread.join(CLOSE_SECONDS_MAX)

    def _run(self) -> None:
        while (exchange := self._queue.get()) is not None:
            if self._is_broken:
                continue
            try:
                if self._left_out:
                    count, self._left_out = self._left_out, 0
                    print(f"({count} requests are not shown: the output is slow)", file=sys.stderr)
                self._show(exchange)
            except (OSError, ValueError):
                # Whoever read it has gone. The traffic goes on.
                self._is_broken = True
