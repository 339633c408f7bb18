"""Removes files that nothing refers to any more, at leisure: deleted segments after their delay,
the directories of deleted topics.

A file of gigabytes takes a file system a while, and a topic has thousands. So one job is under way
at a time, it removes a few files, and after one that took long there is a pause as long: the disk
and the worker threads are there for others. A stop waits for the job at hand only. What is left has
a name that the next start knows, which goes on with it.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from asyncbroker.clock import Pause

if TYPE_CHECKING:
    from asyncbroker.clock import Timer
    from asyncbroker.log.log_directory import LogDirectory
    from asyncbroker.storage import Storage

logger = logging.getLogger(__name__)


class Removals:
    """What is to be removed from one log directory. For the event loop's thread."""

    def __init__(self, logs: LogDirectory, storage: Storage) -> None:
        self._logs = logs
        self._storage = storage
        # When, in which order, what.
        self._waiting: list[tuple[float, int, Sequence[str]]] = []
        self._count = 0
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._pause: Pause | None = None

    def add(self, paths: Sequence[str], after_seconds: float = 0.0) -> None:
        """Has files, or directories with all that is in them, removed after a while."""
        if not paths or self._is_stopping:
            return
        self._count += 1
        when = self._storage.clock.monotonic() + after_seconds
        heapq.heappush(self._waiting, (when, self._count, paths))
        if self._task is None:
            self._arm()

    def at_work(self) -> list[asyncio.Task[None]]:
        """The removal under way, unless it waits for the clock."""
        is_waiting = self._pause is not None and not self._pause.is_over
        return [] if self._task is None or is_waiting else [self._task]

    async def stop(self) -> None:
        """Leaves what is not begun to the next start."""
        self._is_stopping = True
        self._waiting.clear()
        self._disarm()
        if self._pause is not None:
            self._pause.end()
        if self._task is not None:
            await self._task

    def _arm(self) -> None:
        self._disarm()
        when = self._waiting[0][0]
        if when <= self._storage.clock.monotonic():
            self._begin()
        else:
            self._timer = self._storage.clock.call_at(when, self._begin)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._run(), name="remove files")

    async def _run(self) -> None:
        try:
            while self._waiting and self._waiting[0][0] <= self._storage.clock.monotonic():
                _, _, paths = heapq.heappop(self._waiting)
                for path in paths:
                    await self._remove(path)
        finally:
            self._task = None
            if self._waiting:
                self._arm()

    async def _remove(self, path: str) -> None:
        """Removes a file, or a directory in steps."""
        clock = self._storage.clock
        is_left = True
        while is_left and not self._is_stopping:
            began = clock.monotonic()
            try:
                is_left = await self._storage.workers.run(self._logs.remove_some, path)
            except OSError as error:
                logger.error("%s stays until the next start: %s", path, error)
                return
            took = clock.monotonic() - began
            if took > 0 and not self._is_stopping:
                self._pause = Pause(clock, clock.monotonic() + took)
                await self._pause.wait()
