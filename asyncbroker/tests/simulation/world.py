"""One simulated world: its time, its chance, and the event loops of the hosts in it.

Time stands still while code runs and jumps from event to event. Every delay is drawn from the
seed, and so is everything else that chance decides; equal seeds give equal runs, event by event.

A `VirtualLoop` is the asyncio event loop of one process. What is ready runs in the order in which
it became ready, as asyncio promises; what comes from outside (bytes, timers, ends of jobs) comes
when the world says so, between two turns of the loop. A loop that is killed never runs again.

No thread, socket or real clock is used here.
"""

from __future__ import annotations

import asyncio
import heapq
import zlib
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from random import Random
from typing import Any, Final

from asyncbroker.clock import Timer
from asyncbroker.log.tests.crash_files import Died

# How long one turn of an event loop takes, at most.
TURN_SECONDS_MAX: Final = 40e-6

# When there are more tasks than this, those that are done are forgotten.
TASKS_MAX: Final = 200


# Something that is to happen, as a heap likes it: when, a number that orders what happens at one
# time, what is called, and with what. It is cancelled by forgetting what is called.
Event = list[Any]

# Whether a run is over is asked after so many events.
EVENTS_A_LOOK: Final = 8

# Of so many events one goes through the heap in any case, so that no host runs on for ever.
EVENTS_A_HEAP_TURN: Final = 256


