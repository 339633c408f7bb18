"""Produce: what is refused, what is changed, and when the answer comes."""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest

from asyncbroker.context import RequestContext
from asyncbroker.error_responses import error_response
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.protocol.api import API_BY_NAME
from asyncbroker.protocol.errors import ErrorCode, KafkaError, ProtocolError
from asyncbroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from asyncbroker.protocol.records import (
    Compression,
    Record,
    TimestampType,
    build_batch,
    check_batch,
    read_header,
    records_of,
    stamp_crc,
    verify_crc,
)
from asyncbroker.tests.data_path_harness import (
    CODECS,
    NOW_MS,
    batch_of,
    bytes_of,
    errors_of,
    log_bytes,
    outcome_of,
    produce_request,
    records,
    records_in,
    settle,
    under_test,
)
from asyncbroker.tests.held_workers import StuckWorkers

HOUR_MS = 3_600_000
ATTRIBUTES_AT = 21
MAX_TIMESTAMP_AT = 35


# ---- what is appended


async def test_batches_get_consecutive_offsets_and_are_stored_as_they_came() -> None:
    """Base offset and leader epoch are outside the CRC, the rest is untouched."""
    async with under_test() as test:
        topic = await test.topic()
        partition = topic.partitions[0]
        first, second = batch_of(3), batch_of(2, compression=Compression.SNAPPY)
        assert (await test.produce(first)).base_offset == 0
        outcome = await test.produce(second)
        assert (outcome.error_code, outcome.base_offset, outcome.log_start_offset) == (0, 3, 0)
        assert outcome.log_append_time_ms == -1
        stored = log_bytes(partition)
        header = read_header(stored, len(first))
        assert (header.base_offset, header.partition_leader_epoch) == (3, partition.leader_epoch)
        assert stored[len(first) + 16 :] == second[16:]
        assert partition.high_watermark == 5


@pytest.mark.parametrize("version", [3, 4, 5, 7, 8, 9, 10, 11])
async def test_every_version_is_served(version: int) -> None:
    async with under_test() as test:
        await test.topic()
        assert (await test.produce(batch_of(), version=version)).error_code == 0


@pytest.mark.parametrize("codec", CODECS)
async def test_every_codec_passes_through(codec: Compression) -> None:
    async with under_test() as test:
        await test.topic()
        await test.produce(batch_of(5, compression=codec))
        answer = await test.fetch()
        assert list(records_in(answer)) == records(5)
        assert read_header(bytes_of(answer)).compression is codec


