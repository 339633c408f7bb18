"""Responses that come later, and the deadlines of those who wait for them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from asyncbroker.clock import ManualClock
from asyncbroker.deadlines import Deadlines
from asyncbroker.later import Later


def test_a_callback_is_told_at_once_and_only_the_first_time() -> None:
    told: list[object] = []
    later: Later[str] = Later()
    later.when_settled(told.append)
    assert not later.is_settled
    later.settle("yes")
    later.settle("no")
    assert told == ["yes"]
    assert later.is_settled


async def test_who_asks_late_is_told_in_the_next_turn() -> None:
    told: list[object] = []
    later: Later[str] = Later()
    later.settle("yes")
    later.when_settled(told.append)
    assert told == []
    await asyncio.sleep(0)
    assert told == ["yes"]


async def test_it_can_be_awaited_before_and_after() -> None:
    later: Later[str] = Later()
    waiting = asyncio.ensure_future(later)
    await asyncio.sleep(0)
    later.settle("yes")
    assert await waiting == "yes"
    settled: Later[str] = Later()
    settled.settle("before")
    assert await settled == "before"


async def test_who_awaits_gets_the_exception_that_it_was_settled_with() -> None:
    later: Later[str] = Later()
    waiting = asyncio.ensure_future(later)
    await asyncio.sleep(0)
    later.settle(KeyError("x"))
    with pytest.raises(KeyError):
        await waiting


async def test_who_gave_up_waiting_is_not_told() -> None:
    later: Later[str] = Later()
    waiting = asyncio.ensure_future(later)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    later.settle("yes")
    assert waiting.cancelled()


# ---- deadlines


@dataclass(eq=False)
class Wait:
    name: str
    deadline: float
    expired: list[str]
    follow: list[Wait] = field(default_factory=list)
    deadlines: Deadlines | None = None

    def expire(self) -> None:
        self.expired.append(self.name)
        for wait in self.follow:
            assert self.deadlines is not None
            self.deadlines.add(wait)


def test_each_expires_when_its_time_has_come_whatever_the_order() -> None:
    clock = ManualClock(monotonic=0.0)
    deadlines = Deadlines(clock)
    expired: list[str] = []
    for name, deadline in (("third", 3.0), ("first", 1.0), ("second", 2.0), ("never", 1.5)):
        wait = Wait(name, deadline, expired)
        deadlines.add(wait)
        if name == "never":
            deadlines.remove(wait)
    clock.advance(0.9)
    assert expired == []
    clock.advance(0.1)
    assert expired == ["first"]
    clock.advance(5.0)
    assert expired == ["first", "second", "third"]
    assert clock.next_deadline() is None


def test_one_that_expires_may_bring_another() -> None:
    clock = ManualClock(monotonic=0.0)
    deadlines = Deadlines(clock)
    expired: list[str] = []
    earlier = Wait("earlier", 2.0, expired)
    deadlines.add(Wait("first", 1.0, expired, [earlier], deadlines))
    deadlines.add(Wait("last", 9.0, expired))
    clock.advance(2.0)
    assert expired == ["first", "earlier"]
    clock.advance(7.0)
    assert expired == ["first", "earlier", "last"]


def test_a_thousand_waits_that_end_in_time_set_one_timer() -> None:
    clock = ManualClock(monotonic=0.0)
    deadlines = Deadlines(clock)
    expired: list[str] = []
    timers = 0
    call_at = clock.call_at

    def counted(when: float, callback: object, *args: object) -> object:
        nonlocal timers
        timers += 1
        return call_at(when, callback, *args)  # type: ignore[arg-type]

    clock.call_at = counted  # type: ignore[method-assign, assignment]
    for _ in range(1000):
        wait = Wait("in time", deadlines.after_ms(30_000), expired)
        deadlines.add(wait)
        deadlines.remove(wait)
        clock.advance(0.01)
    assert timers == 1
    clock.advance(60.0)
    assert expired == []


def test_after_the_end_nobody_is_told() -> None:
    clock = ManualClock(monotonic=0.0)
    deadlines = Deadlines(clock)
    expired: list[str] = []
    deadlines.add(Wait("left", 1.0, expired))
    deadlines.close()
    clock.advance(2.0)
    assert expired == []
    assert clock.next_deadline() is None
