"""Faults: which requests get them, what clients make of them, and the line they leave."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.connection import Address, Connection, Deadline
from asyncbroker.client.errors import ConnectionLost, RequestTimedOut
from asyncbroker.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from asyncbroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from asyncbroker.testing import Broker, BrokerThread, ErrorCode, Request
from asyncbroker.testing.faults import FaultPoint, Faults
from asyncbroker.testing.report import describe_broker
from asyncbroker.testing.tests.testing_harness import make_request


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as running:
        yield running


def connect(broker: BrokerThread, client_id: str = "tester") -> Connection:
    address = Address.parse(broker.bootstrap_servers)
    return Connection.open(address, client_id=client_id, timeout_s=5)


def ask_metadata(connection: Connection, seconds: float = 5.0) -> MetadataResponse:
    request = MetadataRequest(topics=[])
    return connection.request(request, MetadataResponse, Deadline(seconds))


# ---- which requests


def fired_at(point: FaultPoint, faults: Faults, count: int, **fields: object) -> list[int]:
    point.error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    fired = [number for number in range(1, count + 1) if faults.of(make_request(**fields))]
    faults.clear()
    return fired


def test_a_rule_is_for_the_requests_that_fit_all_it_says() -> None:
    faults = Faults()
    for wanted in (
        {"api": "Produce"},
        {"api": ["Fetch", "Produce"]},
        {"topic": "t"},
        {"client_id": "c"},
        {"when": lambda request: request.version == 9},
        {"api": "Produce", "topic": "t", "client_id": "c"},
    ):
        assert fired_at(faults.on(**wanted), faults, 2) == [1, 2], wanted
    for unwanted in (
        {"api": "Fetch"},
        {"topic": "u"},
        {"client_id": "d"},
        {"group": "g"},
        {"when": lambda request: False},
        {"api": "Produce", "topic": "u"},
    ):
        assert fired_at(faults.on(**unwanted), faults, 2) == [], unwanted


def test_nth_counts_requests_that_fit_and_times_ends_a_rule() -> None:
    faults = Faults()
    assert fired_at(faults.on(nth=3), faults, 6) == [3]
    assert fired_at(faults.on(nth=3, times=2), faults, 6) == [3, 4]
    assert fired_at(faults.on(times=2), faults, 6) == [1, 2]
    assert fired_at(faults.on(), faults, 3) == [1, 2, 3]


def test_chance_is_the_same_in_every_run() -> None:
    faults = Faults()
    first = fired_at(faults.on(probability=0.3, seed=7), faults, 1000)
    assert first == fired_at(faults.on(probability=0.3, seed=7), faults, 1000)
    assert first != fired_at(faults.on(probability=0.3, seed=8), faults, 1000)
    assert 250 < len(first) < 350


def test_delays_add_up_and_of_the_rest_the_first_rule_wins() -> None:
    faults = Faults()
    faults.on().delay(5)
    first = faults.on(times=1).drop_response()
    second = faults.on().error(ErrorCode.REQUEST_TIMED_OUT)
    faults.on().delay(6)
    fired = faults.of(make_request())
    assert [str(fault) for fault in fired] == ["delay 5 ms", "response dropped", "delay 6 ms"]
    assert (first.fired, second.fired) == (1, 0)
    assert faults.of(make_request())[1] is second
    second.remove()
    assert [str(fault) for fault in faults.of(make_request())] == ["delay 5 ms", "delay 6 ms"]


def test_a_rule_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="Kafka has no API Produced; did you mean Produce"):
        Faults().on(api="Produced")
    with pytest.raises(ValueError, match="counts from 1"):
        Faults().on(nth=0)


# ---- what becomes of them


def test_an_error_is_answered_and_the_request_not_handled(broker: BrokerThread) -> None:
    fault = broker.faults.on(api="Produce", topic="t", times=1).error(ErrorCode.MESSAGE_TOO_LARGE)
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in (b"refused", b"taken"):
        producer.produce("t", value, callback=lambda error, _: errors.append(error))
        assert producer.flush(10) == 0
    assert isinstance(errors[0], KafkaError)
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert errors[1] is None
    assert [record.value for record in broker.topic("t").records()] == [b"taken"]
    assert fault.fired == 1
    (line, _) = [str(request) for request in broker.requests.of("Produce", "t")]
    assert "t-0" in line
    assert "MESSAGE_TOO_LARGE [fault: error MESSAGE_TOO_LARGE]" in line


async def test_a_client_gets_over_an_error_that_passes() -> None:
    async with Broker() as broker:
        fault = broker.faults.on(api="Produce", nth=2).error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        servers = broker.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, retry_backoff_ms=10) as producer:
            for number in range(3):
                await producer.send_and_wait("t", str(number).encode())
        records = await broker.wait_for(records=3, topic="t")
        assert [record.value for record in records] == [b"0", b"1", b"2"]
        assert fault.fired == 1


def test_a_fetch_has_the_error_at_its_partitions_in_a_session_too(broker: BrokerThread) -> None:
    broker.topic("t").append("one")
    topic_id = _topic_id(broker, "t")
    connection = connect(broker)
    asked = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(0, -1, 5, -1, -1, 1000)])
    fault = broker.faults.on(api="Fetch", topic="t").error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    full = FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0, topics=[asked])
    session_id = 0
    for number in range(3):
        request = full
        if number:
            request = FetchRequest(
                max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=number
            )
        response = connection.request(request, FetchResponse, Deadline(5))
        session_id = response.session_id
        assert response.error_code == 0
        assert session_id != 0
        (partition,) = response.responses[0].partitions
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fault.fired == 3
    connection.close()


def _topic_id(broker: BrokerThread, name: str) -> bytes:
    with Cluster(broker.bootstrap_servers) as cluster:
        return cluster.topic(name).topic_id


def test_a_delay_holds_a_request_back_and_ends_with_the_broker(broker: BrokerThread) -> None:
    connection = connect(broker)
    rule = broker.faults.on(api="Metadata", client_id="tester").delay(80)
    began = time.monotonic()
    ask_metadata(connection)
    # The event loop counts whole milliseconds, from the last one that it has seen.
    assert 0.078 <= time.monotonic() - began < 2
    rule.remove()
    broker.faults.on(api="Metadata").delay(60_000)
    connection.send(MetadataRequest(topics=[]), Deadline(5))
    broker.wait_for(until=lambda: any("60000" in str(request) for request in broker.requests))
    began = time.monotonic()
    broker.stop()
    assert time.monotonic() - began < 2
    connection.close()


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
def test_a_dropped_connection_leaves_the_record_out_or_in(
    broker: BrokerThread, is_before: bool
) -> None:
    broker.topic("t").create()
    broker.faults.on(api="Produce", times=1).drop_connection(before=is_before)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 10, "acks": "all"}
    )
    producer.produce("t", b"once or twice")
    assert producer.flush(10) == 0
    # Not idempotent: what was handled is sent again, because nobody told the client.
    assert len(broker.topic("t").records()) == (1 if is_before else 2)
    first = broker.requests.of("Produce")[0]
    assert first.faults[0].startswith("connection dropped")
    assert first.errors == ()


def test_a_dropped_response_never_comes_and_the_connection_stays_silent(
    broker: BrokerThread,
) -> None:
    broker.faults.on(api="Metadata", times=1).drop_response()
    connection = connect(broker)
    with pytest.raises(RequestTimedOut):
        ask_metadata(connection, seconds=0.1)
    broker.wait_for(until=lambda: len(broker.requests.of("Metadata")) == 1)
    other = connect(broker)
    ask_metadata(other)
    other.close()
    dropped = broker.requests.of("Metadata")[0]
    assert dropped.faults == ["response dropped"]


def test_a_stop_does_not_wait_for_a_dropped_response(broker: BrokerThread) -> None:
    broker.faults.on(api="Metadata").drop_response()
    connection = connect(broker)
    connection.send(MetadataRequest(topics=[]), Deadline(5))
    broker.wait_for(until=lambda: len(broker.requests.of("Metadata")) == 1)
    began = time.monotonic()
    broker.restart()
    assert time.monotonic() - began < 2
    with pytest.raises(ConnectionLost):
        connection.receive(MetadataResponse, Deadline(5))
    connection.close()


async def test_members_meet_a_rebalance_that_a_fault_makes_up() -> None:
    async with Broker() as broker:
        await broker.topic("t").append("one")
        consumer = AIOKafkaConsumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=50,
            session_timeout_ms=500,
            retry_backoff_ms=10,
        )
        async with consumer:
            assert (await asyncio.wait_for(consumer.getone(), 10)).value == b"one"
            first = broker.group("g").generation
            fault = broker.faults.on(api="Heartbeat", group="g", times=1).error(
                ErrorCode.UNKNOWN_MEMBER_ID
            )
            await broker.wait_for(until=lambda: fault.fired == 1)
            await broker.wait_for(until=lambda: broker.group("g").generation > first)
            await broker.wait_for(group="g", state="Stable", members=1)


def test_a_predicate_sees_the_request_and_its_message(broker: BrokerThread) -> None:
    seen: list[Request] = []

    def look(request: Request) -> bool:
        assert request.message is not None
        seen.append(request)
        return True

    broker.faults.on(when=look).delay(1)
    broker.topic("t").append("one")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "client.id": "watched",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["t"])
    polled = consumer.poll(10)
    assert polled is not None
    assert polled.value() == b"one"
    consumer.close()
    joins = [request for request in seen if request.api == "JoinGroup"]
    assert joins
    assert joins[0].groups == ("g",)
    assert joins[0].client_id == "watched"


# ---- what could never fire, or would not be what it says


@pytest.mark.parametrize("milliseconds", [-1, float("nan"), float("inf"), 2**31])
def test_times_that_no_request_can_take_are_refused(milliseconds: float) -> None:
    faults = Faults()
    with pytest.raises(ValueError, match="it is 0 to 2147483647"):
        faults.on().delay(milliseconds)
    with pytest.raises(ValueError, match="it is 0 to 2147483647"):
        faults.on().throttle(milliseconds)
    with pytest.raises(ValueError, match="it is 0 to 2147483647"):
        faults.disk.slow(milliseconds, reads=False)
    assert len(faults) == 0


@pytest.mark.parametrize("times", [0, -1])
def test_a_fault_that_never_fires_is_refused(times: int) -> None:
    with pytest.raises(ValueError, match="never fires"):
        Faults().on(times=times)


def test_a_fault_for_no_api_is_refused() -> None:
    with pytest.raises(ValueError, match="names no API"):
        Faults().on(api=[])


def test_an_error_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="NONE is no error"):
        Faults().on(api="Produce").error(ErrorCode.NONE)


def test_a_topic_that_is_not_a_name_is_refused(broker: BrokerThread) -> None:
    for wrong in (broker.topic("t"), b"t"):
        with pytest.raises(TypeError, match=r"topic=.* is not str or None"):
            broker.faults.on(topic=wrong)  # type: ignore[arg-type]


def test_a_report_names_the_faults_that_no_request_had() -> None:
    with BrokerThread() as broker:
        broker.faults.on(api="Produce", topic="ordesr").error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        broker.faults.on(api="Metadata").delay(0)
        broker.topic("orders").create()
        report = describe_broker(broker, since=0.0)
    told = "never fired: error NOT_LEADER_OR_FOLLOWER on api='Produce', topic='ordesr'; 0 requests"
    assert told in report
