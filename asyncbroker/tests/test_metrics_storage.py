"""Metrics of what storage does by itself, and of the edge: each number moves when it should."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.tests.crash_files import CrashFiles
from asyncbroker.log.tests.full_disk import FullDisk
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.scrubber import CHECK_SECONDS
from asyncbroker.tests.broker_process import BrokerProcess
from asyncbroker.tests.data_path_harness import batch_of, settle, under_test
from asyncbroker.tests.groups_harness import commit, join_alone
from asyncbroker.tests.test_cleaner import look, put
from asyncbroker.tests.test_full_disk import StoreOn
from asyncbroker.tests.test_metrics import figures, values_of


def damage(files: MemoryFiles, path: str, position: int) -> None:
    file = files.open(path)
    file.pwrite(bytes([file.pread(1, position)[0] ^ 1]), position)


async def test_damage_is_counted_when_it_is_read_and_when_it_is_scrubbed() -> None:
    files = MemoryFiles()
    async with under_test(files=files) as t:
        await t.topic(partitions=2)
        batch = batch_of(value=bytes(1000))
        for index in range(2):
            for _ in range(3):
                await t.produce(batch_of(value=bytes(1000)), index=index, acks=-1)
        damage(files, f"memory/flights-0/{0:020d}.log", len(batch) + 500)
        before = await figures(t.broker)
        names = ("log_damaged_ranges", "corrupt_reads_total", "scrubber_read_bytes_total")
        assert [before[name] for name in names] == [0, 0, 0]
        t.clock.advance(CHECK_SECONDS)
        await settle()
        t.clock.advance(1)
        await settle()
        values = await figures(t.broker)
        assert values["scrubber_read_bytes_total"] == 6 * len(batch)
        assert values["scrubber_damaged_ranges_total"] == values["log_damaged_ranges"] == 1
        assert values["corrupt_reads_total"] == 0
        await t.fetch(0)
        await t.fetch(1)
        await t.fetch(2)
        assert (await figures(t.broker))["corrupt_reads_total"] == 1


async def test_what_a_crash_has_left_to_check_is_told() -> None:
    files, metadata = CrashFiles(), MemoryMetadataStore()
    names = ("start_unclean", "recovered_partitions", "recovered_bytes")
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic(partitions=3)
        await t.produce(batch_of(), index=2, acks=-1)
        t.clock.advance(60)  # a checkpoint
        await settle()
        for index in (0, 0, 1):
            await t.produce(batch_of(), index=index)
        assert [(await figures(t.broker))[name] for name in names] == [0, 0, 0]
        killed = files.killed()
    async with under_test(files=killed, metadata=metadata) as t:
        values = await figures(t.broker)
        assert [values[name] for name in names] == [1, 2, 3 * len(batch_of())]
    async with under_test(files=killed, metadata=metadata) as t:
        assert [(await figures(t.broker))[name] for name in names] == [0, 0, 0]


async def test_a_read_that_meets_unknown_damage_is_counted() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic()
        await t.produce(batch_of())
    damage(files, f"memory/flights-0/{0:020d}.log", 65)
    async with under_test(files=files, metadata=metadata) as t:
        await t.fetch(0)
        values = await figures(t.broker)
        assert values["corrupt_reads_total"] == values["log_damaged_ranges"] == 1


async def test_slices_that_the_scrubber_cannot_read_are_counted() -> None:
    files = MemoryFiles()
    async with under_test(files=files) as t:
        await t.topic()
        await t.produce(batch_of(value=bytes(1000)), acks=-1)

        def fail(operation: str, path: str) -> None:
            if operation == "pread" and path.endswith(".log"):
                raise OSError(5, "Input/output error")

        files.on_call = fail
        t.clock.advance(CHECK_SECONDS)
        await settle()
        assert (await figures(t.broker))["scrubber_read_errors_total"] == 1
        files.on_call = None


async def test_compactions_are_counted_with_what_they_read_and_left() -> None:
    files = MemoryFiles()
    async with under_test(files=files) as t:
        await t.topic(partitions=2, cleanup_policy="compact", segment_ms="1")
        for index in range(2):
            for at in range(4):
                await put(t, b"a", b"%d" % at, index=index)
        damage(files, f"memory/flights-1/{1:020d}.log", 65)
        topic = t.broker.topics.get("flights")
        assert topic is not None
        segments = topic.partitions[0].log.segments
        read_bytes = sum(segment.size for segment in segments[:-1])
        await look(t)
        values = await figures(t.broker)
        assert values["cleaner_runs_total"] == 1
        assert values["cleaner_read_bytes_total"] == read_bytes
        assert values["cleaner_kept_bytes_total"] == read_bytes / 3
        assert values["cleaner_failures_total"] == values["cleaner_uncleanable_partitions"] == 1


async def test_a_full_disk_is_told_until_it_has_room() -> None:
    disk = FullDisk("data")
    async with under_test(files=disk.files, metadata=StoreOn(disk), log_dirs="data") as t:
        await t.topic()
        assert await commit(t, 1) == 0
        t.clock.advance(1)
        await settle()
        assert (await figures(t.broker))["disk_full"] == 0
        disk.fill()
        assert await commit(t, 2) == 0
        assert (await figures(t.broker))["disk_full"] == 1
        disk.free()
        t.clock.advance(10)
        await settle()
        assert (await figures(t.broker))["disk_full"] == 0


async def test_groups_are_counted_by_their_state() -> None:
    async with under_test() as t:
        await t.topic()
        await commit(t, 1, group="empty")
        await join_alone(t)
        values = await figures(t.broker)
        counted = {name: value for name, value in values.items() if name.startswith("groups{")}
        assert {name for name, value in counted.items() if value} == {
            "groups{state=Empty}",
            "groups{state=Stable}",
        }
        assert sum(counted.values()) == 2


def test_what_peers_do_wrong_is_counted(tmp_path: Path) -> None:
    options = ("--listen=127.0.0.1:0", f"--data={tmp_path}", "--metrics=0")
    with BrokerProcess(*options, "--set=max.connections=3") as process:
        line = process.wait_for_line("metrics at ")
        url = line.split("metrics at ")[1].split(",")[0].strip()

        def scrape() -> dict[str, float]:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return values_of(answer.read().decode())

        with process.connect() as good, process.connect() as bad, process.connect() as odd:
            good.ask("Metadata", 4, topics=[])
            # A frame that cannot be, and a version that is not there.
            bad.socket.sendall(b"\xff\xff\xff\xff")
            assert bad.is_closed()
            odd.socket.sendall(bytes([0, 0, 0, 10, 0, 3, 0, 99, 0, 0, 0, 1, 0xFF, 0xFF]))
            assert odd.is_closed()
            values = scrape()
            assert values["protocol_errors_total"] == 1
            assert values["unsupported_requests_total"] == 1
            assert values["internal_errors_total"] == 0
            assert values["connections_accepted_total"] == 3
            assert values["connections"] == 1
            assert values["requests_held_bytes"] == 0
            with process.connect() as second, process.connect() as third:
                for peer in (second, third):
                    peer.ask("Metadata", 4, topics=[])
                with process.connect() as refused:
                    assert refused.is_closed()
                assert scrape()["connections_refused_total"] == 1
        # The loop is looked at four times a second; without a look this runs out of time.
        while scrape()["loop_lag_seconds_count"] == 0:
            pass
