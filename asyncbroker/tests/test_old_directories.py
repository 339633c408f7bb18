"""Data directories from before: of an older version, and copies that were made earlier."""

from __future__ import annotations

import pytest

from asyncbroker.broker import MEMORY_DIRECTORY
from asyncbroker.log.directory_format import FORMAT, FORMAT_VERSION
from asyncbroker.log.journal import JOURNAL
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.tests.log_harness import copied
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.fetch import FetchEpochEndOffset
from asyncbroker.tests.data_path_harness import (
    batch_of,
    forget_clean_stop,
    offsets_of,
    under_test,
)


@pytest.mark.parametrize("is_clean", [True, False])
async def test_a_directory_of_an_older_version_is_raised_with_what_it_has(is_clean: bool) -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as test:
        await test.topic()
        await test.produce(batch_of(3), acks=-1)
    # Version 1 knew no journal.
    path = f"{MEMORY_DIRECTORY}/{FORMAT}"
    files.write_whole(path, b"version: 1\n")
    files.remove(f"{MEMORY_DIRECTORY}/{JOURNAL}")
    if not is_clean:
        forget_clean_stop(files)
    async with under_test(files=files, metadata=metadata) as test:
        assert files.read_whole(path) == f"version: {FORMAT_VERSION}\n".encode()
        assert offsets_of(await test.fetch(0)) == [0, 1, 2]


async def test_readers_who_are_ahead_of_an_older_copy_are_told() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as test:
        topic = await test.topic()
        old_epoch = topic.partitions[0].leader_epoch
        for _ in range(3):
            await test.produce(batch_of(), acks=-1)
        # While it is in use, as a snapshot of its volume would be; then a few records are lost.
        copy = copied(files)
        for _ in range(3):
            await test.produce(batch_of(), acks=-1)
    async with under_test(files=copy, metadata=metadata) as test:
        assert offsets_of(await test.fetch(0)) == [0, 1, 2]
        for _ in range(3):
            await test.produce(batch_of(), acks=-1)
        # Whoever has read up to 5 has not read what is there now.
        answer = await test.fetch(5, last_fetched_epoch=old_epoch)
        assert answer.diverging_epoch == FetchEpochEndOffset(old_epoch, 3)
        assert answer.records == b""
        answer = await test.fetch(5, current_leader_epoch=old_epoch)
        assert ErrorCode(answer.error_code) is ErrorCode.FENCED_LEADER_EPOCH


async def test_a_copy_of_a_stopped_directory_goes_on_in_its_epoch() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as test:
        await test.topic()
        await test.produce(batch_of(), acks=-1)
    copy = copied(files)
    async with under_test(files=files, metadata=metadata) as test:
        await test.produce(batch_of(2), acks=-1)
    async with under_test(files=copy, metadata=metadata) as test:
        answer = await test.fetch(3)
        assert ErrorCode(answer.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE
