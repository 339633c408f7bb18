"""Fetch: how much comes, and as what; test_fetch_waits and test_fetch_sessions have the rest."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from asyncbroker.handlers import HANDLERS
from asyncbroker.handlers.fetch import INLINE_BYTES_MAX
from asyncbroker.log.memory_files import MemoryFile, MemoryFiles
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.api import API_BY_NAME
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.fetch import (
    FetchEpochEndOffset,
    ForgottenTopic,
    ReplicaState,
)
from asyncbroker.protocol.records import Compression, read_header
from asyncbroker.tests.data_path_harness import (
    UnderTest,
    answer_of,
    answers_of,
    batch_of,
    bytes_of,
    errors_of,
    fetch_request,
    forget_clean_stop,
    offsets_of,
    produce_request,
    under_test,
)
from asyncbroker.tests.edge_harness import edge, on_both_loops, request_frame, until

LARGE = 100_000


async def flights_with(test: UnderTest, *sizes: int) -> None:
    """A topic with one batch of each size of value."""
    await test.topic()
    for size in sizes:
        assert (await test.produce(batch_of(value=bytes(size)))).error_code == 0


# ---- what is returned


@pytest.mark.parametrize("version", range(4, 13))
async def test_every_version_by_name_is_served(version: int) -> None:
    async with under_test() as test:
        await flights_with(test, 10)
        assert offsets_of(await test.fetch(version=version)) == [0]


@pytest.mark.parametrize("version", [13, 14, 15, 16, 17])
async def test_every_version_by_id_is_served(version: int) -> None:
    async with under_test() as test:
        topic = await test.topic()
        await test.produce(batch_of())
        request = fetch_request({(topic.topic_id, 0): 0})
        response = await test.ask(request, version)
        assert response.responses[0].topic_id == topic.topic_id
        assert offsets_of(answer_of(response)) == [0]


async def test_records_are_whole_batches_from_the_one_that_contains_the_offset() -> None:
    """The client drops what comes before."""
    async with under_test() as test:
        await test.topic()
        for _ in range(3):
            await test.produce(batch_of(10))
        assert offsets_of(await test.fetch(15)) == list(range(10, 30))


async def test_nothing_to_return_is_empty_and_never_null() -> None:
    """librdkafka fails on null (KAFKA-18646); real offsets on success."""
    async with under_test() as test:
        await flights_with(test, 10)
        at_the_end = await test.fetch(1)
        unknown = await test.fetch(topic="nowhere")
        assert at_the_end.records == unknown.records == b""
        assert (at_the_end.error_code, at_the_end.high_watermark) == (0, 1)
        assert (at_the_end.last_stable_offset, at_the_end.log_start_offset) == (1, 0)
        assert (unknown.high_watermark, unknown.log_start_offset) == (-1, -1)
        codec = API_BY_NAME["Fetch"].response_codec(4)
        encoded = codec.encode(await test.ask(fetch_request({("flights", 0): 1}), 4))
        assert encoded.endswith(bytes(4))


async def test_an_offset_past_the_end_is_out_of_range_and_the_end_itself_is_empty() -> None:
    async with under_test() as test:
        await flights_with(test, 10)
        assert (await test.fetch(1)).error_code == 0
        for offset in (2, -1):
            assert (await test.fetch(offset)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_aborted_transactions_are_null_unless_asked_for() -> None:
    async with under_test() as test:
        await flights_with(test, 10)
        assert (await test.fetch(isolation_level=0)).aborted_transactions is None
        committed = await test.fetch(isolation_level=1)
        assert committed.aborted_transactions == []
        assert committed.last_stable_offset == committed.high_watermark == 1


async def test_the_preferred_read_replica_is_nobody() -> None:
    async with under_test() as test:
        await flights_with(test, 10)
        assert (await test.fetch(rack_id="r1")).preferred_read_replica == -1


async def test_large_ranges_are_sent_from_the_file_and_small_ones_are_read() -> None:
    async with under_test() as test:
        await flights_with(test, 10, LARGE)
        small = await test.fetch(0, partition_max_bytes=1000)
        large = await test.fetch(1)
        assert isinstance(small.records, (bytes, bytearray))
        assert not isinstance(large.records, (bytes, bytearray, memoryview))
        assert len(bytes_of(large)) > LARGE


@pytest.mark.parametrize(
    ("size", "read_count"), [(20_000, 9), (40_000, 6), (60_000, 4), (70_000, 0)]
)
async def test_what_is_read_into_one_answer_is_limited(size: int, read_count: int) -> None:
    """Middling ranges are read up to a sum, so that the loop does not copy for a long time."""
    async with under_test() as test:
        await test.topic(partitions=9)
        for index in range(9):
            await test.produce(batch_of(value=bytes(size)), index=index)
        request = fetch_request({("flights", index): 0 for index in range(9)})
        answers = answers_of(await test.ask(request, 12))
        are_read = [isinstance(answer.records, (bytes, bytearray)) for answer in answers]
        assert are_read == [True] * read_count + [False] * (9 - read_count)
        assert all(len(bytes_of(answer)) > size for answer in answers)


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean stop", "crash"])
async def test_the_ends_do_not_go_backwards_over_a_restart(is_clean: bool) -> None:
    """Also right after it, before anything is appended."""
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as test:
        await flights_with(test, 10, LARGE, 10)
    if not is_clean:
        forget_clean_stop(files)
    async with under_test(files=files, metadata=metadata) as test:
        answer = await test.fetch(isolation_level=1)
        assert (answer.high_watermark, answer.last_stable_offset) == (3, 3)
        assert answer.log_start_offset == 0


# ---- limits


async def test_the_first_batch_comes_whole_however_large() -> None:
    """Otherwise the consumer is stuck."""
    async with under_test() as test:
        await flights_with(test, LARGE, LARGE)
        answer = await test.fetch(partition_max_bytes=1, max_bytes=1)
        assert offsets_of(answer) == [0]


async def test_later_partitions_are_cut_to_whole_batches_and_may_be_empty() -> None:
    async with under_test() as test:
        await test.topic(partitions=3)
        for index in range(3):
            for _ in range(4):
                await test.produce(batch_of(value=bytes(1000)), index=index)
        size = len(batch_of(value=bytes(1000)))
        request = fetch_request(
            {("flights", index): 0 for index in range(3)}, max_bytes=6 * size + 9
        )
        answers = answers_of(await test.ask(request, 12))
        assert [len(offsets_of(answer)) for answer in answers] == [4, 2, 0]
        assert answers[2].high_watermark == 4


async def test_an_empty_first_partition_passes_the_whole_batch_on_to_the_next() -> None:
    """The first *non-empty* partition."""
    async with under_test() as test:
        await test.topic(partitions=2)
        await test.produce(batch_of(value=bytes(LARGE)), index=1)
        request = fetch_request({("flights", 0): 0, ("flights", 1): 0}, max_bytes=10)
        answers = answers_of(await test.ask(request, 12))
        assert [offsets_of(answer) for answer in answers] == [[], [0]]


async def test_one_answer_is_never_larger_than_the_broker_allows() -> None:
    async with under_test(fetch_max_bytes="2048") as test:
        await test.topic()
        for _ in range(10):
            await test.produce(batch_of(value=bytes(1000)))
        assert len(offsets_of(await test.fetch())) == 1


async def test_partitions_are_served_in_the_order_of_the_request() -> None:
    """Clients rotate them; an order of the server's own starves."""
    async with under_test() as test:
        await test.topic(partitions=3)
        request = fetch_request({("flights", 2): 0, ("flights", 0): 0, ("flights", 1): 0})
        answers = answers_of(await test.ask(request, 12))
        assert [answer.partition_index for answer in answers] == [2, 0, 1]


