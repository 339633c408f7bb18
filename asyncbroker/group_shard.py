"""One partition of `__consumer_offsets` with its coordinator: what makes effects happen.

The coordinator decides, this file carries out: it gathers the records of `Append` effects into
batches, appends them to the partition, waits until they are durable, and then lets the replies go
that were computed from them (the ordering contract is in `coordinator/effects.py`). While one round
is on its way to the disk the next one gathers, so any number of commits share a few appends and
fsyncs. One timer is armed at the coordinator's next deadline.

A shard is loading, serving, or gone. Loading reads the partition into a new coordinator, in a
worker, and makes durable what a crash has left of it; meanwhile requests are answered
COORDINATOR_LOAD_IN_PROGRESS. An error that may pass (no file descriptor is left) has it tried
again. When a round fails, the state in memory is ahead of the log: everybody who waits gets
NOT_COORDINATOR, and the shard loads anew; at once the first time, but as long as rounds go on
failing, on a full disk say, after longer and longer pauses, since it reads the whole partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from asyncbroker.coordinator.coordinator import GroupCoordinator
from asyncbroker.coordinator.effects import Append, Effect, Instant, MemberKey, Note, Reply
from asyncbroker.coordinator.effects import Record as KeyAndValue
from asyncbroker.group_batches import parts_of, replay_range
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.records import CorruptBatch, Record, build_batch, read_header
from asyncbroker.storage import PASSING_ERRORS

if TYPE_CHECKING:
    from asyncbroker.clock import Clock, Timer
    from asyncbroker.context import RequestContext
    from asyncbroker.coordinator.config import GroupConfig
    from asyncbroker.coordinator.consumer.topics import TopicView
    from asyncbroker.partition import Partition

logger = logging.getLogger(__name__)

# How much of the partition is read at a time while it is loaded.
LOAD_BYTES: Final = 1024 * 1024

# When loading is tried again after an error that may pass.
LOAD_AGAIN_SECONDS: Final = 1.0
# How long it may be put off when one round after the other fails.
LOAD_AGAIN_SECONDS_MAX: Final = 16.0

Operation = Callable[[GroupCoordinator, "PendingReply", Instant], list[Effect]]


class Durability(Protocol):
    """What the shard needs of `Commits`."""

    def durable(self, partition: Partition, end_offset: int) -> Awaitable[None] | None:
        """None when all below `end_offset` is durable; otherwise what to wait for."""


class PendingReply:
    """The token of a request: where its answer goes. A future is made only for those that wait."""

    __slots__ = ("future", "response")

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] | None = None
        self.response: Any = None


class _Round:
    """Records that become durable together, and the replies that wait for them."""

    __slots__ = ("records", "replies")

    def __init__(self) -> None:
        self.records: list[KeyAndValue] = []
        self.replies: list[Reply] = []


class GroupShard:
    """The groups of one partition. All methods are for the event loop's thread."""

    def __init__(
        self,
        partition: Partition,
        config: GroupConfig,
        *,
        commits: Durability,
        clock: Clock,
        trusted_now_ms: Callable[[], int],
        topics: TopicView,
    ) -> None:
        self._partition = partition
        self._config = config
        self._commits = commits
        self._clock = clock
        self._trusted_now_ms = trusted_now_ms
        self._topics = topics

        # None while there is nothing to ask; then `_refusal` says what requests get.
        self._coordinator: GroupCoordinator | None = None
        self._refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        # In the order in which they were asked.
        self._unanswered: dict[PendingReply, None] = {}
        self._gathering = _Round()
        self._writing: _Round | None = None
        # Members who wait for the disk, with how many answers each.
        self._held_back: Counter[MemberKey] = Counter()
        self._timer: Timer | None = None
        self._timer_when = 0.0
        # After the next round that fails.
        self._load_pause_seconds = 0.0
        self._loader: asyncio.Task[GroupCoordinator] | None = None
        self._writer: asyncio.Task[None] | None = None

    # ---- requests

    def ask(
        self, operation: Operation, context: RequestContext | None = None, group_id: str = ""
    ) -> Any | asyncio.Future[Any]:
        """Runs one request through the coordinator: the response if it is there already, or a
        future of it. Raises KafkaError while there is no coordinator to ask.

        With a context, the loss of its connection is reported to the coordinator.
        """
        coordinator = self._coordinator
        if coordinator is None:
            raise self._refused()
        token = PendingReply()
        self._carry_out(operation(coordinator, token, self._now()))
        if token.response is not None:
            return token.response
        token.future = asyncio.get_running_loop().create_future()
        self._unanswered[token] = None
        if context is not None:
            if context.is_closing():
                self._forget(token, group_id)
            else:
                context.call_when_lost(lambda: self._forget(token, group_id))
        return token.future

    def look(self) -> GroupCoordinator:
        """The coordinator, for questions that change nothing; KafkaError without one."""
        if self._coordinator is None:
            raise self._refused()
        return self._coordinator

    def is_serving(self) -> bool:
        """Whether `look` has somebody to ask."""
        return self._coordinator is not None

    def is_loading(self) -> bool:
        """Whether requests had better come again in a moment."""
        return self._coordinator is None and self._refusal is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def on_topics_deleted(self, topics: Iterable[str]) -> None:
        """Forgets the offsets in topics that are gone; loading looks for such topics itself."""
        if self._coordinator is not None:
            self._carry_out(self._coordinator.on_topics_deleted(topics, self._now()))

    async def forget_topic(self, name: str) -> None:
        """Forgets what groups committed in a topic that is gone, before another one has its name:
        returns when not even a crash can bring that back. Raises KafkaError if it may."""
        while self._loader is not None:
            await asyncio.wait([self._loader])
        if not self.is_serving() and not self.is_loading():
            return  # it serves nobody
        forgotten = self.ask(
            lambda coordinator, token, now: [
                *coordinator.on_topics_deleted([name], now),
                Reply(token, name),
            ]
        )
        if isinstance(forgotten, asyncio.Future):
            await forgotten

    def _forget(self, token: PendingReply, group_id: str) -> None:
        """The connection of a request that waits is lost."""
        if token not in self._unanswered:
            return
        self._unanswered.pop(token, None)
        assert token.future is not None
        token.future.cancel()
        if self._coordinator is not None:
            self._carry_out(self._coordinator.forget(token, group_id, self._now()))

    # ---- for who moves the clock

    def expire_offsets(self) -> None:
        """Looks for expired offsets now."""
        if self._coordinator is not None:
            self._carry_out(self._coordinator.expire_offsets(self._now()))

    def postpone_members(self, seconds: float) -> None:
        """Gives members, and rebalances, so much more time."""
        if self._coordinator is not None:
            self._coordinator.postpone_members(seconds)

    def at_work(self) -> list[asyncio.Task[Any]]:
        """What is being loaded or written."""
        return [task for task in (self._loader, self._writer) if task is not None]

    # ---- loading and closing

    def load(self) -> None:
        """Brings the coordinator up to the partition's end, in the background."""
        self._refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        try:
            self._partition.check_readable()
        except KafkaError as error:
            self._give_up(error)
            return
        if self._partition.high_watermark == self._partition.log_start_offset:
            self._serve(GroupCoordinator(self._config, self._topics))
            return
        name = f"load groups of {self._partition.name}"
        self._loader = asyncio.create_task(self._load(), name=name)
        self._loader.add_done_callback(self._loaded)

    async def _load(self) -> GroupCoordinator:
        coordinator = GroupCoordinator(self._config, self._topics)
        partition = self._partition
        offset = partition.log_start_offset
        while (found := await partition.locate_on_disk(offset, LOAD_BYTES)) is not None:
            offset = await partition.run(replay_range, coordinator, found, partition.name)
        # After a kill there may be what the disk has not: a loss of power would take back what is
        # answered by it, and have a generation given out twice.
        await self._await_disk(offset)
        return coordinator

    def _loaded(self, loader: asyncio.Task[GroupCoordinator]) -> None:
        self._loader = None
        if loader.cancelled():
            return
        error = loader.exception()
        if error is None:
            self._serve(loader.result())
        else:
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        """Refuses all: serving without some of the offsets would send consumers to the start."""
        is_expected = isinstance(error, (KafkaError, OSError, CorruptBatch))
        logger.error(
            "the groups of %s cannot be loaded: %s",
            self._partition.name,
            error,
            exc_info=None if is_expected else error,
        )
        if self._may_pass(error):
            self._load_after(LOAD_AGAIN_SECONDS)
        else:
            self._refusal = ErrorCode.NOT_COORDINATOR

    def _may_pass(self, error: BaseException) -> bool:
        """Whether the partition outlived the error: there was no descriptor left, or no memory."""
        if isinstance(error, OSError):
            return error.errno in PASSING_ERRORS
        is_of_disk = isinstance(error, KafkaError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR
        return is_of_disk and self._partition.is_readable()

    def _load_after(self, seconds: float) -> None:
        self._refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._timer = self._clock.call_at(self._clock.monotonic() + seconds, self._load_again)

    def _load_again(self) -> None:
        self._timer = None
        self.load()

    def _serve(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator
        groups = len(coordinator.list_groups())
        if groups:
            logger.info("loaded %d groups from %s", groups, self._partition.name)
        self._carry_out(coordinator.finish_loading(self._now()))
        # A crash may have come between the deletion of a topic and that of its offsets.
        gone = [topic for topic in coordinator.committed_topics() if not self._topics.find(topic)]
        if gone:
            self.on_topics_deleted(gone)

    async def close(self) -> None:
        """Answers those who wait for other members, waits for what is on its way to the disk."""
        self._refusal = ErrorCode.NOT_COORDINATOR
        self._coordinator = None
        self._disarm()
        if self._loader is not None:
            self._loader.cancel()
            await asyncio.wait([self._loader])
        promised = {
            _token(reply)
            for round_ in (self._writing, self._gathering)
            for reply in (round_.replies if round_ is not None else ())
        }
        self._fail([token for token in self._unanswered if token not in promised])
        if self._writer is not None:
            await asyncio.wait([self._writer])

    # ---- effects

    def _carry_out(self, effects: list[Effect]) -> None:
        """Does what the coordinator wants done, in order, and arms the timer."""
        for effect in effects:
            if isinstance(effect, Reply):
                if effect.at_once:
                    self._answer(effect)
                elif self._gathering.records:
                    self._hold_back(effect, self._gathering)
                elif self._writing is not None:
                    self._hold_back(effect, self._writing)
                else:
                    self._answer(effect)
            elif isinstance(effect, Append):
                self._gathering.records.extend(effect.records)
                self._start_writer()
            elif isinstance(effect, Note):
                group_id = _printable(effect.group_id)
                about = {"subject": group_id}
                logger.info("group %s: %s", group_id, _printable(effect.text), extra=about)
        self._arm()

    def _hold_back(self, reply: Reply, round_: _Round) -> None:
        """Has a reply wait for a round."""
        round_.replies.append(reply)
        if reply.member is not None:
            self._held_back[reply.member] += 1

    def _let_go(self, replies: list[Reply]) -> None:
        """Answers those who waited for a round that is durable now."""
        members = [reply.member for reply in replies if reply.member is not None]
        self._held_back -= Counter(members)
        if self._coordinator is not None:
            self._coordinator.answered(members, self._now())
        for reply in replies:
            self._answer(reply)

    def _answer(self, reply: Reply) -> None:
        token = _token(reply)
        if token.future is None:
            token.response = reply.response
            return
        self._unanswered.pop(token, None)
        if not token.future.done():
            token.future.set_result(reply.response)

    def _start_writer(self) -> None:
        """The task starts when this iteration of the loop is over, so that requests which were
        received together share a round."""
        if self._writer is None:
            name = f"write groups of {self._partition.name}"
            self._writer = asyncio.create_task(self._write(), name=name)
            self._writer.add_done_callback(self._written)

    async def _write(self) -> None:
        """Makes round after round durable, as long as there are any. Raises KafkaError."""
        while self._gathering.records:
            self._writing, self._gathering = self._gathering, _Round()
            await self._make_durable(self._writing.records)
            self._load_pause_seconds = 0.0
            replies, self._writing = self._writing.replies, None
            self._let_go(replies)

    def _written(self, writer: asyncio.Task[None]) -> None:
        self._writer = None
        error = writer.exception()
        if error is not None:
            self._lose_state(error)
        elif self._gathering.records:
            # They came after the last look, and before this.
            self._start_writer()

    async def _make_durable(self, records: list[KeyAndValue]) -> None:
        """Appends records and waits for the disk. Raises KafkaError."""
        partition = self._partition
        now_ms = self._clock.wall_ms()
        end_offset = partition.high_watermark
        for part in parts_of(records):
            batch = build_batch([Record(0, now_ms, key, value) for key, value in part])
            appended = partition.append(batch, read_header(batch), is_client=False)
            if isinstance(appended, asyncio.Future):
                appended = await appended
            end_offset = appended.last_offset + 1
        await self._await_disk(end_offset)

    async def _await_disk(self, end_offset: int) -> None:
        """Returns when all below `end_offset` is durable. Raises KafkaError."""
        waiting = self._commits.durable(self._partition, end_offset)
        if waiting is not None:
            await waiting

    def _lose_state(self, error: BaseException) -> None:
        """A round failed: forgets everything that may not be in the log, and loads it anew."""
        logger.error(
            "the groups of %s lost a write: %s",
            self._partition.name,
            error,
            exc_info=None if isinstance(error, KafkaError) else error,
        )
        is_closing = self._coordinator is None
        self._coordinator = None
        self._gathering = _Round()
        self._writing = None
        self._held_back.clear()
        self._disarm()
        self._fail(list(self._unanswered))
        if is_closing:
            return
        pause, self._load_pause_seconds = (
            self._load_pause_seconds,
            min(max(LOAD_AGAIN_SECONDS, 2 * self._load_pause_seconds), LOAD_AGAIN_SECONDS_MAX),
        )
        if pause:
            self._load_after(pause)
        else:
            self.load()

    def _fail(self, tokens: list[PendingReply]) -> None:
        """Sends clients to look for their coordinator again, which is what makes them retry."""
        for token in tokens:
            self._unanswered.pop(token, None)
            if token.future is not None and not token.future.done():
                token.future.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))

    # ---- time

    def _now(self) -> Instant:
        """By the time that also tells what is forgotten for its age, or a clock that was set back
        and put right would make what was committed meanwhile old at once."""
        return Instant(self._clock.monotonic(), self._trusted_now_ms())

    def _arm(self) -> None:
        """Sees to it that the timer is no later than the next deadline; earlier does no harm."""
        coordinator = self._coordinator
        deadline = coordinator.next_deadline() if coordinator is not None else None
        if deadline is None or (self._timer is not None and self._timer_when <= deadline):
            return
        self._disarm()
        self._timer_when = deadline
        self._timer = self._clock.call_at(deadline, self._expire)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        if self._coordinator is not None:
            self._carry_out(self._coordinator.expire(self._now(), self._held_back))

    def _refused(self) -> KafkaError:
        return KafkaError(self._refusal)


def _printable(text: str) -> str:
    """What clients call themselves must not make lines of its own in the log."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def _token(reply: Reply) -> PendingReply:
    assert isinstance(reply.token, PendingReply)
    return reply.token
