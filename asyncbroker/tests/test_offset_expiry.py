"""`offsets.retention.minutes` in a broker: which offsets go, when, for good, and by which clock."""

from __future__ import annotations

from typing import Any

import pytest

from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.tests.data_path_harness import UnderTest, forget_clean_stop, settle, under_test
from asyncbroker.tests.groups_harness import commit, committed, heartbeat, join_alone

HOUR = 3_600
DAY = 24 * HOUR
RETENTION: dict[str, Any] = {
    "offsets_retention_minutes": str(DAY // 60),
    "offsets_retention_check_interval_ms": "60000",
}


async def look(t: UnderTest, seconds: float) -> None:
    """Time goes by, with a look at the offsets each minute."""
    t.clock.advance(seconds)
    await settle()


async def test_offsets_of_a_group_without_members_go_a_day_after_the_commit_for_good() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata, **RETENTION) as t:
        await t.topic()
        await t.topic("trains")
        await commit(t, 5)
        await look(t, HOUR)
        await commit(t, 6, topic="trains")
        await look(t, 23 * HOUR - 120)
        assert await committed(t) == {"flights": 5, "trains": 6}
        await look(t, 240)
        assert await committed(t) == {"trains": 6}
        clock = t.clock
    forget_clean_stop(files)
    async with under_test(files=files, metadata=metadata, clock=clock, **RETENTION) as t:
        await settle()
        assert await committed(t) == {"trains": 6}
        await look(t, HOUR)
        assert await committed(t) == {}


async def test_offsets_of_a_group_with_members_stay() -> None:
    async with under_test(**RETENTION) as t:
        await t.topic()
        await commit(t, 5)
        joined = await join_alone(t, session_timeout_ms=1_800_000)
        for _ in range(2 * DAY // 1500):
            await look(t, 1500)
            assert await heartbeat(t, joined) == 0
        assert await committed(t) == {"flights": 5}


async def test_a_clock_that_jumps_ahead_expires_nothing_for_an_hour(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with under_test(**RETENTION) as t:
        await t.topic()
        await commit(t, 5)
        await look(t, 60)
        t.clock.jump_wall_ms(30 * DAY * 1000)
        await look(t, HOUR - 120)
        assert "ahead of where it should be" in caplog.text
        assert await committed(t) == {"flights": 5}
        # It was a mistake, and is mended in time.
        t.clock.jump_wall_ms(-30 * DAY * 1000)
        await look(t, HOUR)
        assert await committed(t) == {"flights": 5}
        # It stays where it is, and is believed.
        t.clock.jump_wall_ms(30 * DAY * 1000)
        await look(t, HOUR - 120)
        assert await committed(t) == {"flights": 5}
        await look(t, 240)
        assert await committed(t) == {}


async def test_a_clock_that_was_behind_for_a_moment_expires_nothing_for_an_hour() -> None:
    async with under_test(**RETENTION) as t:
        await t.topic()
        await look(t, 60)
        t.clock.jump_wall_ms(-30 * DAY * 1000)
        await commit(t, 5)
        t.clock.jump_wall_ms(30 * DAY * 1000)
        # What was committed meanwhile has a time of 30 days ago.
        await look(t, HOUR - 120)
        assert await committed(t) == {"flights": 5}


@pytest.mark.parametrize("goes_back_while_stopped", [True, False])
async def test_a_clock_that_was_behind_until_a_stop_expires_nothing_for_an_hour(
    goes_back_while_stopped: bool,
) -> None:
    """Simulation seed 640883."""
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata, **RETENTION) as t:
        await t.topic()
        await commit(t, 4)
        await look(t, HOUR)
        clock = t.clock
        if not goes_back_while_stopped:
            clock.jump_wall_ms(-30 * DAY * 1000)
            await look(t, 600)
            assert await commit(t, 5) is ErrorCode.NONE
    if goes_back_while_stopped:
        clock.jump_wall_ms(-30 * DAY * 1000)
        async with under_test(files=files, metadata=metadata, clock=clock, **RETENTION) as t:
            await settle()
            assert await commit(t, 5) is ErrorCode.NONE
    clock.jump_wall_ms(30 * DAY * 1000)
    async with under_test(files=files, metadata=metadata, clock=clock, **RETENTION) as t:
        await settle()
        await look(t, HOUR - 120)
        assert await committed(t) == {"flights": 5}