async def test_a_full_answer_has_every_partition_asked_for() -> None:
    """Otherwise Java drops all of it."""
    async with under_test() as test:
        await test.topic(partitions=2)
        request = fetch_request({("flights", 0): 0, ("nowhere", 0): 0, ("flights", 7): 0})
        answers = answers_of(await test.ask(request, 12))
        assert errors_of(answers) == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]


# ---- epochs


async def test_an_older_leader_epoch_is_fenced_and_a_newer_one_unknown() -> None:
    async with under_test() as test:
        topic = await test.topic()
        epoch = topic.partitions[0].leader_epoch
        codes = [
            (await test.fetch(current_leader_epoch=known)).error_code
            for known in (epoch - 1, epoch, epoch + 1, -1)
        ]
        assert codes == [
            *([ErrorCode.FENCED_LEADER_EPOCH] if epoch else [ErrorCode.NONE]),
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.NONE,
        ]


async def test_a_reader_whose_epoch_ended_earlier_is_told_where_and_gets_no_records() -> None:
    """KIP-595, from version 12 on."""
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as test:
        topic = await test.topic()
        old_epoch = topic.partitions[0].leader_epoch
        for _ in range(3):
            await test.produce(batch_of())
    forget_clean_stop(files)
    async with under_test(files=files, metadata=metadata) as test:
        partition = test.broker.topics.get("flights").partitions[0]  # type: ignore[union-attr]
        assert partition.leader_epoch > old_epoch
        for _ in range(3):
            await test.produce(batch_of())
        answer = await test.fetch(5, last_fetched_epoch=old_epoch, max_wait_ms=1000)
        assert answer.diverging_epoch == FetchEpochEndOffset(old_epoch, 3)
        assert (answer.error_code, answer.records) == (0, b"")
        same = await test.fetch(3, last_fetched_epoch=old_epoch)
        assert same.diverging_epoch is None
        assert offsets_of(same) == [3, 4, 5]
        unheard_of = await test.fetch(3, last_fetched_epoch=partition.leader_epoch + 5)
        assert unheard_of.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# ---- topic ids


