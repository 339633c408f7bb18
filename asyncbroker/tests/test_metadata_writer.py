"""Rounds of metadata changes, and the producer ids that depend on them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from asyncbroker.metadata_store import Change, MemoryMetadataStore, SetValue
from asyncbroker.metadata_writer import MetadataWriter
from asyncbroker.producer_ids import BLOCK_LENGTH, NEXT_PRODUCER_ID, ProducerIds
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.workers import InlineWorkers, ThreadWorkers

PATIENCE_SECONDS = 60.0


class HeldStore(MemoryMetadataStore):
    """A transaction takes until the test lets it end."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = threading.Event()

    def apply(self, changes: Sequence[Change]) -> None:
        assert self.may_end.wait(PATIENCE_SECONDS)
        super().apply(changes)


class CountingStore(MemoryMetadataStore):
    """Counts transactions, and fails those that the test wants to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.transactions: list[int] = []
        self.failures: list[Exception] = []

    def apply(self, changes: Sequence[Change]) -> None:
        self.transactions.append(len(changes))
        if self.failures:
            raise self.failures.pop()
        super().apply(changes)


async def test_writes_of_one_moment_are_one_transaction() -> None:
    store = CountingStore()
    writer = MetadataWriter(store, InlineWorkers())
    await asyncio.gather(*(writer.write(SetValue(str(n), "x")) for n in range(10)))
    assert store.transactions == [10]
    assert len(store.open().values) == 10


async def test_a_mistake_in_what_follows_one_write_does_not_stop_the_others() -> None:
    def mistake() -> None:
        raise LookupError("ours")

    store = CountingStore()
    writer = MetadataWriter(store, InlineWorkers())
    mistaken = writer.write(SetValue("a", "1"), then=mistake)
    await writer.write(SetValue("b", "1"))
    await writer.write(SetValue("c", "1"))
    with pytest.raises(LookupError):
        await mistaken
    await writer.close()
    assert store.open().values == {"a": "1", "b": "1", "c": "1"}


async def test_who_comes_during_a_transaction_joins_the_next() -> None:
    store = CountingStore()
    workers = ThreadWorkers(asyncio.get_running_loop(), 2)
    writer = MetadataWriter(store, workers)
    first = writer.write(SetValue("a", "1"))
    await asyncio.sleep(0)
    others = [writer.write(SetValue(name, "1")) for name in "bcd"]
    await asyncio.gather(first, *others)
    assert store.transactions == [1, 3]
    await writer.close()
    await workers.close()


async def test_memory_follows_the_store_also_when_nobody_waits_any_more() -> None:
    writer = MetadataWriter(CountingStore(), InlineWorkers())
    seen: list[str] = []
    first = writer.write(SetValue("a", "1"), then=lambda: seen.append("a"))
    second = writer.write(SetValue("b", "1"), then=lambda: seen.append("b"))
    first.cancel()
    await second
    assert seen == ["a", "b"]


async def test_a_full_disk_fails_its_round_and_passes() -> None:
    store = CountingStore()
    store.failures.append(OSError("database or disk is full"))
    writer = MetadataWriter(store, InlineWorkers())
    seen: list[str] = []
    with pytest.raises(KafkaError, match="disk is full") as caught:
        await writer.write(SetValue("a", "1"), then=lambda: seen.append("a"))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not seen
    await writer.write(SetValue("b", "1"))
    assert store.open().values == {"b": "1"}


async def test_a_bug_reaches_whoever_waits() -> None:
    store = CountingStore()
    store.failures.append(KeyError("a bug"))
    writer = MetadataWriter(store, InlineWorkers())
    with pytest.raises(KeyError):
        await writer.write(SetValue("a", "1"))


async def test_closing_waits_for_the_round_under_way() -> None:
    store = CountingStore()
    workers = ThreadWorkers(asyncio.get_running_loop(), 2)
    writer = MetadataWriter(store, workers)
    pending = writer.write(SetValue("a", "1"))
    await writer.close()
    assert pending.done()
    await workers.close()


async def test_producer_ids_do_not_repeat_across_restarts() -> None:
    store = CountingStore()
    given: list[int] = []
    for _ in range(3):
        first_free = int(store.open().values.get(NEXT_PRODUCER_ID, "0"))
        ids = ProducerIds(MetadataWriter(store, InlineWorkers()), first_free)
        given += [await ids.allocate() for _ in range(5)]
    assert len(set(given)) == 15
    assert given[5] == BLOCK_LENGTH


async def test_a_block_of_producer_ids_is_durable_before_the_first_is_given_out() -> None:
    store = CountingStore()
    ids = ProducerIds(MetadataWriter(store, InlineWorkers()), 0)
    given = await asyncio.gather(*(ids.allocate() for _ in range(BLOCK_LENGTH + 1)))
    assert sorted(given) == list(range(BLOCK_LENGTH + 1))
    assert store.transactions == [1, 1]
    assert store.open().values == {NEXT_PRODUCER_ID: str(2 * BLOCK_LENGTH)}


async def test_no_producer_id_is_given_out_while_blocks_cannot_be_kept() -> None:
    store = CountingStore()
    store.failures.append(OSError("no space"))
    ids = ProducerIds(MetadataWriter(store, InlineWorkers()), 0)
    with pytest.raises(KafkaError):
        await ids.allocate()
    assert await ids.allocate() == 0


async def test_a_round_ends_as_usual_when_whoever_closes_has_given_up() -> None:
    store = HeldStore()
    loop = asyncio.get_running_loop()
    bugs: list[str] = []
    loop.set_exception_handler(lambda _, context: bugs.append(str(context)))
    workers = ThreadWorkers(loop, 1)
    writer = MetadataWriter(store, workers)
    pending = writer.write(SetValue("a", "1"))
    closing = asyncio.create_task(writer.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    store.may_end.set()
    await pending
    await writer.close()
    await workers.close()
    assert not bugs
