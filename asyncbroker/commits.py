"""Commit rounds: makes appended batches durable before they are acknowledged (acks=all).

A round takes all that waits, makes it durable in worker threads, and answers; who arrives meanwhile
joins the next round. So the slower the disk is, the more acknowledgements share one fsync. A round
begins at the end of the loop iteration in which its first waiter came, so that requests that were
received together go together; on a slow disk it may wait a little (`round_hold.py`).

There are two lanes. In the first there is one round at a time: what is small goes, for all
partitions together, into the journal (`log/journal.py`), with one write and one fdatasync. A
`SyncedWriter` does that, where there is one; a worker does it everywhere else, and whenever
anything is not as usual. In the second lane a few threads sync the files of one partition after the
other: of those with more than that, or with a new segment, and of everybody while there is no
journal, or no room in it. Small batches do not wait for those. Either way all of a partition
becomes durable that is not, also what nobody waits for.

Small batches of clients that wait for a round are not even in their logs before it begins: those of
one partition are appended together, with one write (`append_in_round`), of which the journal gets
the same bytes. They might have come in that moment.

Who waits gives a callback, so that a round costs no task and no future for each of them. When a
round has ended the next one begins first, and then the callbacks are called, one after the other:
the disk works while they encode and send their answers. They may come back with something new to
wait for. Of many answers that lie ready (`Later.leave_beside`) the writer's thread has sent all
before that, which takes the larger part of an answer off the event loop.

The journal is made by the first round that could use it. When it is half full, its partitions'
files are synced in the background, which frees it.

An fsync that fails is never tried again: its waiters get KAFKA_STORAGE_ERROR and the directory goes
offline (see `storage.py`).
"""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from asyncbroker.later import Later
from asyncbroker.round_hold import RoundHold
from asyncbroker.round_waits import Appending, Callback, RoundWait
from asyncbroker.storage import PASSING_ERRORS

if TYPE_CHECKING:
    from asyncbroker.log.journal import Begun, Journal, Stretch
    from asyncbroker.log.log_directory import LogDirectory
    from asyncbroker.log.native import Answer, MakeAnswer
    from asyncbroker.metrics import Histogram
    from asyncbroker.partition import Partition
    from asyncbroker.storage import Storage
    from asyncbroker.synced_writer import SyncedWriter

logger = logging.getLogger(__name__)

# fsyncs of different files at the same time share the disk's work. Fewer than there are worker
# threads (`asyncbroker.worker.threads`), so that a slow fsync leaves one for reads and appends.
FLUSHES_AT_ONCE: Final = 3

# What a frame adds to its bytes in a round, and more.
FRAME_BYTES_MAX: Final = 256

# When the making of a journal that failed, on a full disk for example, is tried again.
PREPARE_AGAIN_SECONDS: Final = 60.0

# What says nothing about the disk: the log was closed meanwhile, as its topic is deleted; or there
# was no descriptor left to sync with, so that nothing was synced and the next round may try.
NOT_THE_DISK: Final = frozenset({errno.EBADF, errno.EMFILE, errno.ENFILE})

# What a round reads on the event loop to give to the journal's thread: that was appended a moment
# ago. What comes beyond is left to the thread, which gets the interpreter's lock again after each.
READ_BYTES_MAX: Final = 256 * 1024

# From so many on the writer's thread sends the answers of a round. Fewer the loop sends, at once:
# who hears later than others comes back later than they do, and rounds would shrink.
ANSWERS_BESIDE_MIN: Final = 16


class _Round(NamedTuple):
    """What goes to the journal together: who waits, for which stretch, and its bytes if they were
    at hand."""

    waiting: list[RoundWait]
    stretches: list[Stretch]
    read: list[bytes | bytearray | None]


