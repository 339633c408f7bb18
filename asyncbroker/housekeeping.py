"""What the broker does now and then by itself: checkpoints, closing files, forgetting silent
producers.

One timer each, armed anew when the work is done, so that a slow disk is not asked twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from asyncbroker.clock import Timer
from asyncbroker.config import BrokerConfig
from asyncbroker.log.log_directory import LogDirectory
from asyncbroker.storage import Storage
from asyncbroker.topics import Topics

logger = logging.getLogger(__name__)

# Kafka's `producer.id.expiration.check.interval.ms`, which is not for users there either.
PRODUCER_EXPIRATION_SECONDS: Final = 600.0

# How long descriptors may run short: then appends fail that need to open a file.
CROWD_CHECK_SECONDS: Final = 1.0


class Housekeeping:
    """The recurring work of one broker."""

    def __init__(
        self, config: BrokerConfig, storage: Storage, topics: Topics, logs: LogDirectory
    ) -> None:
        self._storage = storage
        self._topics = topics
        self._logs = logs
        self._checkpoint_seconds = config.log_flush_offset_checkpoint_interval_ms / 1000
        self._timers: dict[str, Timer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Arms the timers."""
        self._arm("checkpoint", self._checkpoint_seconds, self._checkpoint)
        self._arm("close files", CROWD_CHECK_SECONDS, self._close_files)
        self._arm("expire producers", PRODUCER_EXPIRATION_SECONDS, self._expire_producers)

    async def stop(self) -> None:
        """Disarms the timers and waits for what is under way."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _arm(self, name: str, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        clock = self._storage.clock

        async def run() -> None:
            await work()
            if name in self._timers:
                self._arm(name, seconds, work)

        def start() -> None:
            task = asyncio.get_running_loop().create_task(run(), name=name)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self._timers[name] = clock.call_at(clock.monotonic() + seconds, start)

    async def _checkpoint(self) -> None:
        """Records up to where logs need no recovery."""
        if self._storage.error is not None:
            return
        try:
            await self._storage.workers.run(self._logs.checkpoint)
        except OSError as error:
            logger.error("the checkpoint failed: %s", error)

    async def _close_files(self) -> None:
        """Makes durable what keeps too many files open."""
        if self._logs.is_crowded:
            await self._checkpoint()

    async def _expire_producers(self) -> None:
        """Forgets producers that have been silent, some partitions at a time."""
        for topic in list(self._topics):
            for partition in topic.partitions:
                partition.expire_producers()
            await asyncio.sleep(0)
