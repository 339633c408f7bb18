"""The recurring work: each chore gets its turn again, whatever became of the last one."""

from __future__ import annotations

import pytest

from asyncbroker.log.checkpoints import RECOVERY_POINTS
from asyncbroker.log.files import MemoryFiles
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
