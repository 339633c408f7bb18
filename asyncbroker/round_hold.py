"""Holds a commit round back for those who were answered a moment ago, where fsyncs are slow.

Clients that send again when they are answered fall into two halves: while the batches of one are
made durable the other one waits for its turn, and each request takes two fsyncs. Where a round
takes a while, the next one does better to wait for those whom the last one has answered: then all
go together, and each takes one. It waits for most of them, and for a part of the time that a round
takes at most; where they do not come, as when requests come by the clock, it is tried again ever
more seldom. (PostgreSQL's `commit_delay` is of this kind, and is set by hand.)

For the event loop's thread. Not known here: what a round is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncbroker.clock import Clock, Timer

# Below this there is nothing to win: the timers of an event loop count in milliseconds. Nor is
# there when a disk hangs, or when somebody has moved the clock.
ROUND_SECONDS_MIN: Final = 0.0015
ROUND_SECONDS_MAX: Final = 0.5
# How long it waits: at most this part of a round, and so long.
PART_OF_ROUND: Final = 0.5
HOLD_SECONDS_MAX: Final = 0.010
# Most of those who were answered: the last few may have nothing more to send.
MISSING_PART_MAX: Final = 16
# After having waited in vain this many rounds begin at once, at most.
ROUNDS_BETWEEN_MAX: Final = 64


class RoundHold:
    """See the head of this file."""

    __slots__ = ("_clock", "_go_on", "_rounds_between", "_rounds_left", "_timer", "_wanted")

    def __init__(self, clock: Clock, go_on: Callable[[], object]) -> None:
        """`go_on` is called when the round may begin."""
        self._clock = clock
        self._go_on = go_on
        self._timer: Timer | None = None
        # How many more have to come.
        self._wanted = 0
        self._rounds_between = 0
        self._rounds_left = 0

    @property
    def is_on(self) -> bool:
        """Whether the next round is to wait."""
        return self._timer is not None

    def round_ended(self, answered_count: int, seconds: float) -> None:
        """So many are answered now, by a round that took so long: holds the next one back, if that
        promises anything. Not while `is_on`."""
        if not ROUND_SECONDS_MIN <= seconds <= ROUND_SECONDS_MAX or answered_count < 2:
            return
        if self._rounds_left:
            self._rounds_left -= 1
            return
        self._wanted = answered_count - answered_count // MISSING_PART_MAX
        hold_seconds = min(seconds * PART_OF_ROUND, HOLD_SECONDS_MAX)
        when = self._clock.monotonic() + hold_seconds
        self._timer = self._clock.call_at(when, self._came_too_few)

    def came(self) -> bool:
        """One more waits for the next round; whether it need not be held back any longer."""
        self._wanted -= 1
        if self._wanted > 0 or self._timer is None:
            return False
        self.end()
        self._rounds_between = 0
        return True

    def end(self) -> None:
        """Holds nothing back any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _came_too_few(self) -> None:
        self._timer = None
        self._rounds_between = min(2 * self._rounds_between + 1, ROUNDS_BETWEEN_MAX)
        self._rounds_left = self._rounds_between
        self._go_on()
