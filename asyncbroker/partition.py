"""One partition: the asynchronous face of its log, and the fetches that wait for it.

Appends run in the order in which they arrive. A small one runs on the event loop, at once: its
bytes go to the page cache in less time than a thread would take to notice it. A large one, and
everything behind it, is handed to a worker thread, one drain of the queue at a time; so is every
append while the disk cannot keep up with writeback, because then the kernel may stop the writer.
`append` says which it was by what it returns: the outcome, or a future of it.

`high_watermark` is where readers must stop: it moves on the event loop, after an append is
complete. With one replica it is the end of the log, whether that is durable or not.

An `OSError` of the log stays here: a full disk fails the request, a read error takes this partition
offline, a write error the directory (`storage.py`). Requests only ever see KafkaError.

Not known here: requests, versions, topics, other partitions.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from asyncbroker.log.config import INT64_MAX, LogConfig
from asyncbroker.log.errors import CorruptLog
from asyncbroker.log.reserve import FULL_ERRORS, disk_full
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.queued_append import QueuedAppend, append_all
from asyncbroker.storage import DISK_ERRORS, PASSING_ERRORS, Storage

if TYPE_CHECKING:
    from asyncbroker.fetch_waits import FetchWaiter
    from asyncbroker.log.appended import Appended, Sent
    from asyncbroker.log.file_range import FileRange
    from asyncbroker.log.partition_log import PartitionLog
    from asyncbroker.protocol.records import BatchHeader
    from asyncbroker.workers import Workers

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class Partition:
    """One partition of a topic. All methods are for the event loop's thread."""

    __slots__ = (
        "_between_appends",
        "_clock_wall_ms",
        "_idle",
        "_is_draining_queue",
        "_is_handing_over",
        "_is_writing_back",
        "_jobs",
        "_queue",
        "_refusal",
        "_storage",
        "_unwritten_bytes",
        "high_watermark",
        "index",
        "leader_epoch",
        "log",
        "topic",
        "topic_id",
        "traffic",
        "waiters",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        log: PartitionLog,
        *,
        leader_epoch: int,
        storage: Storage,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self.high_watermark: int = log.end_offset
        # In the order in which they came.
        self.waiters: dict[FetchWaiter, None] = {}
        self._storage = storage
        self.traffic = storage.part_of_traffic()
        self._clock_wall_ms = storage.clock.wall_ms
        self._refusal: KafkaError | None = None
        self._queue: deque[QueuedAppend] = deque()
        self._unwritten_bytes = 0
        # True while an append may not run on the loop: behind others, or behind the disk.
        self._is_handing_over = False
        self._is_draining_queue = False
        # What waits for the end of the appends that a thread is at.
        self._between_appends: list[Callable[[], object]] = []
        self._is_writing_back = False
        self._jobs = 0
        self._idle: asyncio.Future[None] | None = None

    @property
    def name(self) -> str:
        """As in Kafka's logs and directories: topic-index."""
        return f"{self.topic}-{self.index}"

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self.log.log_start_offset

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed stops: at the first open transaction, in a log that has moved in
        with one; else at the high watermark."""
        return min(self.high_watermark, self.log.last_stable_offset)

    # ---- appending

    def append(
        self, batch: bytearray | memoryview, header: BatchHeader, *, is_client: bool = True
    ) -> Appended | asyncio.Future[Appended]:
        """Appends one checked batch; it is stamped in place, and must not change meanwhile.

        Raises KafkaError, or returns a future that fails with one, when the batch is refused or the
        disk does not take it; then nothing of it is in the log.
        """
        if self._refusal is not None or self._storage.error is not None:
            raise self._refused()
        if is_client and self._storage.reserve.is_short:
            raise self._storage_error(disk_full())
        log = self.log
        if (
            self._is_handing_over
            or header.size > self._storage.inline_append_bytes_max
            # Only the records know the smallest timestamp: the log will decode them.
            or log.config.message_timestamp_before_max_ms != INT64_MAX
        ):
            return self._hand_over(batch, header, is_client)
        append_seconds = self._storage.metrics.append_seconds
        began = 0.0 if append_seconds is None else time.perf_counter()
        try:
            appended = log.append(
                batch,
                header,
                leader_epoch=self.leader_epoch,
                now_ms=self._clock_wall_ms(),
                is_client=is_client,
            )
        except OSError as error:
            if error.errno in FULL_ERRORS and not is_client:
                # There is room for those, and a thread may wait for it.
                return self._hand_over(batch, header, is_client)
            raise self._write_failed(error) from error
        finally:
            if append_seconds is not None:
                append_seconds.observe(time.perf_counter() - began)
        self._appended(header.size, header.record_count)
        return appended

    def append_together(self, sent: Sequence[Sent]) -> bytes | None:
        """Appends small batches of clients with one write, and gives what was written, when nothing
        about any of them is unusual; None if `append` has to see to them one by one. Raises
        KafkaError if the disk does not take it: then nothing of it is in the log."""
        storage = self._storage
        if self._is_handing_over or storage.reserve.is_short or not self.is_readable():
            return None
        append_seconds = storage.metrics.append_seconds
        began = 0.0 if append_seconds is None else time.perf_counter()
        try:
            written = self.log.append_together(
                sent,
                leader_epoch=self.leader_epoch,
                now_ms=self._clock_wall_ms(),
                bytes_max=storage.inline_append_bytes_max,
            )
        except OSError as error:
            raise self._write_failed(error) from error
        if written is None:
            return None
        if append_seconds is not None:
            seconds = time.perf_counter() - began
            for _ in sent:
                append_seconds.observe(seconds)
        self._appended(len(written), sum([each.header.record_count for each in sent]))
        return written

    def _appended(self, size: int, record_count: int) -> None:
        """After an append is complete: shows it to readers, and keeps writeback going."""
        self.traffic.appended(size, record_count)
        self.high_watermark = self.log.end_offset
        if self.waiters:
            for waiter in tuple(self.waiters):
                waiter.appended(size)
        self._unwritten_bytes += size
        if self._unwritten_bytes >= self._storage.writeback_bytes:
            self._write_back()

    def _hand_over(
        self, batch: bytearray | memoryview, header: BatchHeader, is_client: bool
    ) -> asyncio.Future[Appended]:
        """Queues an append for a worker thread; everything that comes later stays behind it."""
        queued = QueuedAppend(batch, header, is_client)
        self._queue.append(queued)
        self._is_handing_over = True
        if not self._is_draining_queue:
            self._drain_queue()
        return queued.future

    def _drain_queue(self) -> None:
        """Gives all that is queued to one thread. Who is queued meanwhile is next."""
        self._is_draining_queue = True
        queued = list(self._queue)
        self._queue.clear()
        append = functools.partial(
            append_all, self.log, leader_epoch=self.leader_epoch, now_ms=self._clock_wall_ms()
        )
        done = self.run(append, queued, self._storage.reserve)
        done.add_done_callback(lambda done: self._drained(queued, done))

    def _drained(
        self,
        queued: list[QueuedAppend],
        done: asyncio.Future[list[Appended | KafkaError | OSError]],
    ) -> None:
        """Back on the loop: answers the appends of one drain, then takes what came meanwhile."""
        self._is_draining_queue = False
        changes, self._between_appends = self._between_appends, []
        for change in changes:
            change()
        if (append_seconds := self._storage.metrics.append_seconds) is not None:
            for item in queued:
                if item.seconds is not None:
                    append_seconds.observe(item.seconds)
        if (bug := done.exception()) is not None:
            for item in queued:
                item.fail(bug)
        else:
            for item, outcome in zip(queued, done.result(), strict=True):
                if isinstance(outcome, OSError):
                    item.fail(self._write_failed(outcome))
                elif isinstance(outcome, KafkaError):
                    item.fail(outcome)
                else:
                    self._appended(item.header.size, item.header.record_count)
                    item.succeed(outcome)
        if self._queue:
            self._drain_queue()
        else:
            self._is_handing_over = self._is_behind()

    # ---- writeback

    def _write_back(self) -> None:
        """Has a thread ask the kernel to write what was appended. One such job at a time: when a
        whole stretch has gathered behind it, the disk is behind, and appends go to a thread."""
        if self._is_writing_back:
            self._is_handing_over = True
            return
        self._is_writing_back = True
        self._unwritten_bytes = 0
        self.run(self.log.start_writeback).add_done_callback(self._written_back)

    def _written_back(self, done: asyncio.Future[None]) -> None:
        self._is_writing_back = False
        error = done.exception()
        if isinstance(error, OSError):
            self._write_failed(error)
        elif error is not None:
            logger.error("writeback of %s", self.name, exc_info=error)
        elif self._unwritten_bytes >= self._storage.writeback_bytes:
            self._write_back()
        if not self._queue and not self._is_draining_queue:
            self._is_handing_over = self._is_behind()

    def _is_behind(self) -> bool:
        return self._is_writing_back and self._unwritten_bytes >= self._storage.writeback_bytes

    # ---- reading

    def locate(
        self, offset: int, bytes_max: int, *, always_one: bool = True, is_committed: bool = False
    ) -> FileRange | None:
        """Where the batches from `offset` on lie, below the high watermark, or with `is_committed`
        below the last stable offset; None at the end.

        Raises KafkaError: OFFSET_OUT_OF_RANGE, or what keeps the partition from being read. Raises
        WouldBlock when the way there is not in memory: then `locate_on_disk` has the answer.
        """
        self.check_readable()
        try:
            return self.log.locate(
                offset,
                bytes_max,
                end_offset=self.last_stable_offset if is_committed else self.high_watermark,
                always_one=always_one,
                may_block=False,
            )
        except (OSError, CorruptLog) as error:
            raise self.read_failed(error) from error

    async def locate_on_disk(
        self, offset: int, bytes_max: int, *, always_one: bool = True, is_committed: bool = False
    ) -> FileRange | None:
        """As `locate`, in a worker thread."""
        self.check_readable()
        locate = functools.partial(
            self.log.locate,
            offset,
            bytes_max,
            end_offset=self.last_stable_offset if is_committed else self.high_watermark,
            always_one=always_one,
            may_block=True,
        )
        try:
            return await self.read(locate)
        except (OSError, CorruptLog) as error:
            raise self.read_failed(error) from error

    def is_in_older_segment(self, offset: int) -> bool:
        """Whether the log has gone on in another segment after the one that has `offset`."""
        return offset < self.log.active_base_offset

    def bytes_from(self, position: int) -> int:
        """How much the newest segment has from this position on."""
        return self.log.active_size - position

    def has_moved(self, high_watermark: int) -> bool:
        """Whether a reader who saw this high watermark would see something else now."""
        return self.high_watermark != high_watermark or self._refusal is not None

    def check_readable(self) -> None:
        """Raises KafkaError with what keeps the partition from being used, if anything does."""
        if self._refusal is not None or self._storage.error is not None:
            raise self._refused()

    def is_readable(self) -> bool:
        """Whether nothing keeps the partition from being used."""
        return self._refusal is None and self._storage.error is None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch up to `epoch`, and where it ended; (-1, -1) if there is none.

        The current epoch ends at the high watermark, even if nothing was appended in it yet.
        """
        if epoch == self.leader_epoch:
            return epoch, self.high_watermark
        return self.log.end_offset_for_epoch(epoch)

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Holds the epoch that a client knows against ours; -1 is a client that knows none."""
        if current_leader_epoch in (self.leader_epoch, -1):
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    # ---- the life of a partition

    def refuse(self, error: KafkaError) -> None:
        """From now on every append and read fails with `error`; waiting fetches see it at once.

        For deletion (UNKNOWN_TOPIC_OR_PARTITION) and shutdown (NOT_LEADER_OR_FOLLOWER: clients ask
        for metadata and come again). What was handed over before is still appended: see `drain`.
        """
        if self._refusal is None:
            self._refusal = error
        for waiter in tuple(self.waiters):
            waiter.wake()

    async def hand_over(self) -> Partition:
        """The partition under its next leader: the same log, one leader epoch later. This object
        refuses everything from now on (NOT_LEADER_OR_FOLLOWER); whoever waits for records here is
        told so."""
        self.refuse(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leader was elected"))
        await self.drain()
        successor = Partition(
            self.topic,
            self.index,
            self.topic_id,
            self.log,
            leader_epoch=self.leader_epoch + 1,
            storage=self._storage,
        )
        successor.traffic = self.traffic
        self.log.epochs.assign(successor.leader_epoch, self.log.end_offset)
        self.log.leader_epoch = successor.leader_epoch
        return successor

    def set_config(self, config: LogConfig) -> None:
        """Puts other settings in force, from the next append on that has not begun yet."""
        self.between_appends(lambda: self.log.set_config(config))

    def between_appends(self, change: Callable[[], object]) -> None:
        """Calls `change`, which must not raise, while nothing is being appended: at once, or when a
        thread is done with the appends that it has."""
        if self._is_draining_queue:
            self._between_appends.append(change)
        else:
            change()

    def expire_producers(self) -> None:
        """Forgets silent producers; not now if a thread appends, another time will do."""
        if not self._is_draining_queue:
            self.log.expire_producers(self._storage.trusted_now_ms())

    async def drain(self) -> None:
        """Waits until no thread works on the log, so that its files can be closed or renamed."""
        # The end of a job may begin another: an append in a worker, then its writeback.
        while self._jobs:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def run(self, function: Callable[..., Result], *args: Any) -> asyncio.Future[Result]:
        """Runs something on the log in a worker thread, known to `drain`."""
        return self._run(self._storage.workers, function, args)

    def read(self, function: Callable[..., Result], *args: Any) -> asyncio.Future[Result]:
        """As `run`, for what a reader waits for: in a thread of those that nothing else needs."""
        return self._run(self._storage.readers, function, args)

    def _run(
        self, workers: Workers, function: Callable[..., Result], args: tuple[Any, ...]
    ) -> asyncio.Future[Result]:
        self.enter()
        future = workers.run(function, *args)
        future.add_done_callback(lambda _: self.leave())
        return future

    def enter(self) -> None:
        """Counts a job of somebody else's on the log; `leave` must follow."""
        self._jobs += 1

    def leave(self) -> None:
        """The end of a job."""
        self._jobs -= 1
        if not self._jobs and not self._queue and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    # ---- errors

    def read_failed(self, error: OSError | CorruptLog) -> KafkaError:
        """What a request gets for an error in reading the log. A disk that cannot be read takes the
        partition offline; damaged bytes are a hole, and what lies around it can be read."""
        if isinstance(error, CorruptLog):
            logger.error("%s: %s", self.name, error)
            return KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))
        if error.errno not in PASSING_ERRORS:
            self.go_offline(error)
        return self._storage_error(error)

    def _write_failed(self, error: OSError) -> KafkaError:
        """What a request gets for an error in writing: a full disk passes, a broken one stays."""
        if error.errno in PASSING_ERRORS:
            logger.warning("an append to %s failed: %s", self.name, error)
        elif error.errno in DISK_ERRORS:
            self._storage.fail(error)
        else:
            self.go_offline(error)
        return self._storage_error(error)

    def go_offline(self, error: OSError) -> None:
        """Refuses everything until the next start, whose recovery sees to what is there."""
        if self._refusal is None:
            logger.error("%s goes offline until a restart: %s", self.name, error)
        self.refuse(self._storage_error(error))

    def _storage_error(self, error: OSError) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name}: {error.strerror or error}")

    def _refused(self) -> KafkaError:
        """A new exception each time: a raised one collects the traceback of whoever raised it."""
        if self._refusal is not None:
            return KafkaError(self._refusal.code, self._refusal.message)
        assert self._storage.error is not None
        return self._storage_error(self._storage.error)
