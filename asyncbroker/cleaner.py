"""Compacts the logs of compacted topics: which one, when, and how fast.

Every `log.cleaner.backoff.ms` all of them are looked at, and those that are due are compacted, the
dirtiest first, `log.cleaner.threads` at a time. The work itself (`log/cleaner.py`) is done in
worker threads, a slice at a time: between two slices the event loop sees whether the topic is still
there and still compacted, and whether to stop, and waits as long as the limit on bytes a second
says. A compacted segment is shown to readers between two appends.

Nothing is compacted that is not durable in its file, with a recovery point that is written down and
says so, or that the journal still has: else a start could replay older bytes onto newer ones. A log
in which damage is found is left as it is until the next start, and so is one that cannot be
compacted for another reason that will not pass; a full disk is one that passes.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final

from asyncbroker.clock import Pause
from asyncbroker.log.errors import CorruptLog
from asyncbroker.storage import PASSING_ERRORS

if TYPE_CHECKING:
    from asyncbroker.config import BrokerConfig
    from asyncbroker.log.cleaner import Cleaning, Replacement, Steps
    from asyncbroker.log.cleaner_plan import CleaningPlan
    from asyncbroker.log.log_directory import LogDirectory
    from asyncbroker.partition import Partition
    from asyncbroker.storage import Storage
    from asyncbroker.topics import Topics

logger = logging.getLogger(__name__)

# What one job in a worker thread reads and writes: some tens of milliseconds.
SLICE_BYTES: Final = 1 << 20

PARTITIONS_AT_ONCE: Final = 64


class _Stopped(Exception):
    """The cleaning is to end here, whatever the reason."""


class Cleaner:
    """The compaction of one broker's logs. For the event loop's thread."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        storage: Storage,
        topics: Topics,
        logs: LogDirectory,
    ) -> None:
        """`config` gives the settings in force."""
        self._config = config
        self._storage = storage
        self._topics = topics
        self._logs = logs
        self._is_stopping = False
        self._choosing = asyncio.Lock()
        self._in_progress: set[Partition] = set()
        # Those that this round is done with.
        self._done: set[Partition] = set()
        # Until the next start.
        self.uncleanable: set[Partition] = set()
        # When the first tombstone of a log may go that is otherwise clean.
        self._next_horizons_ms: dict[Partition, int] = {}
        # When what was read and written so far is paid for.
        self._free_at = 0.0
        self._pauses: set[Pause] = set()

    def stop(self) -> None:
        """Ends what is under way soon; `check` then returns."""
        self._is_stopping = True
        for pause in self._pauses:
            pause.end()

    @property
    def is_waiting(self) -> bool:
        """Whether all that is under way waits for the clock."""
        pauses = sum(not pause.is_over for pause in self._pauses)
        return pauses > 0 and pauses >= len(self._in_progress)

    async def check(self) -> None:
        """Compacts all logs that are due."""
        config = self._config()
        if not config.log_cleaner_enable or not config.log_cleaner_threads:
            return
        self._done.clear()
        present = {partition for topic in self._topics for partition in topic.partitions}
        self.uncleanable &= present
        self._next_horizons_ms = {
            partition: when_ms
            for partition, when_ms in self._next_horizons_ms.items()
            if partition in present
        }
        threads = config.log_cleaner_threads
        await asyncio.gather(*(self._clean_dirtiest(threads) for _ in range(threads)))

    async def _clean_dirtiest(self, threads: int) -> None:
        while True:
            async with self._choosing:
                found = await self._choose()
                if found is None:
                    return
                partition, plan = found
                self._in_progress.add(partition)
            partition.enter()
            try:
                await self._clean(partition, plan, threads)
            finally:
                partition.leave()
                self._in_progress.discard(partition)

    # ---- which

    async def _choose(self) -> tuple[Partition, CleaningPlan] | None:
        """The dirtiest log that is due."""
        candidates = (
            partition
            for topic in list(self._topics)
            if topic.config.log.is_compacted
            for partition in topic.partitions
            if self._is_candidate(partition)
        )
        best: tuple[Partition, CleaningPlan] | None = None
        while portion := list(islice(candidates, PARTITIONS_AT_ONCE)):
            if self._is_stopping or self._storage.error is not None:
                return None
            for partition in portion:
                partition.enter()
            try:
                plans = await self._storage.workers.run(self._plan_all, portion, self._now_ms())
            finally:
                for partition in portion:
                    partition.leave()
            for partition, plan in zip(portion, plans, strict=True):
                if isinstance(plan, (OSError, CorruptLog)):
                    self._give_up(partition, plan)
                elif self._is_due(partition, plan) and (
                    best is None or plan.dirty_ratio > best[1].dirty_ratio
                ):
                    best = (partition, plan)
        return best

    def _is_candidate(self, partition: Partition) -> bool:
        return (
            partition not in self._in_progress
            and partition not in self._done
            and partition not in self.uncleanable
            and partition.is_readable()
            and partition.log.segment_count > 1
        )

    def _is_due(self, partition: Partition, plan: CleaningPlan) -> bool:
        horizon_ms = self._next_horizons_ms.get(partition)
        return plan.is_due(partition.log.config) or (
            horizon_ms is not None and horizon_ms <= self._now_ms()
        )

    def _plan_all(
        self, partitions: list[Partition], now_ms: int
    ) -> list[CleaningPlan | OSError | CorruptLog]:
        """In a worker thread."""
        # Imported here: most brokers never compact anything.
        from asyncbroker.log.cleaner_plan import plan_cleaning

        plans: list[CleaningPlan | OSError | CorruptLog] = []
        for partition in partitions:
            log = partition.log
            try:
                plans.append(
                    plan_cleaning(
                        log,
                        self._logs.cleaner_offset(partition.topic, partition.index),
                        min(partition.high_watermark, log.last_stable_offset),
                        now_ms,
                    )
                )
            except (OSError, CorruptLog) as error:
                plans.append(error)
        return plans

    # ---- how

    async def _clean(self, partition: Partition, plan: CleaningPlan, threads: int) -> None:
        """Compacts one log; what goes wrong stays here."""
        # Imported here: most brokers never compact anything.
        from asyncbroker.log.cleaner import Cleaning, CleaningAborted, CleaningImpossible

        config = self._config()
        buffer_bytes = config.log_cleaner_dedupe_buffer_size // threads
        cleaning = Cleaning(
            partition.log,
            plan,
            self._now_ms(),
            int(buffer_bytes * config.log_cleaner_io_buffer_load_factor),
        )
        began = self._storage.clock.monotonic()
        self._done.add(partition)
        try:
            await self._make_durable(partition, plan)
            await self._drive(partition, cleaning.steps())
            await self._storage.workers.run(
                self._logs.record_cleaned, partition.topic, partition.index, cleaning.end_offset
            )
        except (CleaningAborted, _Stopped) as reason:
            logger.info("the compaction of %s was given up: %s", partition.name, reason)
        except (OSError, CorruptLog, CleaningImpossible) as error:
            is_between = cleaning.is_preparing or cleaning.is_swapping
            if isinstance(error, OSError) and is_between and not _passes(error):
                partition.go_offline(error)
            self._give_up(partition, error)
        else:
            self._next_horizons_ms.pop(partition, None)
            if cleaning.next_horizon_ms is not None:
                self._next_horizons_ms[partition] = cleaning.next_horizon_ms
            if cleaning.end_offset < plan.end_offset:
                # There was no room for more keys: the rest is still to be done.
                self._done.discard(partition)
            metrics = self._storage.metrics
            metrics.cleanings += 1
            metrics.cleaner_read_bytes += cleaning.stats.read_bytes
            metrics.cleaner_kept_bytes += cleaning.stats.kept_bytes
            _report(partition, cleaning, self._storage.clock.monotonic() - began)

    async def _make_durable(self, partition: Partition, plan: CleaningPlan) -> None:
        """See the head of this file."""
        record = self._logs.checkpoint_partition
        point = await self._storage.workers.run(record, partition.topic, partition.index)
        if point < plan.end_offset:
            raise _Stopped("it is not durable yet")

    async def _drive(self, partition: Partition, steps: Steps) -> None:
        """Runs a cleaning to its end, or has it take back what is not finished."""
        run = self._storage.workers.run
        try:
            step = await run(_slice, steps)
            while step is not None:
                if isinstance(step, int):
                    await self._pay(step)
                    self._check(partition)
                else:
                    await _show(partition, step)
                step = await run(_slice, steps)
        finally:
            await run(steps.close)

    def _check(self, partition: Partition) -> None:
        """Whether the cleaning is to go on."""
        if self._is_stopping:
            raise _Stopped("the broker is stopping")
        if not partition.is_readable():
            raise _Stopped("the partition is gone or offline")
        if not partition.log.config.is_compacted:
            raise _Stopped("the topic is no longer compacted")

    async def _pay(self, size: int) -> None:
        """Waits for as long as the limit on bytes a second says."""
        config = self._config()
        bytes_per_second = config.log_cleaner_io_max_bytes_per_second
        if bytes_per_second >= sys.float_info.max:
            return
        clock = self._storage.clock
        self._free_at = max(self._free_at, clock.monotonic()) + size / max(bytes_per_second, 1.0)
        if self._is_stopping:
            return
        pause = Pause(clock, self._free_at)
        self._pauses.add(pause)
        await pause.wait()
        self._pauses.discard(pause)

    def _give_up(self, partition: Partition, error: Exception) -> None:
        """After an error: until the next round if it may pass, else until the next start."""
        self._storage.metrics.cleanings_failed += 1
        self._done.add(partition)
        if isinstance(error, OSError) and _passes(error):
            logger.warning("%s could not be compacted now: %s", partition.name, error)
            return
        self.uncleanable.add(partition)
        logger.error("%s is not compacted any more: %s", partition.name, error)

    def _now_ms(self) -> int:
        return self._storage.trusted_now_ms()


