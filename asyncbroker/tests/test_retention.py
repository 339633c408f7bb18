"""Retention: what goes, when, and that nothing else does; over a broker whose clock is moved."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.log_harness import copied
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.tests.data_path_harness import (
    NOW_MS,
    UnderTest,
    batch_of,
    forget_clean_stop,
    idempotent,
    offsets_of,
    settle,
    under_test,
)
from asyncbroker.tests.held_workers import HeldWorkers

HOUR = 3600
DAY = 24 * HOUR
DIRECTORY = "memory/flights-0"
RECORD_BYTES = 300_000


def log_of(t: UnderTest) -> PartitionLog:
    topic = t.broker.topics.get("flights")
    assert topic is not None
    return topic.partitions[0].log


def files_of(t: UnderTest, suffix: str = ".log") -> list[int]:
    names = t.files.list_files(DIRECTORY)
    return sorted(int(name[: -len(suffix)]) for name in names if name.endswith(suffix))


async def fill(t: UnderTest, count: int, *, timestamp: int | None = None) -> None:
    """Appends records of which three are a segment, as old as the clock says."""
    for _ in range(count):
        now = t.clock.wall_ms() if timestamp is None else timestamp
        batch = batch_of(1, value=bytes(RECORD_BYTES), timestamp=now)
        assert (await t.produce(batch)).error_code == 0


def image_of(files: MemoryFiles) -> MemoryFiles:
    """The files as they are now, for another broker."""
    image = copied(files)
    image._directories = {path: set(names) for path, names in files._directories.items()}
    return image


async def check(t: UnderTest, seconds: float = 300) -> None:
    """Lets time pass, until the next check of retention is over."""
    t.clock.advance(seconds)
    await settle()


SMALL: dict[str, Any] = {"segment_bytes": "1048576"}


async def test_segments_older_than_retention_ms_go_and_younger_ones_stay() -> None:
    async with under_test() as t:
        await t.topic(**SMALL, retention_ms=str(2 * HOUR * 1000))
        await fill(t, 3)
        await check(t, HOUR)
        await fill(t, 5)
        await check(t, HOUR)
        assert log_of(t).log_start_offset == 0
        await check(t)
        assert log_of(t).log_start_offset == 3
        assert files_of(t) == [3, 6]
        assert (await t.fetch(2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert offsets_of(await t.fetch(3)) == [3, 4, 5]
        assert offsets_of(await t.fetch(6)) == [6, 7]


async def test_the_newest_segment_is_rolled_when_all_of_it_is_too_old() -> None:
    async with under_test() as t:
        await t.topic(retention_ms="1000")
        await fill(t, 4)
        await check(t)
        log = log_of(t)
        assert (log.log_start_offset, log.end_offset, log.size) == (4, 4, 0)
        assert files_of(t) == [4]
        await fill(t, 1)
        assert offsets_of(await t.fetch(4)) == [4]
        await check(t)
        assert files_of(t) == [5]
        # An empty newest segment stays what it is.
        await check(t)
        assert files_of(t) == [5]


async def test_size_retention_keeps_at_least_so_many_bytes() -> None:
    async with under_test() as t:
        await t.topic(**SMALL, retention_ms="-1", retention_bytes=str(4 * RECORD_BYTES))
        await fill(t, 6)
        await check(t)
        # Without the first segment there would be less than is to be kept.
        assert files_of(t) == [0, 3]
        await fill(t, 2)
        await check(t)
        assert files_of(t) == [3, 6]
        assert log_of(t).size >= 4 * RECORD_BYTES
        await check(t)
        assert files_of(t) == [3, 6]


async def test_what_is_altered_counts_at_the_next_check() -> None:
    async with under_test() as t:
        topic = await t.topic(**SMALL)
        await fill(t, 4)
        await check(t, HOUR)
        assert files_of(t) == [0, 3]
        settings = {"segment.bytes": "1048576", "retention.ms": "1"}
        await t.broker.topics.set_overrides(topic, settings)
        assert files_of(t) == [0, 3]
        await check(t)
        assert files_of(t) == [4]


async def test_the_brokers_settings_are_those_of_topics_without_their_own() -> None:
    async with under_test(log_retention_hours="1", log_retention_check_interval_ms="1000") as t:
        await t.topic()
        await fill(t, 1)
        await check(t, HOUR - 1)
        assert files_of(t) == [0]
        await check(t, 2)
        await check(t, 1)
        assert files_of(t) == [1]


async def test_a_compacted_topic_keeps_everything_but_what_is_below_its_start() -> None:
    async with under_test() as t:
        await t.topic(**SMALL, cleanup_policy="compact", retention_ms="1", retention_bytes="1")
        await fill(t, 4)
        await check(t)
        assert files_of(t) == [0, 3]
        log_of(t).log_start_offset = 3
        await check(t)
        assert files_of(t) == [3]


async def test_a_topic_with_both_policies_is_deleted_from() -> None:
    async with under_test() as t:
        await t.topic(**SMALL, cleanup_policy="compact,delete", retention_ms="1")
        await fill(t, 4)
        await check(t)
        assert files_of(t) == [4]


async def test_a_record_from_the_future_keeps_its_segment_and_what_came_later() -> None:
    async with under_test() as t:
        hour_ahead = NOW_MS + HOUR * 1000
        await t.topic(**SMALL, retention_ms="1000")
        await fill(t, 1, timestamp=hour_ahead)
        await fill(t, 4)
        await check(t)
        assert files_of(t) == [0, 3]
        await check(t, HOUR - 300)
        await check(t, 300)
        assert files_of(t) == [5]


async def test_records_without_timestamps_age_from_the_making_of_their_segment() -> None:
    async with under_test() as t:
        await t.topic(retention_ms=str(HOUR * 1000))
        await fill(t, 1, timestamp=-1)
        await check(t, HOUR)
        assert files_of(t) == [0]
        await check(t)
        assert files_of(t) == [1]


async def test_nothing_above_the_high_watermark_goes() -> None:
    async with under_test() as t:
        topic = await t.topic(**SMALL, retention_ms="1")
        await fill(t, 5)
        topic.partitions[0].high_watermark = 4
        await check(t)
        assert files_of(t) == [3]
        assert log_of(t).log_start_offset == 3


async def test_a_reader_keeps_what_it_holds() -> None:
    async with under_test() as t:
        topic = await t.topic(**SMALL, retention_ms="1", file_delete_delay_ms="0")
        await fill(t, 2)
        held = topic.partitions[0].locate(0, 1 << 20)
        assert held is not None
        before = held.read()
        await check(t)
        assert files_of(t, ".log.deleted") == []
        assert held.read() == before


async def test_files_go_after_file_delete_delay() -> None:
    async with under_test() as t:
        await t.topic(retention_ms="1", file_delete_delay_ms="5000")
        await fill(t, 1)
        await check(t)
        assert files_of(t, ".log.deleted") == [0]
        await check(t, 4)
        assert files_of(t, ".log.deleted") == [0]
        await check(t, 1)
        assert [name for name in t.files.list_files(DIRECTORY) if "deleted" in name] == []


async def test_a_wall_clock_that_jumps_ahead_deletes_nothing_for_an_hour(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with under_test() as t:
        await t.topic(retention_ms=str(2 * DAY * 1000))
        await fill(t, 1)
        await check(t)
        t.clock.jump_wall_ms(10 * 365 * DAY * 1000)
        for _ in range(12):
            await check(t)
        assert "ahead of where it should be" in caplog.text
        assert files_of(t) == [0]
        t.clock.jump_wall_ms(-10 * 365 * DAY * 1000)
        for _ in range(30):
            await check(t)
        assert files_of(t) == [0]
        # A clock that stays where it jumped to is right, as far as anybody can tell.
        t.clock.jump_wall_ms(10 * DAY * 1000)
        for _ in range(12):
            await check(t)
        assert files_of(t) == [0]
        await check(t)
        assert files_of(t) == [1]


async def test_a_start_on_another_day_waits_before_it_deletes() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic(retention_ms=str(HOUR * 1000))
        await check(t)
        await fill(t, 1)
        clock = t.clock
    clock.jump_wall_ms(3 * DAY * 1000)
    async with under_test(files=files, metadata=metadata, clock=clock) as t:
        for _ in range(12):
            await check(t)
        assert files_of(t) == [0]
        await check(t)
        await check(t)
        assert files_of(t) == [1]


async def test_a_clock_that_jumps_before_the_first_look_deletes_nothing_for_an_hour() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic(retention_ms=str(HOUR * 1000))
        await fill(t, 1)
        clock = t.clock
    clock.jump_wall_ms(50 * 365 * DAY * 1000)
    async with under_test(files=files, metadata=metadata, clock=clock) as t:
        for _ in range(12):
            await check(t)
        assert files_of(t) == [0]


async def test_a_start_on_the_same_day_deletes_at_once() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic(retention_ms=str(HOUR * 1000))
        await check(t)
        await fill(t, 1)
        clock = t.clock
    clock.jump_wall_ms(2 * HOUR * 1000)
    async with under_test(files=files, metadata=metadata, clock=clock) as t:
        await check(t)
        assert files_of(t) == [1]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("stage", ["before", "recorded", "renamed", "removed"])
async def test_a_start_in_every_stage_goes_on_with_it(stage: str, is_clean: bool) -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    workers = HeldWorkers()
    async with under_test(files=files, metadata=metadata, workers=workers) as t:
        await t.topic(**SMALL, retention_ms=str(HOUR * 1000))
        await fill(t, 3, timestamp=NOW_MS - 2 * HOUR * 1000)
        await fill(t, 2)
        if stage == "recorded":
            workers.held = {"delete_segments"}
        if stage != "before":
            await check(t)
        assert files_of(t) == ([0, 3] if stage in ("before", "recorded") else [3])
        if stage == "removed":
            await check(t, 60)
        assert bool(files_of(t, ".log.deleted")) == (stage == "renamed")
        crashed = image_of(files) if stage == "recorded" else files
        workers.release()
        clock = t.clock
    if not is_clean:
        forget_clean_stop(crashed)
    async with under_test(files=crashed, metadata=metadata, clock=clock) as t:
        assert log_of(t).log_start_offset == (0 if stage == "before" else 3)
        assert log_of(t).end_offset == 5
        assert offsets_of(await t.fetch(3)) == [3, 4]
        await check(t)
        assert files_of(t) == [3]
        await check(t, 60)
        assert files_of(t, ".log.deleted") == []
        assert (await t.fetch(2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_producer_is_known_after_its_records_are_gone() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic(retention_ms="1000", segment_ms="1000")
        assert (await t.produce(idempotent(0))).base_offset == 0
        await check(t)
        assert files_of(t) == [1]
        assert (await t.produce(idempotent(0))).base_offset == 0  # a repetition
    forget_clean_stop(files)
    async with under_test(files=files, metadata=metadata) as t:
        assert (await t.produce(idempotent(0))).base_offset == 0
        assert (await t.produce(idempotent(1))).base_offset == 1


async def test_files_stay_until_the_new_start_is_recorded() -> None:
    async with under_test() as t:
        await t.topic(**SMALL, retention_ms="1000")
        await fill(t, 4)
        is_full = True

        def full(operation: str, path: str) -> None:
            if is_full and operation == "write_atomically" and "log-start" in path:
                raise OSError(errno.ENOSPC, "No space left on device")

        assert isinstance(t.files, MemoryFiles)
        t.files.on_call = full
        await check(t)
        assert files_of(t) == [0, 3, 4]
        assert log_of(t).log_start_offset == 4
        is_full = False
        await check(t)
        assert files_of(t) == [4]


async def test_an_append_that_comes_in_between_keeps_the_newest_segment() -> None:
    workers = HeldWorkers()
    async with under_test(workers=workers) as t:
        await t.topic(**SMALL, retention_ms="1000")
        await fill(t, 4)
        workers.held = {"_find"}
        await check(t)
        await fill(t, 1)
        workers.release()
        await settle()
        assert files_of(t) == [3]
        assert offsets_of(await t.fetch(4)) == [4]


async def test_segments_that_a_stop_left_deleted_go_after_the_next_start() -> None:
    files = MemoryFiles()
    metadata = MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic(segment_bytes="1048576", retention_bytes="1000000")
        await fill(t, 9)
        await check(t)
        left = [name for name in files.list_files(DIRECTORY) if name.endswith(".deleted")]
        assert left
    removed: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation == "remove":
            removed.append(path)

    files.on_call = note
    async with under_test(files=files, metadata=metadata) as t:
        await settle()
        assert {f"{DIRECTORY}/{name}" for name in left} <= set(removed)
        assert not [name for name in files.list_files(DIRECTORY) if name.endswith(".deleted")]


async def test_a_wall_clock_that_jumps_ahead_expires_no_producers() -> None:
    async with under_test(producer_id_expiration_ms=str(HOUR * 1000)) as t:
        await t.topic()
        await t.produce(idempotent(0))
        t.clock.jump_wall_ms(10 * DAY * 1000)
        t.clock.advance(600)
        await settle()
        assert len(log_of(t).producers) == 1
