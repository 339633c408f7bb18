"""A thread with an event loop, and the bridges by which methods of objects on that loop become
methods that any thread may call.

    class ThreadTopic:
        records = called(Topic.records)     # does not wait: runs in the loop's thread
        create = waited(Topic.create)       # a coroutine there, a call that blocks here

So each method is written once, as that of the object on the loop; its bridge has the same
parameters, types and documentation. The object with the bridges has the other one as `_inner` and
its thread as `_thread`.

What goes wrong is the method's: its error comes with its own traceback, without the frames of
`concurrent.futures`, and pytest is told to leave out those of the bridges (`__tracebackhide__`).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import TimeoutError as CallTimedOut
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from asyncbroker.runner import new_event_loop

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# Beyond what anything here may take: a broker that hangs fails the test instead of hanging it.
CALL_SECONDS_MAX: Final = 30.0

# Parameters that say how long a call may take, on top of that.
SECONDS_PARAMETERS: Final = ("timeout", "down_seconds")


class NotRunning(RuntimeError):
    """The broker has not been started, or has been stopped; or the caller is in its own thread,
    where nobody can wait for it, or in a process that was forked, which has no such thread."""


class LoopThread:
    """One loop in one thread, from `start` to `end`; it may be started again."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process_id = os.getpid()

    @property
    def is_running(self) -> bool:
        """Whether there is a loop, in this process: a fork takes no thread along."""
        return self._thread is not None and self._process_id == os.getpid()

    def start(self) -> None:
        """Begins."""
        self._process_id = os.getpid()
        loop = self._loop = new_event_loop()
        # A daemon: a test run that is broken off must not wait for it.
        self._thread = threading.Thread(target=_run, args=(loop,), name="asyncbroker", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Ends the thread and closes the loop."""
        loop, thread = self._loop, self._thread
        assert loop is not None
        assert thread is not None
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        self._loop = self._thread = None

    def call(self, function: Callable[[], Result]) -> Result:
        """Runs something that does not wait in the thread."""
        __tracebackhide__ = True
        if self._thread is threading.current_thread():
            return function()

        async def call() -> Result:
            __tracebackhide__ = True
            return function()

        return self.wait(call())

    def wait(self, work: Coroutine[Any, Any, Result], more_seconds: float = 0.0) -> Result:
        """Runs a coroutine in the thread to its end."""
        __tracebackhide__ = True
        if self._thread is threading.current_thread():
            work.close()
            raise NotRunning("the broker cannot wait for itself")
        future = asyncio.run_coroutine_threadsafe(work, self._running(work))
        seconds_max = CALL_SECONDS_MAX + more_seconds
        try:
            error = future.exception(seconds_max)
        except CallTimedOut:
            future.cancel()
            raise CallTimedOut(f"the broker was not done after {seconds_max:g} s") from None
        except BaseException:
            future.cancel()
            raise
        if error is None:
            return future.result()
        try:
            raise error
        finally:
            # Its traceback has this frame.
            del error, future

    async def wait_elsewhere(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs a coroutine in the thread, awaited on the caller's own loop."""
        __tracebackhide__ = True
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(work, self._running(work))
        )

    def _running(self, work: Coroutine[Any, Any, Any]) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            work.close()
            raise NotRunning("the broker does not run")
        if not self.is_running:
            work.close()
            raise NotRunning("the broker runs in the process that this one was forked from")
        return self._loop


def called(
    method: Callable[Concatenate[Any, Parameters], Result],
) -> Callable[Concatenate[Any, Parameters], Result]:
    """A bridge to a method that does not wait."""

    @functools.wraps(method)
    def bridge(self: Any, /, *args: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        __tracebackhide__ = True
        thread: LoopThread = self._thread
        return thread.call(functools.partial(method, self._inner, *args, **keywords))

    return bridge


def waited(
    method: Callable[Concatenate[Any, Parameters], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Any, Parameters], Result]:
    """A bridge to a coroutine, which blocks the caller until it is done."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def bridge(self: Any, /, *args: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        __tracebackhide__ = True
        thread: LoopThread = self._thread
        work = method(self._inner, *args, **keywords)
        given = signature.bind(self, *args, **keywords)
        given.apply_defaults()
        more = sum(float(given.arguments.get(name) or 0) for name in SECONDS_PARAMETERS)
        return thread.wait(work, more)

    return bridge


def awaited(
    method: Callable[Concatenate[Any, Parameters], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Any, Parameters], Coroutine[Any, Any, Result]]:
    """A bridge to a coroutine for coroutines on another loop, which it does not stop."""

    @functools.wraps(method)
    def bridge(
        self: Any, /, *args: Parameters.args, **keywords: Parameters.kwargs
    ) -> Coroutine[Any, Any, Result]:
        __tracebackhide__ = True
        thread: LoopThread = self._thread
        return thread.wait_elsewhere(method(self._inner, *args, **keywords))

    return bridge


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """The thread's life."""
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.run_until_complete(loop.shutdown_asyncgens())
