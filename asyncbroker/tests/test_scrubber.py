"""The scrubber: finds damage that nobody reads, at its rate, and is in nobody's way."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from asyncbroker.log.checking import scrub
from asyncbroker.log.config import LogConfig
from asyncbroker.log.damage import DAMAGED_RANGES
from asyncbroker.log.files import RealFiles
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.tests.log_harness import append_each, open_log
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.scrubber import CHECK_SECONDS, Scrubber
from asyncbroker.tests.data_path_harness import UnderTest, batch_of, offsets_of, settle, under_test
from asyncbroker.tests.held_workers import HeldWorkers

BATCH = batch_of(value=bytes(1000))
LOG = f"memory/flights-0/{0:020d}.log"


def scrubber(test: UnderTest) -> Scrubber:
    found = test.broker._housekeeping._scrubber
    assert isinstance(found, Scrubber)
    return found


async def filled(test: UnderTest, count: int = 5) -> None:
    await test.topic(segment_bytes="1048576")
    for _ in range(count):
        await test.produce(batch_of(value=bytes(1000)), acks=-1)


def flip(files: MemoryFiles, position: int) -> None:
    byte = files.read_whole(LOG)[position]
    files.open(LOG).pwrite(bytes([byte ^ 1]), position)


async def test_damage_is_found_before_a_reader_finds_it(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    async with under_test(files=files) as test:
        await filled(test)
        flip(files, 2 * len(BATCH) + 500)
        test.clock.advance(CHECK_SECONDS)
        await settle()
        test.clock.advance(1)
        await settle()
        assert "is damaged: offset 2" in caplog.text
        assert scrubber(test).damaged_ranges_found == 1
        assert scrubber(test).bytes_read == 5 * len(BATCH)
        assert DAMAGED_RANGES in files.list_files("memory/flights-0")
        assert ErrorCode((await test.fetch(2)).error_code) is ErrorCode.CORRUPT_MESSAGE
        assert offsets_of(await test.fetch(0)) == [0, 1]
        assert offsets_of(await test.fetch(3)) == [3, 4]


async def test_it_can_be_off() -> None:
    async with under_test(asyncbroker_scrub_bytes_per_second="0") as test:
        await filled(test)
        test.clock.advance(10 * CHECK_SECONDS)
        await settle()
        assert scrubber(test).bytes_read == 0


async def test_it_keeps_to_its_rate_and_to_its_interval() -> None:
    async with under_test(
        asyncbroker_scrub_bytes_per_second=str(len(BATCH)),
        asyncbroker_scrub_interval_ms="3600000",
    ) as test:
        await test.topic(partitions=2)
        for index in (0, 1):
            for _ in range(5):
                await test.produce(batch_of(value=bytes(1000)), index=index, acks=-1)
        test.clock.advance(CHECK_SECONDS)
        await settle()
        assert scrubber(test).bytes_read == 5 * len(BATCH)
        test.clock.advance(4)
        await settle()
        assert scrubber(test).bytes_read == 5 * len(BATCH)
        test.clock.advance(1)
        await settle()
        assert scrubber(test).bytes_read == 10 * len(BATCH)
        for seconds in (5, 3000):
            test.clock.advance(seconds)
            await settle()
        assert scrubber(test).bytes_read == 10 * len(BATCH)
        for _ in range(20):
            test.clock.advance(CHECK_SECONDS)
            await settle()
        assert scrubber(test).bytes_read == 20 * len(BATCH)


async def test_after_a_slice_that_took_long_it_rests_longer() -> None:
    workers = HeldWorkers()
    async with under_test(workers=workers) as test:
        await test.topic(partitions=2)
        for index in (0, 1):
            await test.produce(BATCH, index=index, acks=-1)
        workers.held = {"scrub"}
        test.clock.advance(CHECK_SECONDS)
        await settle()
        test.clock.advance(1)
        workers.release()
        await settle()
        assert scrubber(test).bytes_read == len(BATCH)
        test.clock.advance(18.9)
        await settle()
        assert scrubber(test).bytes_read == len(BATCH)
        test.clock.advance(0.2)
        await settle()
        assert scrubber(test).bytes_read == 2 * len(BATCH)


async def test_it_stops_with_the_broker_while_it_waits() -> None:
    async with under_test(asyncbroker_scrub_bytes_per_second="1") as test:
        await filled(test)
        test.clock.advance(CHECK_SECONDS)
        await settle()
        assert scrubber(test).bytes_read == 5 * len(BATCH)
        await asyncio.wait_for(test.broker.stop(), 10)


async def test_logs_that_are_deleted_and_disks_that_fail_do_not_end_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = MemoryFiles()
    async with under_test(files=files) as test:
        for name in ("a", "b", "c"):
            await test.topic(name)
            await test.produce(batch_of(), topic=name, acks=-1)

        def fail(operation: str, path: str) -> None:
            if operation == "pread" and "/b-0/" in path:
                raise OSError(errno.EIO, "Input/output error", path)

        files.on_call = fail
        test.clock.advance(CHECK_SECONDS)
        await settle()
        topic = test.broker.topics.get("a")
        assert topic is not None
        await test.broker.topics.delete(topic)
        for _ in range(4):
            test.clock.advance(1)
            await settle()
        assert scrubber(test).read_errors == 1
        assert "b-0 cannot be read" in caplog.text
        assert (await test.fetch(topic="c")).error_code == 0


def test_segments_are_scrubbed_one_by_one_and_the_cache_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[tuple[int, int]] = []
    monkeypatch.setattr(
        "asyncbroker.log.checking.drop_cached",
        lambda fd, position, size: dropped.append((position, size)),
    )
    # Not every system can say it.
    monkeypatch.setattr("asyncbroker.log.files.RealFile.is_resident", lambda *_: True)
    directory = str(tmp_path / "flights-0")
    log = open_log(RealFiles(), directory=directory, config=LogConfig(segment_bytes=1 << 20))
    append_each(log, 30, size=100_000)
    log.flush()
    seen = base_offset = position = 0
    while (scrubbed := scrub(log, base_offset, position, 300_000)) is not None:
        base_offset, position = scrubbed.base_offset, scrubbed.end
        seen += scrubbed.size
    assert seen == log.size
    # All of it is in memory, and stays there.
    assert not dropped
    monkeypatch.setattr("asyncbroker.log.files.RealFile.is_resident", lambda *_: False)
    assert scrub(log, 0, 0, 300_000) is not None
    assert dropped == [(0, 300_000)]
    log.close()
