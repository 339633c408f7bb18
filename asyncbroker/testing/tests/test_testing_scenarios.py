"""What goes wrong by name: bad disks, moves, storms, old releases; and what clients make of it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import CommitFailedError, CorruptRecordException
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from asyncbroker.client.connection import Address, Connection, Deadline
from asyncbroker.protocol.api import API_BY_NAME
from asyncbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from asyncbroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from asyncbroker.testing import Broker, BrokerThread, assert_records
from asyncbroker.testing.faults import Faults
from asyncbroker.testing.releases import RELEASES, release_of, versions_of
from asyncbroker.testing.tests.testing_harness import BEATS, make_request, wait_for_coordinator


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as running:
        yield running


def producer_of(broker: BrokerThread, **settings: Any) -> Producer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": broker.bootstrap_servers, **named})


def notes(broker: BrokerThread | Broker) -> list[str]:
    return [request.note for request in broker.requests if request.note]


# ---- which requests


def test_rules_choose_by_partition_version_and_node() -> None:
    request = make_request(partitions=(("t", 1), ("u", 2)), version=9, node=2)
    for fields, is_meant in (
        ({"partition": 1}, True),
        ({"topic": "t", "partition": 1}, True),
        ({"topic": "u", "partition": 1}, False),
        ({"version": 9}, True),
        ({"version": range(9)}, False),
        ({"version": range(9, 12)}, True),
        ({"node": 2}, True),
        ({"node": 1}, False),
    ):
        faults = Faults()
        faults.on(**fields).delay(1)
        assert bool(faults.of(request)) is is_meant, fields
    faults = Faults()
    faults.on(topic="t", partition=7).delay(1)
    assert faults.of(make_request(partitions=(("t", -1),)))


# ---- corruption and throttling


def test_a_corrupt_batch_is_refused_and_sent_again(broker: BrokerThread) -> None:
    fault = broker.faults.on(api="Produce", topic="t", times=1).corrupt()
    producer = producer_of(broker, retry_backoff_ms=10)
    producer.produce("t", b"one")
    assert producer.flush(10) == 0
    assert fault.fired == 1
    assert_records(broker.topic("t"), ["one"])
    first = broker.requests.of("Produce")[0]
    assert first.errors == ("CORRUPT_MESSAGE",)
    assert first.faults == ["records corrupted"]


def test_librdkafka_finds_the_wrong_byte_of_a_fetch(broker: BrokerThread) -> None:
    broker.topic("t").append("one")
    fault = broker.faults.on(api="Fetch", topic="t", times=1).corrupt()
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "check.crcs": True,
        }
    )
    consumer.subscribe(["t"])
    message = consumer.poll(10)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._BAD_MSG
    consumer.close()
    assert fault.fired == 1


async def test_aiokafka_finds_the_wrong_byte_of_a_fetch_and_a_fetch_of_nothing_does_not_count() -> (
    None
):
    async with Broker() as broker:
        await broker.topic("t").create()
        fault = broker.faults.on(api="Fetch", topic="t", times=1).corrupt()
        consumer = AIOKafkaConsumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=20,
        )
        async with consumer:
            await broker.wait_for(until=lambda: len(broker.requests.of("Fetch", "t")) > 2)
            assert fault.fired == 0
            await broker.topic("t").append("one")
            with pytest.raises(CorruptRecordException):
                await asyncio.wait_for(consumer.getone(), 10)
            assert fault.fired == 1
        # What is in the log is as it was.
        assert_records(broker.topic("t"), ["one"])


def test_only_batches_can_be_corrupted() -> None:
    for api in (None, "Metadata", ["Fetch", "Heartbeat"]):
        with pytest.raises(ValueError, match="record batches are in"):
            Faults().on(api=api).corrupt()


def test_a_throttled_client_is_told_and_its_next_request_waits(broker: BrokerThread) -> None:
    broker.faults.on(api="Metadata", times=1).throttle(80)
    connection = Connection.open(
        Address.parse(broker.bootstrap_servers), client_id="asks", timeout_s=5
    )
    request = MetadataRequest(topics=[])
    began = time.monotonic()
    assert connection.request(request, MetadataResponse, Deadline(5)).throttle_time_ms == 80
    assert time.monotonic() - began < 0.08
    assert connection.request(request, MetadataResponse, Deadline(5)).throttle_time_ms == 0
    assert time.monotonic() - began >= 0.08
    connection.close()
    assert broker.requests.of("Metadata")[0].faults == ["throttle 80 ms"]


# ---- the disk


@pytest.mark.parametrize("is_on_disk", [False, True], ids=["memory", "directory"])
def test_a_full_disk_refuses_records_and_takes_them_when_there_is_room(
    is_on_disk: bool, tmp_path: Path
) -> None:
    with BrokerThread(directory=tmp_path / "data" if is_on_disk else None) as broker:
        broker.topic("t").append("before")
        full = broker.scenarios.full_disk()
        producer = producer_of(broker, retry_backoff_ms=10)
        producer.produce("t", b"after")
        broker.wait_for(until=lambda: full.fired > 0)
        broker.wait_for(
            until=lambda: (
                ("KAFKA_STORAGE_ERROR",)
                in [request.errors for request in broker.requests.of("Produce")]
            )
        )
        full.remove()
        assert producer.flush(20) == 0
        assert_records(broker.topic("t"), ["before", "after"])
        assert notes(broker)[0].startswith("full disk: pwrite of ")


async def test_aiokafka_gets_over_a_full_disk() -> None:
    async with (
        Broker() as broker,
        AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, acks="all", retry_backoff_ms=10
        ) as producer,
    ):
        await producer.send_and_wait("t", b"one")
        full = broker.scenarios.full_disk()
        sending = asyncio.create_task(producer.send_and_wait("t", b"two"))
        await broker.wait_for(until=lambda: full.fired > 1)
        assert not sending.done()
        full.remove()
        await asyncio.wait_for(sending, 10)
        assert_records(broker.topic("t"), ["one", "two"])


def test_a_slow_disk_holds_up_who_waits_for_it_and_nobody_else(tmp_path: Path) -> None:
    with BrokerThread(directory=tmp_path / "data") as broker:
        broker.topic("t").append("one")
        slow = broker.scenarios.slow_disk(150)
        for acks, is_slow in ((1, False), ("all", True)):
            producer = producer_of(broker, acks=acks, linger_ms=0)
            producer.produce("t", b"x")
            began = time.monotonic()
            assert producer.flush(10) == 0
            if is_slow:
                assert time.monotonic() - began >= 0.15
                assert slow.fired > 0
        slow.remove()
    with BrokerThread() as broker, pytest.raises(ValueError, match="give it a directory"):
        broker.scenarios.slow_disk(5)


def test_faults_of_the_disk_go_with_the_others(broker: BrokerThread) -> None:
    broker.scenarios.full_disk()
    assert len(broker.faults) == 1
    broker.faults.clear()
    assert len(broker.faults) == 0
    broker.topic("t").append("one")


# ---- leaders, coordinators, groups


@pytest.mark.parametrize("nodes", [1, 3])
async def test_a_leader_moves_under_a_producer(nodes: int) -> None:
    async with Broker(nodes=nodes) as broker:
        async with AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=10
        ) as producer:
            await producer.send_and_wait("t", b"one")
            await broker.scenarios.leader_moves("t")
            await producer.send_and_wait("t", b"two")
        assert_records(broker.topic("t"), ["one", "two"])
        errors = [each for request in broker.requests.of("Produce") for each in request.errors]
        assert errors == ["NOT_LEADER_OR_FOLLOWER"]
        assert notes(broker)[0].startswith("leader of t-0 moves to node")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_coordinator_moves_under_a_consumer(nodes: int, protocol: str) -> None:
    with BrokerThread(
        {
            "group.consumer.heartbeat.interval.ms": 100,
            "group.consumer.min.heartbeat.interval.ms": 100,
        },
        nodes=nodes,
    ) as broker:
        for value in ("one", "two"):
            broker.topic("t").append(value)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                # In the consumer protocol the broker says how often.
                **({"heartbeat.interval.ms": 100} if protocol == "classic" else {}),
            }
        )
        consumer.subscribe(["t"])
        assert consumer.poll(10) is not None
        generation = broker.group("g").generation
        broker.scenarios.coordinator_moves("g")
        broker.wait_for(
            until=lambda: any(
                request.api in BEATS and "NOT_COORDINATOR" in request.errors
                for request in broker.requests
            )
        )
        wait_for_coordinator(broker, "g")
        assert consumer.poll(10) is not None
        consumer.commit(asynchronous=False)
        assert broker.group("g").offsets == {("t", 0): 2}
        # It has loaded the group, and nobody had to join again.
        assert broker.group("g").generation == generation
        consumer.close()


def test_a_member_of_the_consumer_protocol_can_be_a_zombie(broker: BrokerThread) -> None:
    broker.topic("t").append("one")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": "victim",
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    assert consumer.poll(10) is not None
    with pytest.raises(ValueError, match="group g is of the consumer protocol"):
        broker.scenarios.rebalance_storm("g")
    member = broker.scenarios.zombie_member("g", client_id="victim")
    assert member.partitions == (("t", 0),)
    assert broker.group("g").members == ()
    with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
        consumer.commit(asynchronous=False)
    assert broker.group("g").offsets == {}
    consumer.close()


async def test_a_storm_of_no_generation_is_a_mistake() -> None:
    async with Broker() as broker:
        with pytest.raises(ValueError, match="one generation or more"):
            broker.scenarios.rebalance_storm("g", times=0)


async def test_a_storm_of_rebalances_has_as_many_generations_as_asked() -> None:
    async with Broker() as broker:
        await broker.topic("t").create(2)
        servers = broker.bootstrap_servers

        def consumer() -> AIOKafkaConsumer:
            return AIOKafkaConsumer(
                "t", bootstrap_servers=servers, group_id="g", heartbeat_interval_ms=30
            )

        async with consumer(), consumer():
            await broker.wait_for(group="g", state="Stable", members=2)
            first = broker.group("g").generation
            storm = broker.scenarios.rebalance_storm("g", times=3)
            await broker.wait_for(until=lambda: broker.group("g").generation == first + 3)
            await broker.wait_for(group="g", state="Stable", members=2)
            assert storm.fired >= 3
            beats = len(broker.requests.of("Heartbeat"))
            await broker.wait_for(until=lambda: len(broker.requests.of("Heartbeat")) > beats + 6)
            assert broker.group("g").generation == first + 3


async def test_a_zombie_cannot_commit() -> None:
    async with Broker() as broker:
        await broker.topic("t").append("one")
        consumer = AIOKafkaConsumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            client_id="victim",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=60_000,
            session_timeout_ms=200_000,
        )
        async with consumer:
            assert (await consumer.getone()).value == b"one"
            member = await broker.scenarios.zombie_member("g", client_id="victim")
            assert member.partitions == (("t", 0),)
            with pytest.raises(CommitFailedError):
                await consumer.commit()
            assert broker.group("g").offsets == {}
            with pytest.raises(LookupError, match="has no such member; it has"):
                await broker.scenarios.zombie_member("g", client_id="nobody")


def test_a_restart_is_told(broker: BrokerThread) -> None:
    servers = broker.bootstrap_servers
    broker.scenarios.broker_restart()
    assert broker.bootstrap_servers == servers
    assert notes(broker) == ["the broker restarts"]


# ---- old releases


def api_versions(broker: BrokerThread) -> dict[int, tuple[int, int]]:
    connection = Connection.open(
        Address.parse(broker.bootstrap_servers), client_id="asks", timeout_s=5
    )
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    response = connection.request(request, ApiVersionsResponse, Deadline(5))
    connection.close()
    return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}


def test_the_releases_are_those_of_kafka() -> None:
    assert release_of("2.8") == release_of("2.8.1") == "2.8"
    assert release_of("v0.11.0.2") == "0.11"
    with pytest.raises(ValueError, match=r"Kafka 5\.0 is not known; 0\.11, 1\.0, "):
        release_of("5.0")
    # Idempotence and headers came with 0.11, fetch sessions with 1.1, topic ids in Fetch with 3.1.
    assert versions_of("0.11")[0].last == 3
    assert versions_of("1.0")[1].last == 6
    assert versions_of("1.1")[1].last == 7
    assert (versions_of("3.0")[1].last, versions_of("3.1")[1].last) == (12, 13)
    assert 60 not in versions_of("2.7")
    assert versions_of("4.0")[1].first == 4
    for earlier, later in pairwise(RELEASES):
        before, after = versions_of(earlier), versions_of(later)
        assert all(after[key].last >= versions.last for key, versions in before.items())


def test_an_old_broker_advertises_and_serves_what_it_had() -> None:
    with BrokerThread(kafka_version="2.8") as broker:
        versions = api_versions(broker)
        assert versions[0] == (0, 9)
        assert versions[1] == (4, 12)
        assert 75 not in versions
        connection = Connection.open(
            Address.parse(broker.bootstrap_servers), client_id="asks", timeout_s=5
        )
        connection.request(MetadataRequest(topics=[]), MetadataResponse, Deadline(5))
        connection.close()
        assert broker.requests.of("Metadata")[-1].version == 11


def test_a_version_that_the_release_lacks_is_refused(broker: BrokerThread) -> None:
    broker.scenarios.old_broker("2.8")
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as client:
        # Metadata v12, correlation id 1, client id "x": closed, as Kafka does.
        client.sendall(bytes.fromhex("0000000b 0003 000c 00000001 0001 78"))
        assert client.recv(100) == b""


@pytest.mark.parametrize("version", ["1.0", "2.3", "2.8", "3.9", "4.0"])
def test_clients_work_with_an_old_broker(broker: BrokerThread, version: str) -> None:
    broker.scenarios.old_broker(version)
    producer = producer_of(broker)
    producer.produce("t", b"one", b"k", headers=[("h", b"1")])
    assert producer.flush(10) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["t"])
    message = consumer.poll(10)
    assert message is not None
    assert message.value() == b"one"
    consumer.close()
    limits = versions_of(version)
    for request in broker.requests:
        if request.api:
            assert request.version in limits[API_BY_NAME[request.api].key], request
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    assert "t" in admin.list_topics(timeout=10).topics


async def test_aiokafka_works_with_an_old_broker() -> None:
    async with Broker(kafka_version="1.1") as broker:
        servers = broker.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("t", b"one")
        consumer = AIOKafkaConsumer(
            "t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest"
        )
        async with consumer:
            assert (await asyncio.wait_for(consumer.getone(), 10)).value == b"one"
