"""How many bytes of requests may be held at once, over all connections.

Small requests are read and served within one turn of the loop and never counted. What counts is
what stays: the buffers of frames that are not whole yet, whole frames that wait behind a request in
progress, and that request itself. Above the limit, connections stop reading until others are done.

One of them may always go on, the favoured, until it gives something back: were all of them in the
middle of a frame, none could finish. A peer that is favoured and dawdles meets the deadline for
unfinished frames like any other.

Those who have not logged in have a budget of their own, so that a crowd of strangers cannot take
that of the users.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from asyncbroker.metrics import Metrics


class Holder(Protocol):
    """A connection, as the budget sees it."""

    def resume_within_budget(self) -> None:
        """Goes on reading."""


class ByteBudget:
    """Counts held bytes, and decides who has to wait."""

    __slots__ = ("_favoured", "_metrics", "_waiting", "bytes_max", "held_bytes")

    def __init__(self, bytes_max: int, metrics: Metrics) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self._metrics = metrics
        self._favoured: Holder | None = None
        self._waiting: deque[Holder] = deque()

    def change(self, holder: Holder, before: int, after: int) -> bool:
        """Notes that `holder` now holds `after` bytes instead of `before`. False: it must stop
        reading, and will hear from `resume_within_budget`."""
        self.held_bytes += after - before
        self._metrics.bytes_in_flight += after - before
        if after < before:
            if holder is self._favoured:
                self._favoured = None
            self._wake_waiting()
            return True
        if self.held_bytes <= self.bytes_max or holder is self._favoured:
            return True
        if self._favoured is None:
            self._favoured = holder
            return True
        if holder not in self._waiting:
            self._waiting.append(holder)
            self._metrics.bytes_in_flight_waits += 1
        return False

    def leave(self, holder: Holder, held: int) -> None:
        """Forgets a holder that is gone, and what it held."""
        if holder in self._waiting:
            self._waiting.remove(holder)
        if holder is self._favoured:
            self._favoured = None
        self.held_bytes -= held
        self._metrics.bytes_in_flight -= held
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        while self._waiting and (self.held_bytes <= self.bytes_max or self._favoured is None):
            holder = self._waiting.popleft()
            if self.held_bytes > self.bytes_max:
                self._favoured = holder
            holder.resume_within_budget()
