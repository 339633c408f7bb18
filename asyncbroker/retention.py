"""Deletes what topics no longer keep: the recurring look at all logs, and what follows from it.

What is to go is decided by `log/retention.py`, in worker threads, some partitions at a time. Then
the beginnings of those logs are moved as DeleteRecords moves them (`log_starts.py`); a newest
segment that is to go is rolled before, on the event loop, between appends, and only if nothing was
appended since it was looked at. Age is told by a time that does not jump (`trusted_time.py`).

Settings that are altered count from the next look on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from asyncbroker.log.errors import CorruptLog
from asyncbroker.metadata_store import SetValue
from asyncbroker.protocol.errors import KafkaError

if TYPE_CHECKING:
    from asyncbroker.log.retention import Expired
    from asyncbroker.log_starts import LogStarts
    from asyncbroker.metadata_writer import MetadataWriter
    from asyncbroker.partition import Partition
    from asyncbroker.storage import Storage
    from asyncbroker.topics import Topics

logger = logging.getLogger(__name__)

# Where the time is remembered for the next start, and how often.
LAST_SEEN: Final = "wall.clock.last.seen.ms"
REMEMBER_MS: Final = 3_600_000

PARTITIONS_AT_ONCE: Final = 64


class Retention:
    """The retention of all topics of one broker. For the event loop's thread."""

    def __init__(
        self, topics: Topics, log_starts: LogStarts, storage: Storage, metadata: MetadataWriter
    ) -> None:
        self._topics = topics
        self._log_starts = log_starts
        self._storage = storage
        self._metadata = metadata
        self._remembered_ms = 0

    async def check(self) -> None:
        """Looks at every partition once, and deletes what has to go."""
        if self._storage.error is not None:
            return
        now_ms = self._storage.trusted_now_ms()
        await self._remember(now_ms)
        await self._log_starts.retry()
        partitions = (partition for topic in list(self._topics) for partition in topic.partitions)
        while portion := list(islice(partitions, PARTITIONS_AT_ONCE)):
            await self._check([each for each in portion if each.is_readable()], now_ms)

    async def _remember(self, now_ms: int) -> None:
        if 0 <= now_ms - self._remembered_ms < REMEMBER_MS:
            return
        try:
            await self._metadata.write(SetValue(LAST_SEEN, str(now_ms)))
            self._remembered_ms = now_ms
        except KafkaError as error:
            logger.warning("the time could not be remembered: %s", error)

    async def _check(self, partitions: Sequence[Partition], now_ms: int) -> None:
        for partition in partitions:
            partition.enter()
        try:
            found = await self._storage.workers.run(_find, partitions, now_ms)
        finally:
            for partition in partitions:
                partition.leave()
        moves: list[tuple[Partition, int]] = []
        for partition, expired in zip(partitions, found, strict=True):
            if isinstance(expired, (OSError, CorruptLog)):
                partition.read_failed(expired)
            elif expired is not None:
                start_offset = expired.start_offset
                if expired.is_all:
                    start_offset = await self._roll(partition, start_offset)
                moves.append((partition, start_offset))
        if moves:
            await self._log_starts.advance(moves)

    async def _roll(self, partition: Partition, end_offset: int) -> int:
        """Begins a new segment, if the log still ends there; where the newest one begins then.
        Without a new one, that which is there stays, and the next look finds it again."""
        begun: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def roll() -> None:
            try:
                if partition.log.end_offset == end_offset:
                    partition.log.roll(self._storage.clock.wall_ms())
            except OSError as error:
                logger.warning("%s could not begin a new segment: %s", partition.name, error)
            begun.set_result(partition.log.active_base_offset)

        partition.between_appends(roll)
        return await begun


def _find(
    partitions: Sequence[Partition], now_ms: int
) -> list[Expired | OSError | CorruptLog | None]:
    """In a worker thread: what is to go of each partition, or why nobody can tell."""
    found: list[Expired | OSError | CorruptLog | None] = []
    for partition in partitions:
        try:
            found.append(partition.log.find_expired(partition.high_watermark, now_ms))
        except (OSError, CorruptLog) as error:
            found.append(error)
    return found
