"""InitProducerId, and the ids that it gives out."""

from __future__ import annotations

import asyncio

import pytest

from asyncbroker.log.config import INT64_MAX
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.metadata_writer import MetadataWriter
from asyncbroker.producer_ids import BLOCK_LENGTH, NEXT_PRODUCER_ID, ProducerIds
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from asyncbroker.tests.data_path_harness import forget_clean_stop, idempotent, under_test
from asyncbroker.workers import InlineWorkers


class FullDisk(MemoryMetadataStore):
    """Fails the first write."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = True

    def apply(self, changes: object) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().apply(changes)  # type: ignore[arg-type]


def ids_of(store: MemoryMetadataStore) -> ProducerIds:
    first = int(store.open().values.get(NEXT_PRODUCER_ID, "0"))
    return ProducerIds(MetadataWriter(store, InlineWorkers()), first)


async def test_ids_count_up_and_never_repeat_over_blocks() -> None:
    ids = ids_of(MemoryMetadataStore())
    handed_out = [await ids.allocate() for _ in range(BLOCK_LENGTH + 5)]
    assert handed_out == list(range(BLOCK_LENGTH + 5))


async def test_a_restart_goes_on_after_the_reserved_block() -> None:
    store = MemoryMetadataStore()
    assert await ids_of(store).allocate() == 0
    assert await ids_of(store).allocate() == BLOCK_LENGTH


async def test_all_who_ask_at_the_same_time_get_ids_of_their_own() -> None:
    ids = ids_of(MemoryMetadataStore())
    handed_out = await asyncio.gather(*(ids.allocate() for _ in range(2 * BLOCK_LENGTH)))
    assert len(set(handed_out)) == 2 * BLOCK_LENGTH


async def test_no_id_is_handed_out_before_its_block_is_durable() -> None:
    store = FullDisk()
    ids = ids_of(store)
    with pytest.raises(KafkaError) as raised:
        await ids.allocate()
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    store.is_full = False
    assert await ids.allocate() == 0
    assert store.open().values[NEXT_PRODUCER_ID] == str(BLOCK_LENGTH)


async def test_who_stops_waiting_takes_nobody_elses_block_away() -> None:
    ids = ids_of(MemoryMetadataStore())
    impatient = asyncio.ensure_future(ids.allocate())
    patient = asyncio.ensure_future(ids.allocate())
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient == 0


# ---- the handler


async def test_a_producer_without_transactions_gets_a_fresh_id_and_epoch_0() -> None:
    async with under_test() as test:
        for version in range(6):
            answer = await test.ask(InitProducerIdRequest(transaction_timeout_ms=60_000), version)
            assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, version, 0)


async def test_the_id_and_epoch_that_a_producer_names_are_not_given_again() -> None:
    async with under_test() as test:
        request = InitProducerIdRequest(producer_id=0, producer_epoch=3)
        first = await test.ask(InitProducerIdRequest(), 4)
        answer = await test.ask(request, 4)
        assert answer.producer_id != first.producer_id
        assert answer.producer_epoch == 0


async def test_ids_never_repeat_over_a_restart() -> None:
    """After a stop in order, and after a crash."""
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    seen = []
    for _ in range(3):
        async with under_test(files=files, metadata=metadata) as test:
            for _ in range(2):
                seen.append((await test.ask(InitProducerIdRequest(), 4)).producer_id)
        forget_clean_stop(files)
    assert len(set(seen)) == 6


async def test_ids_that_only_logs_know_are_not_given_to_anybody_else() -> None:
    """Metadata that is lost, older than the logs, or not theirs because they have moved in."""
    files = MemoryFiles()
    async with under_test(files=files, metadata=MemoryMetadataStore()) as test:
        await test.topic()
        for _ in range(2):
            producer_id = (await test.ask(InitProducerIdRequest(), 4)).producer_id
            await test.produce(batch=idempotent(0, producer_id=producer_id))
        # Nobody's id yet, and far away: as little may be given out, and no id is lost to it.
        await test.produce(batch=idempotent(0, producer_id=INT64_MAX))
    async with under_test(files=files, metadata=MemoryMetadataStore()) as test:
        producer_id = (await test.ask(InitProducerIdRequest(), 4)).producer_id
        assert producer_id == 2
        appended = await test.produce(batch=idempotent(0, producer_id=producer_id))
        assert appended.base_offset == 3


@pytest.mark.parametrize(
    ("transactional_id", "code"),
    [
        ("bank", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_transactional_producer_is_refused_for_good(
    transactional_id: str, code: ErrorCode
) -> None:
    async with under_test() as test:
        with pytest.raises(KafkaError) as raised:
            await test.ask(InitProducerIdRequest(transactional_id=transactional_id), 4)
        assert raised.value.code is code
