"""The two clocks: the system's through a loop, and the one that tests move."""

from __future__ import annotations

import asyncio
import time

from asyncbroker.clock import ManualClock, SystemClock


def test_callbacks_run_in_order_of_their_deadlines_and_see_the_time_of_theirs() -> None:
    clock = ManualClock(monotonic=10.0, wall_ms=1_000)
    seen: list[tuple[str, float, int]] = []

    def note(name: str) -> None:
        seen.append((name, clock.monotonic(), clock.wall_ms()))

    clock.call_at(12.0, note, "second")
    clock.call_at(11.0, note, "first")
    clock.call_at(12.0, note, "third")
    clock.call_at(15.0, note, "not yet")
    clock.advance(4.0)
    assert seen == [("first", 11.0, 2_000), ("second", 12.0, 3_000), ("third", 12.0, 3_000)]
    assert clock.monotonic() == 14.0
    assert clock.next_deadline() == 15.0


def test_a_callback_set_by_a_callback_runs_in_the_same_move_when_it_is_due() -> None:
    clock = ManualClock(monotonic=0.0)
    seen: list[float] = []

    def again() -> None:
        seen.append(clock.monotonic())
        clock.call_at(clock.monotonic() + 1.0, again)

    clock.call_at(1.0, again)
    clock.advance(3.5)
    assert seen == [1.0, 2.0, 3.0]


def test_a_cancelled_callback_does_not_run() -> None:
    clock = ManualClock(monotonic=0.0)
    seen: list[str] = []
    clock.call_at(1.0, seen.append, "cancelled").cancel()
    clock.advance(2.0)
    assert seen == []
    assert clock.next_deadline() is None


def test_a_deadline_in_the_past_runs_without_moving_time_back() -> None:
    clock = ManualClock(monotonic=5.0)
    seen: list[float] = []
    clock.call_at(1.0, lambda: seen.append(clock.monotonic()))
    clock.advance(0.0)
    assert seen == [5.0]


def test_a_jump_of_the_wall_clock_moves_no_timer() -> None:
    clock = ManualClock(monotonic=0.0, wall_ms=1_000)
    seen: list[str] = []
    clock.call_at(1.0, seen.append, "due")
    clock.jump_wall_ms(-500)
    assert (clock.wall_ms(), clock.monotonic(), seen) == (500, 0.0, [])


async def test_the_system_clock_reads_the_machine_and_calls_back_through_the_loop() -> None:
    loop = asyncio.get_running_loop()
    clock = SystemClock(loop)
    before = time.time() * 1000
    assert before - 1 <= clock.wall_ms() <= time.time() * 1000 + 1
    assert abs(clock.monotonic() - loop.time()) < 1.0
    called = loop.create_future()
    cancelled: list[str] = []
    clock.call_at(clock.monotonic(), cancelled.append, "cancelled").cancel()
    clock.call_at(clock.monotonic(), called.set_result, "called")
    assert await called == "called"
    assert cancelled == []
