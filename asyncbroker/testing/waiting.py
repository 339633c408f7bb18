"""Waiting until a broker is as a test wants it, and saying how it was when the time was over.

The broker is looked at every few milliseconds: what a test waits for may come with a request, with
a timer or by its own hand, and looking is cheap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asyncbroker.protocol.errors import KafkaError
from asyncbroker.testing.hands import Record, count_records, look_at_group, read_records

if TYPE_CHECKING:
    from asyncbroker.broker import Broker

LOOK_SECONDS: Final = 0.005


class WaitTimedOut(AssertionError):
    """What was waited for has not come; the message says what there was instead."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What has to be there: so many records in a topic, members in a group, a state of it. All of
    it at once."""

    records: int | None = None
    topic: str | None = None
    group: str | None = None
    members: int | None = None
    state: str | None = None
    until: Callable[[], bool] | None = None

    def check(self) -> None:
        """Raises ValueError for what does not go together."""
        if (self.records is None) != (self.topic is None):
            raise ValueError("wait for records=N in topic=NAME: both or neither")
        if self.group is None and (self.members is not None or self.state is not None):
            raise ValueError("members and state are those of group=NAME")
        if self.group is not None and self.members is None and self.state is None:
            raise ValueError("wait for members=N or state=NAME of the group")
        if self.topic is None and self.group is None and self.until is None:
            raise ValueError("there is nothing to wait for")

    def missing(self, broker: Broker) -> str | None:
        """What is not as it should be; None when all is."""
        if self.topic is not None and self.records is not None:
            count = count_records(broker, self.topic)
            if count < self.records:
                return f"topic {self.topic} has {count} records, not {self.records}"
        if self.group is not None:
            try:
                group = look_at_group(broker, self.group)
            except KafkaError as error:
                return f"group {self.group} cannot be looked at: {error}"
            has_members = self.members is None or len(group.members) == self.members
            if not has_members or (self.state is not None and group.state != self.state):
                parts = [] if self.members is None else [f"{self.members} members"]
                parts += [] if self.state is None else [f"the state {self.state}"]
                return f"not {' in '.join(parts)}, but:\n{group.describe()}"
        if self.until is not None and not self.until():
            return "the condition does not hold"
        return None


async def wait_for(
    broker_now: Callable[[], Broker], wanted: Wanted, timeout: float
) -> list[Record]:
    """Returns the topic's records, if it is records that were waited for. Raises WaitTimedOut."""
    # As with the assertions, the test's line is what pytest is to show.
    __tracebackhide__ = True
    wanted.check()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while (missing := wanted.missing(broker_now())) is not None:
        if loop.time() >= deadline:
            raise WaitTimedOut(f"after {timeout:g} s: {missing}")
        await asyncio.sleep(LOOK_SECONDS)
    return [] if wanted.topic is None else read_records(broker_now(), wanted.topic)