def _passes(error: OSError) -> bool:
    return error.errno in PASSING_ERRORS


def _slice(steps: Steps) -> int | Replacement | None:
    """In a worker thread: a stretch of the work; None at its end."""
    size = 0
    for step in steps:
        if not isinstance(step, int):
            return step
        size += step
        # A thread that computes keeps the interpreter for 5 ms before another one may have it, and
        # the event loop would wait so long for each thing that it does. Asked, it gives it away.
        time.sleep(0)
        if size >= SLICE_BYTES:
            return size
    return None


async def _show(partition: Partition, replacement: Replacement) -> None:
    """Lets readers see a compacted segment, while nothing is appended."""
    shown: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def show() -> None:
        replacement.is_shown = partition.log.replace_segments(
            replacement.replaced, replacement.cleaned
        )
        shown.set_result(None)

    partition.between_appends(show)
    await shown


def _report(partition: Partition, cleaning: Cleaning, seconds: float) -> None:
    stats = cleaning.stats
    logger.info(
        "compacted %s up to offset %d: %d of %d records and %.1f of %.1f MB are left, in %.1f s",
        partition.name,
        cleaning.end_offset,
        stats.kept_record_count,
        stats.record_count,
        stats.kept_bytes / 1e6,
        stats.read_bytes / 1e6,
        seconds,
    )
