"""Wall time for decisions that cannot be taken back: what is too old to be kept.

A wall clock can be set wrong, by days, in a moment. Whoever deletes by it must not believe a jump
at once. Here the wall clock is held against the monotonic one: as long as both move together, wall
time is what it says. When it is suddenly ahead, time goes on as if nothing had happened, until the
new time has stood for an hour; if it was a mistake there is that hour to mend it, and if the old
time was the mistake, deletion is an hour late. A clock that goes back is believed at once, as it
keeps what is there, and so is one that is adjusted by little.

Between two runs there is no monotonic clock to ask. So the time is remembered in the metadata now
and then, and a start that finds it more than a day ago also waits for an hour.
"""

from __future__ import annotations

import logging
from typing import Final

logger = logging.getLogger(__name__)

# More than the adjustments of a clock that is kept right, and of one that is slewed.
JUMP_MS: Final = 60_000
# A stop that is longer looks like a jump.
STOP_MS_MAX: Final = 86_400_000
DOUBT_SECONDS: Final = 3_600.0


class TrustedTime:
    """See the head of this file. Ask `now_ms` regularly: a jump is seen when it is asked."""

    def __init__(self, monotonic: float, wall_ms: int, last_seen_ms: int | None = None) -> None:
        """`last_seen_ms` is what an earlier run remembered."""
        self._monotonic = monotonic
        self._wall_ms = wall_ms
        self._ahead_ms = 0
        self._jumped_at: float | None = None
        if last_seen_ms is not None and wall_ms - last_seen_ms > STOP_MS_MAX:
            self._wall_ms = last_seen_ms

    def now_ms(self, monotonic: float, wall_ms: int) -> int:
        """The wall time that can be relied on, given what the two clocks say."""
        expected_ms = self._wall_ms + int((monotonic - self._monotonic) * 1000)
        ahead_ms = wall_ms - expected_ms
        if ahead_ms > JUMP_MS and not self._has_stood(monotonic, ahead_ms):
            return expected_ms
        if self._jumped_at is not None:
            logger.warning("the wall clock is believed again")
        self._jumped_at = None
        self._monotonic, self._wall_ms = monotonic, wall_ms
        return wall_ms

    def _has_stood(self, monotonic: float, ahead_ms: int) -> bool:
        """Whether the clock has been ahead by as much for long enough."""
        if self._jumped_at is None or abs(ahead_ms - self._ahead_ms) > JUMP_MS:
            self._jumped_at = monotonic
            self._ahead_ms = ahead_ms
            logger.error(
                "the wall clock is %d s ahead of where it should be: nothing is deleted for its "
                "age until this has stood for %d s",
                ahead_ms // 1000,
                DOUBT_SECONDS,
            )
        return monotonic - self._jumped_at >= DOUBT_SECONDS
