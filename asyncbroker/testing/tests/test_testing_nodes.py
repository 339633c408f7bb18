"""One broker that poses as three: who is told to go where, and that clients follow without loss."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

from asyncbroker.client.connection import Address, Connection, Deadline
from asyncbroker.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from asyncbroker.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from asyncbroker.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from asyncbroker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from asyncbroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from asyncbroker.protocol.records import Record, build_batch
from asyncbroker.testing import Broker, BrokerThread, ErrorCode, assert_records
from asyncbroker.testing.tests.testing_harness import wait_for_coordinator


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(nodes=3) as running:
        running.topic("t").create(3)
        yield running


def ask(broker: BrokerThread, node_id: int, request: Any, response: type[Any]) -> Any:
    """What one node answers."""
    address = next(node.address for node in broker.nodes if node.node_id == node_id)
    connection = Connection.open(Address.parse(address), client_id="asks", timeout_s=5)
    try:
        return connection.request(request, response, Deadline(5))
    finally:
        connection.close()


def metadata(broker: BrokerThread, node_id: int = 1) -> MetadataResponse:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    response: MetadataResponse = ask(broker, node_id, request, MetadataResponse)
    return response


def produce(broker: BrokerThread, node_id: int, index: int) -> ProduceResponse:
    data = PartitionProduceData(index, build_batch([Record(0, 5, b"k", b"v")]))
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData("t", [data])])
    response: ProduceResponse = ask(broker, node_id, request, ProduceResponse)
    return response


# ---- who is told what


def test_metadata_names_three_brokers_with_leaders_spread_over_them(broker: BrokerThread) -> None:
    for node_id in (1, 2, 3):
        answer = metadata(broker, node_id)
        addresses = [(each.node_id, f"{each.host}:{each.port}") for each in answer.brokers]
        assert addresses == [(node.node_id, node.address) for node in broker.nodes]
        partitions = answer.topics[0].partitions
        assert [each.leader_id for each in partitions] == [1, 2, 3]
        assert [each.replica_nodes for each in partitions] == [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
        assert all(each.isr_nodes == each.replica_nodes for each in partitions)
        cluster = ask(broker, node_id, DescribeClusterRequest(), DescribeClusterResponse)
        assert [each.broker_id for each in cluster.brokers] == [1, 2, 3]
        assert cluster.controller_id == answer.controller_id == 1
    assert broker.bootstrap_servers == ",".join(node.address for node in broker.nodes)


def test_a_produce_to_the_wrong_node_names_the_leader(broker: BrokerThread) -> None:
    assert produce(broker, 2, 1).responses[0].partition_responses[0].error_code == 0
    refused = produce(broker, 1, 1)
    (outcome,) = refused.responses[0].partition_responses
    assert outcome.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert outcome.current_leader is not None
    assert outcome.current_leader.leader_id == 2
    (endpoint,) = refused.node_endpoints
    assert f"{endpoint.host}:{endpoint.port}" == broker.nodes[1].address
    assert len(broker.topic("t").records()) == 1


def test_a_fetch_from_the_wrong_node_names_the_leader_and_its_new_epoch(
    broker: BrokerThread,
) -> None:
    topic_id = metadata(broker).topics[0].topic_id
    before = metadata(broker).topics[0].partitions[0].leader_epoch
    assert broker.move_leader("t", 0, to=3) == 3
    assert broker.leader_of("t", 0) == 3
    asked = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(0, -1, 0, -1, -1, 1000)])
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[asked])
    answer: FetchResponse = ask(broker, 1, request, FetchResponse)
    (partition,) = answer.responses[0].partitions
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.current_leader is not None
    assert partition.current_leader.leader_id == 3
    assert partition.current_leader.leader_epoch > before
    assert [endpoint.node_id for endpoint in answer.node_endpoints] == [3]
    assert ask(broker, 3, request, FetchResponse).responses[0].partitions[0].error_code == 0


def test_an_epoch_of_the_last_leader_is_fenced(broker: BrokerThread) -> None:
    topic_id = metadata(broker).topics[0].topic_id
    epoch = metadata(broker).topics[0].partitions[0].leader_epoch
    # The same node is elected again.
    broker.move_leader("t", 0, to=1)
    asked = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(0, epoch, 0, -1, -1, 1000)])
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[asked])
    answer: FetchResponse = ask(broker, 1, request, FetchResponse)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_groups_are_asked_at_their_coordinator_only(broker: BrokerThread) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    here = broker.coordinator_of("g")
    for node_id in (1, 2, 3):
        (found,) = ask(broker, node_id, request, FindCoordinatorResponse).coordinators
        assert found.node_id == here
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        code = ask(broker, node_id, heartbeat, HeartbeatResponse).error_code
        expected = ErrorCode.UNKNOWN_MEMBER_ID if node_id == here else ErrorCode.NOT_COORDINATOR
        assert code == expected
    there = broker.move_coordinator("g")
    assert there != here
    assert ask(broker, here, request, FindCoordinatorResponse).coordinators[0].node_id == there


def test_a_node_that_is_down_refuses_and_others_lead(broker: BrokerThread) -> None:
    host, _, port = broker.nodes[1].address.rpartition(":")
    broker.take_down(2)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port))).close()
    assert [node.is_up for node in broker.nodes] == [True, False, True]
    answer = metadata(broker)
    assert [each.node_id for each in answer.brokers] == [1, 3]
    partition = answer.topics[0].partitions[1]
    assert (partition.leader_id, partition.isr_nodes) == (3, [3, 1])
    assert partition.offline_replicas == [2]
    before = broker.bootstrap_servers
    broker.restart()
    assert broker.bootstrap_servers == before
    assert [node.is_up for node in broker.nodes] == [True, False, True]
    broker.bring_up(2)
    assert broker.bootstrap_servers == before
    assert len(metadata(broker, 2).brokers) == 3
    assert broker.leader_of("t", 1) == 3
    broker.move_leader("t", 1, to=2)
    assert produce(broker, 2, 1).responses[0].partition_responses[0].error_code == 0


def test_leaders_may_be_missing_until_their_node_is_back(broker: BrokerThread) -> None:
    broker.take_down(3, leaders="missing")
    partition = metadata(broker).topics[0].partitions[2]
    assert (partition.leader_id, partition.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    outcome = produce(broker, 1, 2).responses[0].partition_responses[0]
    assert outcome.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert outcome.current_leader is None
    with pytest.raises(ValueError, match="node 3 is down"):
        broker.move_leader("t", 0, to=3)
    with pytest.raises(LookupError, match="there is no node 4; there are 1, 2, 3"):
        broker.move_leader("t", 0, to=4)
    broker.bring_up(3)
    assert broker.leader_of("t", 2) == 3
    assert metadata(broker, 3).topics[0].partitions[2].error_code == 0


def test_tools_find_the_groups_of_all_nodes(broker: BrokerThread) -> None:
    broker.topic("t").append("x")
    for number in range(4):
        consumer = Consumer(confluent(broker) | {"group.id": f"g{number}"})
        consumer.subscribe(["t"])
        assert consumer.poll(10) is not None
        consumer.close()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    names = sorted(group.group_id for group in admin.list_consumer_groups().result(10).valid)
    assert names == [f"g{number}" for number in range(4)]
    assert len({broker.coordinator_of(name) for name in names}) > 1


# ---- clients follow, and nothing is lost


def confluent(broker: BrokerThread) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 50,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 100,
    }


def all_upsets(broker: BrokerThread) -> list[Callable[[], object]]:
    """What happens between the records; at the end all nodes are up."""
    return [
        lambda: broker.move_leader("t", 0),
        lambda: broker.take_down(broker.leader_of("t", 0)),
        lambda: broker.move_coordinator("g"),
        lambda: [broker.bring_up(node.node_id) for node in broker.nodes],
        lambda: broker.move_leader("t", 0),
        lambda: broker.take_down(broker.coordinator_of("g")),
        lambda: [broker.bring_up(node.node_id) for node in broker.nodes],
    ]


def test_librdkafka_follows_leaders_nodes_and_coordinators(broker: BrokerThread) -> None:
    common = confluent(broker)
    producer = Producer(
        {name: value for name, value in common.items() if name.startswith("bootstrap")}
        | {"enable.idempotence": True}
    )
    consumer = Consumer(common)
    consumer.subscribe(["t"])
    seen = []

    def step(number: int) -> None:
        producer.produce("t", str(number).encode(), partition=0)
        assert producer.flush(20) == 0
        message = consumer.poll(20)
        while message is None or message.error() is not None:
            message = consumer.poll(20)
        seen.append(message.value())
        consumer.commit(message=message, asynchronous=False)

    # The node that goes down is not its coordinator's, to which it may cling for a whole session.
    broker.move_coordinator("g", to=2)
    step(0)
    upsets: list[Callable[[], object]] = [
        lambda: broker.move_leader("t", 0, to=3),
        lambda: broker.take_down(3),
        lambda: broker.move_coordinator("g", to=1),
        lambda: broker.bring_up(3),
        lambda: broker.move_leader("t", 0, to=2),
    ]
    for number, upset in enumerate(upsets, 1):
        upset()
        wait_for_coordinator(broker, "g")
        step(number)
    consumer.close()
    assert_records(broker.topic("t"), seen)
    assert seen == [str(number).encode() for number in range(6)]
    assert broker.group("g").offsets["t", 0] == 6


async def test_aiokafka_follows_leaders_nodes_and_coordinators() -> None:
    async with Broker(nodes=3) as broker:
        await broker.topic("t").create(3)
        common: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "retry_backoff_ms": 10,
            "metadata_max_age_ms": 500,
        }
        consumer = AIOKafkaConsumer(
            "t",
            group_id="g",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            enable_auto_commit=False,
            **common,
        )
        seen = []

        async def up() -> None:
            for node in broker.nodes:
                await broker.bring_up(node.node_id)

        async with AIOKafkaProducer(enable_idempotence=True, **common) as producer, consumer:

            async def step(number: int) -> None:
                await producer.send_and_wait("t", str(number).encode(), partition=0)
                seen.append((await asyncio.wait_for(consumer.getone(), 20)).value)
                await consumer.commit()

            await step(0)
            for number, upset in enumerate(
                (
                    lambda: broker.move_leader("t", 0),
                    lambda: broker.take_down(broker.leader_of("t", 0)),
                    lambda: broker.move_coordinator("g"),
                    up,
                    lambda: broker.move_leader("t", 0),
                    lambda: broker.take_down(broker.coordinator_of("g")),
                    up,
                ),
                1,
            ):
                await upset()
                await step(number)
        assert seen == [str(number).encode() for number in range(8)]
        assert_records(broker.topic("t"), seen)
        assert broker.group("g").offsets["t", 0] == 8


def test_kafka_python_follows_leaders_nodes_and_coordinators(broker: BrokerThread) -> None:
    common: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers.split(","),
        "reconnect_backoff_ms": 10,
        "retry_backoff_ms": 10,
        "metadata_max_age_ms": 500,
    }
    producer = KafkaProducer(retries=50, **common)
    consumer = KafkaConsumer(
        "t",
        group_id="g",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        enable_auto_commit=False,
        consumer_timeout_ms=20_000,
        **common,
    )
    seen = []

    def step(number: int) -> None:
        producer.send("t", str(number).encode(), partition=0).get(20)
        seen.append(next(consumer).value)
        consumer.commit()

    try:
        step(0)
        for number, upset in enumerate(all_upsets(broker), 1):
            upset()
            step(number)
    finally:
        consumer.close()
        producer.close()
    assert seen == [str(number).encode() for number in range(8)]
    assert_records(broker.topic("t"), seen)
    assert broker.group("g").offsets["t", 0] == 8
