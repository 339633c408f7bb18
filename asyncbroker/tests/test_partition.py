"""A partition and the commit rounds: order, writeback, errors, and what waits when it goes away."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest

from asyncbroker.clock import ManualClock
from asyncbroker.commits import FLUSHES_AT_ONCE, Commits
from asyncbroker.fetch_waits import FetchWaiter
from asyncbroker.log.appended import Appended
from asyncbroker.log.config import LogConfig
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.partition import Partition
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.records import batches, check_batch
from asyncbroker.storage import Storage
from asyncbroker.tests.data_path_harness import NOW_MS, batch_of, log_bytes, settle
from asyncbroker.tests.held_workers import StepWorkers

SMALL, LARGE = 10, 5000


class Disk:
    """Files that count calls, and fail those the test chooses."""

    def __init__(self) -> None:
        self.files = MemoryFiles(self._called)
        self.counts: dict[str, int] = {}
        self.errors: dict[str, Iterator[OSError | None]] = {}

    def fail(self, operation: str, code: int, *, after: int = 0, times: int = 1) -> None:
        error = OSError(code, "made up")
        self.errors[operation] = iter([*[None] * after, *[error] * times])

    def _called(self, operation: str, path: str) -> None:
        if not path.endswith(".log"):
            return
        self.counts[operation] = self.counts.get(operation, 0) + 1
        error = next(self.errors.get(operation, iter(())), None)
        if error is not None:
            raise error


class Fixture:
    def __init__(self, **limits: Any) -> None:
        self.disk = Disk()
        self.workers = StepWorkers()
        limits.setdefault("inline_append_bytes_max", 1000)
        self.storage = Storage(ManualClock(wall_ms=NOW_MS), self.workers, **limits)
        self.commits = Commits(self.storage)
        self.partition = self.new_partition(0)

    def new_partition(self, index: int) -> Partition:
        log = PartitionLog.open(
            self.disk.files,
            f"data/flights-{index}",
            topic_id=bytes(range(16)),
            config=LogConfig(),
            leader_epoch=1,
            is_clean=True,
            now_ms=NOW_MS,
        )
        return Partition(
            "flights", index, bytes(range(16)), log, leader_epoch=1, storage=self.storage
        )

    def append(
        self, size: int = SMALL, partition: Partition | None = None
    ) -> Appended | asyncio.Future[Appended]:
        batch = batch_of(value=bytes(size))
        return (partition or self.partition).append(batch, check_batch(batch))


@pytest.fixture
async def made() -> Fixture:
    return Fixture()


async def code_of(failed: Awaitable[Any]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        await failed
    return raised.value.code


# ---- order


async def test_a_small_append_is_over_when_it_returns(made: Fixture) -> None:
    appended = made.append(SMALL)
    assert isinstance(appended, Appended)
    assert made.partition.high_watermark == 1
    assert not made.workers.jobs


async def test_a_large_append_is_seen_by_readers_only_when_its_worker_is_done(
    made: Fixture,
) -> None:
    appending = made.append(LARGE)
    assert isinstance(appending, asyncio.Future)
    assert made.partition.high_watermark == 0
    await made.workers.step()
    assert appending.result().base_offset == 0
    assert made.partition.high_watermark == 1


async def test_appends_keep_the_order_in_which_they_came(made: Fixture) -> None:
    """Small ones do not overtake a large one; those queued meanwhile go together, after it."""
    appending = [made.append(size) for size in (LARGE, SMALL, SMALL, LARGE, SMALL)]
    assert len(made.workers.jobs) == 1
    await made.workers.step()
    await made.workers.step()
    assert not made.workers.jobs
    assert [(await appended).base_offset for appended in appending] == [0, 1, 2, 3, 4]  # type: ignore[misc]
    sizes = [header.size > 1000 for header, _ in batches(log_bytes(made.partition))]
    assert sizes == [True, False, False, True, False]
    assert isinstance(made.append(SMALL), Appended)


async def test_a_topic_that_limits_the_past_decodes_batches_in_a_worker(made: Fixture) -> None:
    made.partition.set_config(LogConfig(message_timestamp_before_max_ms=1000))
    assert isinstance(made.append(SMALL), asyncio.Future)
    await made.workers.step()
    assert made.partition.high_watermark == 1


async def test_settings_come_into_force_when_a_worker_is_done_with_the_log(made: Fixture) -> None:
    appending = made.append(LARGE)
    config = LogConfig(max_message_bytes=100)
    made.partition.set_config(config)
    assert made.partition.log.config is not config
    await made.workers.step()
    assert made.partition.log.config is config
    assert isinstance(appending, asyncio.Future)
    assert appending.result().base_offset == 0
    with pytest.raises(KafkaError):
        made.append(500)


async def test_a_refused_batch_in_the_queue_stops_nobody_behind_it(made: Fixture) -> None:
    too_large = made.append(2_000_000)
    behind = made.append(SMALL)
    assert isinstance(too_large, asyncio.Future)
    assert isinstance(behind, asyncio.Future)
    await made.workers.step()
    await made.workers.step()
    assert await code_of(too_large) is ErrorCode.MESSAGE_TOO_LARGE
    assert (await behind).base_offset == 0


async def test_who_stops_waiting_for_an_append_changes_nothing_for_the_others(
    made: Fixture,
) -> None:
    impatient, patient = made.append(LARGE), made.append(LARGE)
    assert isinstance(impatient, asyncio.Future)
    assert isinstance(patient, asyncio.Future)
    impatient.cancel()
    await made.workers.step()
    await made.workers.step()
    assert (await patient).base_offset == 1
    assert made.partition.high_watermark == 2


# ---- errors


async def test_a_full_disk_in_the_middle_of_a_queue_fails_that_append_alone(made: Fixture) -> None:
    appending = [made.append(LARGE) for _ in range(3)]
    await made.workers.step()
    made.disk.fail("pwrite", errno.ENOSPC)
    await made.workers.step()
    assert (await appending[0]).base_offset == 0  # type: ignore[misc]
    assert await code_of(appending[1]) is ErrorCode.KAFKA_STORAGE_ERROR  # type: ignore[arg-type]
    assert (await appending[2]).base_offset == 1  # type: ignore[misc]


async def test_a_broken_disk_fails_everything_behind_and_takes_the_directory_offline(
    made: Fixture,
) -> None:
    appending = [made.append(LARGE) for _ in range(3)]
    await made.workers.step()
    made.disk.fail("pwrite", errno.EIO)
    await made.workers.step()
    assert (await appending[0]).base_offset == 0  # type: ignore[misc]
    for failed in appending[1:]:
        assert await code_of(failed) is ErrorCode.KAFKA_STORAGE_ERROR  # type: ignore[arg-type]
    assert made.storage.error is not None
    other = made.new_partition(1)
    with pytest.raises(KafkaError):
        made.append(SMALL, other)


async def test_another_write_error_takes_only_its_partition_offline(made: Fixture) -> None:
    other = made.new_partition(1)
    made.disk.fail("pwrite", errno.EBADF)
    for _ in range(2):
        with pytest.raises(KafkaError) as raised:
            made.append(SMALL)
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert made.storage.error is None
    assert isinstance(made.append(SMALL, other), Appended)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
async def test_what_an_operator_can_mend_passes(made: Fixture, code: int) -> None:
    made.disk.fail("pwrite", code)
    with pytest.raises(KafkaError):
        made.append(SMALL)
    assert isinstance(made.append(SMALL), Appended)


async def test_a_bug_in_an_append_reaches_its_caller_and_blocks_nobody(
    made: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    appending = made.append(LARGE)
    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "append", broken)
        await made.workers.step()
    assert isinstance(appending, asyncio.Future)
    with pytest.raises(ZeroDivisionError):
        await appending
    assert isinstance(made.append(SMALL), Appended)


# ---- writeback


async def test_writeback_is_started_each_few_megabytes_and_one_at_a_time() -> None:
    made = Fixture(writeback_bytes=1000)
    for _ in range(15):
        assert isinstance(made.append(SMALL), Appended)
    assert len(made.workers.jobs) == 1
    await made.workers.step()
    assert made.disk.counts["start_writeback"] == 1
    assert not made.workers.jobs


async def test_while_the_disk_is_behind_appends_go_to_a_worker_and_then_inline_again() -> None:
    made = Fixture(writeback_bytes=1000)
    inline = [made.append(SMALL) for _ in range(30)]
    behind = [appended for appended in inline if isinstance(appended, asyncio.Future)]
    # One stretch is with the writeback job, a second one has gathered behind it.
    assert 0 < len(behind) < 20
    while made.workers.jobs:
        await made.workers.step()
    assert [await appended for appended in behind][-1].base_offset == 29
    assert isinstance(made.append(SMALL), Appended)
    assert made.partition.high_watermark == 31


async def test_a_writeback_error_is_a_write_error() -> None:
    made = Fixture(writeback_bytes=100)
    made.append(SMALL)
    made.append(SMALL)
    made.disk.fail("start_writeback", errno.EIO)
    await made.workers.step()
    assert made.storage.error is not None


# ---- going away


async def test_a_partition_that_refuses_wakes_its_fetches_and_finishes_its_queue(
    made: Fixture,
) -> None:
    waiter = FetchWaiter(1)
    made.partition.waiters[waiter] = None
    appending = made.append(LARGE)
    made.partition.refuse(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone"))
    assert waiter.future.done()
    draining = asyncio.ensure_future(made.partition.drain())
    await settle()
    assert not draining.done()
    await made.workers.step()
    await draining
    assert (await appending).base_offset == 0  # type: ignore[misc]
    with pytest.raises(KafkaError) as raised:
        made.append(SMALL)
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError):
        made.partition.locate(0, 100)


async def test_draining_an_idle_partition_returns_at_once(made: Fixture) -> None:
    await made.partition.drain()
    assert not made.workers.jobs


async def test_draining_waits_for_the_writeback_that_the_last_append_starts() -> None:
    made = Fixture(writeback_bytes=LARGE)
    made.append(LARGE)
    draining = asyncio.ensure_future(made.partition.drain())
    await made.workers.step()
    assert not draining.done()
    await made.workers.step()
    await draining
    assert not made.workers.jobs


async def test_draining_waits_for_a_commit_round(made: Fixture) -> None:
    made.append(SMALL)
    durable = made.commits.durable(made.partition, 1)
    assert durable is not None
    await settle()
    draining = asyncio.ensure_future(made.partition.drain())
    await settle()
    assert not draining.done()
    await made.workers.step()
    await draining
    await durable


# ---- commit rounds


async def test_what_is_durable_already_is_not_waited_for(made: Fixture) -> None:
    made.append(SMALL)
    made.partition.log.flush()
    assert made.commits.durable(made.partition, 1) is None


async def test_who_arrives_during_a_round_joins_the_next(made: Fixture) -> None:
    made.append(SMALL)
    first = [made.commits.durable(made.partition, 1) for _ in range(3)]
    await settle()
    _, _, began = made.workers.jobs[0]
    made.partition.log.flush()  # the round's fsync ends here, and its thread is slow to say so
    made.append(SMALL)
    second = [made.commits.durable(made.partition, 2) for _ in range(3)]
    await settle()
    assert len(made.workers.jobs) == 1
    made.workers.jobs.popleft()
    began.set_result([None])
    await settle()
    assert all(later is not None and later.is_settled for later in first)
    assert not any(later is None or later.is_settled for later in second)
    await made.workers.step()
    assert all(later is not None and later.is_settled for later in second)
    assert made.disk.counts["datasync"] == 2
    assert not made.workers.jobs


async def test_who_was_covered_by_the_last_round_by_chance_takes_no_fsync(made: Fixture) -> None:
    made.append(SMALL)
    made.commits.durable(made.partition, 1)
    await settle()
    made.append(SMALL)
    late = made.commits.durable(made.partition, 2)
    await made.workers.step()
    assert late is not None
    assert late.is_settled
    assert made.disk.counts["datasync"] == 1
    assert not made.workers.jobs


async def test_one_round_syncs_each_partition_once_in_a_few_threads(made: Fixture) -> None:
    partitions = [made.new_partition(index) for index in range(1, 11)]
    for partition in partitions:
        made.append(SMALL, partition)
    waiting = [made.commits.durable(partition, 1) for partition in partitions * 2]
    await settle()
    assert len(made.workers.jobs) == FLUSHES_AT_ONCE
    for _ in range(FLUSHES_AT_ONCE):
        await made.workers.step()
    assert all(later is not None and later.is_settled for later in waiting)
    assert made.disk.counts["datasync"] == 10


async def test_a_failed_fsync_fails_its_waiters_and_is_not_tried_again(made: Fixture) -> None:
    other = made.new_partition(1)
    for partition in (made.partition, other):
        made.append(SMALL, partition)
    made.disk.fail("datasync", errno.EIO)
    first = made.commits.durable(made.partition, 1)
    second = made.commits.durable(other, 1)
    assert first is not None
    assert second is not None
    await settle()
    while made.workers.jobs:
        await made.workers.step()
    assert await code_of(first) is ErrorCode.KAFKA_STORAGE_ERROR
    await second
    synced = made.disk.counts["datasync"]
    late = made.commits.durable(made.partition, 1)
    assert late is not None
    await settle()
    assert await code_of(late) is ErrorCode.KAFKA_STORAGE_ERROR
    assert made.disk.counts["datasync"] == synced


async def test_a_lack_of_descriptors_fails_one_round_and_the_next_is_durable(
    made: Fixture,
) -> None:
    """A flood of connections takes them all; nothing was synced, so nothing is lost."""

    def no_descriptor(operation: str, path: str) -> None:
        if operation == "sync_directory":
            raise OSError(errno.EMFILE, "made up")

    made.append(SMALL)
    made.disk.files.on_call = no_descriptor
    first = made.commits.durable(made.partition, 1)
    assert first is not None
    await settle()
    await made.workers.step()
    assert await code_of(first) is ErrorCode.KAFKA_STORAGE_ERROR
    assert made.partition.log.durable_end_offset == 0
    made.disk.files.on_call = None
    second = made.commits.durable(made.partition, 1)
    assert second is not None
    await settle()
    await made.workers.step()
    await second
    assert made.partition.log.durable_end_offset == 1


async def test_closing_waits_for_the_last_round(made: Fixture) -> None:
    made.append(SMALL)
    durable = made.commits.durable(made.partition, 1)
    closing = asyncio.ensure_future(made.commits.close())
    await settle()
    assert not closing.done()
    await made.workers.step()
    await closing
    assert durable is not None
    assert durable.is_settled


async def test_in_memory_nobody_waits_and_no_thread_is_used() -> None:
    made = Fixture(is_volatile=True)
    assert isinstance(made.append(100_000), Appended)
    assert made.commits.durable(made.partition, 1) is None
    assert not made.workers.jobs


async def test_closing_without_a_round_returns_at_once(made: Fixture) -> None:
    await made.commits.close()
    assert not made.workers.jobs


# ---- leader epochs


async def test_the_current_epoch_ends_at_the_high_watermark(made: Fixture) -> None:
    made.append(SMALL)
    assert made.partition.end_offset_for_epoch(1) == (1, 1)
    assert made.partition.end_offset_for_epoch(2) == (-1, -1)
