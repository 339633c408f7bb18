"""Writes metadata changes in rounds: one transaction at a time, each with all that waits for one.

So a storm of topic creations costs a few fsyncs and not one each, and the store is used from one
thread at a time. After an error the round's callers get it, and the next round is tried anew: a
transaction is all or nothing, so that a full disk heals by itself. Before that the room that is
kept back for it is used, all of it for what deletes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.reserve import Reserve
from asyncbroker.metadata_store import Change, DeleteTopic, ForgetTopic, MetadataStore
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.workers import Workers

logger = logging.getLogger(__name__)


class MetadataWriter:
    """The one user of a metadata store while the broker runs."""

    def __init__(
        self, store: MetadataStore, workers: Workers, reserve: Reserve | None = None
    ) -> None:
        self._store = store
        self._reserve = reserve or Reserve(MemoryFiles(), "", 0)
        self._workers = workers
        self._gathering: list[_Write] = []
        self._is_writing = False
        self._idle: asyncio.Future[None] | None = None

    def write(
        self, *changes: Change, then: Callable[[], object] | None = None
    ) -> asyncio.Future[None]:
        """Done when `changes` are durable; fails with KafkaError(KAFKA_STORAGE_ERROR) otherwise.

        `then` is called as soon as they are durable, in the order of the writes, whether anybody
        still waits for the future or not: that is where memory follows the store.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._gathering.append(_Write(changes, then, future))
        if not self._is_writing:
            self._is_writing = True
            # After this iteration of the loop, so that requests that came together go together.
            loop.call_soon(self._start_round)
        return future

    async def close(self) -> None:
        """Waits for the last round, then closes the store."""
        if self._is_writing:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        await self._workers.run(self._store.close)

    def _start_round(self) -> None:
        gathered, self._gathering = self._gathering, []
        changes = [change for write in gathered for change in write.changes]
        done = self._workers.run(self._apply, changes)
        done.add_done_callback(lambda done: self._finish_round(gathered, done))

    def _apply(self, changes: list[Change]) -> None:
        """In a worker thread: one round."""
        is_vital = any(isinstance(change, (DeleteTopic, ForgetTopic)) for change in changes)
        self._reserve.with_room(lambda: self._store.apply(changes), is_vital=is_vital)

    def _finish_round(self, gathered: list[_Write], done: asyncio.Future[None]) -> None:
        failure = done.exception()
        for write in gathered:
            error = failure if failure is not None else _follow(write)
            if write.future.done():
                continue
            if error is None:
                write.future.set_result(None)
            elif isinstance(error, OSError):
                write.future.set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
            else:
                write.future.set_exception(error)
        if self._gathering:
            self._start_round()
        else:
            self._is_writing = False
            if self._idle is not None and not self._idle.done():  # nobody waits any more
                self._idle.set_result(None)


def _follow(write: _Write) -> Exception | None:
    """Has memory follow the store. A mistake in that is its caller's to hear of, and must not stop
    the writes of the others."""
    try:
        if write.then is not None:
            write.then()
    except Exception as bug:
        logger.error("a change is stored and not in force: %s", write.changes, exc_info=bug)
        return bug
    return None


class _Write(NamedTuple):
    """What one caller wants to be durable."""

    changes: Sequence[Change]
    then: Callable[[], object] | None
    future: asyncio.Future[None]