class World:
    """Time, chance and what is to happen."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0.0
        self.random = Random(seed)
        self._heap: list[Event] = []
        self._count = 0
        self.event_count = 0
        self._digest = 0
        # The last lines of what happened, for whoever reads a failure; None keeps no lines.
        self.lines: deque[str] | None = None

    def at(self, when: float, callback: Callable[..., object], *args: Any) -> Event:
        """Calls back when the time has come."""
        self._count = count = self._count + 1
        event: Event = [when, count, callback, args]
        heapq.heappush(self._heap, event)
        return event

    def after(self, seconds: float, callback: Callable[..., object], *args: Any) -> Event:
        """Calls back after some time."""
        return self.at(self.now + seconds, callback, *args)

    def run(self, until: Callable[[], bool], seconds_max: float) -> bool:
        """Lets things happen until something is the case; False if it is not in time."""
        heap = self._heap
        pop = heapq.heappop
        while not until():
            for _ in range(EVENTS_A_LOOK):
                if not heap or heap[0][0] > seconds_max:
                    return until()
                when, _, callback, args = pop(heap)
                if callback is None:
                    continue
                if when > self.now:
                    self.now = when
                self.event_count += 1
                callback(*args)
        return True

    def skip_to(self, when: float) -> bool:
        """Has it be `when` at once, if nothing else happens until then: whoever would wait for that
        time goes on without. What follows is the same, for a tenth of the work."""
        heap = self._heap
        if (heap and heap[0][0] <= when) or not self.event_count % EVENTS_A_HEAP_TURN:
            return False
        self.event_count += 1
        self.now = when
        return True

    def note(self, *words: object) -> None:
        """Something that happened: goes into the digest of the run, and into its lines."""
        text = " ".join(map(str, words))
        self._digest = zlib.crc32(f"{self.now:.9f} {text}".encode(), self._digest)
        if self.lines is not None:
            self.lines.append(f"{self.now:10.6f}  {text}")

    @property
    def digest(self) -> int:
        """Tells two runs apart: of what was noted, and how many events there were."""
        return zlib.crc32(f"{self.event_count} {self.now:.9f}".encode(), self._digest)

    def between(self, low: float, high: float) -> float:
        """A time, evenly chosen."""
        return low + (high - low) * self.random.random()

    def chance(self, probability: float) -> bool:
        """Whether something with this probability is the case."""
        return self.random.random() < probability


class _Handle:
    """A callback that is ready to run. asyncio needs no more of it than this; contexts are left
    out, as nothing here has variables in them."""

    __slots__ = ("args", "callback")

    def __init__(self, callback: Callable[..., object] | None, args: tuple[Any, ...]) -> None:
        self.callback = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None


class _TimerHandle(_Handle):
    __slots__ = ("_event", "_when")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], when: float) -> None:
        self.callback = callback
        self.args = args
        self._when = when
        self._event: Event | None = None

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        super().cancel()
        if self._event is not None:
            self._event[2] = None


class VirtualLoop(asyncio.AbstractEventLoop):
    """The event loop of one process in the world."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._ready: deque[_Handle] = deque()
        self._has_turn = False
        self.is_dead = False
        # Until when the loop does nothing, because its process is stopped.
        self.paused_until = 0.0
        self.failures: list[str] = []
        self._tasks: list[asyncio.Task[Any]] = []

    def bury(self) -> None:
        """Unwinds what is left of the tasks of a dead process."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            coroutine: Any = task.get_coro()
            # The one that was running when the process died has ended with it.
            if not task.done() and not coroutine.cr_running:
                with suppress(RuntimeError, Died):
                    coroutine.close()

    def kill(self) -> None:
        """Ends the process: nothing of it runs any more."""
        self.is_dead = True
        self._ready.clear()

    # What asyncio asks of a loop. Of each future and task whether it is to be debugged: a call of
    # `bool`, which says no, is the quickest answer.
    get_debug = bool

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args)
        if not self.is_dead:
            self._ready.append(handle)
            if not self._has_turn:
                self._schedule_turn()
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> _TimerHandle:
        handle = _TimerHandle(callback, args, when)
        if not self.is_dead:
            handle._event = self._world.at(when, self._fire, handle)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> _TimerHandle:
        return self.call_at(self._world.now + delay, callback, *args)

    def time(self) -> float:
        return self._world.now

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name)
        self._tasks.append(task)
        if len(self._tasks) > TASKS_MAX:
            self._tasks = [each for each in self._tasks if not each.done()]
        return task

    def is_running(self) -> bool:
        return not self.is_dead

    def is_closed(self) -> bool:
        return self.is_dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_dead:
            self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

    # Turns.

    def _fire(self, handle: _Handle) -> None:
        """A timer is due: it takes its place behind what is ready."""
        if not self.is_dead:
            self._ready.append(handle)
            if not self._has_turn:
                self._schedule_turn()

    def _schedule_turn(self) -> None:
        self._has_turn = True
        world = self._world
        when = world.now + TURN_SECONDS_MAX * world.random.random()
        world.at(when if when > self.paused_until else self.paused_until, self._turn)

    def _turn(self) -> None:
        """Runs what is ready now; what becomes ready meanwhile is for the next turn."""
        ready, world = self._ready, self._world
        events._set_running_loop(self)
        try:
            while True:
                for _ in range(len(ready)):
                    if not ready:  # killed meanwhile
                        return
                    handle = ready.popleft()
                    if handle.callback is None:
                        continue
                    try:
                        handle.callback(*handle.args)
                    except Died:
                        return
                    except Exception as error:
                        self.call_exception_handler(
                            {"message": f"in {self._name}", "exception": error}
                        )
                if not ready:
                    self._has_turn = False
                    return
                when = world.now + TURN_SECONDS_MAX * world.random.random()
                if when < self.paused_until or not world.skip_to(when):
                    world.at(max(when, self.paused_until), self._turn)
                    return
        finally:
            events._set_running_loop(None)


class VirtualClock:
    """The clocks of one host: the world's time, and a wall clock that can be set."""

    def __init__(self, world: World, loop: VirtualLoop, wall: WallClock) -> None:
        self._world = world
        self._loop = loop
        self._wall = wall

    def monotonic(self) -> float:
        """Seconds of the world."""
        return self._world.now

    def wall_ms(self) -> int:
        """What the host believes the time to be."""
        return int(self._wall.base_ms + self._world.now * 1000)

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Timer:
        """Runs the callback on the host's loop."""
        return self._loop.call_at(when, callback, *args)


class WallClock:
    """A host's wall clock, which outlives its processes."""

    def __init__(self, base_ms: int) -> None:
        self.base_ms = base_ms
