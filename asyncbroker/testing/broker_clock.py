"""The broker's time in a test's hands: moved forward by days, stopped, set wrong.

`advance` goes from deadline to deadline, and on only when all is carried out that was due at the
last one; requests that come meanwhile wait until it has arrived. What the broker does now and then
(retention, compaction, expiry of producers and offsets) is done on the way, and once more at the
end, so that a test finds done what could be done by then. On the way a chore's turns become rarer
the longer the jump is, since nobody can look in between: at most a tenth of the way passes between
two of them, and a week costs as many as some minutes.

What clients wait for (an answer, a long poll, a delayed fault) is on their own time, which does not
move.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final

from asyncbroker.testing.arguments import checked_methods

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.testing.node import Node

RUNNING: Final = "running"
FROZEN: Final = "frozen"

# Turns of a chore are no closer than this part of the way so far.
PACE: Final = 0.1

# Rounds of the loop in which what was begun by a timer begins its own work.
ROUNDS: Final = 3


def is_frozen(clock: str) -> bool:
    """What a broker's `clock` argument says. Raises ValueError."""
    if clock not in (RUNNING, FROZEN):
        raise ValueError(f'clock={clock!r}: it is "{RUNNING}", or "{FROZEN}"')
    return clock == FROZEN


@checked_methods
class BrokerClock:
    """The clock of one broker, over all its restarts."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._is_moving = False

    def now(self) -> datetime:
        """The broker's wall time, in UTC."""
        return datetime.fromtimestamp(self._node.clock.wall_ms() / 1000, timezone.utc)

    async def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        ms: float = 0,
        keep_members: bool = False,
    ) -> None:
        """Moves both clocks forward; returns when everything is done that fell due: sessions and
        rebalances in the order of their deadlines, retention, compaction, expiry of offsets and
        producers at the latest at the end. By nothing at all, it has these done now.

        Clients' clocks do not move: members of groups send no heartbeat in the jump, and longer
        ones end their sessions. With `keep_members` sessions and rebalances have as much time left
        afterwards as before. Raises ValueError for less than nothing, NotRunning, and
        RuntimeError while it is being moved already.
        """
        way = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=ms)
        seconds_ahead = way.total_seconds()
        if seconds_ahead < 0:
            raise ValueError("time goes forward; set() sets the wall clock back")
        broker, clock, watch = self._node.broker, self._node.clock, self._node.watch
        if self._is_moving:
            raise RuntimeError("the clock is being moved already")
        self._is_moving = True
        watch.keep_out()
        clock.hold()
        try:
            if keep_members:
                broker.groups.postpone_members(seconds_ahead)
            await _move(self._node, broker, seconds_ahead)
        finally:
            self._is_moving = False
            broker.pace(0.0)
            clock.release()
            watch.let_in()

    def freeze(self) -> None:
        """The time stands still from now on, but for `advance`."""
        self._node.clock.freeze()

    def resume(self) -> None:
        """The time goes on by itself."""
        self._node.clock.resume()

    def set(self, moment: datetime) -> None:
        """Sets the wall clock alone, forward or back, as an operator does; sessions and timers do
        not notice. Raises ValueError for a time without a zone."""
        if moment.tzinfo is None:
            raise ValueError("the time needs a zone: datetime(..., tzinfo=timezone.utc)")
        self._node.clock.set_wall_ms(moment.timestamp() * 1000)


async def _move(node: Node, broker: Broker, seconds: float) -> None:
    clock = node.clock
    start = clock.monotonic()
    target = start + seconds
    await _done(broker)
    while clock.run_next(target):
        broker.pace((clock.monotonic() - start) * PACE)
        await _done(broker)
    broker.hurry()
    while clock.run_next(target):
        await _done(broker)
    for topic in broker.topics:
        for partition in topic.partitions:
            await partition.drain()
    await _done(broker)


async def _done(broker: Broker) -> None:
    """Returns when the broker is done with what it does by itself, as far as it need not wait for
    the clock."""
    quiet_rounds = 0
    while quiet_rounds < ROUNDS:
        if at_work := broker.at_work():
            quiet_rounds = 0
            # A round at a time: a chore at work may come to wait for the clock.
            await asyncio.wait(at_work, timeout=0.001, return_when=asyncio.FIRST_COMPLETED)
        else:
            quiet_rounds += 1
            await asyncio.sleep(0)
