"""Moves the beginning of logs up: what lies before it is gone for good.

First the log begins later, so that no reader is given what is on its way out. Then the new
beginnings are recorded, those of all logs that were asked for together with one write, and then
whoever asked is answered: not even a crash brings anything back. The files of whole segments go
after that, as a bonus; a crash in between leaves some below the log's start, which the next look of
retention finds. Nothing is renamed, let alone removed, before the record is durable: whoever writes
records to the files anew after a crash (from a journal) has only the recorded start to know by
which of them must not come back. The renamed files are removed after `file.delete.delay.ms`.

Each change comes to its end, also when the client that asked for it is gone.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from asyncbroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from asyncbroker.log.log_directory import LogDirectory
    from asyncbroker.log.segment import Segment
    from asyncbroker.partition import Partition
    from asyncbroker.removals import Removals
    from asyncbroker.storage import Storage

logger = logging.getLogger(__name__)

LogStart = int
"""The first offset of a log."""


class LogStarts:
    """The one place where beginnings of logs are moved. For the event loop's thread."""

    def __init__(self, logs: LogDirectory, storage: Storage, removals: Removals) -> None:
        self._logs = logs
        self._storage = storage
        self._removals = removals
        # Segments whose files stay until the start of their log is recorded.
        self._unrecorded: dict[Partition, list[Segment]] = {}
        self._tasks: set[asyncio.Task[list[LogStart | KafkaError]]] = set()

    def advance(
        self, moves: Sequence[tuple[Partition, int]]
    ) -> asyncio.Future[list[LogStart | KafkaError]]:
        """Lets each partition begin at the offset that is given with it, or later if it does
        already. The future has the new beginnings once they are durable, or the error of each
        partition whose records may still be there."""
        task = asyncio.create_task(self._advance(moves), name="advance log starts")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return asyncio.shield(task)

    async def retry(self) -> None:
        """Records what could not be recorded when it was moved, and lets the files go."""
        if moves := [(partition, partition.log_start_offset) for partition in self._unrecorded]:
            await self.advance(moves)

    def at_work(self) -> list[asyncio.Task[list[LogStart | KafkaError]]]:
        """Changes under way."""
        return list(self._tasks)

    async def finish(self) -> None:
        """Waits for all changes under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _advance(self, moves: Sequence[tuple[Partition, int]]) -> list[LogStart | KafkaError]:
        failure: KafkaError | None = None
        removed = [_move(partition, offset) for partition, offset in moves]
        await asyncio.wait(removed)
        try:
            await self._storage.workers.run(
                self._logs.record_log_starts,
                [(partition.topic, partition.index) for partition, _ in moves],
            )
        except OSError as error:
            logger.error("the beginnings of logs could not be recorded: %s", error)
            failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        return [
            self._finish(partition, done, failure)
            for (partition, _), done in zip(moves, removed, strict=True)
        ]

    def _finish(
        self,
        partition: Partition,
        moved: asyncio.Future[_Moved],
        failure: KafkaError | None,
    ) -> LogStart | KafkaError:
        """Begins to remove what is no part of the log; the outcome of the move."""
        segments = self._unrecorded.pop(partition, [])
        error = moved.exception()
        if error is not None:
            assert isinstance(error, KafkaError), error
            return error
        start, no_part = moved.result()
        segments += no_part
        if failure is not None:
            if segments:
                self._unrecorded[partition] = segments
            return failure
        if segments:
            metrics = self._storage.metrics
            metrics.deleted_segments += len(segments)
            metrics.deleted_bytes += sum(segment.size for segment in segments)
            removal = partition.run(self._logs.delete_segments, partition.log, segments)
            removal.add_done_callback(functools.partial(self._renamed, partition))
        # Not where the log begins by now: another move may not be recorded yet.
        return start

    def _renamed(self, partition: Partition, done: asyncio.Future[list[str]]) -> None:
        error = done.exception()
        if error is None:
            delay_seconds = partition.log.config.file_delete_delay_ms / 1000
            self._removals.add(done.result(), delay_seconds)
        elif isinstance(error, OSError):
            logger.error("%s: segments could not be removed: %s", partition.name, error)
        else:
            logger.error("removing segments of %s", partition.name, exc_info=error)


class _Moved(NamedTuple):
    """Where a log begins after a move, and the segments that are no part of it any more."""

    start: LogStart
    segments: list[Segment]


def _move(partition: Partition, offset: int) -> asyncio.Future[_Moved]:
    """Lets the log begin at `offset`, or later if it does already."""
    moved: asyncio.Future[_Moved] = asyncio.get_running_loop().create_future()

    def move() -> None:
        try:
            partition.check_readable()
            segments = partition.log.advance_log_start(offset)
            moved.set_result(_Moved(partition.log_start_offset, segments))
        except KafkaError as error:
            moved.set_exception(error)

    partition.between_appends(move)
    return moved
