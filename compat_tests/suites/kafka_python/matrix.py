"""kafka-python's program of checks; see `checks.py`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    NewPartitions,
    NewTopic,
)
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import (
    ElectionNotNeededError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.admin.topics import ElectionType
from kafka.structs import OffsetAndMetadata

from compat_tests.suites.checks import (
    CODECS,
    T0,
    Login,
    Member,
    by_name,
    expect,
    fresh,
    login_checks,
    members_come_and_leave,
    refused_by,
    run,
    static_member_returns,
)

QUICK = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200, "metadata_max_age_ms": 1000}
READ_MS = 30_000


@contextlib.contextmanager
def admin_of(servers: str) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        yield admin
    finally:
        admin.close()


@contextlib.contextmanager
def consumer_of(servers: str, **config: Any) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        **{"auto_offset_reset": "earliest", "consumer_timeout_ms": READ_MS, **config},
    )
    try:
        yield consumer
    finally:
        consumer.close()


def create(servers: str, partitions: int = 1) -> str:
    topic = fresh("kafka-python")
    with admin_of(servers) as admin:
        admin.create_topics([NewTopic(topic, partitions, 1)])
    return topic


def send(servers: str, topic: str, count: int, **config: Any) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, **config)
    sent = [producer.send(topic, b"%d" % n, timestamp_ms=T0 + 1000 * n) for n in range(count)]
    producer.flush(30)
    for future in sent:
        future.get(30)
    producer.close()


def read(consumer: KafkaConsumer, count: int) -> list[Any]:
    return [record for _, record in zip(range(count), consumer, strict=False)]


def read_assigned(servers: str, topic: str, count: int) -> list[Any]:
    with consumer_of(servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return read(consumer, count)


def acks(servers: str) -> None:
    topic = create(servers)
    for level in (0, 1, "all"):
        # Idempotence, the default, is there with acks=all only.
        send(servers, topic, 10, acks=level, enable_idempotence=level == "all")
    got = read_assigned(servers, topic, 30)
    expect([b"%d" % n for n in range(10)] * 3, [record.value for record in got])


def codec(name: str) -> Callable[[str], None]:
    def check(servers: str) -> None:
        topic = create(servers)
        send(servers, topic, 100, compression_type=name, linger_ms=50)
        got = read_assigned(servers, topic, 100)
        expect([b"%d" % n for n in range(100)], [record.value for record in got])

    return check


def records(servers: str) -> None:
    topic = create(servers)
    sent = [
        (b"key", b"value", [("trace", b"1"), ("trace", b"")]),
        (None, b"no key", []),
        (b"tombstone", None, []),
        (b"", b"", []),
    ]
    producer = KafkaProducer(bootstrap_servers=servers)
    for n, (key, value, headers) in enumerate(sent):
        producer.send(topic, value, key, headers, partition=0, timestamp_ms=T0 + n)
    producer.close()
    got = read_assigned(servers, topic, len(sent))
    expect(sent, [(r.key, r.value, list(r.headers)) for r in got])
    expect([(n, T0 + n) for n in range(4)], [(r.offset, r.timestamp) for r in got])


def idempotent(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, 200, enable_idempotence=True, linger_ms=5)
    got = read_assigned(servers, topic, 200)
    expect([b"%d" % n for n in range(200)], [record.value for record in got])


def assign(servers: str) -> None:
    topic = create(servers, 2)
    send(servers, topic, 10)
    with consumer_of(servers) as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(2)])
        expect(set(range(10)), {int(record.value) for record in read(consumer, 10)})


def subscribe(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, 10)
    with consumer_of(servers, group_id=fresh("group")) as consumer:
        consumer.subscribe(pattern=f"^{topic[:-1]}.$")
        expect(list(range(10)), [int(record.value) for record in read(consumer, 10)])


def seek(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, 10)
    partition = TopicPartition(topic, 0)
    with consumer_of(servers) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 7)
        expect([7], [record.offset for record in read(consumer, 1)])
        consumer.seek_to_beginning(partition)
        expect([0], [record.offset for record in read(consumer, 1)])
        consumer.seek_to_end(partition)
        expect(10, consumer.position(partition))


def times(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, 10, linger_ms=50)
    partition = TopicPartition(topic, 0)
    with consumer_of(servers) as consumer:
        found = consumer.offsets_for_times({partition: T0 + 2500})[partition]
        expect((3, T0 + 3000), (found.offset, found.timestamp))
        expect({partition: None}, consumer.offsets_for_times({partition: T0 * 2}))
        expect({partition: 0}, consumer.beginning_offsets([partition]))
        expect({partition: 10}, consumer.end_offsets([partition]))


def pause(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, 10)
    partition = TopicPartition(topic, 0)
    with consumer_of(servers) as consumer:
        consumer.assign([partition])
        expect([0], [record.offset for record in read(consumer, 1)])
        consumer.pause(partition)
        expect({}, consumer.poll(500))
        consumer.resume(partition)
        expect(list(range(1, 10)), [record.offset for record in read(consumer, 9)])


def member(servers: str, topic: str, group: str, **config: Any) -> Member:
    config = {**QUICK, "group_id": group, "enable_auto_commit": False, **config}

    def live(member: Member) -> None:
        with consumer_of(servers, **config) as consumer:
            consumer.subscribe([topic])
            while not member.is_leaving():
                for got in consumer.poll(timeout_ms=100).values():
                    member.values += [int(record.value) for record in got]
                member.assigned = {each.partition for each in consumer.assignment()}
                if member.values:
                    # A poll that ends in the middle of a rebalance leaves nothing to commit.
                    with contextlib.suppress(KafkaError):
                        consumer.commit()

    return Member(live)


def group_with(assignor: type) -> Callable[[str], None]:
    def check(servers: str) -> None:
        topic, group = create(servers, 4), fresh("group")
        config = {"partition_assignment_strategy": [assignor]}
        members_come_and_leave(
            lambda: member(servers, topic, group, **config), lambda: send(servers, topic, 40)
        )

    return check


def static(servers: str) -> None:
    topic, group = create(servers, 2), fresh("group")
    static_member_returns(lambda name: member(servers, topic, group, group_instance_id=name))


def commit(servers: str) -> None:
    topic, group = create(servers), fresh("group")
    send(servers, topic, 10)
    partition = TopicPartition(topic, 0)
    config = {"group_id": group, "enable_auto_commit": False}
    with consumer_of(servers, **config) as consumer:
        consumer.subscribe([topic])
        read(consumer, 4)
        consumer.commit({partition: OffsetAndMetadata(4, "four", -1)})
        expect(4, consumer.committed(partition))
    with consumer_of(servers, **config) as consumer:
        consumer.subscribe([topic])
        expect([4], [record.offset for record in read(consumer, 1)])


def reset(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, 10)
    partition = TopicPartition(topic, 0)
    with consumer_of(servers) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1000)
        expect([0], [record.offset for record in read(consumer, 1)])
    with consumer_of(servers, auto_offset_reset="latest") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1000)
        expect({}, consumer.poll(1000))
        send(servers, topic, 1)
        expect([10], [record.offset for record in read(consumer, 1)])
    with consumer_of(servers, auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1000)
        try:
            consumer.poll(READ_MS)
        except OffsetOutOfRangeError:
            return
        raise AssertionError("an offset out of range was no error")


def topics(servers: str) -> None:
    topic = create(servers, 3)
    with admin_of(servers) as admin:
        assert topic in admin.list_topics()
        (described,) = admin.describe_topics([topic])
        expect(3, len(described["partitions"]))
        admin.delete_topics([topic])
        assert topic not in admin.list_topics()


def partitions(servers: str) -> None:
    topic = create(servers)
    with admin_of(servers) as admin:
        admin.create_partitions({topic: NewPartitions(4)})
        (described,) = admin.describe_topics([topic])
        expect(4, len(described["partitions"]))


def configs(servers: str) -> None:
    topic = create(servers)
    with admin_of(servers) as admin:
        changed = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "60000"})
        admin.alter_configs([changed])
        node = str(admin.describe_cluster()["controller_id"])
        asked = (ConfigResourceType.TOPIC, topic), (ConfigResourceType.BROKER, node)
        found = admin.describe_configs(
            [ConfigResource(*each) for each in asked], config_filter="all"
        )
        expect("60000", found["topic"][topic]["retention.ms"]["value"])
        expect("delete", found["topic"][topic]["cleanup.policy"]["value"])
        assert "log.retention.hours" in found["broker"][node]


def delete_records(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, 10)
    partition = TopicPartition(topic, 0)
    with admin_of(servers) as admin:
        admin.delete_records({partition: 6})
    with consumer_of(servers) as consumer:
        expect({partition: 6}, consumer.beginning_offsets([partition]))


def groups(servers: str) -> None:
    topic, group = create(servers), fresh("group")
    send(servers, topic, 10)
    with consumer_of(servers, group_id=group) as consumer, admin_of(servers) as admin:
        consumer.subscribe([topic])
        read(consumer, 10)
        consumer.commit()
        assert group in str(admin.list_groups())
        assert "Stable" in str(admin.describe_groups([group]))
        offsets = admin.list_group_offsets([group])
        expect([10], [offset.offset for offset in offsets[group].values()])
    with admin_of(servers) as admin:
        admin.delete_groups([group])
        assert group not in str(admin.list_groups())


def logdirs(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, 10)
    with admin_of(servers) as admin:
        (broker,) = admin.describe_log_dirs({topic: [0]})
        (partition,) = broker["log_dirs"][0]["topics"][0]["partitions"]
        assert partition["partition_size"] > 0


def leaders(servers: str) -> None:
    topic = create(servers)
    with admin_of(servers) as admin:
        answer = admin.elect_leaders(ElectionType.PREFERRED, {topic: [0]})
    (partition,) = answer.replica_election_results[0].partition_result
    expect(ElectionNotNeededError.errno, partition.error_code)


def cluster(servers: str) -> None:
    with admin_of(servers) as admin:
        described = admin.describe_cluster()
        expect(1, len(described["brokers"]))
        assert described["cluster_id"]


def too_large(servers: str) -> None:
    topic = create(servers)
    producer = KafkaProducer(bootstrap_servers=servers, max_request_size=8_000_000)
    try:
        producer.send(topic, bytes(2_000_000)).get(30)
    except MessageSizeTooLargeError:
        # With the idempotence that is its default, this producer has failed for good.
        pass
    else:
        raise AssertionError("2 MB were taken")
    finally:
        producer.close()
    send(servers, topic, 1)
    expect([0], [record.offset for record in read_assigned(servers, topic, 1)])


def unknown(servers: str) -> None:
    with admin_of(servers) as admin:
        try:
            admin.delete_topics([fresh("nowhere")])
        except UnknownTopicOrPartitionError:
            return
        raise AssertionError("a topic that does not exist was deleted")


def transactions(servers: str) -> None:
    topic = create(servers)
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id=fresh("tx"))
    try:
        with refused_by(TransactionalIdAuthorizationFailedError):
            producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"value").get(30)
        producer.commit_transaction()
    finally:
        producer.close(5)


def send_and_read(login: Login) -> None:
    topic, settings = fresh("kafka-python"), login.settings()
    producer = KafkaProducer(**settings)
    producer.send(topic, b"value").get(30)
    producer.close()
    consumer = KafkaConsumer(
        topic,
        group_id=fresh("group"),
        auto_offset_reset="earliest",
        consumer_timeout_ms=READ_MS,
        **settings,
    )
    expect(b"value", next(consumer).value)
    consumer.close()


def is_refused(login: Login) -> None:
    try:
        KafkaAdminClient(**login.settings(), bootstrap_timeout_ms=2000).close()
    except KafkaTimeoutError:
        # It tries again and again; the reason it keeps for its log.
        return
    raise AssertionError("a wrong password was taken")


if __name__ == "__main__":
    run(
        by_name(acks, records, idempotent, assign, subscribe, seek, times, pause)
        | by_name(static, commit, reset, topics, partitions, configs, delete_records, groups)
        | by_name(logdirs, leaders, cluster, too_large, unknown, transactions)
        | {name: codec(name) for name in CODECS}
        | login_checks(send_and_read, is_refused)
        | {
            "range": group_with(RangePartitionAssignor),
            "roundrobin": group_with(RoundRobinPartitionAssignor),
            "sticky": group_with(StickyPartitionAssignor),
            "cooperative": group_with(CooperativeStickyAssignor),
        }
    )
