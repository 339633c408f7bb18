"""confluent-kafka, that is librdkafka, against the broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from compat_tests.conftest import BrokerProcess

Fresh = Callable[[str], str]
T0 = 1_600_000_000_000


def produce(servers: str, topic: str, records: list[dict[str, Any]], **config: Any) -> list[int]:
    """Sends the records and returns their offsets; any failed delivery fails the test."""
    offsets: list[int] = []

    def delivered(error: object, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    producer = Producer({"bootstrap.servers": servers, **config})
    for record in records:
        producer.produce(topic, on_delivery=delivered, **record)
        producer.poll(0)
    assert producer.flush(30) == 0
    return offsets


def consumer_of(servers: str, group: str, **config: Any) -> Any:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            "topic.metadata.refresh.interval.ms": 1000,
            **config,
        }
    )


def polled(consumer: Any, count: int, seconds: float = 30) -> list[Any]:
    deadline = time.monotonic() + seconds
    messages: list[Any] = []
    while len(messages) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error():
            assert message.error().retriable() or (
                message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            ), message.error()
            continue
        messages.append(message)
    assert len(messages) == count, f"{len(messages)} of {count} records"
    return messages


@pytest.fixture
def admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers})


def create(admin: AdminClient, topic: str, partitions: int, **config: str) -> None:
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
    for future in admin.create_topics([new]).values():
        future.result(20)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(
    bootstrap_servers: str, fresh: Fresh, admin: AdminClient, codec: str
) -> None:
    topic = fresh("codec")
    create(admin, topic, 1)
    sent: list[dict[str, Any]] = [
        {"key": b"key", "value": b"value" * 50, "headers": [("a", b"1"), ("a", None), ("b", b"")]},
        {"key": None, "value": b"no key"},
        {"key": b"tombstone", "value": None},
        {"key": b"", "value": b""},
    ]
    records = [{**record, "timestamp": T0 + i, "partition": 0} for i, record in enumerate(sent)]
    offsets = produce(bootstrap_servers, topic, records, **{"compression.type": codec})
    assert offsets == [0, 1, 2, 3]

    consumer = consumer_of(bootstrap_servers, fresh("group"))
    consumer.assign([TopicPartition(topic, 0, 0)])
    got = polled(consumer, len(sent))
    assert [(m.key(), m.value(), m.headers()) for m in got] == [
        (record["key"], record["value"], record.get("headers")) for record in sent
    ]
    assert [m.timestamp()[1] for m in got] == [T0, T0 + 1, T0 + 2, T0 + 3]
    consumer.close()


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_level_of_acks(bootstrap_servers: str, fresh: Fresh, acks: str) -> None:
    topic = fresh("acks")
    records = [{"value": b"%d" % n} for n in range(1000)]
    produce(bootstrap_servers, topic, records, acks=acks)
    consumer = consumer_of(bootstrap_servers, fresh("group"))
    consumer.subscribe([topic])
    assert sorted(int(m.value()) for m in polled(consumer, 1000)) == list(range(1000))
    consumer.close()


def test_idempotent_producer(bootstrap_servers: str, fresh: Fresh) -> None:
    offsets = produce(
        bootstrap_servers,
        fresh("idempotent"),
        [{"value": b"%d" % n} for n in range(5000)],
        **{"enable.idempotence": True, "linger.ms": 1},
    )
    assert offsets == list(range(5000))


def test_offsets_by_time_and_watermarks(
    bootstrap_servers: str, fresh: Fresh, admin: AdminClient
) -> None:
    topic = fresh("times")
    create(admin, topic, 1)
    records = [{"value": b"%d" % n, "timestamp": T0 + 1000 * n} for n in range(10)]
    produce(bootstrap_servers, topic, records, **{"compression.type": "lz4", "linger.ms": 100})
    consumer = consumer_of(bootstrap_servers, fresh("group"))
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, T0 + 2500)], timeout=10)
    assert found.offset == 3
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 10)
    consumer.close()


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_group_shares_partitions_and_takes_over(
    bootstrap_servers: str, fresh: Fresh, admin: AdminClient, strategy: str
) -> None:
    topic, group = fresh("group-topic"), fresh("group")
    create(admin, topic, 4)
    config = {"partition.assignment.strategy": strategy}
    members = [consumer_of(bootstrap_servers, group, **config) for _ in range(2)]
    for member in members:
        member.subscribe([topic])

    def settle(counts: list[int]) -> None:
        deadline = time.monotonic() + 30
        while sorted(len(m.assignment()) for m in members) != counts:
            assert time.monotonic() < deadline, [m.assignment() for m in members]
            for member in members:
                member.poll(0.05)

    settle([2, 2])
    produce(bootstrap_servers, topic, [{"value": b"%d" % n, "partition": n % 4} for n in range(40)])
    values: list[int] = []
    for member in members:
        values += [int(m.value()) for m in polled(member, 20)]
        member.commit(asynchronous=False)
    assert sorted(values) == list(range(40))

    members.pop().close()
    settle([4])
    committed = members[0].committed([TopicPartition(topic, p) for p in range(4)], timeout=10)
    assert [c.offset for c in committed] == [10] * 4
    members[0].close()


def test_static_member_keeps_its_partitions_over_a_restart(
    bootstrap_servers: str, fresh: Fresh, admin: AdminClient
) -> None:
    topic, group = fresh("static-topic"), fresh("group")
    create(admin, topic, 2)
    produce(bootstrap_servers, topic, [{"value": b"x", "partition": p} for p in (0, 1)])
    config = {"group.instance.id": "instance-1"}
    first = consumer_of(bootstrap_servers, group, **config)
    first.subscribe([topic])
    polled(first, 2)
    before = first.memberid()
    first.close()
    second = consumer_of(bootstrap_servers, group, **config)
    second.subscribe([topic])
    polled(second, 2)
    assert len(second.assignment()) == 2
    assert second.memberid() != before
    second.close()


def test_admin_lists_describes_and_deletes(
    bootstrap_servers: str, fresh: Fresh, admin: AdminClient
) -> None:
    topic = fresh("admin")
    create(admin, topic, 3, **{"retention.ms": "60000"})
    metadata = admin.list_topics(topic, timeout=10)
    assert sorted(metadata.topics[topic].partitions) == [0, 1, 2]
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (future,) = admin.describe_configs([resource]).values()
    configs = future.result(10)
    assert configs["retention.ms"].value == "60000"
    assert configs["cleanup.policy"].value == "delete"
    assert configs["cleanup.policy"].is_default
    (future,) = admin.delete_topics([topic]).values()
    future.result(10)
    assert topic not in admin.list_topics(timeout=10).topics


def test_admin_adds_partitions(bootstrap_servers: str, fresh: Fresh, admin: AdminClient) -> None:
    topic = fresh("grown")
    create(admin, topic, 1)
    produce(bootstrap_servers, topic, [{"value": b"x", "partition": 0}])
    (future,) = admin.create_partitions([NewPartitions(topic, 3)]).values()
    future.result(10)
    assert sorted(admin.list_topics(topic, timeout=10).topics[topic].partitions) == [0, 1, 2]
    assert produce(bootstrap_servers, topic, [{"value": b"y", "partition": 2}]) == [0]
    (future,) = admin.create_partitions([NewPartitions(topic, 2)]).values()
    with pytest.raises(KafkaException) as caught:
        future.result(10)
    assert caught.value.args[0].name() == "INVALID_PARTITIONS"


def test_admin_replaces_settings(bootstrap_servers: str, fresh: Fresh, admin: AdminClient) -> None:
    topic = fresh("replaced")
    create(admin, topic, 1, **{"retention.ms": "60000"})
    replacement = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "5000"})
    with pytest.warns(DeprecationWarning, match="incremental"):
        (future,) = admin.alter_configs([replacement]).values()
    future.result(10)
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    configs = future.result(10)
    assert configs["segment.ms"].value == "5000"
    assert configs["retention.ms"].is_default


def test_admin_elects_no_leader_where_there_is_one(fresh: Fresh, admin: AdminClient) -> None:
    topic = fresh("led")
    create(admin, topic, 1)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 5)]
    outcomes = admin.elect_leaders(ElectionType.PREFERRED, partitions).result(10)
    codes = {partition.partition: error.name() for partition, error in outcomes.items()}
    assert codes == {0: "ELECTION_NOT_NEEDED", 5: "UNKNOWN_TOPIC_OR_PART"}


def test_admin_deletes_records(bootstrap_servers: str, fresh: Fresh, admin: AdminClient) -> None:
    topic = fresh("shortened")
    create(admin, topic, 1)
    produce(bootstrap_servers, topic, [{"value": b"%d" % index} for index in range(10)])
    partition = TopicPartition(topic, 0, 4)
    assert admin.delete_records([partition])[partition].result(10).low_watermark == 4
    consumer = consumer_of(bootstrap_servers, fresh("reader"))
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0)) == (4, 10)
    consumer.subscribe([topic])
    assert [message.offset() for message in polled(consumer, 6)] == [4, 5, 6, 7, 8, 9]
    consumer.close()


def test_admin_sees_groups(bootstrap_servers: str, fresh: Fresh, admin: AdminClient) -> None:
    topic, group = fresh("seen-topic"), fresh("seen")
    create(admin, topic, 1)
    produce(bootstrap_servers, topic, [{"value": b"x"}])
    consumer = consumer_of(bootstrap_servers, group, **{"client.id": "somebody"})
    consumer.subscribe([topic])
    polled(consumer, 1)
    assert group in {g.group_id for g in admin.list_consumer_groups().result(10).valid}
    described = admin.describe_consumer_groups([group])[group].result(10)
    assert described.state.name == "STABLE"
    (member,) = described.members
    assert member.client_id == "somebody"
    assert [(tp.topic, tp.partition) for tp in member.assignment.topic_partitions] == [(topic, 0)]
    consumer.close()
    admin.delete_consumer_groups([group])[group].result(10)
    assert group not in {g.group_id for g in admin.list_consumer_groups().result(10).valid}


def test_nothing_acknowledged_is_lost_by_kill(own_broker: BrokerProcess, fresh: Fresh) -> None:
    topic = fresh("killed")
    acknowledged: list[bytes] = []

    def delivered(error: object, message: Any) -> None:
        assert error is None, error
        acknowledged.append(message.value())

    producer = Producer(
        {
            "bootstrap.servers": own_broker.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 1,
            "reconnect.backoff.max.ms": 500,
        }
    )
    for index in range(3000):
        producer.produce(topic, b"%d" % index, on_delivery=delivered)
        producer.poll(0)
        if index in (1000, 2000):
            producer.poll(0.05)
            own_broker.kill()
            own_broker.start()
    assert producer.flush(60) == 0
    consumer = consumer_of(own_broker.bootstrap_servers, fresh("group"))
    consumer.subscribe([topic])
    assert [m.value() for m in polled(consumer, 3000)] == [b"%d" % n for n in range(3000)]
    assert len(acknowledged) == 3000
    consumer.close()
