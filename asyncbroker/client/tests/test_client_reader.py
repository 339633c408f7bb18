"""Reading ahead, ends, moved leaders, topics that are not what they were; and producing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.errors import BrokerError, ClientError, UnsupportedVersion
from asyncbroker.client.partitioning import murmur2
from asyncbroker.client.producer import Producer
from asyncbroker.client.reader import BYTES_TO_SPARE, PARTITION_MAX_BYTES, Fetched, Reader
from asyncbroker.client.tests.scripted_broker import (
    CLOSE,
    SILENCE,
    TOPIC_ID,
    ScriptedBroker,
    metadata_of,
)
from asyncbroker.protocol import native
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from asyncbroker.protocol.messages.init_producer_id import InitProducerIdResponse
from asyncbroker.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from asyncbroker.protocol.records import (
    Compression,
    Record,
    batches,
    build_batch,
    read_header,
    records_of,
)

FLIGHTS = TopicPartition("flights", 0)


class Log:
    """Answers Fetch from one batch of ten records for each ten offsets, up to `end`."""

    def __init__(self, end: int = 30) -> None:
        self.end = end
        self.error_code = ErrorCode.NONE

    def __call__(self, request: Any, version: int) -> FetchResponse:
        response = FetchResponse()
        for topic in request.topics:
            rows = [self.row(asked.partition, asked.fetch_offset) for asked in topic.partitions]
            response.responses.append(FetchableTopicResponse(topic.topic, topic.topic_id, rows))
        return response

    def row(self, partition: int, offset: int) -> PartitionData:
        row = PartitionData(partition, self.error_code, self.end, self.end, 0)
        if self.error_code == ErrorCode.NONE and offset < self.end:
            base = offset // 10 * 10
            row.records = build_batch(
                [Record(0, 0, None, b"%d" % number) for number in range(base, base + 10)],
                base_offset=base,
            )
        return row


def values_of(fetched: Fetched) -> list[bytes | None]:
    return [
        record.value
        for header, batch in batches(fetched.records)
        for record in records_of(batch, header)
        if record.offset >= fetched.position
    ]


def read_all(reader: Reader) -> list[bytes | None]:
    values = []
    while not reader.is_done:
        for fetched in reader.poll():
            values += values_of(fetched)
    return values


@pytest.fixture
def log(broker: ScriptedBroker) -> Log:
    """Broker 1 leads two partitions, both with these contents."""
    log = Log()
    broker.answers["Metadata"] = metadata_of([broker], {"flights": [1, 1]})
    broker.answers["Fetch"] = log
    return log


def test_a_range_is_read_from_its_position_to_its_end(cluster: Cluster, log: Log) -> None:
    with Reader(cluster, {FLIGHTS: 7}, end_offsets={FLIGHTS: 30}) as reader:
        assert read_all(reader) == [b"%d" % number for number in range(7, 30)]
        assert reader.poll() == []
        assert reader.position(FLIGHTS) is None


def test_not_much_more_is_asked_for_than_is_left_of_a_range(
    broker: ScriptedBroker, cluster: Cluster, log: Log
) -> None:
    with Reader(cluster, {FLIGHTS: 0}, end_offsets={FLIGHTS: 30}) as reader:
        assert len(read_all(reader)) == 30
    whole, *rest = [
        request.topics[0].partitions[0].partition_max_bytes
        for request in broker.requests_of("Fetch")
    ]
    assert whole == PARTITION_MAX_BYTES
    assert len(rest) == 2
    assert all(BYTES_TO_SPARE < size < 2 * BYTES_TO_SPARE for size in rest)


def test_an_empty_range_asks_for_nothing(
    broker: ScriptedBroker, cluster: Cluster, log: Log
) -> None:
    with Reader(cluster, {FLIGHTS: 30}, end_offsets={FLIGHTS: 30}) as reader:
        assert reader.is_done
        assert reader.poll() == []
    assert broker.requests == []


def test_the_next_request_is_out_before_a_response_is_handed_over(
    broker: ScriptedBroker, cluster: Cluster, log: Log
) -> None:
    # The broker counts a request when it has it, so the one that is on its way is answered first.
    with Reader(cluster, {FLIGHTS: 0}) as reader:
        first = reader.poll()
        second = reader.poll()
    assert [values_of(fetched)[0] for fetched in first + second] == [b"0", b"10"]
    asked = [r.topics[0].partitions[0].fetch_offset for r in broker.requests_of("Fetch")]
    assert asked[:2] == [0, 10]


def test_at_the_end_of_the_log_nothing_comes(cluster: Cluster, log: Log) -> None:
    with Reader(cluster, {FLIGHTS: 30}) as reader:
        assert reader.poll() == []
        log.end = 40
        # One response may have been on its way before the log grew.
        fetched = reader.poll() or reader.poll()
    assert fetched[0].next_offset == 40
    assert (fetched[0].high_watermark, fetched[0].log_start_offset) == (40, 0)


def test_partitions_of_one_leader_share_a_request_and_one_that_is_done_leaves_it(
    broker: ScriptedBroker, cluster: Cluster, log: Log
) -> None:
    other = TopicPartition("flights", 1)
    ends = {FLIGHTS: 10, other: 30}
    with Reader(cluster, {FLIGHTS: 0, other: 0}, end_offsets=ends) as reader:
        assert len(read_all(reader)) == 40
    asked = [
        [row.partition for row in request.topics[0].partitions]
        for request in broker.requests_of("Fetch")
    ]
    assert asked == [[0, 1], [1], [1]]


def test_partitions_of_two_leaders_are_read_on_two_connections(
    broker: ScriptedBroker, second_broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.answers["Metadata"] = metadata_of([broker, second_broker], {"flights": [1, 2]})
    broker.answers["Fetch"] = Log(20)
    second_broker.answers["Fetch"] = Log(30)
    other = TopicPartition("flights", 1)
    ends = {FLIGHTS: 20, other: 30}
    with Reader(cluster, {FLIGHTS: 0, other: 0}, end_offsets=ends) as reader:
        assert len(read_all(reader)) == 50


def test_topics_go_by_id_where_the_broker_has_ids(
    broker: ScriptedBroker, cluster: Cluster, log: Log
) -> None:
    with Reader(cluster, {FLIGHTS: 0}, end_offsets={FLIGHTS: 10}) as reader:
        assert len(read_all(reader)) == 10
    assert broker.requests_of("Fetch")[0].topics[0].topic_id == TOPIC_ID


@pytest.mark.parametrize("old", ["Fetch", "Metadata"])
def test_topics_go_by_name_where_the_broker_has_no_ids(
    broker: ScriptedBroker, cluster: Cluster, log: Log, old: str
) -> None:
    broker.limit(old, "0-5" if old == "Metadata" else "4-5")
    with Reader(cluster, {FLIGHTS: 0}, end_offsets={FLIGHTS: 10}) as reader:
        assert len(read_all(reader)) == 10
    assert broker.versions_of("Fetch") == [12 if old == "Metadata" else 5]


def test_a_lost_connection_costs_no_record_and_doubles_none(
    broker: ScriptedBroker, cluster: Cluster, log: Log
) -> None:
    broker.answers["Fetch"] = [log, CLOSE, CLOSE, log]
    with Reader(cluster, {FLIGHTS: 0}, end_offsets={FLIGHTS: 30}) as reader:
        assert read_all(reader) == [b"%d" % number for number in range(30)]


def test_a_leader_that_moves_is_followed(
    broker: ScriptedBroker, second_broker: ScriptedBroker, cluster: Cluster, log: Log
) -> None:
    both = [broker, second_broker]
    broker.answers["Metadata"] = [
        metadata_of(both, {"flights": [1]}),
        metadata_of(both, {"flights": [2]}),
    ]
    moved = Log()
    moved.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.answers["Fetch"] = [log, moved]
    second_broker.answers["Fetch"] = Log()
    with Reader(cluster, {FLIGHTS: 0}, end_offsets={FLIGHTS: 30}) as reader:
        assert read_all(reader) == [b"%d" % number for number in range(30)]


def test_trouble_that_lasts_is_raised(broker: ScriptedBroker, log: Log) -> None:
    log.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    with (
        Cluster(broker.address, timeout_ms=300, retry_backoff_ms=1) as cluster,
        Reader(cluster, {FLIGHTS: 0}) as reader,
        pytest.raises(BrokerError, match=r"Fetch for flights-0 .* KAFKA_STORAGE_ERROR"),
    ):
        read_all(reader)


def test_an_offset_that_is_gone_is_raised_at_once(
    broker: ScriptedBroker, cluster: Cluster, log: Log
) -> None:
    log.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
    with (
        Reader(cluster, {FLIGHTS: 3}) as reader,
        pytest.raises(BrokerError, match=r"OFFSET_OUT_OF_RANGE: offset 3 is not in the log"),
    ):
        reader.poll()
    assert len(broker.requests_of("Fetch")) == 1


def test_an_error_of_one_partition_does_not_swallow_the_records_of_another(
    broker: ScriptedBroker, cluster: Cluster, log: Log
) -> None:
    gone = Log()
    gone.error_code = ErrorCode.OFFSET_OUT_OF_RANGE

    def answer(request: Any, version: int) -> FetchResponse:
        rows = [log.row(0, 0), gone.row(1, 0)]
        return FetchResponse(responses=[FetchableTopicResponse("", TOPIC_ID, rows)])

    broker.answers["Fetch"] = answer
    with Reader(cluster, {FLIGHTS: 0, TopicPartition("flights", 1): 0}) as reader:
        assert [fetched.partition for fetched in reader.poll()] == [FLIGHTS]
        with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
            reader.poll()
        assert reader.position(FLIGHTS) == 10


def test_a_topic_that_was_created_again_is_not_read_on(
    broker: ScriptedBroker, cluster: Cluster, log: Log
) -> None:
    broker.answers["Metadata"] = [
        metadata_of([broker], {"flights": [1]}),
        metadata_of([broker], {"flights": [1]}, bytes(range(16, 32))),
    ]
    recreated = Log()
    recreated.error_code = ErrorCode.UNKNOWN_TOPIC_ID
    broker.answers["Fetch"] = [log, recreated]
    with (
        Reader(cluster, {FLIGHTS: 0}) as reader,
        pytest.raises(BrokerError, match="the topic was deleted and created again"),
    ):
        read_all(reader)


def test_a_topic_that_is_gone_is_told(broker: ScriptedBroker, cluster: Cluster, log: Log) -> None:
    broker.answers["Metadata"] = [
        metadata_of([broker], {"flights": [1]}),
        metadata_of([broker], {}),
    ]
    log.error_code = ErrorCode.UNKNOWN_TOPIC_ID
    with (
        Reader(cluster, {FLIGHTS: 0}) as reader,
        pytest.raises(BrokerError, match="topic 'flights' failed: UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        read_all(reader)


def test_bytes_that_are_no_batch_are_an_error(
    broker: ScriptedBroker, cluster: Cluster, log: Log
) -> None:
    row = PartitionData(0, records=b"\x00" * 100)
    answer = FetchResponse(responses=[FetchableTopicResponse("", TOPIC_ID, [row])])
    broker.answers["Fetch"] = answer
    with (
        Reader(cluster, {FLIGHTS: 0}) as reader,
        pytest.raises(ClientError, match="flights-0 at offset 0"),
    ):
        reader.poll()


@pytest.mark.parametrize("is_compiled", [True, False])
def test_the_next_offset_follows_the_last_whole_batch(
    is_compiled: bool,
    broker: ScriptedBroker,
    cluster: Cluster,
    log: Log,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not is_compiled:
        monkeypatch.setattr(native, "RECORDS", None)
    whole = b"".join(build_batch([Record(0, 0, None, b"v")] * 3, base_offset=o) for o in (3, 8))
    cut_off = build_batch([Record(0, 0, None, b"v")], base_offset=20)[:-1]
    for records, wanted in ((whole, 11), (whole + cut_off, 11), (cut_off, 5)):
        row = PartitionData(0, records=records)
        broker.answers["Fetch"] = FetchResponse(
            responses=[FetchableTopicResponse("", TOPIC_ID, [row])]
        )
        with Reader(cluster, {FLIGHTS: 5}) as reader:
            assert reader.poll()[0].next_offset == wanted


def test_a_partition_that_nobody_asked_for_is_an_error(
    broker: ScriptedBroker, cluster: Cluster, log: Log
) -> None:
    answer = FetchResponse(responses=[FetchableTopicResponse("", TOPIC_ID, [log.row(9, 0)])])
    broker.answers["Fetch"] = answer
    with (
        Reader(cluster, {FLIGHTS: 0}) as reader,
        pytest.raises(ClientError, match="flights-9, unasked"),
    ):
        reader.poll()


# --- producing ------------------------------------------------------------------------------------


@pytest.fixture
def sink(broker: ScriptedBroker) -> ScriptedBroker:
    """A broker that takes every batch for two partitions."""

    def accept(request: Any, version: int) -> ProduceResponse:
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    topic.name,
                    [PartitionProduceResponse(row.index) for row in topic.partition_data],
                )
                for topic in request.topic_data
            ]
        )

    broker.answers["Metadata"] = metadata_of([broker], {"flights": [1, 1]})
    broker.answers["InitProducerId"] = InitProducerIdResponse(producer_id=77, producer_epoch=2)
    broker.answers["Produce"] = accept
    return broker


def batches_at(broker: ScriptedBroker, partition: int) -> list[memoryview]:
    return [
        row.records
        for request in broker.requests_of("Produce")
        for topic in request.topic_data
        for row in topic.partition_data
        if row.index == partition
    ]


def test_batches_of_one_partition_are_numbered_on(sink: ScriptedBroker, cluster: Cluster) -> None:
    with Producer(cluster, "flights") as producer:
        for count in (3, 2, 1):
            for _ in range(count):
                producer.send(b"value", partition=1)
            producer.flush()
    headers = [read_header(batch) for batch in batches_at(sink, 1)]
    assert [(h.base_sequence, h.record_count) for h in headers] == [(0, 3), (3, 2), (5, 1)]
    assert {(h.producer_id, h.producer_epoch) for h in headers} == {(77, 2)}


def test_a_batch_whose_answer_was_lost_is_sent_again_unchanged(
    sink: ScriptedBroker, cluster: Cluster
) -> None:
    sink.answers["Produce"] = [CLOSE, sink.answers["Produce"]]
    with Producer(cluster, "flights") as producer:
        producer.send(b"value", partition=0)
        producer.flush()
    first, second = batches_at(sink, 0)
    assert first == second


def test_without_all_acks_there_is_no_producer_id(sink: ScriptedBroker, cluster: Cluster) -> None:
    sink.answers["Produce"] = SILENCE
    with Producer(cluster, "flights", acks=0) as producer:
        producer.send(b"value", partition=0)
        producer.flush()
        sink.await_request("Produce")
    header = read_header(batches_at(sink, 0)[0])
    assert (header.producer_id, header.base_sequence) == (-1, -1)
    assert sink.requests_of("InitProducerId") == []


def test_a_full_batch_goes_out_by_itself(sink: ScriptedBroker, cluster: Cluster) -> None:
    with Producer(cluster, "flights", batch_bytes=1000) as producer:
        for _ in range(5):
            producer.send(b"x" * 400, partition=0)
        # The next one waits until the leader knows the producer.
        sink.await_request("Produce")
        assert [read_header(batch).record_count for batch in batches_at(sink, 0)] == [2]
        producer.flush()
    assert [read_header(batch).record_count for batch in batches_at(sink, 0)] == [2, 2, 1]


def test_records_without_a_key_change_partition_with_each_batch(
    sink: ScriptedBroker, cluster: Cluster
) -> None:
    with Producer(cluster, "flights") as producer:
        for _ in range(4):
            producer.send(b"one")
            producer.send(b"two")
            producer.flush()
    assert [len(batches_at(sink, partition)) for partition in (0, 1)] == [2, 2]


def test_a_partition_that_is_not_there_is_refused(sink: ScriptedBroker, cluster: Cluster) -> None:
    with pytest.raises(BrokerError, match="the topic has 2 partitions"):
        Producer(cluster, "flights").send(b"value", partition=2)


def test_zstd_is_not_sent_to_a_broker_that_does_not_know_it(
    sink: ScriptedBroker, cluster: Cluster
) -> None:
    sink.limit("Produce", "3-6")
    with pytest.raises(UnsupportedVersion, match="does not know zstd"):
        Producer(cluster, "flights", compression=Compression.ZSTD)


def test_a_topic_that_the_broker_is_creating_is_waited_for(
    sink: ScriptedBroker, cluster: Cluster
) -> None:
    there = sink.answers["Metadata"]
    sink.answers["Metadata"] = [metadata_of([sink], {}), metadata_of([sink], {}), there]
    Producer(cluster, "flights")
    assert all(request.allow_auto_topic_creation for request in sink.requests_of("Metadata"))


@given(st.binary(max_size=40))
def test_keys_are_hashed_as_by_other_clients(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF
