"""An append that a worker thread does: what is to be appended, how long it took, and who waits.

Made and answered on the event loop by `partition.py`; the thread sets `seconds`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncbroker.log.partition_log import Appended
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
