"""Commit rounds: makes appended batches durable before they are acknowledged (acks=all).

A round takes all that waits, fsyncs each dirty partition once in worker threads, and answers; who
arrives meanwhile joins the next round. So the slower the disk is, the more acknowledgements share
one fsync, and there is never more than one round under way. A round begins at the end of the loop
iteration in which its first waiter came, so that requests that were received together go together.

An fsync that fails is never tried again: its waiters get KAFKA_STORAGE_ERROR and the directory goes
offline (see `storage.py`). Who waits only knows `durable`: how a round makes its bytes durable can
change behind it.
"""

from __future__ import annotations

import asyncio
import errno
import functools
from typing import TYPE_CHECKING, Final

from asyncbroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from asyncbroker.partition import Partition
    from asyncbroker.storage import Storage

# fsyncs of different files at the same time share the disk's work. Fewer than there are worker
# threads (`asyncbroker.worker.threads`), so that a slow fsync leaves one for reads and appends.
FLUSHES_AT_ONCE: Final = 3

# What says nothing about the disk: the log was closed meanwhile, as its topic is deleted; or there
# was no descriptor left to sync with, so that nothing was synced and the next round may try.
NOT_THE_DISK: Final = frozenset({errno.EBADF, errno.EMFILE, errno.ENFILE})


class _Waiting:
    """Who waits for one partition, and the highest end that any of them waits for.

    While it waits, the partition counts a job: its log must not be closed under a coming fsync.
    """

    __slots__ = ("end_offset", "futures", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.end_offset = 0
        self.futures: list[asyncio.Future[None]] = []
        partition.enter()

    def answer(self, error: BaseException | None) -> None:
        """Ends the wait of all who have not gone away."""
        self.partition.leave()
        if isinstance(error, OSError):
            message = f"{self.partition.name} is not durable: {error}"
            error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
        for future in self.futures:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)


class Commits:
    """The rounds of one log directory. All methods are for the event loop's thread."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._gathering: dict[Partition, _Waiting] = {}
        self._flushes_running = 0
        self._is_round_due = False
        self._idle: asyncio.Future[None] | None = None

    def durable(self, partition: Partition, end_offset: int) -> asyncio.Future[None] | None:
        """None when all below `end_offset` is durable; otherwise what to wait for.

        The future is the caller's own: it may be cancelled, or given another outcome by a timeout.
        It fails with KafkaError(KAFKA_STORAGE_ERROR) when the disk does.
        """
        if partition.log.durable_end_offset >= end_offset or self._storage.is_volatile:
            return None
        waiting = self._gathering.get(partition)
        if waiting is None:
            waiting = self._gathering[partition] = _Waiting(partition)
            if not self._is_round_due and not self._flushes_running:
                self._is_round_due = True
                asyncio.get_running_loop().call_soon(self._start_round)
        if end_offset > waiting.end_offset:
            waiting.end_offset = end_offset
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.futures.append(future)
        return future

    async def close(self) -> None:
        """Waits until nobody waits for a round any more."""
        if self._gathering or self._flushes_running:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def _start_round(self) -> None:
        """Takes all that waits and spreads its partitions over a few threads."""
        self._is_round_due = False
        gathered = self._gathering
        self._gathering = {}
        dirty: list[_Waiting] = []
        for waiting in gathered.values():
            # An fsync of the last round may have begun late enough to cover it.
            if waiting.partition.log.durable_end_offset >= waiting.end_offset:
                waiting.answer(None)
            elif self._storage.error is not None:
                waiting.answer(self._storage.error)
            else:
                dirty.append(waiting)
        self._flushes_running = min(len(dirty), FLUSHES_AT_ONCE)
        for first in range(self._flushes_running):
            stripe = dirty[first::FLUSHES_AT_ONCE]
            flushed = self._storage.workers.run(_flush, stripe)
            flushed.add_done_callback(functools.partial(self._flushed, stripe))
        if not dirty:
            self._end_round()

    def _flushed(self, stripe: list[_Waiting], done: asyncio.Future[list[OSError | None]]) -> None:
        """Answers those who waited for one thread's partitions; the last thread ends the round."""
        bug = done.exception()
        errors = done.result() if bug is None else [bug] * len(stripe)
        for waiting, error in zip(stripe, errors, strict=True):
            # Without a failure of the log nothing was synced, and nothing was lost.
            is_failed = waiting.partition.log.failure is not None
            if isinstance(error, OSError) and error.errno not in NOT_THE_DISK and is_failed:
                self._storage.fail(error)
            waiting.answer(error)
        self._flushes_running -= 1
        if not self._flushes_running:
            self._end_round()

    def _end_round(self) -> None:
        """Goes on with those who came meanwhile."""
        if self._gathering:
            self._start_round()
        elif self._idle is not None and not self._idle.done():
            self._idle.set_result(None)


def _flush(stripe: list[_Waiting]) -> list[OSError | None]:
    """In a thread: the fsyncs of one stripe, each with an outcome of its own."""
    errors: list[OSError | None] = []
    for waiting in stripe:
        try:
            waiting.partition.log.flush()
        except OSError as error:
            errors.append(error)
        else:
            errors.append(None)
    return errors
