"""What a consumer sees of damage: CORRUPT_MESSAGE where it is, records before and behind it."""

from __future__ import annotations

import pytest

from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.tests.data_path_harness import batch_of, offsets_of, under_test

# Small batches go into the response, large ones are sent from the file.
SIZES = [10, 100_000]
LOG = f"memory/flights-0/{0:020d}.log"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("at", [20, 30, 100])
async def test_a_damaged_batch_is_corrupt_message_and_nothing_else_is(size: int, at: int) -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    batch_bytes = len(batch_of(value=bytes(size)))
    at = min(at, batch_bytes - 1)
    async with under_test(files=files, metadata=metadata) as test:
        await test.topic(partitions=2)
        for _ in range(5):
            await test.produce(batch_of(value=bytes(size)))
        await test.produce(batch_of(), index=1)
    position = 2 * batch_bytes + at
    byte = files.read_whole(LOG)[position]
    files.open(LOG).pwrite(bytes([byte ^ 1]), position)
    # The second time it is known from the start.
    for _ in range(2):
        async with under_test(files=files, metadata=metadata) as test:
            assert offsets_of(await test.fetch(0)) == [0, 1]
            answer = await test.fetch(2)
            assert ErrorCode(answer.error_code) is ErrorCode.CORRUPT_MESSAGE
            assert not answer.records
            assert offsets_of(await test.fetch(3)) == [3, 4]
            assert offsets_of(await test.fetch(0, index=1)) == [0]
            assert (await test.fetch(5)).error_code == 0


@pytest.mark.parametrize("size", SIZES)
async def test_what_was_checked_once_is_not_checked_again(size: int) -> None:
    reads: list[str] = []
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as test:
        await test.topic()
        for _ in range(5):
            await test.produce(batch_of(value=bytes(size)))
    async with under_test(files=files, metadata=metadata) as test:

        def note(operation: str, path: str) -> None:
            if operation == "pread" and path.endswith(".log"):
                reads.append(path)

        assert offsets_of(await test.fetch(0)) == [0, 1, 2, 3, 4]
        files.on_call = note
        located = test.broker.topics.get("flights").partitions[0].locate(0, 1 << 20)  # type: ignore[union-attr]
        assert located is not None
        assert located.is_trusted
        await test.fetch(1)
        # A range of a file is read by this test, when it looks at the records.
        assert not reads
        await test.produce(batch_of())
        assert offsets_of(await test.fetch(5)) == [5]
