"""Batches that are appended when a commit round begins: with one write for each partition, which is
what the journal gets; and what becomes of each of them where that cannot be."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from asyncbroker.later import Later
from asyncbroker.log.journal import JOURNAL
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.records import check_batch
from asyncbroker.tests.data_path_harness import batch_of, idempotent, settle
from asyncbroker.tests.test_commits import LARGE, Fixture

LOG = ".log"


class Wait:
    """Somebody who waits for a batch."""

    def __init__(self, batch: bytearray) -> None:
        self.batch = batch
        self.header = check_batch(batch)
        self.later: Later[Any] = Later()
        self.offset: int | None = None
        self.outcomes: list[BaseException | None] = []

    def appended(self, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> None:
        assert self.offset is None
        assert (log_append_time_ms, log_start_offset) == (-1, 0)
        self.offset = base_offset

    def durable(self, error: BaseException | None) -> None:
        self.outcomes.append(error)

    @property
    def code(self) -> int:
        """How it was answered, once."""
        (error,) = self.outcomes
        if error is None:
            return 0
        assert isinstance(error, KafkaError)
        return error.code


@pytest.fixture
async def made() -> Fixture:
    fixture = Fixture()
    await fixture.prepare()
    return fixture


def wait_for(made: Fixture, *batches: bytearray, index: int = 0) -> list[Wait]:
    waits = [Wait(batch) for batch in batches]
    for wait in waits:
        made.commits.append_in_round(made.partitions[index], wait)
    return waits


async def finish(made: Fixture) -> None:
    await settle()
    while made.workers.jobs:
        await made.workers.step()


async def test_one_write_for_each_partition_and_no_read(made: Fixture) -> None:
    waits = wait_for(made, batch_of(), batch_of(3), batch_of())
    waits += wait_for(made, batch_of(), batch_of(), index=1)
    assert made.calls == []
    waiters = made.storage.metrics.round_waiters.total
    await finish(made)
    assert made.storage.metrics.round_waiters.total == waiters + 5
    calls = [operation for operation, path in made.calls if not path.endswith(JOURNAL)]
    assert calls.count("pwrite") == 2
    assert "pread" not in calls
    assert "pread_nowait" not in calls
    assert made.synced() == [JOURNAL]
    assert [wait.code for wait in waits] == [0] * 5
    assert [wait.offset for wait in waits] == [1, 2, 5, 1, 2]
    assert made.partitions[0].high_watermark == made.partitions[0].log.durable_end_offset == 6


async def test_who_comes_during_a_round_is_appended_by_the_next_one(made: Fixture) -> None:
    first = wait_for(made, batch_of())
    await settle()
    second = wait_for(made, batch_of(), batch_of())
    await settle()
    assert made.partitions[0].high_watermark == 2
    await made.workers.step()
    assert [wait.outcomes for wait in first + second] == [[None], [], []]
    assert made.partitions[0].high_watermark == 4
    await made.workers.step()
    assert [wait.code for wait in second] == [0, 0]


async def test_they_become_durable_with_what_was_before_them(made: Fixture) -> None:
    log = made.partitions[0].log
    size = log.size
    made.append(0, "before")
    (wait,) = wait_for(made, batch_of())
    await finish(made)
    assert made.answered == ["before"]
    assert wait.code == 0
    assert log.durable_end_offset == 3
    written = log.files.read_whole(log.segments[-1].log_path)[size:]
    assert written in log.files.read_whole(f"data/{JOURNAL}")


async def test_each_has_an_outcome_of_its_own_where_one_is_unusual(made: Fixture) -> None:
    waits = wait_for(made, idempotent(0), idempotent(0), idempotent(5), batch_of(), idempotent(1))
    await settle()
    # Who is in the log waits for the disk.
    assert [len(wait.outcomes) for wait in waits] == [0, 0, 1, 0, 0]
    await finish(made)
    codes = [0, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0, 0]
    assert [wait.code for wait in waits] == codes
    assert [wait.offset for wait in waits] == [1, 1, None, 2, 3]


async def test_a_full_disk_is_told_to_all_of_one_partition_and_passes(made: Fixture) -> None:
    made.failing["pwrite", f"t-0/{0:020d}{LOG}"] = errno.ENOSPC
    waits, others = wait_for(made, batch_of(), batch_of()), wait_for(made, batch_of(), index=1)
    await finish(made)
    assert [wait.code for wait in waits] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert [wait.code for wait in others] == [0]
    assert made.partitions[0].log.end_offset == 1
    made.failing.clear()
    waits = wait_for(made, batch_of(), batch_of())
    await finish(made)
    assert [wait.code for wait in waits] == [0, 0]


async def test_a_partition_that_is_refused_meanwhile_takes_none(made: Fixture) -> None:
    waits = wait_for(made, batch_of(), batch_of())
    made.partitions[0].refuse(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    await finish(made)
    assert [wait.code for wait in waits] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert made.partitions[0].log.end_offset == 1
    await made.partitions[0].drain()
    await made.commits.close()


async def test_behind_an_append_in_a_thread_they_wait_for_it_and_for_a_round(
    made: Fixture,
) -> None:
    made.storage.inline_append_bytes_max = 1000
    partition = made.partitions[0]
    large = batch_of(value=bytes(LARGE))
    appending = partition.append(large, check_batch(large))
    waits = wait_for(made, batch_of(), batch_of())
    await settle()
    assert partition.high_watermark == 1
    await finish(made)
    assert [wait.code for wait in waits] == [0, 0]
    assert [wait.offset for wait in waits] == [2, 3]
    assert not isinstance(appending, tuple)
    assert (await appending).base_offset == 1
    assert partition.log.durable_end_offset == 4
    await made.commits.close()


async def test_an_append_in_a_thread_that_fails_is_told(made: Fixture) -> None:
    made.storage.inline_append_bytes_max = 1000
    large = batch_of(value=bytes(LARGE))
    appending = made.partitions[0].append(large, check_batch(large))
    waits = wait_for(made, batch_of(), batch_of())
    made.failing["pwrite", f"t-0/{0:020d}{LOG}"] = errno.ENOSPC
    await finish(made)
    assert [wait.code for wait in waits] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert not isinstance(appending, tuple)
    with pytest.raises(KafkaError):
        await appending
    await made.commits.close()


async def test_a_bug_keeps_no_other_partition_from_its_round(
    made: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made.partitions[0].log, "config", None)
    (wait,), (other,) = wait_for(made, idempotent(0)), wait_for(made, batch_of(), index=1)
    await finish(made)
    assert other.code == 0
    (error,) = wait.outcomes
    assert isinstance(error, AttributeError)
