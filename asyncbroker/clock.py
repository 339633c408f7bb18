"""Time as the broker sees it: one seam for reading the clocks and for setting timers.

Waits, sessions and deadlines use monotonic seconds, records and retention use wall milliseconds;
nothing else in the broker asks the system for the time. `SystemClock` is the running event loop's
own time. `ManualClock` stands still until a test moves it, and then runs what falls due in order,
so that tests need no sleeps and a failing run can be repeated.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """What `call_at` returns: a callback that has not run yet."""

    def cancel(self) -> None:
        """Forgets the callback; harmless when it has run."""


class Clock(Protocol):
    """The two clocks and the one way to be called later."""

    def monotonic(self) -> float:
        """Seconds that only grow; their zero has no meaning."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may jump in both directions."""

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Timer:
        """Runs `callback(*args)` once `monotonic()` has reached `when`."""


class Pause:
    """A wait until a clock has reached `when`, or somebody ends it."""

    __slots__ = ("_over", "_timer")

    def __init__(self, clock: Clock, when: float) -> None:
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timer = clock.call_at(when, self.end)

    @property
    def is_over(self) -> bool:
        """Whether nobody has to wait any more."""
        return self._over.done()

    def end(self) -> None:
        """Lets whoever waits go on."""
        if not self._over.done():
            self._over.set_result(None)

    async def wait(self) -> None:
        """Waits, once."""
        try:
            await self._over
        finally:
            self._timer.cancel()


class SystemClock:
    """The clocks of the machine and the timers of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.monotonic: Callable[[], float] = loop.time
        self._call_at = loop.call_at

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Timer:
        """Runs `callback(*args)` on the loop when its time has reached `when`."""
        return self._call_at(when, callback, *args)


class ManualClock:
    """A clock that a test moves by hand; due callbacks run inside `advance`, earliest first."""

    def __init__(self, *, monotonic: float = 1_000.0, wall_ms: int = 1_700_000_000_000) -> None:
        self._monotonic = monotonic
        self._wall_ms = float(wall_ms)
        self._timers = Timers()

    def monotonic(self) -> float:
        """Seconds moved so far, from an arbitrary start."""
        return self._monotonic

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, as last set."""
        return int(self._wall_ms)

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Timer:
        """Runs `callback(*args)` in the `advance` that reaches `when`."""
        return self._timers.add(when, callback, args)

    def next_deadline(self) -> float | None:
        """When the next callback is due; None without one."""
        return self._timers.next_deadline()

    def advance(self, seconds: float) -> None:
        """Moves both clocks forward, stopping at each deadline on the way to run its callback."""
        target = self._monotonic + seconds
        while (timer := self._timers.pop_due(target)) is not None:
            self._move_to(max(timer.when, self._monotonic))
            timer.callback(*timer.args)
        self._move_to(target)

    def jump_wall_ms(self, delta_ms: int) -> None:
        """Sets the wall clock forward or back, as an operator or NTP does; timers do not notice."""
        self._wall_ms += delta_ms

    def _move_to(self, monotonic: float) -> None:
        self._wall_ms += (monotonic - self._monotonic) * 1000
        self._monotonic = monotonic


class Timers:
    """The timers of a clock that calls by itself: the earliest first, ties as they were set."""

    def __init__(self) -> None:
        self._heap: list[HeldTimer] = []
        self._count = 0

    def add(
        self, when: float, callback: Callable[..., object], args: tuple[object, ...]
    ) -> HeldTimer:
        """One more."""
        self._count += 1
        timer = HeldTimer(when, self._count, callback, args)
        heapq.heappush(self._heap, timer)
        return timer

    def next_deadline(self) -> float | None:
        """When the next one is due; None without one."""
        while self._heap and self._heap[0].is_cancelled:
            heapq.heappop(self._heap)
        return self._heap[0].when if self._heap else None

    def pop_due(self, now: float) -> HeldTimer | None:
        """Takes out the earliest that is due at `now`."""
        deadline = self.next_deadline()
        return None if deadline is None or deadline > now else heapq.heappop(self._heap)

    def clear(self) -> None:
        """Forgets them all."""
        self._heap.clear()


class HeldTimer:
    """One entry of the heap."""

    __slots__ = ("args", "callback", "is_cancelled", "number", "when")

    def __init__(
        self, when: float, number: int, callback: Callable[..., object], args: tuple[object, ...]
    ) -> None:
        self.when = when
        self.number = number
        self.callback = callback
        self.args = args
        self.is_cancelled = False

    def __lt__(self, other: HeldTimer) -> bool:
        return (self.when, self.number) < (other.when, other.number)

    def cancel(self) -> None:
        """Leaves the entry in the heap, to be dropped when it comes up."""
        self.is_cancelled = True
