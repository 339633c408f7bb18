"""Commit rounds by the compiled writer: the same journal, byte for byte, as by worker threads, the
same consequences of what goes wrong, and a thread that ends with the rounds."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from asyncbroker.clock import SystemClock
from asyncbroker.commits import Commits
from asyncbroker.log.config import LogConfig
from asyncbroker.log.files import RealFiles
from asyncbroker.log.journal import FILE_BYTES_MIN, JOURNAL, Begun, Journal
from asyncbroker.log.log_directory import LogDirectory
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.native import make_writer
from asyncbroker.partition import Partition
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.records import check_batch
from asyncbroker.storage import Storage
from asyncbroker.synced_writer import SyncedWriter, make_synced_writer
from asyncbroker.tests.data_path_harness import NOW_MS, batch_of
from asyncbroker.workers import InlineWorkers, ThreadWorkers

pytestmark = pytest.mark.skipif(make_writer() is None, reason="there is no compiled writer")

PARTITIONS = 3


class Rounds:
    """A directory on the disk, with real threads."""

    def __init__(self, path: Path, writer: SyncedWriter | None, workers: ThreadWorkers) -> None:
        self.workers = workers
        self.storage = Storage(SystemClock(asyncio.get_running_loop()), workers)
        path.mkdir()
        self.logs = LogDirectory.open(
            RealFiles(portable=False),
            str(path),
            cluster_id="c",
            journal_bytes=FILE_BYTES_MIN,
            random_bytes=Random(1).randbytes,
        )
        self.commits = Commits(self.storage)
        self.commits.use_journal(self.logs, 4096, writer)
        self.partitions = [self._partition(index) for index in range(PARTITIONS)]
        self.journal_path = path / JOURNAL

    def _partition(self, index: int) -> Partition:
        topic_id = bytes([index + 1]) * 16
        log = self.logs.open_partition(
            "t", index, topic_id=topic_id, config=LogConfig(), leader_epoch=0, now_ms=NOW_MS
        )
        return Partition("t", index, topic_id, log, leader_epoch=0, storage=self.storage)

    @property
    def journal(self) -> Journal:
        assert self.logs.journal is not None
        return self.logs.journal

    async def prepare(self) -> None:
        """From here on there is a journal, and every file has a durable name."""
        await self.append()
        await self.workers.run(self.journal.prepare)

    def append_to(self, partition: Partition) -> asyncio.Future[None]:
        """A future that ends when what is appended is durable."""
        batch = batch_of(value=b"some bytes", timestamp=NOW_MS)
        partition.append(batch, check_batch(batch))
        durable = self.commits.durable(partition, partition.log.end_offset)
        assert durable is not None

        async def wait() -> None:
            await durable

        return asyncio.ensure_future(wait())

    async def append(self) -> None:
        """One more batch in each, durable when this returns."""
        await asyncio.gather(*(self.append_to(partition) for partition in self.partitions))

    async def codes(self) -> set[int]:
        """What a batch in each of them is answered."""
        waits = [self.append_to(partition) for partition in self.partitions]
        outcomes = await asyncio.gather(*waits, return_exceptions=True)
        return {each.code if isinstance(each, KafkaError) else 0 for each in outcomes}


@asynccontextmanager
async def rounds(path: Path, *, by_writer: bool = True) -> AsyncIterator[Rounds]:
    workers = ThreadWorkers(asyncio.get_running_loop(), 4)
    writer = make_synced_writer(RealFiles(portable=False), workers) if by_writer else None
    assert (writer is not None) == by_writer
    made = Rounds(path, writer, workers)
    await made.prepare()
    try:
        yield made
    finally:
        await made.commits.close()
        await workers.run(lambda: made.logs.close(clean=False))
        await workers.close()


def descriptor_of(path: Path) -> int:
    found = [
        each for each in Path("/proc/self/fd").iterdir() if os.path.realpath(each) == str(path)
    ]
    return int(found[0].name)


def is_writing() -> bool:
    return any(thread.name == "writer" for thread in threading.enumerate())


async def test_the_journal_is_that_of_rounds_by_threads(tmp_path: Path) -> None:
    journals = []
    for by_writer in (False, True):
        async with rounds(tmp_path / str(by_writer), by_writer=by_writer) as made:
            for _ in range(5):
                await made.append()
            assert made.journal.round_count == 5
            assert made.storage.metrics.fsync_seconds.total > 0
            assert is_writing() == by_writer
            journals.append(made.journal_path.read_bytes())
        assert not is_writing()
    assert journals[0] == journals[1]


async def test_the_ring_goes_round_while_it_is_freed(tmp_path: Path) -> None:
    async with rounds(tmp_path / "data") as made:
        for _ in range(100):
            await made.append()
        assert made.journal.head > 2 * FILE_BYTES_MIN
        ends = [partition.log.durable_end_offset for partition in made.partitions]
        assert ends == [101] * PARTITIONS


async def test_a_journal_that_was_removed_takes_the_directory_offline(tmp_path: Path) -> None:
    async with rounds(tmp_path / "data") as made:
        made.journal_path.unlink()
        assert await made.codes() == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert isinstance(made.storage.error, FileNotFoundError)
        assert made.storage.error.filename == str(made.journal_path)


async def test_without_space_a_round_goes_past_the_journal(tmp_path: Path) -> None:
    async with rounds(tmp_path / "data") as made:
        journal = descriptor_of(made.journal_path)
        kept, full = os.dup(journal), os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, journal)
        assert await made.codes() == {0}
        assert made.journal.round_count == 0
        os.dup2(kept, journal)
        os.close(kept)
        os.close(full)
        assert await made.codes() == {0}
        assert made.journal.round_count == 1
        assert made.storage.error is None


async def test_a_round_waits_in_a_worker_for_who_is_at_the_journal(tmp_path: Path) -> None:
    async with rounds(tmp_path / "data") as made:
        stretch = made.partitions[0].log
        begun: list[Begun | None] = []
        wait = made.append_to(made.partitions[0])
        found = stretch.stretch_for_journal(0, 4096)
        assert found is not None
        data = found.read()
        assert data is not None
        begun.append(made.journal.begin([found], [data]))
        # Nobody else gets in, and who asks without time for a wait is told so.
        begun.append(made.journal.begin([found], [data]))
        first, second = begun
        assert first is not None
        assert second is None
        await asyncio.sleep(0)
        assert not wait.done()
        first.file.pwrite(first.data, first.file_position)
        made.journal.end(first, None)
        await wait
        assert made.partitions[0].log.durable_end_offset == found.end_offset


async def test_who_waits_for_the_journal_comes_before_the_next_round(tmp_path: Path) -> None:
    """Otherwise the loop, which never lets go for long, would keep it from ever being freed."""
    async with rounds(tmp_path / "data") as made:
        for _ in range(5):
            wait = made.append_to(made.partitions[0])
            found = made.partitions[0].log.stretch_for_journal(0, 4096)
            assert found is not None
            data = found.read()
            assert data is not None
            first = made.journal.begin([found], [data])
            assert first is not None
            waiting = threading.Thread(target=lambda: made.journal.head)
            waiting.start()
            while not made.journal._is_wanted:
                os.sched_yield()
            made.journal.end(first, None)
            second = made.journal.begin([found], [data])
            if second is not None:
                # Then that thread has been there already.
                made.journal.end(second, None)
            waiting.join()
            await wait


async def test_closing_waits_for_the_round_under_way_and_ends_the_thread(tmp_path: Path) -> None:
    async with rounds(tmp_path / "data") as made:
        waits = [made.append_to(partition) for partition in made.partitions]
        await asyncio.sleep(0)
        await made.commits.close()
        assert not is_writing()
        await asyncio.gather(*waits)
        # What comes later finds the worker threads.
        await made.append()
        assert made.journal.round_count == 2


async def test_there_is_a_writer_beside_threads_and_for_real_files_only() -> None:
    workers = ThreadWorkers(asyncio.get_running_loop(), 1)
    assert make_synced_writer(RealFiles(portable=False), workers) is not None
    assert make_synced_writer(RealFiles(portable=True), workers) is None
    assert make_synced_writer(MemoryFiles(), workers) is None
    assert make_synced_writer(RealFiles(portable=False), InlineWorkers()) is None
    await workers.close()
