"""Fetches that wait for data: each registers with its partitions and is woken once.

A waiting fetch costs one future and one timer, whatever the number of its partitions. An append
tells the waiters of its partition how many bytes came; the one that brings the last missing byte
wakes the fetch, which then looks at all of its partitions again. Deletion of a topic, a partition
that goes offline, shutdown, the deadline and the end of the connection wake it as well.

How many may wait is limited; one more is answered at once with what there is, and its client asks
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from asyncbroker.clock import Clock

if TYPE_CHECKING:
    from asyncbroker.context import RequestContext
    from asyncbroker.partition import Partition


class FetchWaiter:
    """A fetch that waits until its partitions together have `missing_bytes` more."""

    __slots__ = ("future", "missing_bytes")

    def __init__(self, missing_bytes: int) -> None:
        self.missing_bytes = missing_bytes
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def appended(self, size: int) -> None:
        """Counts an append to one of the partitions."""
        self.missing_bytes -= size
        if self.missing_bytes <= 0:
            self.wake()

    def wake(self) -> None:
        """Ends the wait, whatever is there."""
        if not self.future.done():
            self.future.set_result(None)


class FetchWaits:
    """All waiting fetches of the broker."""

    def __init__(self, clock: Clock, *, count_max: int) -> None:
        self._clock = clock
        self._count_max = count_max
        self.count = 0

    def is_full(self) -> bool:
        """Whether one more fetch has to be answered without waiting."""
        return self.count >= self._count_max

    async def wait(
        self,
        seen: Sequence[tuple[Partition, int]],
        missing_bytes: int,
        deadline: float,
        context: RequestContext,
    ) -> None:
        """Returns when there is a reason to look at the partitions again: see above.

        `seen` are the partitions with the high watermarks that the fetch saw when it looked. It may
        have waited since, for the disk or for its turn: what has moved meanwhile wakes nobody.
        """
        if any(partition.has_moved(high_watermark) for partition, high_watermark in seen):
            return
        partitions = [partition for partition, _ in seen]
        waiter = FetchWaiter(missing_bytes)
        for partition in partitions:
            partition.waiters[waiter] = None
        timer = self._clock.call_at(deadline, waiter.wake)
        context.call_when_lost(waiter.wake)
        self.count += 1
        try:
            await waiter.future
        finally:
            self.count -= 1
            timer.cancel()
            for partition in partitions:
                partition.waiters.pop(waiter, None)
