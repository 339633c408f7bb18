"""A disk that is full: records are refused, all else goes on, and it heals by itself."""

from __future__ import annotations

from collections.abc import Sequence

from asyncbroker.log.tests.full_disk import FullDisk
from asyncbroker.metadata_store import Change, MemoryMetadataStore, StoredState
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from asyncbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from asyncbroker.tests.data_path_harness import UnderTest, batch_of, settle, under_test
from asyncbroker.tests.group_requests import commit_request

FULL = ErrorCode.KAFKA_STORAGE_ERROR


class StoreOn:
    """A metadata store whose commits need a block of the disk."""

    def __init__(self, disk: FullDisk) -> None:
        self._store = MemoryMetadataStore()
        self._disk = disk

    def open(self) -> StoredState:
        return self._store.open()

    def apply(self, changes: Sequence[Change]) -> None:
        self._disk("pwrite", "metadata")
        self._store.apply(changes)

    def close(self) -> None:
        self._store.close()


async def commit(test: UnderTest, offset: int) -> ErrorCode:
    request = commit_request("app", offsets={0: offset}, topic="flights")
    try:
        response = await test.ask(request, 6)
    except KafkaError as error:
        return error.code
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def delete_topic(test: UnderTest, name: str) -> ErrorCode:
    response = await test.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 3)
    return ErrorCode(response.responses[0].error_code)


async def test_a_full_disk_refuses_records_and_keeps_reads_commits_and_deletions() -> None:
    disk = FullDisk("data")
    async with under_test(files=disk.files, metadata=StoreOn(disk), log_dirs="data") as t:
        await t.topic(segment_bytes="1048576")
        await t.topic("trains")
        for _ in range(5):
            await t.produce(batch_of(1, value=bytes(400_000)))
        assert await commit(t, 1) == 0
        t.clock.advance(1)
        await settle()
        disk.fill()
        for acks in (1, -1):
            assert (await t.produce(batch_of(), acks=acks)).error_code == FULL
        assert (await t.fetch(0)).error_code == 0
        for offset in range(2, 12):
            assert await commit(t, offset) == 0
        # What was kept back for that is not for records.
        assert (await t.produce(batch_of())).error_code == FULL
        request = DeleteRecordsRequest(
            [DeleteRecordsTopic("flights", [DeleteRecordsPartition(0, 4)])], 1000
        )
        response = await t.ask(request, 2)
        assert response.topics[0].partitions[0].error_code == 0
        assert await delete_topic(t, "trains") == 0
        assert t.broker.storage.error is None
        disk.free()
        t.clock.advance(1)
        await settle()
        assert (await t.produce(batch_of(), acks=-1)).error_code == 0
        assert (await t.fetch(4)).log_start_offset == 4


async def test_commits_cannot_take_the_room_of_deletions() -> None:
    disk = FullDisk("data")
    async with under_test(files=disk.files, metadata=StoreOn(disk), log_dirs="data") as t:
        await t.topic()
        assert await commit(t, 1) == 0
        t.clock.advance(1)
        await settle()
        disk.fill()
        codes = [await commit(t, offset) for offset in range(600)]
        assert codes[0] == 0
        assert codes[-1] != 0
        assert await delete_topic(t, "flights") == 0
        disk.free()


async def test_a_start_on_a_full_disk_serves_what_is_there() -> None:
    disk = FullDisk("data")
    store = StoreOn(disk)
    async with under_test(files=disk.files, metadata=store, log_dirs="data") as t:
        await t.topic()
        await t.produce(batch_of(3), acks=-1)
        t.clock.advance(1)
        await settle()
    disk.files.remove("data/.kafka_cleanshutdown")
    disk.fill()
    async with under_test(files=disk.files, metadata=store, log_dirs="data") as t:
        assert (await t.fetch(0)).high_watermark == 3
        assert (await t.produce(batch_of())).error_code == FULL
        assert await delete_topic(t, "flights") == 0
    assert disk.files.exists("data/.kafka_cleanshutdown")


async def test_a_broker_in_memory_keeps_nothing_back() -> None:
    async with under_test() as t:
        t.clock.advance(1)
        await settle()
        assert not t.files.exists("memory/.asyncbroker_reserve")