async def test_an_unknown_topic_id_is_told_apart_from_an_unknown_name() -> None:
    async with under_test() as test:
        response = await test.ask(fetch_request({(bytes(15) + b"\x09", 0): 0}), 13)
        assert answer_of(response).error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_session_on_a_topic_that_was_recreated_finds_its_id_inconsistent() -> None:
    async with under_test() as test:
        topic = await test.topic()
        opened = await test.ask(fetch_request({(topic.topic_id, 0): 0}, session_epoch=0), 13)
        await test.broker.topics.delete(topic)
        gone = fetch_request({}, session_id=opened.session_id, session_epoch=1)
        answer = answer_of(await test.ask(gone, 13))
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        await test.topic()
        again = fetch_request({}, session_id=opened.session_id, session_epoch=2)
        answer = answer_of(await test.ask(again, 13))
        assert answer.error_code == ErrorCode.INCONSISTENT_TOPIC_ID


# ---- sessions, through the handler


async def test_an_incremental_fetch_without_news_is_empty() -> None:
    async with under_test() as test:
        await flights_with(test, 10)
        opened = await test.ask(fetch_request({("flights", 0): 0}, session_epoch=0), 7)
        assert opened.session_id > 0
        moved = fetch_request({("flights", 0): 1}, session_id=opened.session_id, session_epoch=1)
        response = await test.ask(moved, 7)
        assert (response.session_id, response.responses) == (opened.session_id, [])


async def test_an_incremental_fetch_forgets_partitions() -> None:
    async with under_test() as test:
        await test.topic(partitions=2)
        request = fetch_request({("flights", 0): 0, ("flights", 1): 0}, session_epoch=0)
        opened = await test.ask(request, 12)
        for index in (0, 1):
            await test.produce(batch_of(), index=index)
        forgetting = fetch_request({}, session_id=opened.session_id, session_epoch=1)
        forgetting.forgotten_topics_data = [ForgottenTopic(topic="flights", partitions=[0])]
        answers = answers_of(await test.ask(forgetting, 12))
        assert [answer.partition_index for answer in answers] == [1]


async def test_a_session_under_a_byte_limit_serves_its_partitions_in_turn() -> None:
    async with under_test() as test:
        await test.topic(partitions=3)
        for index in range(3):
            await test.produce(batch_of(), index=index)
        request = fetch_request(
            {("flights", index): 0 for index in range(3)}, session_epoch=0, max_bytes=1
        )
        response = await test.ask(request, 12)
        seen = [answer.partition_index for answer in answers_of(response) if answer.records]
        for epoch in (1, 2):
            request = fetch_request(
                {}, session_id=response.session_id, session_epoch=epoch, max_bytes=1
            )
            later = await test.ask(request, 12)
            seen += [answer.partition_index for answer in answers_of(later) if answer.records]
        assert sorted(seen) == [0, 1, 2]


async def test_an_unknown_session_is_an_error_of_the_whole_answer() -> None:
    async with under_test() as test:
        await test.topic()
        with pytest.raises(KafkaError) as raised:
            await test.ask(fetch_request({}, session_id=99, session_epoch=1), 12)
        assert raised.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


# ---- who may fetch, and what


