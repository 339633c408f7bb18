"""Which logs a broker compacts, when, and what makes it stop."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from asyncbroker.broker import MEMORY_DIRECTORY
from asyncbroker.log.checkpoints import (
    CLEANER_OFFSETS,
    RECOVERY_POINTS,
    TopicPartition,
    decode_offsets,
)
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from asyncbroker.protocol.records import Record, build_batch
from asyncbroker.tests.data_path_harness import (
    NOW_MS,
    UnderTest,
    batch_of,
    forget_clean_stop,
    records_in,
    settle,
    under_test,
)
from asyncbroker.tests.groups_harness import OFFSETS, commit, committed, heartbeat, join_alone

BACKOFF_SECONDS = 15
DAY_SECONDS = 86_400


async def put(
    t: UnderTest, key: bytes, value: bytes | None, *, topic: str = "flights", index: int = 0
) -> None:
    """Produces a record, later than all before, so that with `segment.ms` 1 it begins a segment."""
    t.clock.advance(0.01)
    batch = build_batch([Record(0, t.clock.wall_ms(), key, value)])
    outcome = await t.produce(batch, topic=topic, index=index)
    assert outcome.error_code == 0


async def values(t: UnderTest, *, topic: str = "flights", index: int = 0) -> list[bytes | None]:
    """All values, read from the beginning as a consumer reads them."""
    found: list[bytes | None] = []
    offset = 0
    partition = t.broker.topics.get(topic).partitions[index]  # type: ignore[union-attr]
    while offset < partition.high_watermark:
        answer = await t.fetch(offset, topic=topic, index=index)
        records = list(records_in(answer))
        if not records:
            offset += 1
            continue
        found += [record.value for record in records if record.offset >= offset]
        offset = records[-1].offset + 1
    return found


async def look(t: UnderTest) -> None:
    """Lets the cleaner look at all logs once."""
    t.clock.advance(BACKOFF_SECONDS)
    await settle()


def written(t: UnderTest, name: str) -> dict[TopicPartition, int]:
    return decode_offsets(t.files.read_whole(f"{MEMORY_DIRECTORY}/{name}"))


async def test_a_compacted_topic_is_compacted() -> None:
    async with under_test() as t:
        await t.topic(cleanup_policy="compact", segment_ms="1")
        await t.topic("other", segment_ms="1")
        for at in range(4):
            await put(t, b"a", b"%d" % at)
            await put(t, b"a", b"%d" % at, topic="other")
        await look(t)
        assert await values(t) == [b"2", b"3"]  # the last one is in the newest segment
        assert await values(t, topic="other") == [b"0", b"1", b"2", b"3"]


async def test_it_waits_until_enough_is_dirty() -> None:
    async with under_test() as t:
        await t.topic(cleanup_policy="compact", segment_ms="1", min_cleanable_dirty_ratio="0.6")
        for at in range(3):
            await put(t, b"%d" % at, b"1")
        await look(t)
        await put(t, b"1", b"2")
        await look(t)
        assert await values(t) == [b"1", b"1", b"1", b"2"]
        for at in range(3):
            await put(t, b"x", b"%d" % at)
        await look(t)
        assert await values(t) == [b"1", b"1", b"2", b"1", b"2"]


async def test_no_record_stays_uncompacted_longer_than_the_lag() -> None:
    async with under_test() as t:
        # The newest segment is not rolled by its size, but by the lag.
        await t.topic(
            cleanup_policy="compact", min_cleanable_dirty_ratio="1", max_compaction_lag_ms="60000"
        )
        await put(t, b"a", b"1")
        await put(t, b"a", b"2")
        await look(t)
        assert await values(t) == [b"1", b"2"]
        t.clock.advance(61)
        await put(t, b"b", b"1")
        await look(t)
        assert await values(t) == [b"2", b"1"]


async def test_tombstones_go_when_their_time_has_come() -> None:
    async with under_test() as t:
        await t.topic(cleanup_policy="compact", segment_ms="1")
        await put(t, b"a", b"1")
        await put(t, b"a", None)
        await put(t, b"b", b"1")
        await look(t)
        assert await values(t) == [None, b"1"]
        t.clock.advance(DAY_SECONDS - 1)
        await settle()
        assert await values(t) == [None, b"1"]
        t.clock.advance(BACKOFF_SECONDS)
        await settle()
        assert await values(t) == [b"1"]


async def test_settings_count_from_the_next_look_on() -> None:
    async with under_test() as t:
        topic = await t.topic(cleanup_policy="delete", segment_ms="1")
        for at in range(4):
            await put(t, b"a", b"%d" % at)
        await look(t)
        assert len(await values(t)) == 4
        await t.broker.topics.set_overrides(topic, {"cleanup.policy": "compact"})
        await look(t)
        assert await values(t) == [b"2", b"3"]


async def test_without_the_cleaner_nothing_is_compacted() -> None:
    async with under_test(log_cleaner_enable="false") as t:
        await t.topic(cleanup_policy="compact", segment_ms="1")
        for at in range(4):
            await put(t, b"a", b"%d" % at)
        await look(t)
        assert len(await values(t)) == 4


async def test_how_far_a_log_is_compacted_outlives_a_restart_and_not_the_topic() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic(cleanup_policy="compact", segment_ms="1")
        for at in range(4):
            await put(t, b"a", b"%d" % at)
        await look(t)
        assert written(t, CLEANER_OFFSETS) == {("flights", 0): 3}
        # Nothing is rewritten that a start might replay older bytes onto.
        assert written(t, RECOVERY_POINTS)["flights", 0] >= 3
    forget_clean_stop(files)
    async with under_test(files=files, metadata=metadata) as t:
        assert await values(t) == [b"2", b"3"]
        assert t.broker._logs.cleaner_offset("flights", 0) == 3
        topic = t.broker.topics.get("flights")
        assert topic is not None
        await t.broker.topics.delete(topic)
        assert written(t, CLEANER_OFFSETS) == {}


async def test_damage_keeps_its_log_from_being_compacted_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = MemoryFiles()
    async with under_test(files=files) as t:
        await t.topic(partitions=2, cleanup_policy="compact", segment_ms="1")
        for index in range(2):
            for at in range(4):
                await put(t, b"a", b"%d" % at, index=index)
        path = f"{MEMORY_DIRECTORY}/flights-0/{1:020d}.log"
        file = files.open(path)
        file.pwrite(b"!", 65)
        await look(t)
        assert await values(t, index=1) == [b"2", b"3"]
        assert "flights-0 is not compacted any more" in caplog.text
        size = file.size()
        caplog.clear()
        await look(t)
        assert "flights-0" not in caplog.text
        assert files.open(path).size() == size


async def test_a_full_disk_passes() -> None:
    files = MemoryFiles()
    async with under_test(files=files) as t:
        await t.topic(cleanup_policy="compact", segment_ms="1")
        for at in range(4):
            await put(t, b"a", b"%d" % at)

        def refuse(operation: str, path: str) -> None:
            if operation == "pwrite" and path.endswith(".cleaned"):
                raise OSError(errno.ENOSPC, "no space", path)

        files.on_call = refuse
        await look(t)
        assert len(await values(t)) == 4
        assert not [n for n in files.list_files(f"{MEMORY_DIRECTORY}/flights-0") if "clean" in n]
        files.on_call = None
        await look(t)
        assert await values(t) == [b"2", b"3"]


async def test_an_error_between_two_names_takes_the_partition_offline_until_a_start() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic(cleanup_policy="compact", segment_ms="1")
        for at in range(4):
            await put(t, b"a", b"%d" % at)

        def refuse(operation: str, path: str) -> None:
            if operation == "rename" and path.endswith(".log.swap"):
                raise OSError(errno.EIO, "broken", path)

        files.on_call = refuse
        await look(t)
        files.on_call = None
        partition = t.broker.topics.get("flights").partitions[0]  # type: ignore[union-attr]
        assert not partition.is_readable()
    forget_clean_stop(files)
    async with under_test(files=files, metadata=metadata) as t:
        assert await values(t) == [b"2", b"3"]


async def test_a_lack_of_descriptors_between_two_names_passes() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    is_between = False
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic(cleanup_policy="compact", segment_ms="1")
        for at in range(4):
            await put(t, b"a", b"%d" % at)

        def refuse(operation: str, path: str) -> None:
            nonlocal is_between
            is_between |= operation == "rename"
            if operation == "sync_directory" and is_between:
                raise OSError(errno.EMFILE, "too many open files", path)

        files.on_call = refuse
        await look(t)
        files.on_call = None
        names = files.list_files(f"{MEMORY_DIRECTORY}/flights-0")
        assert any(name.endswith(".swap") for name in names)
        assert await values(t) == [b"2", b"3"]
        await put(t, b"a", b"4")
        await look(t)
        names = files.list_files(f"{MEMORY_DIRECTORY}/flights-0")
        assert not any(name.endswith((".swap", ".cleaned")) for name in names)
        assert await values(t) == [b"3", b"4"]


SLOW: dict[str, Any] = {"log_cleaner_io_max_bytes_per_second": "100000"}


async def slow_topic(t: UnderTest) -> None:
    """A topic whose compaction takes a minute, and is under way."""
    await t.topic(cleanup_policy="compact", segment_ms="1")
    for _ in range(6):
        t.clock.advance(0.01)
        await t.produce(batch_of(value=bytes(900_000), timestamp=t.clock.wall_ms()))
    await look(t)
    assert t.broker.topics.partition_count == 1


async def test_the_speed_is_limited() -> None:
    async with under_test(**SLOW) as t:
        await slow_topic(t)
        partition = t.broker.topics.get("flights").partitions[0]  # type: ignore[union-attr]
        before = partition.log.size
        t.clock.advance(40)
        await settle()
        assert partition.log.size == before  # it still reads for the first time
        for _ in range(30):
            t.clock.advance(10)
            await settle()
        assert partition.log.size < before / 2


async def test_a_stop_does_not_wait_for_the_end_of_a_cleaning() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata, **SLOW) as t:
        await slow_topic(t)
    names = files.list_files(f"{MEMORY_DIRECTORY}/flights-0")
    assert not [name for name in names if name.endswith(".cleaned")]
    async with under_test(files=files, metadata=metadata) as t:
        assert len(await values(t)) == 6


async def test_a_topic_may_be_deleted_while_it_is_compacted() -> None:
    async with under_test(**SLOW) as t:
        await slow_topic(t)
        topic = t.broker.topics.get("flights")
        assert topic is not None
        deletion = t.broker.topics.delete(topic)
        for _ in range(20):
            t.clock.advance(10)
            await settle()
        assert deletion.done()
        assert t.files.list_directories(MEMORY_DIRECTORY) == []


async def test_a_topic_that_is_no_longer_compacted_is_left_alone() -> None:
    async with under_test(**SLOW) as t:
        await slow_topic(t)
        topic = t.broker.topics.get("flights")
        assert topic is not None
        await t.broker.topics.set_overrides(topic, {"cleanup.policy": "delete"})
        for _ in range(30):
            t.clock.advance(10)
            await settle()
        assert len(await values(t)) == 6


async def test_a_cleaned_log_can_be_listed_by_time() -> None:
    async with under_test() as t:
        await t.topic(cleanup_policy="compact", segment_ms="1")
        for at in range(6):
            await put(t, b"%d" % (at % 2), b"%d" % at)
        await look(t)
        partition = t.broker.topics.get("flights").partitions[0]  # type: ignore[union-attr]
        found = partition.log.offset_for_timestamp(NOW_MS, partition.high_watermark)
        assert found is not None
        assert found.offset == 3


async def test_groups_are_loaded_from_a_compacted_topic() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic()
        joined = await join_alone(t, session_timeout_ms=60_000)
        partition = t.broker.topics.get(OFFSETS).partitions[0]  # type: ignore[union-attr]
        partition.set_config(replace(partition.log.config, segment_bytes=2000))
        for number in range(200):
            await commit(t, number, group=f"g{number % 5}")
        await t.ask(DeleteGroupsRequest(["g3"]), 1)
        for number in range(200, 250):
            await commit(t, number, group="g4")
        before = partition.log.size
        await look(t)
        assert partition.log.size < before / 4
        assert await heartbeat(t, joined) is ErrorCode.NONE
    for is_clean in (True, False):
        if not is_clean:
            forget_clean_stop(files)
        async with under_test(files=files, metadata=metadata) as t:
            await settle()
            assert await committed(t, "g2") == {"flights": 197}
            assert await committed(t, "g3") == {}
            assert await committed(t, "g4") == {"flights": 249}
            assert await heartbeat(t, joined) is ErrorCode.NONE


async def test_a_wall_clock_that_jumps_ahead_drops_no_tombstone_for_an_hour() -> None:
    async with under_test() as t:
        await t.topic(cleanup_policy="compact", segment_ms="1")
        await put(t, b"a", b"1")
        await put(t, b"a", None)
        await put(t, b"b", b"1")
        await look(t)
        assert await values(t) == [None, b"1"]
        t.clock.jump_wall_ms(30 * DAY_SECONDS * 1000)
        for _ in range(3600 // BACKOFF_SECONDS - 1):
            await look(t)
        assert await values(t) == [None, b"1"]
        # Nobody has mended it: then it is right.
        for _ in range(3):
            await look(t)
        assert await values(t) == [b"1"]


async def test_a_wall_clock_that_jumps_ahead_ends_no_compaction_lag_for_an_hour() -> None:
    async with under_test() as t:
        day_ms = str(DAY_SECONDS * 1000)
        await t.topic(cleanup_policy="compact", segment_ms="1", min_compaction_lag_ms=day_ms)
        for at in range(3):
            await put(t, b"a", b"%d" % at)
        t.clock.jump_wall_ms(30 * DAY_SECONDS * 1000)
        for _ in range(3600 // BACKOFF_SECONDS - 1):
            await look(t)
        assert await values(t) == [b"0", b"1", b"2"]
        for _ in range(3):
            await look(t)
        assert await values(t) == [b"1", b"2"]
