"""Who waits for a commit round: by partition, with the batches that the round appends first.

What a small batch of a client waits for begins with its append: those that have come for one
partition since the last round are written together, when the next one begins. What is unusual about
one of them (a retry, a full segment, a full disk) is left to `Partition.append`, one by one.

All of it is for the event loop's thread. Not known here: when a round begins, how it makes anything
durable.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from asyncbroker.later import Later
from asyncbroker.log.appended import Sent
from asyncbroker.protocol.batches import NO_TIMESTAMP
from asyncbroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from asyncbroker.log.appended import Appended
    from asyncbroker.partition import Partition

logger = logging.getLogger(__name__)

# Called on the event loop, once: with None, KafkaError(KAFKA_STORAGE_ERROR), or what is our bug.
Callback = Callable[["BaseException | None"], object]


class Appending(Sent, Protocol):
    """A batch that is to be appended when the next round begins."""

    @property
    def later(self) -> Later[Any]: ...

    def appended(self, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> None:
        """It is in the log."""

    def durable(self, error: BaseException | None) -> object:
        """A `Callback`; also called if it could not be appended."""


class CallWhenDurable(Protocol):
    """`Commits.call_when_durable`."""

    def __call__(
        self, partition: Partition, end_offset: int, callback: Callback, later: Later[Any], /
    ) -> bool: ...


class RoundWait:
    """Who waits for one partition, and the highest end that any of them waits for.

    While it waits, the partition counts a job: its log must not be closed under a coming fsync.
    """

    __slots__ = ("appending", "callbacks", "end_offset", "laters", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.end_offset = 0
        self.callbacks: list[Callback] = []
        # Of those whose answers may lie ready; for the journal's writer only.
        self.laters: list[Later[Any]] = []
        # Whose batches are not in the log yet.
        self.appending: list[Appending] = []
        partition.enter()

    def __len__(self) -> int:
        """How many they are."""
        return len(self.callbacks) + len(self.appending)

    def join(self, other: RoundWait) -> None:
        """Takes over who waits in another one for the same partition."""
        self.end_offset = max(self.end_offset, other.end_offset)
        self.callbacks += other.callbacks
        other.partition.leave()

    def answer(self, error: BaseException | None) -> None:
        """Ends the wait of all."""
        self.partition.leave()
        if isinstance(error, OSError):
            message = f"{self.partition.name} is not durable: {error}"
            error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
        for callback in self.callbacks:
            try:
                callback(error)
            except Exception:
                # One of many, who all have to be told.
                logger.exception("telling who waits for %s failed", self.partition.name)

    def append(
        self,
        call_when_durable: CallWhenDurable,
        refused: list[tuple[RoundWait, BaseException | None]],
    ) -> bytes | None:
        """Appends the batches that have come; gives what was written, if that was all of them
        together. Adds to `refused` who is to hear of an error. Who needs a thread for his append
        waits for a later round."""
        appending, self.appending = self.appending, []
        log = self.partition.log
        try:
            written = self.partition.append_together(appending)
        except Exception as error:
            # Also what is our bug: it must not keep the others of the round from their answers.
            refused.append((self._refused(appending), error))
            return None
        if written is None:
            for each in appending:
                try:
                    self._append_alone(each, call_when_durable)
                except Exception as error:
                    refused.append((self._refused([each]), error))
            return None
        log_start_offset = log.log_start_offset
        for each in appending:
            each.appended(each.header.base_offset, NO_TIMESTAMP, log_start_offset)
            self.callbacks.append(each.durable)
            self.laters.append(each.later)
        self.end_offset = log.end_offset
        return written

    def _append_alone(self, appending: Appending, call_when_durable: CallWhenDurable) -> None:
        """Appends one batch as any other."""
        partition = self.partition
        appended = partition.append(appending.batch, appending.header)
        if isinstance(appended, asyncio.Future):
            appended.add_done_callback(
                functools.partial(_appended, partition, appending, call_when_durable)
            )
            return
        _tell(appending, appended)
        self.callbacks.append(appending.durable)
        self.laters.append(appending.later)
        self.end_offset = max(self.end_offset, appended.last_offset + 1)

    def _refused(self, appending: list[Appending]) -> RoundWait:
        refused = RoundWait(self.partition)
        refused.callbacks += [each.durable for each in appending]
        return refused


def _tell(appending: Appending, appended: Appended) -> None:
    base_offset, _, log_append_time_ms, log_start_offset, _ = appended
    appending.appended(base_offset, log_append_time_ms, log_start_offset)


def _appended(
    partition: Partition,
    appending: Appending,
    call_when_durable: CallWhenDurable,
    done: asyncio.Future[Appended],
) -> None:
    """A thread is done with an append."""
    error = done.exception()
    if error is None:
        appended = done.result()
        _tell(appending, appended)
        end_offset, later = appended.last_offset + 1, appending.later
        if call_when_durable(partition, end_offset, appending.durable, later):
            return
    appending.durable(error)
