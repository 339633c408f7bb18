"""Consumers of a log that is not in memory wait for the disk, and nobody else does.

Ten of them read one log at once, from a real broker process, after it left the page cache:
200 MB, or 2 GB with ASYNCBROKER_LONG=1. Meanwhile a group's member is in time with its heartbeats,
a producer with its batches, and the thread of the event loop, which the kernel is asked about a
thousand times a second, is never found inside a read that waits. A fast disk may hide one from it;
so each call to the files is looked at as well, where a test can. `scripts/bench_cold_reads` has the
latencies.
"""

from __future__ import annotations

import asyncio
import platform
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from asyncbroker.clock import SystemClock
from asyncbroker.commits import Commits
from asyncbroker.log.config import LogConfig
from asyncbroker.log.files import RealFiles
from asyncbroker.log.memory_files import MemoryFile, MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.partition import Partition
from asyncbroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from asyncbroker.protocol.records import check_batch
from asyncbroker.storage import Storage
from asyncbroker.tests.broker_process import BrokerProcess
from asyncbroker.tests.cold_readers import Probe, evict, fill, read_at_once
from asyncbroker.tests.data_path_harness import (
    NOW_MS,
    batch_of,
    fetch_request,
    forget_clean_stop,
    under_test,
)
from asyncbroker.tests.long import IS_LONG
from asyncbroker.workers import ThreadWorkers

LOG_BYTES: Final = 2_000_000_000 if IS_LONG else 200_000_000
READERS: Final = 10

# Of x86-64: pread64, sendfile, preadv, preadv2. Elsewhere any wait for a disk is taken for a read.
READING_CALLS: Final = frozenset({"17", "40", "295", "327"})


class LoopWatch:
    """Asks the kernel what the main thread of a process does, as long as the block lasts."""

    def __init__(self, pid: int) -> None:
        self._process = Path(f"/proc/{pid}")
        self._task = self._process / "task" / str(pid)
        self.looks = 0
        self.waits: Counter[str] = Counter()

    def __enter__(self) -> LoopWatch:
        self._is_over = False
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._is_over = True
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over:
            self.looks += 1
            state = (self._task / "stat").read_text().rpartition(")")[2].split()[0]
            if state == "D":
                self.waits[(self._task / "syscall").read_text().split()[0]] += 1
            time.sleep(0.001)

    def read_bytes(self) -> int:
        """What the process has had from disks so far."""
        lines = (self._process / "io").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))

    def reads_that_waited(self) -> int:
        is_known = platform.machine() == "x86_64"
        return sum(
            count for call, count in self.waits.items() if not is_known or call in READING_CALLS
        )


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what a thread waits for")
@pytest.mark.timeout(900 if IS_LONG else 120)
@pytest.mark.parametrize("is_restarted", [False, True], ids=["own bytes", "after a restart"])
def test_ten_readers_of_a_cold_log_keep_nobody_else_waiting(
    tmp_path: Path, is_restarted: bool
) -> None:
    options = ("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    broker = BrokerProcess(*options)
    with broker:
        address = "{}:{}".format(*broker.address)
        fill(address, LOG_BYTES)
        if is_restarted:
            broker.signal()
            assert broker.wait() == 0
            broker.start()
            broker.wait_until_ready()
            address = "{}:{}".format(*broker.address)
        evict(tmp_path)
        with Probe(address, acks=-1) as probe:
            with LoopWatch(broker.process.pid) as watch:
                read_before = watch.read_bytes()
                read_at_once(address, READERS, LOG_BYTES)
                if watch.read_bytes() - read_before < LOG_BYTES // 2:
                    pytest.skip("this file system keeps its pages")
            heartbeats, produces = probe.take()
    assert probe.errors == []
    assert watch.looks > 50
    assert watch.reads_that_waited() == 0, watch.waits
    # Of a member with 6 seconds, and of a producer with 30.
    assert heartbeats[-1] < 3, heartbeats[-10:]
    assert produces[-1] < 15, produces[-10:]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("size", [10, 250_000], ids=["small", "large"])
async def test_no_reader_has_the_event_loop_call_what_may_wait(
    monkeypatch: pytest.MonkeyPatch, size: int, is_clean: bool
) -> None:
    class ColdFile(MemoryFile):
        """A file of which nothing is in the page cache."""

        def pread_nowait(self, size: int, position: int) -> None:
            return None

        def is_resident(self, position: int, size: int) -> bool:
            return False

    monkeypatch.setattr("asyncbroker.log.memory_files.MemoryFile", ColdFile)
    files = MemoryFiles()
    async with under_test(files=files) as test:
        await test.topic("flights", 5, segment_bytes="1048576")
        for index in range(5):
            for _ in range(10):
                await test.produce(batch_of(value=bytes(size)), index=index)
    if not is_clean:
        forget_clean_stop(files)
    on_loop: list[tuple[str, str]] = []
    loop_thread = threading.get_ident()

    def look(operation: str, path: str) -> None:
        if threading.get_ident() == loop_thread and operation != "pread_nowait":
            on_loop.append((operation, path))

    workers = ThreadWorkers(asyncio.get_running_loop(), 2)
    async with under_test(files=files, workers=workers) as test:
        files.on_call = look
        for offset in (0, 5, 9, 10):
            asked: dict[tuple[str | bytes, int], int] = {
                ("flights", index): offset for index in range(5)
            }
            await test.ask(fetch_request(asked), 12)
        for timestamp in (NOW_MS, -1, -2, -3):
            partitions = [ListOffsetsPartition(index, timestamp=timestamp) for index in range(5)]
            topics = [ListOffsetsTopic("flights", partitions)]
            await test.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 7)
        files.on_call = None
    assert on_loop == []


async def test_readers_do_not_take_the_threads_of_a_commit(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    workers, readers = ThreadWorkers(loop, 1), ThreadWorkers(loop, 1)
    storage = Storage(SystemClock(loop), workers, readers=readers)
    log = PartitionLog.open(
        RealFiles(),
        str(tmp_path / "flights-0"),
        topic_id=bytes(range(16)),
        config=LogConfig(),
        leader_epoch=1,
        is_clean=True,
        now_ms=storage.clock.wall_ms(),
    )
    partition = Partition("flights", 0, bytes(range(16)), log, leader_epoch=1, storage=storage)
    commits = Commits(storage)
    disk_answers = threading.Event()
    reading = [partition.read(disk_answers.wait) for _ in range(50)]
    batch = batch_of()
    partition.append(memoryview(batch), check_batch(batch))
    durable = commits.durable(partition, 1)
    assert durable is not None
    await durable
    assert not any(each.done() for each in reading)
    disk_answers.set()
    await asyncio.gather(*reading)
    await commits.close()
    await partition.drain()
    log.close()
    await readers.close()
    await workers.close()
