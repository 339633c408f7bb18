"""Threads for what may block: one seam, so that a simulation can do without threads.

Disk reads, large appends, fsync, recovery and decompression run through `Workers.run`; the result
comes back to the event loop as a future. Order between two jobs is the caller's business: a job may
overtake another. `ThreadWorkers` is a small pool of its own kind instead of `ThreadPoolExecutor`:
the way there and back costs about 60 us of CPU less, which a commit round pays each time.
`InlineWorkers` runs each job before `run` returns; it is for tests.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, Protocol, TypeVar

Result = TypeVar("Result")

THREADS_MAX: Final = 12


class Workers(Protocol):
    """Runs functions that may block. Called from the event loop only."""

    def run(self, function: Callable[..., Result], *args: Any) -> asyncio.Future[Result]:
        """Starts `function(*args)`; the future has its result or its exception."""

    async def close(self) -> None:
        """Waits for what was started; nothing can be run afterwards."""


class InlineWorkers:
    """Runs each job at once, in the caller: the future that comes back is done."""

    def run(self, function: Callable[..., Result], *args: Any) -> asyncio.Future[Result]:
        """Runs `function(*args)` before it returns."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        try:
            result = function(*args)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)
        return future

    async def close(self) -> None:
        """Has nothing to wait for."""


class ThreadWorkers:
    """Up to `threads_max` threads that share one queue; each is started when it is first needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads_max: int = THREADS_MAX) -> None:
        self._loop = loop
        self._threads_max = threads_max
        self._threads: list[threading.Thread] = []
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._running = 0
        self._idle: asyncio.Future[None] | None = None
        self._is_closed = False

    def run(self, function: Callable[..., Result], *args: Any) -> asyncio.Future[Result]:
        """Queues `function(*args)`. A job whose future is cancelled runs all the same. Where the
        system gives no more threads it waits for those there are; if there are none it fails."""
        if self._is_closed:
            raise RuntimeError("the workers are closed")
        future: asyncio.Future[Result] = self._loop.create_future()
        if self._running >= len(self._threads) < self._threads_max:
            refusal = self._start_thread()
            if refusal is not None and not self._threads:
                future.set_exception(refusal)
                return future
        self._running += 1
        self._jobs.put((function, args, future))
        return future

    async def close(self) -> None:
        """Waits for every job, then for the threads to end."""
        self._is_closed = True
        if self._running:
            self._idle = self._loop.create_future()
            await self._idle
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _start_thread(self) -> OSError | None:
        """Starts one more; the reason if the system has none to give."""
        # Daemons, so that a second SIGTERM ends the process while a disk hangs.
        name = f"worker-{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            return OSError(errno.EAGAIN, str(error))
        self._threads.append(thread)
        return None

    def _work(self) -> None:
        """A thread's life: run jobs and post what came out of them to the loop."""
        post = self._loop.call_soon_threadsafe
        while (job := self._jobs.get()) is not None:
            function, args, future = job
            try:
                result = function(*args)
            except StopIteration as error:
                # No future takes it: whoever waits would wait for ever.
                post(self._finish, future, None, _told_of(error))
            except Exception as error:
                post(self._finish, future, None, error)
            else:
                post(self._finish, future, result, None)
                del result
            # An idle thread must not keep the last job's batch or log alive.
            del job, function, args, future

    def _finish(self, future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        """Back on the loop: hands the outcome to whoever still waits for it."""
        self._running -= 1
        if not future.done():
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        if not self._running and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)


def _told_of(stop: StopIteration) -> RuntimeError:
    """What a generator would make of it."""
    bug = RuntimeError("a job raised StopIteration")
    bug.__cause__ = stop
    return bug


_Job = tuple[Callable[..., Any], tuple[Any, ...], "asyncio.Future[Any]"]