async def test_each_partition_has_an_outcome_of_its_own() -> None:
    """Never fail the whole request; one entry for each partition asked."""
    async with under_test() as test:
        await test.topic(partitions=2)
        damaged = batch_of()
        damaged[-1] ^= 1
        request = ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    "flights",
                    [
                        PartitionProduceData(1, memoryview(batch_of())),
                        PartitionProduceData(0, memoryview(damaged)),
                        PartitionProduceData(2, memoryview(batch_of())),
                        PartitionProduceData(-1, memoryview(batch_of())),
                    ],
                ),
                TopicProduceData("nowhere", [PartitionProduceData(0, memoryview(batch_of()))]),
            ],
        )
        response = await test.ask(request, 9)
        known, unknown = response.responses
        assert [outcome.index for outcome in known.partition_responses] == [1, 0, 2, -1]
        assert errors_of(known.partition_responses) == [
            ErrorCode.NONE,
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert errors_of(unknown.partition_responses) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert known.partition_responses[1].base_offset == -1


async def test_produce_creates_no_topic() -> None:
    async with under_test() as test:
        await test.produce(batch_of(), topic="nowhere")
        assert test.broker.topics.get("nowhere") is None


# ---- what is refused


def two_batches() -> bytes:
    return bytes(batch_of()) + bytes(batch_of())


def old_magic() -> bytes:
    batch = batch_of()
    batch[16] = 1
    return bytes(batch)


@pytest.mark.parametrize("batch", [None, b"", two_batches(), old_magic()])
async def test_anything_but_one_batch_of_format_2_is_invalid(batch: bytes | None) -> None:
    async with under_test() as test:
        topic = await test.topic()
        outcome = await test.produce(batch)
        assert outcome.error_code == ErrorCode.INVALID_RECORD
        assert topic.partitions[0].high_watermark == 0


async def test_zstd_before_version_7_is_unsupported() -> None:
    async with under_test() as test:
        await test.topic()
        batch = batch_of(compression=Compression.ZSTD)
        outcome = await test.produce(batch, version=6)
        assert outcome.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert (await test.produce(batch, version=7)).error_code == 0


async def test_damaged_bytes_are_corrupt_and_leave_nothing_behind() -> None:
    async with under_test() as test:
        topic = await test.topic()
        for position in (8, 30, 70):
            batch = batch_of(3)
            batch[position] ^= 0x40
            outcome = await test.produce(batch)
            assert outcome.error_code == ErrorCode.CORRUPT_MESSAGE
        assert log_bytes(topic.partitions[0]) == b""


async def test_a_base_offset_of_the_clients_own_is_invalid() -> None:
    async with under_test() as test:
        await test.topic()
        outcome = await test.produce(batch_of(base_offset=4))
        assert outcome.error_code == ErrorCode.INVALID_RECORD


async def test_lying_counts_control_bits_and_missing_sequences_are_invalid() -> None:
    async with under_test() as test:
        await test.topic()
        lying = batch_of(2)
        lying[57:61] = (3).to_bytes(4, "big")
        stamp_crc(lying)
        for batch in (lying, batch_of(is_control=True), batch_of(producer_id=7, producer_epoch=0)):
            assert (await test.produce(batch)).error_code == ErrorCode.INVALID_RECORD


async def test_records_from_the_future_are_named_by_their_index() -> None:
    """An hour ahead by default (KIP-1030)."""
    async with under_test() as test:
        topic = await test.topic()
        late = [*records(2), Record(2, NOW_MS + HOUR_MS + 1, None, b"late"), *records(1)]
        outcome = await test.produce(build_batch(late), version=8)
        assert outcome.error_code == ErrorCode.INVALID_TIMESTAMP
        assert [error.batch_index for error in outcome.record_errors] == [2]
        assert outcome.base_offset == -1
        assert topic.partitions[0].high_watermark == 0
        just_right = [Record(0, NOW_MS + HOUR_MS, None, b"")]
        assert (await test.produce(build_batch(just_right))).error_code == 0


async def test_records_from_too_far_in_the_past_are_refused_where_the_topic_says_so() -> None:
    async with under_test() as test:
        await test.topic(message_timestamp_before_max_ms="1000")
        outcome = await test.produce(batch_of(timestamp=NOW_MS - 1001))
        assert outcome.error_code == ErrorCode.INVALID_TIMESTAMP
        assert (await test.produce(batch_of(timestamp=NOW_MS - 1000))).error_code == 0


async def test_a_producer_may_not_claim_log_append_time() -> None:
    async with under_test() as test:
        await test.topic()
        batch = batch_of(timestamp_type=TimestampType.LOG_APPEND_TIME)
        assert (await test.produce(batch)).error_code == ErrorCode.INVALID_TIMESTAMP


async def test_log_append_time_is_stamped_with_the_wall_clock_and_a_new_crc() -> None:
    async with under_test() as test:
        await test.topic(message_timestamp_type="LogAppendTime")
        test.clock.advance(5.0)
        outcome = await test.produce(batch_of(2, timestamp=12345))
        assert outcome.log_append_time_ms == NOW_MS + 5000
        stored = bytes_of(await test.fetch())
        header = read_header(stored)
        assert verify_crc(stored, header)
        assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert [record.timestamp for record in records_of(stored)] == [NOW_MS + 5000] * 2


async def test_a_missing_max_timestamp_is_filled_in() -> None:
    """Sarama leaves it at -1."""
    async with under_test() as test:
        await test.topic()
        batch = batch_of(3)
        batch[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = (-1).to_bytes(8, "big", signed=True)
        stamp_crc(batch)
        assert (await test.produce(batch)).error_code == 0
        stored = bytes_of(await test.fetch())
        assert read_header(stored).max_timestamp == NOW_MS + 2
        assert verify_crc(stored, read_header(stored))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
async def test_a_topic_with_a_codec_of_its_own_stores_batches_in_it(codec: str) -> None:
    """Attributes, length and CRC are redone together."""
    async with under_test() as test:
        await test.topic(compression_type=codec)
        assert (await test.produce(batch_of(5, compression=Compression.NONE))).error_code == 0
        assert (await test.produce(batch_of(4, compression=Compression.LZ4))).base_offset == 5
        answer = await test.fetch()
        stored = bytes_of(answer)
        wanted = Compression.NONE if codec == "uncompressed" else Compression[codec.upper()]
        position = 0
        while position < len(stored):
            header = read_header(stored, position)
            assert header.compression is wanted
            assert verify_crc(stored[position:], header)
            position += header.size
        assert [record.offset for record in records_in(answer)] == list(range(9))


async def test_a_batch_above_max_message_bytes_is_too_large() -> None:
    """Measured on the batch as it came."""
    async with under_test() as test:
        topic = await test.topic(max_message_bytes="1000")
        outcome = await test.produce(batch_of(value=bytes(1000)))
        assert outcome.error_code == ErrorCode.MESSAGE_TOO_LARGE
        compressed = batch_of(value=bytes(1000), compression=Compression.GZIP)
        assert (await test.produce(compressed)).error_code == 0
        assert topic.partitions[0].high_watermark == 1


async def test_a_batch_above_segment_bytes_is_too_large_for_any_segment() -> None:
    async with under_test() as test:
        await test.topic(segment_bytes="1048576", max_message_bytes="5000000")
        outcome = await test.produce(batch_of(value=bytes(1_100_000)))
        assert outcome.error_code == ErrorCode.RECORD_LIST_TOO_LARGE


async def test_a_keyless_record_on_a_compacted_topic_refuses_the_whole_batch() -> None:
    async with under_test() as test:
        topic = await test.topic(cleanup_policy="compact")
        mixed = build_batch([*records(1), *records(1, key=None), *records(1)])
        outcome = await test.produce(mixed, version=8)
        assert outcome.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in outcome.record_errors] == [1]
        assert outcome.error_message
        assert topic.partitions[0].high_watermark == 0
        assert (await test.produce(batch_of(2))).error_code == 0


@pytest.mark.parametrize("acks", [2, -2, 32767])
async def test_other_acks_are_refused_for_every_partition(acks: int) -> None:
    async with under_test() as test:
        topic = await test.topic()
        request = produce_request(batch_of(), acks=acks)
        with pytest.raises(KafkaError) as raised:
            await test.ask(request, 9)
        response = error_response(API_BY_NAME["Produce"], 9, request, raised.value)
        assert response is not None
        assert outcome_of(response).error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert topic.partitions[0].high_watermark == 0


async def test_internal_topics_are_written_to_by_the_admin_client_only() -> None:
    async with under_test() as test:
        await test.topic("__consumer_offsets")
        stranger, admin = (
            RequestContext(client_id="app"),
            RequestContext(client_id="__admin_client"),
        )
        outcome = await test.produce(batch_of(), topic="__consumer_offsets", context=stranger)
        assert outcome.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        outcome = await test.produce(batch_of(), topic="__consumer_offsets", context=admin)
        assert outcome.error_code == 0


async def test_no_leader_is_named_without_a_reason() -> None:
    async with under_test() as test:
        await test.topic()
        outcome = await test.produce(batch_of(), version=11)
        assert outcome.current_leader is None


async def test_more_in_sync_replicas_than_there_are_is_an_error_for_acks_all_only() -> None:
    async with under_test() as test:
        topic = await test.topic(min_insync_replicas="2")
        outcome = await test.produce(batch_of(), acks=-1)
        assert outcome.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert topic.partitions[0].high_watermark == 0
        assert (await test.produce(batch_of(), acks=1)).error_code == 0


async def test_transactional_batches_are_refused_for_good() -> None:
    async with under_test() as test:
        topic = await test.topic()
        batch = batch_of(is_transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
        outcome = await test.produce(batch)
        assert outcome.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        request = produce_request(batch_of())
        request.transactional_id = "bank"
        with pytest.raises(KafkaError) as raised:
            await test.ask(request, 9)
        assert raised.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert topic.partitions[0].high_watermark == 0


def test_the_crc_that_is_checked_begins_at_the_attributes() -> None:
    batch = batch_of()
    batch[12:16] = (77).to_bytes(4, "big")
    assert check_batch(batch).partition_leader_epoch == 77
    batch[ATTRIBUTES_AT + 5] ^= 1
    with pytest.raises(KafkaError):
        check_batch(batch)


async def test_a_refused_batch_is_no_event_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with under_test() as test:
        await test.topic()
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            await test.produce(b"nonsense")
        assert caplog.records == []


# ---- acks


async def test_acks_0_has_no_response() -> None:
    async with under_test() as test:
        topic = await test.topic()
        assert test.begin(produce_request(batch_of(), acks=0), 9) is None
        assert topic.partitions[0].high_watermark == 1


async def test_an_acks_0_that_fails_closes_the_connection() -> None:
    """Nothing else can tell the client."""
    async with under_test() as test:
        with pytest.raises(ProtocolError, match="nowhere-0 failed: UNKNOWN_TOPIC_OR_PARTITION"):
            test.begin(produce_request(batch_of(), topic="nowhere", acks=0), 9)


class SlowSync(MemoryFiles):
    """Counts fsyncs of logs, and fails them from a given one on."""

    def __init__(self) -> None:
        super().__init__(self._called)
        self.syncs: list[str] = []
        self.error: OSError | None = None

    def _called(self, operation: str, path: str) -> None:
        if operation == "datasync" and path.endswith(".log"):
            self.syncs.append(path)
            if self.error is not None:
                raise self.error


async def test_acks_all_is_answered_when_the_batch_is_durable() -> None:
    files = SlowSync()
    async with under_test(files=files) as test:
        topic = await test.topic()
        answer = test.begin(produce_request(batch_of(), acks=-1), 9)
        assert isinstance(answer, asyncio.Future)
        assert files.syncs == []
        assert outcome_of(await answer).base_offset == 0
        assert len(files.syncs) == 1
        assert topic.partitions[0].log.durable_end_offset == 1


async def test_acks_all_of_many_share_one_fsync_per_partition() -> None:
    """Commit rounds: what came together goes together, who comes later joins the next."""
    files = SlowSync()
    async with under_test(files=files) as test:
        await test.topic(partitions=3)
        answers = [
            test.begin(produce_request(batch_of(), index=index % 3, acks=-1), 9)
            for index in range(30)
        ]
        await asyncio.gather(*answers)
        assert sorted(files.syncs) == sorted(set(files.syncs))
        assert len(files.syncs) == 3


async def test_acks_all_makes_earlier_acks_1_batches_durable_too() -> None:
    async with under_test() as test:
        topic = await test.topic()
        for acks in (1, 0, 1, -1):
            await test.ask(produce_request(batch_of(), acks=acks), 9)
        assert topic.partitions[0].log.durable_end_offset == 4


async def test_an_fsync_error_fails_the_acks_and_takes_the_directory_offline() -> None:
    """Never retried; the process stays up and answers."""
    files = SlowSync()
    async with under_test(files=files) as test:
        await test.topic(partitions=2)
        files.error = OSError(errno.EIO, "Input/output error")
        outcome = await test.produce(batch_of(), acks=-1)
        assert outcome.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        files.error = None
        synced = len(files.syncs)
        for index in (0, 1):
            for acks in (-1, 1):
                outcome = await test.produce(batch_of(), index=index, acks=acks)
                assert outcome.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            answer = await test.fetch(index=index)
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(files.syncs) == synced


async def test_version_3_knows_no_storage_error() -> None:
    files = SlowSync()
    async with under_test(files=files) as test:
        await test.topic()
        files.error = OSError(errno.EIO, "Input/output error")
        outcome = await test.produce(batch_of(), acks=-1, version=3)
        assert outcome.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_full_disk_fails_the_request_and_heals_by_itself() -> None:
    """No partial batch is left, reads go on."""
    full = False

    def called(operation: str, path: str) -> None:
        if full and operation == "pwrite":
            raise OSError(errno.ENOSPC, "No space left on device")

    async with under_test(files=MemoryFiles(called)) as test:
        await test.topic()
        assert (await test.produce(batch_of())).base_offset == 0
        full = True
        assert (await test.produce(batch_of())).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(list(records_in(await test.fetch()))) == 1
        full = False
        assert (await test.produce(batch_of())).base_offset == 1


async def test_timeout_ms_bounds_the_wait_and_the_batch_stays() -> None:
    workers = StuckWorkers()
    async with under_test(workers=workers, log_journal_bytes="0") as test:
        topic = await test.topic()
        workers.is_stuck = True
        answer = test.begin(produce_request(batch_of(), acks=-1, timeout_ms=1500), 9)
        await settle()
        test.clock.advance(1.4)
        await settle()
        assert not answer.done()
        test.clock.advance(0.2)
        assert outcome_of(await answer).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert topic.partitions[0].high_watermark == 1
        workers.go_on()
