"""Workers whose jobs wait: for a test that looks at what happens meanwhile."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from asyncbroker.tests.data_path_harness import settle
from asyncbroker.workers import InlineWorkers, Result


class StepWorkers:
    """Keeps jobs until the test runs them, one by one."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[Callable[..., Any], tuple[Any, ...], asyncio.Future[Any]]] = deque()

    def run(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.jobs.append((function, args, future))
        return future

    async def step(self) -> None:
        """Runs the oldest job, and what follows from it on the loop."""
        function, args, future = self.jobs.popleft()
        run_job(function, args, future)
        await settle()

    async def close(self) -> None:
        assert not self.jobs


class StuckWorkers(InlineWorkers):
    """Whose disk does not answer, while `is_stuck`."""

    is_stuck = False

    def __init__(self) -> None:
        self.stuck: list[Callable[[], None]] = []

    def run(self, function: Callable[..., Result], *args: Any) -> asyncio.Future[Result]:
        if not self.is_stuck:
            return super().run(function, *args)
        stuck: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.stuck.append(lambda: run_job(function, args, stuck))
        return stuck

    def go_on(self) -> None:
        """The disk answers, to all who wait."""
        self.is_stuck = False
        for work in self.stuck:
            work()
        self.stuck.clear()


class HeldWorkers(InlineWorkers):
    """Runs jobs at once, but for those of the functions named in `held`, until `release`; the name
    may be that of the function or of one that is handed to it."""

    def __init__(self) -> None:
        self.held: frozenset[str] | set[str] = frozenset()
        self._jobs: list[Callable[[], None]] = []

    def run(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        names = {getattr(part, "__name__", "") for part in (function, *args)}
        if not names & self.held:
            return super().run(function, *args)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.append(lambda: run_job(function, args, future))
        return future

    def release(self) -> None:
        self.held = frozenset()
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            job()


def run_job(function: Callable[..., Any], args: tuple[Any, ...], done: asyncio.Future[Any]) -> None:
    """Runs a job for whoever waits for its outcome."""
    try:
        result = function(*args)
    except Exception as error:
        done.set_exception(error)
    else:
        done.set_result(result)
