"""Worker jobs in a simulation: each runs in a greenlet, and stops at every call to its files.

So jobs interleave with one another and with the event loop at the calls where a real thread would
wait for the disk, in an order that the seed decides, and a process can die in the middle of one.

Locks of the log's modules are replaced while a simulation runs: a job that finds one taken waits
for it; the event loop, which may not wait, has the holder go on at once until it lets go, as it
would stand still until then.
"""

from __future__ import annotations

import asyncio
import pkgutil
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, TypeVar

from greenlet import GreenletExit, greenlet

from asyncbroker import log
from asyncbroker.log.tests.crash_files import Died
from asyncbroker.tests.simulation.world import VirtualLoop, World

Result = TypeVar("Result")

START_SECONDS_MAX: Final = 200e-6


class Job:
    """One function on its way, or waiting for its turn."""

    __slots__ = ("args", "function", "future", "greenlet", "is_hurried", "turn", "waits_for")

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], future: asyncio.Future[Any]
    ) -> None:
        self.function = function
        self.args = args
        self.future = future
        self.greenlet: Any = None
        # Counts the resumptions, so that one that comes too late is known.
        self.turn = 0
        # The event loop waits for it: it does not stop at calls.
        self.is_hurried = False
        self.waits_for: SimulatedLock | None = None


class SimulatedWorkers:
    """The threads of one process, as `Workers`."""

    def __init__(self, world: World, loop: VirtualLoop, threads_max: int) -> None:
        self._world = world
        self._loop = loop
        self._threads_max = threads_max
        self._queue: deque[Job] = deque()
        self._running: list[Job] = []
        self._idle: asyncio.Future[None] | None = None
        self._is_closed = False
        self.is_dead = False

    def run(self, function: Callable[..., Result], *args: Any) -> asyncio.Future[Result]:
        """Starts `function(*args)` when a thread is free, a moment from now."""
        if self._is_closed:
            raise RuntimeError("the workers are closed")
        future: asyncio.Future[Result] = self._loop.create_future()
        job = Job(function, args, future)
        if len(self._running) < self._threads_max:
            self._start(job)
        else:
            self._queue.append(job)
        return future

    async def close(self) -> None:
        """Waits for every job."""
        self._is_closed = True
        if self._running:
            self._idle = self._loop.create_future()
            await self._idle

    def kill(self) -> None:
        """The process is gone: none of its jobs goes on."""
        self.is_dead = True
        self._queue.clear()

    def bury(self) -> None:
        """Unwinds what is left of the jobs of a dead process. Not to be called in a job."""
        jobs, self._running = self._running, []
        for job in jobs:
            if job.greenlet is not None:
                job.greenlet.throw(GreenletExit)

    def _start(self, job: Job) -> None:
        self._running.append(job)
        self._resume_after(job, START_SECONDS_MAX * self._world.random.random())

    def _resume_after(self, job: Job, seconds: float) -> None:
        job.turn += 1
        when = max(self._world.now + seconds, self._loop.paused_until)
        self._world.at(when, self._resume, job, job.turn)

    def _resume(self, job: Job, turn: int) -> None:
        if turn == job.turn and not self.is_dead:
            self.go_on(job)

    def go_on(self, job: Job) -> None:
        """Lets the job run until it stops at a call, or is done."""
        job.turn += 1
        if job.greenlet is None:
            job.greenlet = greenlet(self._work)
        before = _current.job, _current.workers
        _current.job, _current.workers = job, self
        try:
            job.greenlet.switch(job)
        finally:
            _current.job, _current.workers = before

    def pause(self, job: Job, seconds: float) -> None:
        """Called in the job: others run meanwhile."""
        if job.is_hurried:
            return
        when = self._world.now + seconds
        if when >= self._loop.paused_until and self._world.skip_to(when):
            return
        self._resume_after(job, seconds)
        job.greenlet.parent.switch()
        if self.is_dead:
            raise Died

    def _work(self, job: Job) -> None:
        """What a greenlet does."""
        try:
            result = job.function(*job.args)
        except Exception as error:
            self._post(job, None, error)
        except (Died, GreenletExit):
            return
        else:
            self._post(job, result, None)

    def _post(self, job: Job, result: Any, error: Exception | None) -> None:
        if self.is_dead:
            return
        self._running.remove(job)
        if self._queue:
            self._start(self._queue.popleft())
        delay = START_SECONDS_MAX * self._world.random.random()
        self._world.after(delay, self._loop.call_soon, self._finish, job, result, error)

    def _finish(self, job: Job, result: Any, error: Exception | None) -> None:
        if not job.future.done():
            if error is None:
                job.future.set_result(result)
            else:
                job.future.set_exception(error)
        if not self._running and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)


class _Current:
    """The job that runs now, if one does: there is one greenlet at a time."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self.workers: SimulatedWorkers | None = None


_current: Final = _Current()


def current_job() -> tuple[Job, SimulatedWorkers] | None:
    """Who calls: a job, or (None) the event loop."""
    if _current.job is None:
        return None
    assert _current.workers is not None
    return _current.job, _current.workers


class SimulatedLock:
    """A `threading.Lock` for one thread with many jobs in it."""

    __slots__ = ("_holder", "_is_locked", "_waiting")

    def __init__(self) -> None:
        self._is_locked = False
        self._holder: tuple[Job, SimulatedWorkers] | None = None
        self._waiting: deque[tuple[Job, SimulatedWorkers]] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Takes the lock, waiting for it if need be."""
        while self._is_locked:
            if not blocking:
                return False
            if (me := current_job()) is not None:
                self._wait(*me)
            else:
                self._hurry()
        self._is_locked = True
        self._holder = current_job()
        return True

    def release(self) -> None:
        """Gives it back; who has waited longest is next, unless somebody comes first."""
        self._is_locked = False
        if self._holder is not None:
            self._holder[0].is_hurried = False
            self._holder = None
        if self._waiting:
            job, workers = self._waiting.popleft()
            workers._resume_after(job, 0.0)

    def locked(self) -> bool:
        return self._is_locked

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *args: object) -> None:
        self.release()

    def _wait(self, job: Job, workers: SimulatedWorkers) -> None:
        """Lets others run until the lock is given back, or the loop has us go on."""
        entry = (job, workers)
        self._waiting.append(entry)
        job.waits_for = self
        job.greenlet.parent.switch()
        job.waits_for = None
        if entry in self._waiting:
            self._waiting.remove(entry)
        if workers.is_dead:
            raise Died

    def _hurry(self) -> None:
        """Has the holder go on until it lets go; or first the one that it waits for."""
        assert self._holder is not None, "the loop wants a lock that it holds"
        job, workers = self._holder
        job.is_hurried = True
        if job.waits_for is not None and job.waits_for._is_locked:
            job.waits_for._hurry()
        else:
            workers.go_on(job)


class _Threading:
    """Stands in for the `threading` module in the modules of the log."""

    Lock = SimulatedLock


# All modules of the log, as some are imported only when they are needed.
_MODULES: Final = [
    import_module(f"asyncbroker.log.{found.name}") for found in pkgutil.iter_modules(log.__path__)
]


@contextmanager
def simulated_locks() -> Iterator[None]:
    """Locks that the log makes inside are simulated ones."""
    modules = [module for module in _MODULES if hasattr(module, "threading")]
    originals = [module.threading for module in modules]
    for module in modules:
        module.threading = _Threading  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module, original in zip(modules, originals, strict=True):
            module.threading = original  # type: ignore[attr-defined]
