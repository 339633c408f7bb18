"""Topics that come and go: nothing of them stays, on the disk or in memory."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Final

from asyncbroker.log.files import RealFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.segment import Segment
from asyncbroker.partition import Partition
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from asyncbroker.tests.data_path_harness import UnderTest, batch_of, settle, under_test
from asyncbroker.tests.groups_harness import commit
from asyncbroker.topic import Topic

WARM_UP: Final = 10
TIMES: Final = 200
_COUNTED: Final = (Topic, Partition, PartitionLog, Segment)


async def live_once(t: UnderTest) -> None:
    await t.topic(partitions=2, segment_bytes="1048576", retention_ms="1000")
    for index in (0, 1):
        for _ in range(2):
            outcome = await t.produce(batch_of(1, value=bytes(600_000)), index=index)
            assert outcome.error_code == 0
    assert (await t.fetch(0)).error_code == 0
    assert await commit(t, 1) == ErrorCode.NONE
    request = DeleteTopicsRequest(topic_names=["flights"], timeout_ms=1000)
    response = await t.ask(request, 3)
    assert response.responses[0].error_code == 0
    await settle()
    t.clock.advance(1)
    await settle()


async def rest(t: UnderTest) -> None:
    """Until every chore has had its turn, and is done with it."""
    t.clock.advance(601)
    for _ in range(5):
        await settle()


def counts(t: UnderTest, data: Path) -> dict[str, int]:
    gc.collect()
    kinds = Counter(type(each).__name__ for each in gc.get_objects() if type(each) in _COUNTED)
    return {
        **kinds,
        "tasks": sum(each.get_name() not in ("scrub", "compact") for each in asyncio.all_tasks()),
        "directories": sum(each.is_dir() for each in data.iterdir()),
        "files": sum(each.is_file() for each in data.rglob("*")),
        "descriptors": len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
        "threads": threading.active_count(),
        "timers": sum(not timer.is_cancelled for timer in t.clock._timers._heap),
        "open segments": len(t.broker._logs._open_segments._open),
        "unopened": len(t.broker._logs._unopened),
        "names": len(t.broker.topics._names),
        "partitions": t.broker.topics.partition_count,
    }


async def test_topics_that_are_made_and_deleted_leave_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with under_test(
        files=RealFiles(), log_dirs=str(data), log_segment_delete_delay_ms="0"
    ) as t:
        for _ in range(WARM_UP):
            await live_once(t)
        await rest(t)
        before = counts(t, data)
        for _ in range(TIMES):
            await live_once(t)
        await rest(t)
        assert counts(t, data) == before
