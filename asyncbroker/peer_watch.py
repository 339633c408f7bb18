"""Whether a peer has been too slow for too long: the deadlines of one connection.

Time is not measured per request. Once a second the connection shows what it sees (`Sight`), which
is compared with the last time; only what does not move makes a deadline come nearer.

- A peer that does not take its responses is closed after `slow_reader_seconds_max` without
  progress, and sooner while the broker stops: one that is stuck must not hold it up.
- A frame that has begun must become whole in `unfinished_seconds_max`, and the time that a slow but
  honest link takes for what has arrived.
- A peer that has left, of whose requests some are still to be served, has `leaving_seconds_max`.
- A connection without a request in hand is closed after `idle_seconds_max`.

Pure: it knows neither a socket nor a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one peer may cost. Times are in seconds."""

    frame_bytes_max: int = 100 * 1024 * 1024
    # Above this many unsent bytes its requests are not looked at.
    output_bytes_max: int = 256 * 1024
    idle_seconds_max: float = 600.0
    unfinished_seconds_max: float = 60.0
    unfinished_bytes_per_second_min: int = 16 * 1024
    slow_reader_seconds_max: float = 30.0
    # The same when the broker stops, which whoever started it waits for ten seconds, as a rule.
    stopping_reader_seconds_max: float = 3.0
    leaving_seconds_max: float = 10.0


@dataclass(frozen=True, slots=True)
class Sight:
    """A connection at one moment. `unsent` changes whenever the peer takes something, and is None
    when nothing waits for it; `unfinished_bytes` is None between two frames, and while we do not
    read."""

    request_count: int
    has_request: bool
    has_left: bool
    unsent: tuple[int, int] | None
    unfinished_bytes: int | None


class TooSlow(Enum):
    """Why to close."""

    SLOW_READER = "does not read its responses"
    UNFINISHED = "a request is unfinished"
    LEFT = "has left"
    IDLE = "idle"


class PeerWatch:
    """The deadlines of one connection, since `now`."""

    __slots__ = (
        "_active_at",
        "_began_at",
        "_last",
        "_left_at",
        "_limits",
        "_taken_at",
    )

    def __init__(self, limits: ConnectionLimits, now: float) -> None:
        self._limits = limits
        self._last = Sight(0, False, False, None, None)
        self._active_at = now
        self._began_at = now
        self._left_at = now
        self._taken_at = now

    def hurry(self) -> None:
        """The broker stops: there is less patience now with who does not take its last answers."""
        limits = self._limits
        seconds = min(limits.slow_reader_seconds_max, limits.stopping_reader_seconds_max)
        self._limits = replace(limits, slow_reader_seconds_max=seconds)

    def look(self, sight: Sight, now: float) -> TooSlow | None:
        """Compares with the last time; says when the connection has to go, and why."""
        last, self._last = self._last, sight
        limits = self._limits
        has_progress = sight.request_count != last.request_count
        if sight.unsent is None or sight.unsent != last.unsent:
            self._taken_at = now
        if sight.unfinished_bytes is None or has_progress:
            self._began_at = now
        if not sight.has_left:
            self._left_at = now
        if sight.has_request or has_progress:
            self._active_at = now

        if now - self._taken_at >= limits.slow_reader_seconds_max:
            return TooSlow.SLOW_READER
        honest_seconds = (sight.unfinished_bytes or 0) / limits.unfinished_bytes_per_second_min
        if now - self._began_at >= limits.unfinished_seconds_max + honest_seconds:
            return TooSlow.UNFINISHED
        if now - self._left_at >= limits.leaving_seconds_max:
            return TooSlow.LEFT
        if now - self._active_at >= limits.idle_seconds_max:
            return TooSlow.IDLE
        return None
