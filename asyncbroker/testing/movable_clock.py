"""A clock that goes by itself, as the machine's do, and can be stopped and moved as well.

It belongs to a test's broker over all its restarts, and so over event loops. Its timers are in a
heap of its own, with one timer of the loop for the earliest of them while the time goes. Held or
frozen, it stands: `run_next` is what brings it on then, from deadline to deadline.

Wall and monotonic time go together, but for `set_wall_ms`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from asyncbroker.clock import Timer, Timers


class MovableClock:
    """See the head of this file. For the thread of the loop that it is attached to."""

    def __init__(self, *, is_frozen: bool = False) -> None:
        self._is_frozen = is_frozen
        self._is_held = False
        # What it was at `_since`, a time of the machine's.
        self._since = time.monotonic()
        self._monotonic = self._since
        self._wall_ms = time.time() * 1000
        self._timers = Timers()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_when = 0.0

    # ---- as the broker sees it

    def monotonic(self) -> float:
        """Seconds, from an arbitrary start."""
        return self._monotonic + self._gone()

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(self._wall_ms + self._gone() * 1000)

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Timer:
        """Runs `callback(*args)` on the loop when `monotonic()` has reached `when`."""
        timer = self._timers.add(when, callback, args)
        self._arm()
        return timer

    # ---- its life

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """A broker starts on this loop."""
        self._loop = loop

    def detach(self) -> None:
        """The broker has stopped; whatever it wanted to be called for, it does not any more."""
        self._timers.clear()
        self._disarm()
        self._loop = None

    # ---- moving it

    def freeze(self) -> None:
        """Stands still."""
        self._settle()
        self._is_frozen = True
        self._disarm()
        self._arm()

    def resume(self) -> None:
        """Goes on."""
        self._settle()
        self._is_frozen = False
        self._arm()

    def hold(self) -> None:
        """Stands still while it is moved."""
        self._settle()
        self._is_held = True
        self._disarm()

    def release(self) -> None:
        """Does as it did before `hold`."""
        self._settle()
        self._is_held = False
        self._arm()

    def run_next(self, until: float) -> bool:
        """Moves on to the next deadline up to `until`, and runs what is due there; without one
        moves to `until`, and returns False."""
        timer = self._timers.pop_due(until)
        self._move_to(until if timer is None else timer.when)
        if timer is None:
            return False
        timer.callback(*timer.args)
        return True

    def set_wall_ms(self, wall_ms: float) -> None:
        """Sets the wall clock alone."""
        self._settle()
        self._wall_ms = wall_ms

    def _gone(self) -> float:
        """The seconds since `_since`."""
        return 0.0 if self._is_frozen or self._is_held else time.monotonic() - self._since

    def _settle(self) -> None:
        """Counts from now on."""
        now = time.monotonic()
        gone = 0.0 if self._is_frozen or self._is_held else now - self._since
        self._since = now
        self._monotonic += gone
        self._wall_ms += gone * 1000

    def _move_to(self, monotonic: float) -> None:
        seconds = max(0.0, monotonic - self._monotonic)
        self._monotonic += seconds
        self._wall_ms += seconds * 1000

    # ---- the loop's timer

    def _arm(self) -> None:
        """Sees to it that the loop calls no later than the next deadline."""
        deadline = self._timers.next_deadline()
        if self._loop is None or deadline is None or self._is_held:
            return
        # What is due at once does not need the time to go.
        if self._is_frozen and deadline > self._monotonic:
            return
        if self._alarm is not None and self._alarm_when <= deadline:
            return
        self._disarm()
        self._alarm_when = deadline
        self._alarm = self._loop.call_later(max(0.0, deadline - self.monotonic()), self._ring)

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        """Runs one callback that is due; another one has its own turn, whatever becomes of it."""
        self._alarm = None
        timer = self._timers.pop_due(self.monotonic())
        self._arm()
        if timer is not None:
            timer.callback(*timer.args)
