"""Many waits that hardly ever last until their deadline, with one timer for all of them.

A timer for each wait would cost more than the wait, since it is set and cancelled with every
request. Here a wait is put into a dictionary and taken out of it; the timer stays at the earliest
deadline that it was set for, although that wait may be over, and is set anew when it has come.
"""

from __future__ import annotations

from typing import Final, Protocol

from asyncbroker.clock import Clock, Timer

# An event loop's timer may come so much early.
EARLY_SECONDS: Final = 0.001


class Wait(Protocol):
    """Something with a deadline, in seconds of the clock."""

    @property
    def deadline(self) -> float: ...

    def expire(self) -> None:
        """The deadline has come; it is not among the others any more."""


class Deadlines:
    """The waits of one kind. All methods are for the event loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits: dict[Wait, None] = {}
        self._timer: Timer | None = None
        self._timer_when = 0.0

    def after_ms(self, milliseconds: int) -> float:
        """The deadline that is so far away."""
        return self._clock.monotonic() + milliseconds / 1000

    def add(self, wait: Wait) -> None:
        """Has `wait` told when its deadline comes."""
        self._waits[wait] = None
        if self._timer is None or wait.deadline < self._timer_when:
            self._set(wait.deadline)

    def remove(self, wait: Wait) -> None:
        """It is over, or was told."""
        self._waits.pop(wait, None)

    def close(self) -> None:
        """Tells nobody any more."""
        self._waits.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_when = when
        self._timer = self._clock.call_at(when, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.monotonic() + EARLY_SECONDS
        due = [wait for wait in self._waits if wait.deadline <= now]
        for wait in due:
            self.remove(wait)
            wait.expire()
        if self._waits:
            self._set(min(wait.deadline for wait in self._waits))
