"""The two lanes of commit rounds: what goes to the journal and what past it, in which order rounds
begin and answers leave, and what a failure of either lane does to the other. The lane of fsyncs by
itself is in `test_partition.py`."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

import pytest

from asyncbroker.clock import ManualClock
from asyncbroker.commits import Commits
from asyncbroker.log.config import LogConfig
from asyncbroker.log.journal import FILE_BYTES_MIN, JOURNAL
from asyncbroker.log.log_directory import LogDirectory
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.partition import Partition
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.records import check_batch
from asyncbroker.storage import Storage
from asyncbroker.tests.data_path_harness import NOW_MS, batch_of, settle
from asyncbroker.tests.held_workers import StepWorkers

STRETCH_BYTES_MAX = 4096
SMALL, LARGE = 10, 5000


class Fixture:
    """A directory with a journal and three partitions, whose jobs the test runs."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.failing: dict[tuple[str, str], int] = {}
        files = MemoryFiles(self._called)
        self.workers = StepWorkers()
        self.clock = ManualClock(wall_ms=NOW_MS)
        self.storage = Storage(self.clock, self.workers)
        self.logs = LogDirectory.open(files, "data", cluster_id="c", journal_bytes=FILE_BYTES_MIN)
        self.commits = Commits(self.storage)
        self.commits.use_journal(self.logs, STRETCH_BYTES_MAX)
        self.partitions = [self._partition(index) for index in range(3)]
        self.answers: list[tuple[str, BaseException | None]] = []

    def _called(self, operation: str, path: str) -> None:
        self.calls.append((operation, path))
        for (failing, suffix), code in self.failing.items():
            if operation == failing and path.endswith(suffix):
                raise OSError(code, "made up")

    def _partition(self, index: int) -> Partition:
        topic_id = bytes([index + 1]) * 16
        log = self.logs.open_partition(
            "t", index, topic_id=topic_id, config=LogConfig(), leader_epoch=0, now_ms=NOW_MS
        )
        return Partition("t", index, topic_id, log, leader_epoch=0, storage=self.storage)

    async def prepare(self) -> None:
        """From here on there is a journal, and every file has a durable name."""
        for index in range(3):
            self.append(index, "first")
        await settle()
        while self.workers.jobs:
            await self.workers.step()
        assert self.logs.journal is not None
        assert self.logs.journal.is_ready
        assert len(self.answers) == 3
        self.answers.clear()
        self.calls.clear()

    def append(
        self,
        index: int,
        name: str,
        size: int = SMALL,
        then: Callable[[], object] = lambda: None,
    ) -> None:
        """Appends a batch, which is answered under a name; then `then` is called."""
        partition = self.partitions[index]
        batch = batch_of(value=bytes(size))
        partition.append(batch, check_batch(batch))

        def answer(error: BaseException | None) -> None:
            self.answers.append((name, error))
            then()

        end_offset = partition.log.end_offset
        assert self.commits.call_when_durable(partition, end_offset, answer)

    @property
    def answered(self) -> list[str]:
        return [name for name, _ in self.answers]

    def codes(self) -> set[int]:
        return {e.code if isinstance(e, KafkaError) else -1 for _, e in self.answers}

    def synced(self) -> list[str]:
        """The files that were synced since the journal was ready."""
        paths = [path for operation, path in self.calls if operation == "datasync"]
        return [path.rpartition("/")[2] if JOURNAL in path else path for path in paths]


@pytest.fixture
async def made() -> Fixture:
    fixture = Fixture()
    await fixture.prepare()
    return fixture


async def test_small_batches_of_all_partitions_share_one_write_and_one_fsync(
    made: Fixture,
) -> None:
    for index in (0, 1, 2, 0, 1, 2):
        made.append(index, f"{index}")
    await settle()
    assert len(made.workers.jobs) == 1
    made.calls.clear()
    await made.workers.step()
    assert made.calls == [("pwrite", f"data/{JOURNAL}"), ("datasync", f"data/{JOURNAL}")]
    assert made.answered == ["0", "0", "1", "1", "2", "2"]
    assert all(error is None for _, error in made.answers)
    assert not made.workers.jobs


