"""Reads all closed and durable data now and then, to find damage before a reader does.

A pass goes through all partitions, beginning with another one each time, so that restarts do not
keep it from reaching any. It reads a slice in a worker thread, and then waits as long as
`asyncbroker.scrub.bytes.per.second` says, and so long that it is at work for a small part of the
time only: many small batches cost much of the interpreter, whatever their bytes. A log may roll,
shrink and be compacted meanwhile: each slice asks it anew. What a read brings into memory goes out
of it again, if it was not there before.

Damage becomes a hole of its partition, as if a reader had found it (`log/damage.py`). A slice that
cannot be read is logged and passed over: who asks for it gets the error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from asyncbroker.clock import Pause
from asyncbroker.damaged_log import DamagedLog

if TYPE_CHECKING:
    from asyncbroker.config import BrokerConfig
    from asyncbroker.partition import Partition
    from asyncbroker.storage import Storage
    from asyncbroker.topics import Topics

logger = logging.getLogger(__name__)

# What one job in a worker thread reads: some milliseconds, also of batches of one record.
SLICE_BYTES: Final = 256 << 10

# The part of the time that it may be at work.
WORK_RATIO_MAX: Final = 0.05

# How often it is asked whether a pass is due, and the settings are looked at.
CHECK_SECONDS: Final = 60.0


class Scrubber:
    """The scrubber of one broker. For the event loop's thread. The counts are since the start."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        storage: Storage,
        topics: Topics,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """`config` gives the settings in force."""
        self._config = config
        self._storage = storage
        self._topics = topics
        self._random_bytes = random_bytes
        self._is_stopping = False
        self._next_pass = 0.0
        self._pause: Pause | None = None
        self.bytes_read = 0
        self.damaged_ranges_found = 0
        self.read_errors = 0

    def stop(self) -> None:
        """Ends what is under way soon; `check` then returns."""
        self._is_stopping = True
        if self._pause is not None:
            self._pause.end()

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for the clock."""
        return self._pause is not None and not self._pause.is_over

    async def check(self) -> None:
        """Goes through all data, if that is due."""
        clock = self._storage.clock
        if self._storage.is_volatile or not self._rate() or clock.monotonic() < self._next_pass:
            return
        partitions = [partition for topic in list(self._topics) for partition in topic.partitions]
        first = int.from_bytes(self._random_bytes(8), "big") % max(1, len(partitions))
        bytes_before = self.bytes_read
        for partition in [*partitions[first:], *partitions[:first]]:
            await self._scrub(partition)
            if not self._may_go_on():
                return
        logger.info("scrubbed %.1f MB", (self.bytes_read - bytes_before) / 1e6)
        config = self._config()
        self._next_pass = clock.monotonic() + config.scrub_interval_ms / 1000

    async def _scrub(self, partition: Partition) -> None:
        """One partition, slice by slice."""
        # Imported here: a new broker starts without logs, and without their code.
        from asyncbroker.log.checking import scrub

        base_offset = position = 0
        while self._may_go_on() and _has_log(partition):
            log = partition.log
            began = self._storage.clock.monotonic()
            scrubbed = await partition.run(scrub, log, base_offset, position, SLICE_BYTES)
            if scrubbed is None:
                return
            base_offset, position = scrubbed.base_offset, scrubbed.end
            if scrubbed.error is not None:
                self.read_errors += 1
                where = f"before byte {position} of the segment at offset {base_offset}"
                logger.error("%s cannot be read %s: %s", partition.name, where, scrubbed.error)
            self.damaged_ranges_found += scrubbed.damaged_range_count
            self.bytes_read += scrubbed.size
            await self._wait(scrubbed.size, self._storage.clock.monotonic() - began)

    def _may_go_on(self) -> bool:
        return not self._is_stopping and self._storage.error is None and self._rate() > 0

    def _rate(self) -> int:
        config = self._config()
        return config.scrub_bytes_per_second

    async def _wait(self, size: int, work_seconds: float) -> None:
        """Waits until so many bytes, and so much work, are paid for."""
        if not self._may_go_on():
            return
        clock = self._storage.clock
        seconds = max(size / self._rate(), work_seconds * (1 / WORK_RATIO_MAX - 1))
        self._pause = Pause(clock, clock.monotonic() + seconds)
        await self._pause.wait()
        self._pause = None


def _has_log(partition: Partition) -> bool:
    return partition.is_readable() and not isinstance(partition.log, DamagedLog)
