"""What the broker does now and then by itself: checkpoints, closing files, forgetting silent
producers. All of it is one table, a row a chore (`Housekeeping._table`).

One timer each, armed anew when the work is done, so that a slow disk is not asked twice, and
nothing runs beside itself. A chore that fails is logged and gets its next turn all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from asyncbroker.cleaner import Cleaner
from asyncbroker.clock import Timer
from asyncbroker.config import BrokerConfig
from asyncbroker.directory_watch import DirectoryWatch
from asyncbroker.log.log_directory import LogDirectory
from asyncbroker.retention import Retention
from asyncbroker.scrubber import CHECK_SECONDS, Scrubber
from asyncbroker.storage import PASSING_ERRORS, Storage
from asyncbroker.topics import Topics

logger = logging.getLogger(__name__)

# Kafka's `producer.id.expiration.check.interval.ms`, which is not for users there either.
PRODUCER_EXPIRATION_SECONDS: Final = 600.0

COMPACT: Final = "compact"
SCRUB: Final = "scrub"

# How long descriptors may run short: then appends fail that need to open a file.
CROWD_CHECK_SECONDS: Final = 1.0

# How long records may be taken for a directory that somebody has removed.
WATCH_SECONDS: Final = 1.0


# The reserve is made soon after the start, which must not wait for it, and again soon after there
# is room: until then records are refused.
RESERVE_FIRST_SECONDS: Final = 0.05
RESERVE_SECONDS: Final = 0.5


class Chore(NamedTuple):
    """Work that is begun `seconds` (or `first_seconds`) after the start, and again `seconds` after
    each end of it."""

    name: str
    seconds: float
    work: Callable[[], Awaitable[None]]
    first_seconds: float | None = None


class Housekeeping:
    """The recurring work of one broker."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        storage: Storage,
        topics: Topics,
        logs: LogDirectory,
        cleaner: Cleaner,
        scrubber: Scrubber,
        retention: Retention,
        watch: DirectoryWatch,
    ) -> None:
        """`config` gives the settings in force."""
        self._config = config
        self._storage = storage
        self._topics = topics
        self._logs = logs
        self._cleaner = cleaner
        self._scrubber = scrubber
        self._retention = retention
        self._watch = watch
        self._timers: dict[str, Timer] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.pause_seconds_min = 0.0
        """No chore has its next turn sooner: for who moves the clock by days."""

    def _table(self) -> tuple[Chore, ...]:
        config = self._config()
        checkpoint_seconds = config.log_flush_offset_checkpoint_interval_ms / 1000
        retention_seconds = config.log_retention_check_interval_ms / 1000
        return (
            Chore("checkpoint", checkpoint_seconds, self._checkpoint),
            Chore(COMPACT, config.log_cleaner_backoff_ms / 1000, self._cleaner.check),
            Chore(SCRUB, CHECK_SECONDS, self._scrubber.check),
            Chore("close files", CROWD_CHECK_SECONDS, self._close_files),
            Chore("expire producers", PRODUCER_EXPIRATION_SECONDS, self._expire_producers),
            Chore("retention", retention_seconds, self._retention.check),
            Chore("watch directory", WATCH_SECONDS, self._watch.check),
            Chore("reserve", RESERVE_SECONDS, self._keep_reserve, RESERVE_FIRST_SECONDS),
        )

    def start(self) -> None:
        """Arms the timers."""
        for chore in self._table():
            first = chore.first_seconds
            self._arm(chore, chore.seconds if first is None else first)

    def hurry(self) -> None:
        """Makes each chore due now that waits for its turn."""
        for chore in self._table():
            if chore.name not in self._tasks:
                self._timers[chore.name].cancel()
                self._arm(chore, 0.0)

    def at_work(self) -> list[asyncio.Task[None]]:
        """Chores that are being done, and do not wait for the clock."""
        waiting = set[str]()
        if self._cleaner.is_waiting:
            waiting.add(COMPACT)
        if self._scrubber.is_waiting:
            waiting.add(SCRUB)
        return [task for name, task in self._tasks.items() if name not in waiting]

    async def stop(self) -> None:
        """Disarms the timers and waits for what is under way."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._cleaner.stop()
        self._scrubber.stop()
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    def _arm(self, chore: Chore, seconds: float) -> None:
        clock = self._storage.clock

        def start() -> None:
            task = asyncio.get_running_loop().create_task(self._run(chore), name=chore.name)
            self._tasks[chore.name] = task

        self._timers[chore.name] = clock.call_at(clock.monotonic() + seconds, start)

    async def _run(self, chore: Chore) -> None:
        try:
            await chore.work()
        except Exception:
            logger.exception("%s failed", chore.name)
        # Before the next turn begins, which where everything is slow may be at once.
        del self._tasks[chore.name]
        if chore.name in self._timers:
            # How often it is done may have changed.
            (again,) = (each for each in self._table() if each.name == chore.name)
            self._arm(again, max(again.seconds, self.pause_seconds_min))

    async def _checkpoint(self) -> None:
        """Records up to where logs need no recovery."""
        if self._storage.error is not None:
            return
        try:
            await self._storage.workers.run(self._logs.checkpoint)
        except OSError as error:
            logger.error("the checkpoint failed: %s", error)
            if error.errno not in PASSING_ERRORS or self._logs.failure is not None:
                # The disk is broken, or the directory was taken away or made read-only.
                self._storage.fail(error)

    async def _keep_reserve(self) -> None:
        """Has the room back that was kept for a full disk, as soon as there is some."""
        reserve = self._storage.reserve
        if self._storage.error is not None or reserve.is_whole:
            return
        try:
            await self._storage.workers.run(reserve.refill)
        except OSError as error:
            logger.error("no room could be kept back: %s", error)
            if error.errno not in PASSING_ERRORS:
                self._storage.fail(error)

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
