"""A data directory that is deleted, or whose disk breaks, under a broker that goes on running."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from asyncbroker.log.files import RealFiles
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.tests.data_path_harness import batch_of, settle, under_test


async def test_acks_all_fails_when_the_files_were_deleted(tmp_path: Path) -> None:
    async with under_test(files=RealFiles(), log_dirs=str(tmp_path / "data")) as t:
        await t.topic()
        assert (await t.produce(batch_of(), acks=-1)).error_code == 0
        shutil.rmtree(tmp_path / "data")
        for _ in range(2):
            outcome = await t.produce(batch_of(), acks=-1)
            assert outcome.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert t.broker.storage.error is not None


async def test_a_checkpoint_notices_that_the_directory_was_deleted(tmp_path: Path) -> None:
    async with under_test(files=RealFiles(), log_dirs=str(tmp_path / "data")) as t:
        await t.topic()
        await t.produce(batch_of(), acks=-1)
        shutil.rmtree(tmp_path / "data")
        t.clock.advance(60)
        await settle()
        assert t.broker.storage.error is not None
        assert (await t.produce(batch_of())).error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("operation", ["datasync", "write_atomically"])
async def test_a_checkpoint_that_fails_takes_the_directory_offline(operation: str) -> None:
    files = MemoryFiles()
    async with under_test(files=files) as t:
        await t.topic(segment_bytes="1048576")
        for _ in range(4):
            await t.produce(batch_of(1, value=bytes(400_000)))

        def broken(called: str, path: str) -> None:
            if called == operation:
                raise OSError(errno.EIO, "Input/output error", path)

        files.on_call = broken
        t.clock.advance(60)
        await settle()
        assert t.broker.storage.error is not None
        files.on_call = None


async def test_a_full_disk_at_a_checkpoint_passes() -> None:
    files = MemoryFiles()
    async with under_test(files=files) as t:
        await t.topic()
        await t.produce(batch_of(), acks=-1)

        def full(called: str, path: str) -> None:
            if called == "write_atomically":
                raise OSError(errno.ENOSPC, "No space left on device", path)

        files.on_call = full
        t.clock.advance(60)
        await settle()
        files.on_call = None
        assert t.broker.storage.error is None
        assert (await t.produce(batch_of(), acks=-1)).error_code == 0


async def test_acks_1_fails_soon_after_the_directory_was_deleted(tmp_path: Path) -> None:
    async with under_test(files=RealFiles(), log_dirs=str(tmp_path / "data")) as t:
        await t.topic()
        assert (await t.produce(batch_of())).error_code == 0
        shutil.rmtree(tmp_path / "data")
        t.clock.advance(1)
        await settle()
        assert (await t.produce(batch_of())).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert t.broker.storage.error is not None


async def test_a_deleted_partition_directory_takes_that_partition_offline(tmp_path: Path) -> None:
    async with under_test(files=RealFiles(), log_dirs=str(tmp_path / "data")) as t:
        await t.topic(partitions=2)
        await t.topic("trains")
        shutil.rmtree(tmp_path / "data" / "flights-1")
        for _ in range(2):
            t.clock.advance(1)
            await settle()
        outcome = await t.produce(batch_of(), index=1)
        assert outcome.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await t.produce(batch_of(), index=0)).error_code == 0
        assert (await t.produce(batch_of(), topic="trains")).error_code == 0
        assert t.broker.storage.error is None


async def test_a_deleted_topic_is_not_missed() -> None:
    async with under_test() as t:
        topic = await t.topic()
        await t.broker.topics.delete(topic)
        t.clock.advance(1)
        await settle()
        await t.topic()
        assert (await t.produce(batch_of())).error_code == 0


async def test_a_directory_that_is_made_read_only_goes_offline() -> None:
    files = MemoryFiles()

    def read_only(operation: str, path: str) -> None:
        if operation == "pwrite":
            raise OSError(errno.EROFS, "Read-only file system", path)

    async with under_test(files=files) as t:
        await t.topic(partitions=2)
        files.on_call = read_only
        for index in range(2):
            outcome = await t.produce(batch_of(), index=index)
            assert outcome.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert t.broker.storage.error is not None
        files.on_call = None
