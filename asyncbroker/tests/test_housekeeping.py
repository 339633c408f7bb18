"""The recurring work: each chore gets its turn again, whatever became of the last one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from asyncbroker.cleaner import Cleaner
from asyncbroker.clock import ManualClock, Timer
from asyncbroker.log.checkpoints import RECOVERY_POINTS
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.tests.data_path_harness import batch_of, settle, under_test


async def test_a_chore_that_fails_is_logged_and_gets_its_next_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[str] = []

    def break_first(operation: str, path: str) -> None:
        if operation == "write_atomically" and path.endswith(RECOVERY_POINTS):
            calls.append(path)
            if len(calls) == 1:
                raise ZeroDivisionError("a bug of ours")

    files = MemoryFiles()
    async with under_test(files=files, log_flush_offset_checkpoint_interval_ms="1000") as t:
        await t.topic()
        await t.produce(batch_of(), acks=-1)
        files.on_call = break_first
        t.clock.advance(1)
        await settle()
        assert "checkpoint failed" in caplog.text
        t.clock.advance(1)
        await settle()
        assert len(calls) == 2


class HastyClock(ManualClock):
    """Once in a hurry, whatever is asked for next is due before the loop comes round again."""

    is_in_a_hurry = False

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Timer:
        if self.is_in_a_hurry:
            self.is_in_a_hurry = False
            return asyncio.get_running_loop().call_soon(callback, *args)
        return super().call_at(when, callback, *args)


async def test_a_turn_that_is_due_when_the_last_one_ends_is_known_until_it_ends() -> None:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    clock = HastyClock()
    async with under_test(clock=clock, log_flush_offset_checkpoint_interval_ms="1000"):
        clock.is_in_a_hurry = True
        clock.advance(1)
        await settle()
    assert not errors


async def test_how_often_logs_are_compacted_changes_while_the_broker_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[float] = []

    async def look(_cleaner: Cleaner) -> None:
        looks.append(clock.monotonic())

    monkeypatch.setattr(Cleaner, "check", look)
    clock = ManualClock()
    async with under_test(clock=clock, log_cleaner_backoff_ms="60000") as t:
        start = clock.monotonic()
        await t.broker.set_dynamic_settings(
            "", {"log.cleaner.backoff.ms": "1000"}, validate_only=False
        )
        # What has been begun is waited for.
        for seconds in (59, 1, 1, 1):
            clock.advance(seconds)
            await settle()
        assert [when - start for when in looks] == [60, 61, 62]