class Commits:
    """The rounds of one log directory. All methods are for the event loop's thread."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._gathering: dict[Partition, RoundWait] = {}
        # What is next in the other lane, and what its threads are at.
        self._to_flush: dict[Partition, RoundWait] = {}
        self._flushing: set[Partition] = set()
        self._flushes_running = 0
        # Whose wait is over, with the error if it failed.
        self._ended: list[tuple[RoundWait, BaseException | None]] = []
        self._is_journaling = False
        self._is_round_due = False
        self._round_began = 0.0
        self._hold = RoundHold(storage.clock, self._go_on)
        self._idle: asyncio.Future[None] | None = None
        self._logs: LogDirectory | None = None
        self._journal: Journal | None = None
        self._writer: SyncedWriter | None = None
        self._stretch_bytes_max = 0
        self._is_serving_journal = False
        self._prepare_again = 0.0

    def use_journal(
        self, logs: LogDirectory, stretch_bytes_max: int, writer: SyncedWriter | None = None
    ) -> None:
        """Lets rounds use the journal of a directory, if it has one; a partition with more than
        this that is not durable goes past it. `writer`, which is closed here, writes to its files
        and needs no worker."""
        self._logs = logs
        self._journal = None if self._storage.is_volatile else logs.journal
        self._writer = writer
        self._stretch_bytes_max = stretch_bytes_max

    @property
    def make_answer(self) -> MakeAnswer | None:
        """Makes what may be left `beside` a `Later` that waits for a round; None if nobody would
        send it."""
        return None if self._writer is None else self._writer.make_answer

    def call_when_durable(
        self,
        partition: Partition,
        end_offset: int,
        callback: Callback,
        later: Later[Any] | None = None,
    ) -> bool:
        """False when all below `end_offset` is durable; otherwise `callback` is called when it is,
        or cannot be. What lies beside `later` when a round begins is sent as soon as it is."""
        if self._storage.is_volatile or partition.log.durable_end_offset >= end_offset:
            return False
        waiting = self._gathering.get(partition)
        if waiting is None:
            waiting = self._gather(partition)
        if end_offset > waiting.end_offset:
            waiting.end_offset = end_offset
        waiting.callbacks.append(callback)
        if later is not None:
            waiting.laters.append(later)
        if self._hold.is_on:
            self._came()
        return True

    def append_in_round(self, partition: Partition, appending: Appending) -> None:
        """Has a small batch of a client appended when the next round begins, and made durable by
        it. Only while `storage` is not volatile."""
        waiting = self._gathering.get(partition)
        if waiting is None:
            waiting = self._gather(partition)
        waiting.appending.append(appending)
        if self._hold.is_on:
            self._came()

    def append_now(self, partition: Partition) -> None:
        """Appends what was to be appended when the next round begins: what comes next to this
        partition comes behind it. That round answers, as it would have."""
        waiting = self._gathering.get(partition)
        if waiting is not None and waiting.appending:
            waiting.append(self.call_when_durable, self._ended)

    def _gather(self, partition: Partition) -> RoundWait:
        """The first one who waits for a partition in the next round."""
        waiting = self._gathering[partition] = RoundWait(partition)
        if not self._is_round_due and not self._is_journaling and not self._hold.is_on:
            self._begin_soon()
        return waiting

    def _begin_soon(self) -> None:
        self._is_round_due = True
        asyncio.get_running_loop().call_soon(self._begin_round)

    def _came(self) -> None:
        """One more waits for a round that is held back."""
        if self._hold.came():
            self._begin_soon()

    def durable(self, partition: Partition, end_offset: int) -> Later[None] | None:
        """As `call_when_durable`, for who has a task that can wait: None when there is nothing to
        wait for."""
        later: Later[None] = Later()
        return later if self.call_when_durable(partition, end_offset, later.settle) else None

    async def close(self) -> None:
        """Waits until nobody waits for a round any more."""
        self._hold.end()
        self._go_on()
        if self._is_busy():
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        self._hold.end()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _is_busy(self) -> bool:
        return bool(
            self._gathering
            or self._to_flush
            or self._flushes_running
            or self._ended
            or self._is_journaling
            or self._is_serving_journal
        )

    def _begin_round(self) -> None:
        self._is_round_due = False
        self._go_on()

    def _go_on(self) -> None:
        """After any change: begins what can be begun, then tells those whose wait is over."""
        is_free = not (self._is_journaling or self._is_round_due or self._hold.is_on)
        if self._gathering and is_free:
            self._start_round()
        if self._to_flush and self._flushes_running < FLUSHES_AT_ONCE:
            self._start_flushes()
        if self._ended:
            ended, self._ended = self._ended, []
            for waiting, error in ended:
                waiting.answer(error)
        if self._idle is not None and not self._idle.done() and not self._is_busy():
            self._idle.set_result(None)

    def _start_round(self) -> None:
        """Takes all that waits: what the journal can hold goes there, the rest to the other lane.
        One round of the journal at a time, so this is not called while there is one."""
        gathered, self._gathering = self._gathering, {}
        metrics = self._storage.metrics
        waiters = sum(map(len, gathered.values()))
        metrics.round_waiters.observe(waiters)
        journal = self._journal
        if journal is not None and not journal.is_ready:
            self._prepare(journal)
        room = journal.round_bytes_max if journal is not None and journal.is_ready else 0
        unread = READ_BYTES_MAX
        small = _Round([], [], [])
        for waiting in gathered.values():
            data: bytes | bytearray | None = None
            if waiting.appending:
                data = waiting.append(self.call_when_durable, self._ended)
            if self._has_ended(waiting):
                continue
            partition = waiting.partition
            stretch_bytes_max = self._stretch_bytes_max if room > self._stretch_bytes_max else room
            stretch = partition.log.stretch_for_journal(partition.index, stretch_bytes_max)
            if stretch is None:
                self._flush_later(waiting)
                continue
            size = stretch.size
            room -= size + FRAME_BYTES_MAX
            unread -= size
            small.waiting.append(waiting)
            small.stretches.append(stretch)
            if data is None or len(data) != size:
                # There is more that is not durable than what was written just now.
                data = stretch.read_nowait() if unread >= 0 else None
            small.read.append(data)
        if journal is not None and small.waiting:
            self._is_journaling = True
            self._round_began = self._storage.clock.monotonic()
            if not self._write_beside(journal, small):
                written = self._storage.workers.run(
                    _journal, journal, small.stretches, small.read, metrics.fsync_seconds
                )
                written.add_done_callback(functools.partial(self._journaled, small))

    def _has_ended(self, waiting: RoundWait) -> bool:
        """Whether there is nothing to wait for any more: a round of the other lane may have begun
        late enough to cover it, or the disk is gone."""
        if waiting.partition.log.durable_end_offset >= waiting.end_offset:
            self._ended.append((waiting, None))
        elif self._storage.error is not None:
            self._ended.append((waiting, self._storage.error))
        else:
            return False
        return True

    # ---- the journal's lane

    def _write_beside(self, journal: Journal, small: _Round) -> bool:
        """Gives a round to the writer, if there is one and everything is as usual."""
        writer = self._writer
        if writer is None or not writer.is_ready():
            return False
        at_hand = [data for data in small.read if data is not None]
        if len(at_hand) < len(small.read):
            return False
        begun = journal.begin(small.stretches, at_hand)
        if begun is None:
            return False
        answers: list[Answer] = []
        laters = [later for waiting in small.waiting for later in waiting.laters]
        if len(laters) >= ANSWERS_BESIDE_MIN:
            found = [later.leave_beside() for later in laters]
            answers = [answer for answer in found if answer is not None]
        then = functools.partial(self._written, journal, begun, small)
        writer.write(begun.file, begun.data, begun.file_position, answers, then)
        return True

    def _written(
        self,
        journal: Journal,
        begun: Begun,
        small: _Round,
        error: OSError | None,
        seconds: float,
    ) -> None:
        """The writer is done with a round."""
        self._storage.metrics.fsync_seconds.took(seconds)
        try:
            journal.end(begun, error)
        except OSError as failure:
            self._end_round([], small.waiting, failure, seconds)
        else:
            self._end_round(small.waiting, [], None, seconds)

    def _journaled(self, small: _Round, done: asyncio.Future[list[Stretch]]) -> None:
        """A thread is done with a round."""
        error = done.exception()
        written = {id(stretch) for stretch in ([] if error is not None else done.result())}
        durable: list[RoundWait] = []
        left: list[RoundWait] = []
        for waiting, stretch in zip(small.waiting, small.stretches, strict=True):
            (durable if id(stretch) in written else left).append(waiting)
        seconds = self._storage.clock.monotonic() - self._round_began
        self._end_round(durable, left, error, seconds)

    def _end_round(
        self,
        durable: list[RoundWait],
        left: list[RoundWait],
        error: BaseException | None,
        seconds: float,
    ) -> None:
        """The end of a round that went to the journal; what did not goes to the other lane."""
        self._is_journaling = False
        if isinstance(error, OSError) and error.errno in PASSING_ERRORS:
            logger.warning("a round could not go to the journal: %s", error)
        elif error is not None:
            if isinstance(error, OSError):
                self._storage.fail(error)
            self._ended += [(waiting, error) for waiting in left]
            left = []
        self._ended += [(waiting, None) for waiting in durable]
        for waiting in left:
            self._flush_later(waiting)
        self._hold.round_ended(sum(map(len, durable)), seconds)
        journal, logs = self._journal, self._logs
        if journal is not None and logs is not None and (journal.is_filling or left):
            self._free(logs)
        self._go_on()

    def _prepare(self, journal: Journal) -> None:
        """Has the journal's file made, unless that failed a short while ago."""
        now = self._storage.clock.monotonic()
        if not self._is_serving_journal and now >= self._prepare_again:
            self._is_serving_journal = True
            self._prepare_again = now + PREPARE_AGAIN_SECONDS
            self._storage.workers.run(journal.prepare).add_done_callback(self._prepared)

    def _prepared(self, done: asyncio.Future[None]) -> None:
        self._is_serving_journal = False
        error = done.exception()
        if error is not None:
            logger.warning(
                "without a journal each partition is synced by itself: %s",
                error,
                exc_info=None if isinstance(error, OSError) else error,
            )
        self._go_on()

    def _free(self, logs: LogDirectory) -> None:
        """Has the files synced for which something is in the journal."""
        if not self._is_serving_journal:
            self._is_serving_journal = True
            freed = self._storage.workers.run(logs.free_journal)
            freed.add_done_callback(functools.partial(self._freed, logs))

    def _freed(self, logs: LogDirectory, done: asyncio.Future[None]) -> None:
        self._is_serving_journal = False
        error = done.exception()
        if error is not None:
            logger.error(
                "the journal is not freed: %s",
                error,
                exc_info=None if isinstance(error, OSError) else error,
            )
        if isinstance(error, OSError) and (
            error.errno not in PASSING_ERRORS or logs.failure is not None
        ):
            self._storage.fail(error)
        self._go_on()

    # ---- the lane of fsyncs

    def _flush_later(self, waiting: RoundWait) -> None:
        present = self._to_flush.get(waiting.partition)
        if present is None:
            self._to_flush[waiting.partition] = waiting
        else:
            present.join(waiting)

    def _start_flushes(self) -> None:
        """Spreads what is to be flushed over the threads that are free. A partition that one is at
        already has to wait for it: only an fsync that begins later covers who came meanwhile."""
        free = FLUSHES_AT_ONCE - self._flushes_running
        ready = [each for each in self._to_flush.values() if each.partition not in self._flushing]
        for each in ready:
            del self._to_flush[each.partition]
        dirty = [each for each in ready if not self._has_ended(each)]
        metrics = self._storage.metrics
        for first in range(min(len(dirty), free)):
            stripe = dirty[first::free]
            self._flushing.update(each.partition for each in stripe)
            self._flushes_running += 1
            flushed = self._storage.workers.run(_flush, stripe, metrics.fsync_seconds)
            flushed.add_done_callback(functools.partial(self._flushed, stripe))

    def _flushed(self, stripe: list[RoundWait], done: asyncio.Future[list[OSError | None]]) -> None:
        """The end for one thread's partitions."""
        bug = done.exception()
        errors = done.result() if bug is None else [bug] * len(stripe)
        for waiting, error in zip(stripe, errors, strict=True):
            # Without a failure of the log nothing was synced, and nothing was lost.
            is_failed = waiting.partition.log.failure is not None
            if isinstance(error, OSError) and error.errno not in NOT_THE_DISK and is_failed:
                self._storage.fail(error)
            self._ended.append((waiting, error))
            self._flushing.remove(waiting.partition)
        self._flushes_running -= 1
        self._go_on()


def _journal(
    journal: Journal,
    stretches: list[Stretch],
    read: list[bytes | bytearray | None],
    fsync_seconds: Histogram,
) -> list[Stretch]:
    """In a thread: a round of the journal; the stretches that are durable by it."""
    return fsync_seconds.timed(journal.append)(stretches, read)


def _flush(stripe: list[RoundWait], fsync_seconds: Histogram) -> list[OSError | None]:
    """In a thread: the fsyncs of one stripe, each with an outcome of its own."""
    errors: list[OSError | None] = []
    for waiting in stripe:
        try:
            fsync_seconds.timed(waiting.partition.log.flush)()
        except OSError as error:
            errors.append(error)
        else:
            errors.append(None)
    return errors
