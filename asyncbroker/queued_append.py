"""Appends that a worker thread does: what is to be appended, how long it took, and who waits.

Made and answered on the event loop by `partition.py`; the thread, which runs `append_all`, sets
`seconds`.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from asyncbroker.log.reserve import disk_full
from asyncbroker.protocol.errors import KafkaError
from asyncbroker.storage import PASSING_ERRORS

if TYPE_CHECKING:
    from asyncbroker.log.appended import Appended
    from asyncbroker.log.partition_log import PartitionLog
    from asyncbroker.log.reserve import Reserve
    from asyncbroker.protocol.records import BatchHeader


class QueuedAppend:
    """See the head of this file. `seconds` is None while no thread has tried."""

    __slots__ = ("batch", "future", "header", "is_client", "seconds")

    def __init__(self, batch: bytearray | memoryview, header: BatchHeader, is_client: bool) -> None:
        self.batch = batch
        self.header = header
        self.is_client = is_client
        self.seconds: float | None = None
        self.future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()

    def succeed(self, appended: Appended) -> None:
        """Answers whoever waits, if nobody has gone away."""
        if not self.future.done():
            self.future.set_result(appended)

    def fail(self, error: BaseException) -> None:
        """The same, with what went wrong."""
        if not self.future.done():
            self.future.set_exception(error)


def append_all(
    log: PartitionLog,
    queued: list[QueuedAppend],
    reserve: Reserve,
    *,
    leader_epoch: int,
    now_ms: int,
) -> list[Appended | KafkaError | OSError]:
    """In a thread: appends in order. After an error that does not pass, nothing is tried."""
    append = functools.partial(log.append, leader_epoch=leader_epoch, now_ms=now_ms)
    outcomes: list[Appended | KafkaError | OSError] = []
    broken: OSError | None = None
    for item in queued:
        if broken is not None:
            outcomes.append(broken)
            continue
        began = time.perf_counter()
        try:
            outcomes.append(_append_one(item, append, reserve))
        except KafkaError as error:
            outcomes.append(error)
        except OSError as error:
            outcomes.append(error)
            if error.errno not in PASSING_ERRORS:
                broken = error
        item.seconds = time.perf_counter() - began
    return outcomes


def _append_one(item: QueuedAppend, append: Callable[..., Appended], reserve: Reserve) -> Appended:
    """What the coordinators write has room on a full disk, as far as it goes."""
    append = functools.partial(append, item.batch, item.header, is_client=item.is_client)
    if not item.is_client:
        return reserve.with_room(append, is_vital=False)
    if reserve.is_short:
        raise disk_full()
    return append()