async def test_a_large_stretch_goes_past_the_journal_and_small_ones_do_not_wait_for_it(
    made: Fixture,
) -> None:
    made.append(0, "large", LARGE)
    made.append(1, "small")
    await settle()
    _, flushed = made.workers.jobs
    made.workers.jobs.remove(flushed)
    await made.workers.step()
    assert made.answered == ["small"]
    made.append(2, "next round")
    await settle()
    await made.workers.step()
    assert made.answered == ["small", "next round"]
    made.workers.jobs.append(flushed)
    await made.workers.step()
    assert made.answered == ["small", "next round", "large"]
    assert made.synced() == [JOURNAL, JOURNAL, made.partitions[0].log.segments[-1].log_path]


async def test_who_comes_while_a_thread_is_at_his_partition_waits_for_an_fsync_of_his_own(
    made: Fixture,
) -> None:
    made.append(0, "first", LARGE)
    await settle()
    _, _, began = made.workers.jobs.popleft()
    made.partitions[0].log.flush()  # its fsync ends here, and its thread is slow to say so
    made.append(0, "second", LARGE)
    made.append(1, "other", LARGE)
    await settle()
    # There is a free thread for the other partition, and for this one there is not.
    assert len(made.workers.jobs) == 1
    began.set_result([None])
    await settle()
    assert made.answered == ["first"]
    assert len(made.workers.jobs) == 2
    await made.workers.step()
    await made.workers.step()
    assert made.answered == ["first", "other", "second"]


async def test_a_large_batch_does_not_wait_for_the_slowest_of_those_before_it(
    made: Fixture,
) -> None:
    for index in range(3):
        made.append(index, f"{index}", LARGE)
    await settle()
    slow = made.workers.jobs.pop()
    await made.workers.step()
    await made.workers.step()
    assert made.answered == ["0", "1"]
    made.append(0, "next", LARGE)
    await settle()
    await made.workers.step()
    assert made.answered == ["0", "1", "next"]
    made.workers.jobs.append(slow)
    await made.workers.step()
    assert made.answered == ["0", "1", "next", "2"]


async def test_the_next_round_is_on_its_way_before_the_last_one_is_answered(
    made: Fixture,
) -> None:
    """So that the disk has work while answers are encoded and sent."""
    under_way: list[int] = []
    made.append(0, "first", then=lambda: under_way.append(len(made.workers.jobs)))
    await settle()
    made.append(1, "second")
    await made.workers.step()
    assert made.answered == ["first"]
    assert under_way == [1]
    await made.workers.step()
    assert made.answered == ["first", "second"]


async def test_who_waits_again_while_answered_is_in_a_round_of_his_own(made: Fixture) -> None:
    made.append(0, "first", then=lambda: made.append(0, "again"))
    await settle()
    await made.workers.step()
    assert made.answered == ["first"]
    assert len(made.workers.jobs) == 1
    await made.workers.step()
    assert made.answered == ["first", "again"]
    await made.commits.close()


async def test_one_at_a_time_whoever_begins(made: Fixture) -> None:
    """An answer that is due at once may bring new waits while a round is being begun."""
    made.append(0, "covered", then=lambda: made.append(1, "new"))
    made.append(2, "other")
    # A checkpoint has synced it before the round begins.
    made.partitions[0].log.flush()
    await settle()
    assert made.answered == ["covered"]
    assert len(made.workers.jobs) == 1
    await made.workers.step()
    assert made.answered == ["covered", "other"]
    assert len(made.workers.jobs) == 1
    await made.workers.step()
    assert made.answered == ["covered", "other", "new"]


async def slow_round(made: Fixture) -> None:
    """What waits is made durable, which takes two milliseconds."""
    await settle()
    assert len(made.workers.jobs) == 1
    made.clock.advance(0.002)
    await made.workers.step()
    await settle()


async def test_on_a_slow_disk_a_round_waits_for_those_whom_the_last_one_has_answered(
    made: Fixture,
) -> None:
    made.append(0, "a")
    made.append(1, "b")
    await settle()
    made.append(2, "c")
    await slow_round(made)
    assert made.answered == ["a", "b"]
    made.append(0, "a again")
    await settle()
    assert not made.workers.jobs
    made.append(1, "b again")
    await slow_round(made)
    assert made.answered == ["a", "b", "c", "a again", "b again"]
    assert made.synced() == [JOURNAL, JOURNAL]


async def test_closing_ends_what_is_held_back(made: Fixture) -> None:
    made.append(0, "a")
    made.append(1, "b")
    await settle()
    made.append(2, "c")
    await slow_round(made)
    assert not made.workers.jobs
    closing = asyncio.ensure_future(made.commits.close())
    await settle()
    await made.workers.step()
    await closing
    assert made.answered == ["a", "b", "c"]


