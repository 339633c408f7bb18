"""The idempotent producer: what a resend, a gap, an epoch and a restart come to."""

from __future__ import annotations

import asyncio

import pytest

from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.records import (
    build_batch,
)
from asyncbroker.tests.data_path_harness import (
    errors_of,
    forget_clean_stop,
    idempotent,
    outcome_of,
    produce_request,
    records,
    under_test,
)


async def test_an_exact_resend_of_one_of_the_last_five_batches_gets_its_first_offset() -> None:
    async with under_test() as test:
        topic = await test.topic()
        for sequence in range(6):
            assert (await test.produce(idempotent(sequence))).base_offset == sequence
        for sequence in range(1, 6):
            outcome = await test.produce(idempotent(sequence), acks=-1)
            assert (outcome.error_code, outcome.base_offset) == (0, sequence)
        assert topic.partitions[0].high_watermark == 6


async def test_a_gap_in_the_sequence_is_out_of_order() -> None:
    """Not a duplicate."""
    async with under_test() as test:
        await test.topic()
        await test.produce(idempotent(0, 2))
        outcome = await test.produce(idempotent(3))
        assert outcome.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (await test.produce(idempotent(2))).error_code == 0


async def test_sequences_wrap_to_0() -> None:
    async with under_test() as test:
        await test.topic()
        assert (await test.produce(idempotent(2_147_483_646, 2))).error_code == 0
        assert (await test.produce(idempotent(0))).error_code == 0


async def test_a_new_epoch_begins_at_0_and_fences_the_old_one() -> None:
    async with under_test() as test:
        await test.topic()
        await test.produce(idempotent(0))
        outcome = await test.produce(idempotent(5, epoch=1))
        assert outcome.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (await test.produce(idempotent(0, epoch=1))).error_code == 0
        outcome = await test.produce(idempotent(1))
        assert outcome.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_an_unknown_producer_may_begin_anywhere() -> None:
    async with under_test() as test:
        await test.topic()
        assert (await test.produce(idempotent(12345))).error_code == 0


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean stop", "crash"])
async def test_a_resend_after_a_restart_is_no_duplicate(is_clean: bool) -> None:
    """The acks were lost, and the producer comes again with all five batches."""
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as test:
        await test.topic()
        for sequence in range(5):
            await test.produce(idempotent(sequence), acks=-1)
    if not is_clean:
        forget_clean_stop(files)
    async with under_test(files=files, metadata=metadata) as test:
        for sequence in range(5):
            outcome = await test.produce(idempotent(sequence), acks=-1)
            assert (outcome.error_code, outcome.base_offset) == (0, sequence)
        assert (await test.produce(idempotent(5))).base_offset == 5


async def test_five_pipelined_batches_are_applied_in_the_order_in_which_they_came() -> None:
    """Large ones go to a worker, small ones do not overtake them."""
    async with under_test(asyncbroker_append_inline_max_bytes="1000") as test:
        topic = await test.topic()
        answers = []
        for sequence in range(5):
            value = bytes(5000 if sequence % 2 == 0 else 10)
            batch = build_batch(
                records(value=value), producer_id=7, producer_epoch=0, base_sequence=sequence
            )
            answers.append(test.begin(produce_request(batch), 9))
        outcomes = [
            outcome_of(await answer if isinstance(answer, asyncio.Future) else answer)
            for answer in answers
        ]
        assert errors_of(outcomes) == [ErrorCode.NONE] * 5
        assert [outcome.base_offset for outcome in outcomes] == [0, 1, 2, 3, 4]
        assert topic.partitions[0].high_watermark == 5


async def test_a_recreated_topic_knows_nothing_of_its_old_producers() -> None:
    async with under_test() as test:
        topic = await test.topic()
        await test.produce(idempotent(0))
        await test.broker.topics.delete(topic)
        await test.topic()
        outcome = await test.produce(idempotent(1))
        assert (outcome.error_code, outcome.base_offset) == (0, 0)