@pytest.mark.parametrize("fields", [{"replica_id": 3}, {"replica_state": ReplicaState(3, 1)}])
async def test_a_follower_is_refused(fields: dict[str, Any]) -> None:
    async with under_test() as test:
        await test.topic()
        with pytest.raises(KafkaError) as raised:
            await test.ask(fetch_request({("flights", 0): 0}, **fields), 15)
        assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("size", [10, LARGE])
async def test_zstd_is_not_sent_to_clients_before_version_10(size: int) -> None:
    async with under_test() as test:
        await test.topic()
        batch = batch_of(value=random.Random(1).randbytes(size), compression=Compression.ZSTD)
        await test.produce(batch)
        answer = await test.fetch(version=9)
        assert (answer.error_code, answer.records) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, b"")
        assert read_header(bytes_of(await test.fetch(version=10))).compression is Compression.ZSTD


class Disk:
    """One that cannot read a partition while the test wants it so."""

    is_broken = False

    def called(self, operation: str, path: str) -> None:
        if self.is_broken and operation.startswith("pread") and "flights-0" in path:
            raise OSError(errno.EIO, "Input/output error")


async def test_a_read_error_is_the_partitions_own_and_old_versions_get_another_code() -> None:
    """EIO takes one partition, others are read on."""
    disk = Disk()
    async with under_test(files=MemoryFiles(disk.called)) as test:
        await test.topic(partitions=2)
        for index in (0, 1):
            await test.produce(batch_of(), index=index)
        disk.is_broken = True
        request = fetch_request({("flights", 0): 0, ("flights", 1): 0})
        answers = answers_of(await test.ask(request, 12))
        assert errors_of(answers) == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
        disk.is_broken = False
        assert (await test.fetch(version=6)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await test.fetch(version=5)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        outcome = await test.ask(produce_request(batch_of(), index=1), 9)
        assert outcome.responses[0].partition_responses[0].error_code == 0


@on_both_loops
async def test_a_read_error_while_records_are_sent_is_the_partitions_own_as_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The response has begun, so the connection ends with it, and who asks again is told why."""
    disk = Disk()
    async with under_test(files=MemoryFiles(disk.called)) as test:
        await test.topic(partitions=2)
        for index in (0, 1):
            await test.produce(batch_of(value=bytes(INLINE_BYTES_MAX)), index=index)
        disk.is_broken = True
        frame = request_frame("Fetch", 12, fetch_request({("flights", 0): 0}))
        async with edge(HANDLERS, broker=test.broker) as running:
            peer = await running.connect()
            peer.send(frame)
            await until(lambda: len(running.connections) == 0)
            assert running.metrics.internal_errors == 0
        assert "flights-0 goes offline until a restart" in caplog.text
        assert not any(line.exc_info for line in caplog.records)
        disk.is_broken = False
        assert (await test.fetch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await test.fetch(index=1)).error_code == ErrorCode.NONE


async def test_what_is_not_in_memory_is_read_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[int, int]] = []

    class ColdFile(MemoryFile):
        """A file of which nothing is in the page cache."""

        def pread(self, size: int, position: int) -> bytes:
            read.append((size, position))
            return super().pread(size, position)

        def pread_nowait(self, size: int, position: int) -> None:
            return None

        def is_resident(self, position: int, size: int) -> bool:
            return False

    monkeypatch.setattr("asyncbroker.log.memory_files.MemoryFile", ColdFile)
    async with under_test() as test:
        await flights_with(test, 10, LARGE)
        first_size = len(batch_of(value=bytes(10)))
        assert offsets_of(await test.fetch(0, partition_max_bytes=1000)) == [0]
        assert set(read) == {(first_size, 0)}
        read.clear()
        answer = await test.fetch(1)
        # From the last batch on that the index knows, to check what is sent.
        assert set(read) == {(first_size + len(batch_of(value=bytes(LARGE))), 0)}
        assert offsets_of(answer) == [1]


async def test_offsets_of_consecutive_fetches_cover_the_log() -> None:
    async with under_test() as test:
        await test.topic(segment_bytes="1048576")
        for count in range(1, 60):
            await test.produce(batch_of(count, value=bytes(1500)))
        seen: list[int] = []
        while answer := await test.fetch(len(seen), partition_max_bytes=70_000):
            offsets = offsets_of(answer)
            if not offsets:
                break
            seen += [offset for offset in offsets if offset >= len(seen)]
        assert seen == list(range(sum(range(1, 60))))
