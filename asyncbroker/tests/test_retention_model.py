"""Retention against a list of records: nothing goes too early, all goes in time, nothing moves.

A seed chooses what is done: records of any age, time, other settings, DeleteRecords, stops and
crashes. The list says after each check of retention where the log has to begin.
"""

from __future__ import annotations

import random
from typing import Final

import pytest

from asyncbroker.clock import ManualClock
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.records import batches, records_of
from asyncbroker.tests.data_path_harness import (
    NOW_MS,
    UnderTest,
    batch_of,
    forget_clean_stop,
    settle,
    under_test,
)
from asyncbroker.tests.long import IS_LONG

SEEDS: Final = 400 if IS_LONG else 25
STEPS: Final = 30
VALUE_BYTES: Final = 250_000
MINUTE_MS: Final = 60_000
CHECK_SECONDS: Final = 300
DIRECTORY: Final = "memory/flights-0"


class Model:
    """`timestamps` are the records, from offset 0 on; each is a batch of its own."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.timestamps: list[int] = []
        self.start = 0
        self.retention_ms = 60 * MINUTE_MS
        self.retention_bytes = -1
        self.batch_bytes = len(batch_of(1, value=self.value(0)))

    def value(self, number: int) -> bytes:
        return b"%08d" % number + bytes(VALUE_BYTES)

    def expected_start(self, bases: list[int], now_ms: int) -> int:
        """Where the log begins after a check, if its segments begin at `bases`."""
        start, end = self.start, len(self.timestamps)
        left = (end - bases[0]) * self.batch_bytes
        for base, following in zip(bases, [*bases[1:], end], strict=True):
            records = self.timestamps[base:following]
            is_newest = following == end and base == bases[-1]
            left -= len(records) * self.batch_bytes
            is_too_old = self.retention_ms >= 0 and all(
                now_ms - timestamp > self.retention_ms for timestamp in records
            )
            is_too_much = 0 <= self.retention_bytes <= left
            is_below = following <= self.start and not is_newest
            if not records or not (is_too_old or is_too_much or is_below):
                break
            start = max(start, following)
        return start


def log_of(t: UnderTest) -> tuple[int, int]:
    """Where the log begins and ends, after a look at all that it holds."""
    topic = t.broker.topics.get("flights")
    assert topic is not None
    [partition] = topic.partitions
    start, end = partition.log_start_offset, partition.log.end_offset
    found: list[tuple[int, int]] = []
    while (at := found[-1][0] + 1 if found else start) < end:
        located = partition.log.locate(at, 1 << 30, end_offset=end)
        assert located is not None
        found += (
            (record.offset, int((record.value or b"")[:8]))
            for header, batch in batches(located.read())
            for record in records_of(batch, header)
        )
    assert found == [(offset, offset) for offset in range(start, end)]
    return start, end


async def step(t: UnderTest, model: Model) -> None:
    chance = model.chance
    topic = t.broker.topics.get("flights")
    assert topic is not None
    kind = chance.choice(("append", "append", "append", "time", "time", "settings", "delete"))
    if kind == "append":
        for _ in range(chance.randint(1, 6)):
            age_ms = chance.choice((0, 0, -30 * MINUTE_MS, chance.randrange(120 * MINUTE_MS)))
            timestamp = t.clock.wall_ms() - age_ms
            value = model.value(len(model.timestamps))
            outcome = await t.produce(batch_of(1, value=value, timestamp=timestamp))
            assert outcome.error_code == 0
            model.timestamps.append(timestamp)
    elif kind == "settings":
        model.retention_ms = chance.choice((-1, 0, 20, 60, 100)) * MINUTE_MS
        model.retention_ms = max(model.retention_ms, -1)
        model.retention_bytes = chance.choice((-1, -1, 0, 5)) * model.batch_bytes
        model.retention_bytes = max(model.retention_bytes, -1)
        overrides = {
            "segment.bytes": "1048576",
            "retention.ms": str(model.retention_ms),
            "retention.bytes": str(model.retention_bytes),
        }
        await t.broker.topics.set_overrides(topic, overrides)
    elif kind == "delete":
        model.start = chance.randint(model.start, len(model.timestamps))
        [moved] = await t.broker.log_starts.advance([(topic.partitions[0], model.start)])
        assert moved == model.start
    else:
        for _ in range(chance.randint(1, 5)):
            await check(t, model)
    assert log_of(t) == (model.start, len(model.timestamps))


async def check(t: UnderTest, model: Model) -> None:
    """Lets time pass until retention has looked once."""
    topic = t.broker.topics.get("flights")
    assert topic is not None
    bases = [segment.base_offset for segment in topic.partitions[0].log.segments]
    t.clock.advance(CHECK_SECONDS)
    model.start = model.expected_start(bases, t.clock.wall_ms())
    await settle()
    await settle()
    assert log_of(t) == (model.start, len(model.timestamps))


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_retention_deletes_what_a_list_says_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    model = Model(chance)
    files, metadata, clock = MemoryFiles(), MemoryMetadataStore(), ManualClock(wall_ms=NOW_MS)
    is_made = False
    for _ in range(3):
        async with under_test(files=files, metadata=metadata, clock=clock) as t:
            if not is_made:
                is_made = True
                await t.topic(segment_bytes="1048576", retention_ms=str(model.retention_ms))
            assert log_of(t) == (model.start, len(model.timestamps))
            for _ in range(STEPS // 3):
                await step(t, model)
        if chance.random() < 0.5:
            forget_clean_stop(files)
    # Nothing that is no part of the log is left for good.
    async with under_test(files=files, metadata=metadata, clock=clock) as t:
        await settle()
        names = files.list_files(DIRECTORY)
        assert not [name for name in names if name.endswith(".deleted")]
        assert log_of(t) == (model.start, len(model.timestamps))