async def test_a_callback_that_fails_keeps_nobody_from_an_answer(
    made: Fixture, caplog: pytest.LogCaptureFixture
) -> None:
    made.append(0, "broken", then=lambda: [][0])
    made.append(0, "same partition")
    made.append(1, "other")
    await settle()
    await made.workers.step()
    assert made.answered == ["broken", "same partition", "other"]
    assert "t-0" in caplog.text
    await made.commits.close()


async def test_a_journal_that_fails_fails_its_round_and_takes_the_directory_offline(
    made: Fixture,
) -> None:
    made.failing["datasync", JOURNAL] = errno.EIO
    for index in range(3):
        made.append(index, str(index))
    await settle()
    made.append(0, "behind")
    await made.workers.step()
    assert sorted(made.answered) == ["0", "1", "2", "behind"]
    assert made.codes() == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert made.storage.error is not None
    assert not made.workers.jobs
    await made.commits.close()


async def test_a_journal_without_space_sends_its_round_past_it(made: Fixture) -> None:
    made.failing["pwrite", JOURNAL] = errno.ENOSPC
    made.append(0, "a")
    made.append(1, "b")
    await settle()
    await made.workers.step()
    assert made.answered == []
    while made.workers.jobs:
        await made.workers.step()
    assert sorted(made.answered) == ["a", "b"]
    assert all(error is None for _, error in made.answers)
    assert made.storage.error is None


async def test_what_cannot_be_read_at_once_is_read_in_the_thread(made: Fixture) -> None:
    made.append(0, "elsewhere")
    file = made.partitions[0].log.segments[-1].open_file()
    made.failing["pread_nowait", ".log"] = errno.EIO
    await settle()
    made.calls.clear()
    await made.workers.step()
    assert made.calls[0] == ("pread", file.path)
    assert made.synced() == [JOURNAL]
    assert made.answers == [("elsewhere", None)]


async def test_a_file_that_cannot_be_read_keeps_the_others_of_its_round_in_the_journal(
    made: Fixture,
) -> None:
    unreadable = made.partitions[0].log.segments[-1].log_path
    made.append(0, "unreadable")
    made.append(1, "fine")
    for operation in ("pread", "pread_nowait"):
        made.failing[operation, unreadable] = errno.EIO
    await settle()
    await made.workers.step()
    assert made.answers == [("fine", None)]
    # Its own fsync has the last word.
    while made.workers.jobs:
        await made.workers.step()
    assert made.answers == [("fine", None), ("unreadable", None)]


async def test_closing_waits_for_both_lanes(made: Fixture) -> None:
    made.append(0, "large", LARGE)
    made.append(1, "small")
    await settle()
    closing = asyncio.ensure_future(made.commits.close())
    await made.workers.step()
    assert not closing.done()
    await made.workers.step()
    await closing
    assert sorted(made.answered) == ["large", "small"]


async def test_draining_a_partition_waits_for_its_round_and_not_for_others(
    made: Fixture,
) -> None:
    made.append(0, "mine")
    await settle()
    draining = asyncio.ensure_future(made.partitions[0].drain())
    others = asyncio.ensure_future(made.partitions[1].drain())
    await settle()
    assert others.done()
    assert not draining.done()
    await made.workers.step()
    await draining


async def test_draining_a_partition_ends_when_its_rounds_became_one(made: Fixture) -> None:
    for name in ("running", "next", "next as well"):
        made.append(0, name, LARGE)
        await settle()
    while made.workers.jobs:
        await made.workers.step()
    assert made.answered == ["running", "next", "next as well"]
    await asyncio.wait_for(made.partitions[0].drain(), 10)


async def test_a_full_journal_is_freed_and_rounds_go_on_meanwhile(made: Fixture) -> None:
    journal = made.logs.journal
    assert journal is not None
    count = 0
    while not journal.is_filling:
        made.append(0, str(count), 2000)
        await settle()
        await made.workers.step()
        count += 1
    assert len(made.workers.jobs) == 1
    used = journal.used_bytes
    freeing = made.workers.jobs.popleft()
    made.append(1, "meanwhile")
    await settle()
    await made.workers.step()
    assert made.answered[-1] == "meanwhile"
    made.workers.jobs.append(freeing)
    await made.workers.step()
    assert journal.used_bytes < used
    assert made.partitions[0].log.flushed_end_offset == count + 1
