"""confluent-kafka's, that is librdkafka's, program of checks; see `checks.py`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from compat_tests.suites.checks import (
    CODECS,
    T0,
    WAIT_SECONDS,
    Login,
    Member,
    Refused,
    by_name,
    expect,
    fresh,
    login_checks,
    members_come_and_leave,
    run,
    static_member_returns,
)
from compat_tests.suites.confluent_kafka import groups as next_groups

QUICK = {
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 200,
    "topic.metadata.refresh.interval.ms": 1000,
}


def admin_of(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers})


def create(servers: str, partitions: int = 1) -> str:
    topic = fresh("confluent")
    # The client ends what it has begun when nobody holds it.
    admin = admin_of(servers)
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    return topic


def send(servers: str, topic: str, count: int, **config: Any) -> None:
    values: list[dict[str, Any]] = [
        {"value": b"%d" % n, "timestamp": T0 + 1000 * n} for n in range(count)
    ]
    produce(servers, topic, values, **config)


def produce(servers: str, topic: str, wanted: list[dict[str, Any]], **config: Any) -> None:
    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            errors.append(error)

    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": servers, **config})
    for record in wanted:
        producer.produce(topic, on_delivery=delivered, **record)
        producer.poll(0)
    expect(0, producer.flush(30))
    if errors:
        raise KafkaException(errors[0])


@contextlib.contextmanager
def consumer_of(servers: str, group: str = "", **config: Any) -> Iterator[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group or fresh("group"),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUICK,
            **config,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: Any, count: int) -> list[Any]:
    got: list[Any] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(got) < count:
        if time.monotonic() > deadline:
            raise AssertionError(f"{len(got)} of {count} records in {WAIT_SECONDS} s")
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error() is not None:
            raise KafkaException(message.error())
        got.append(message)
    return got


def read_assigned(servers: str, topic: str, count: int) -> list[Any]:
    with consumer_of(servers) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        return read(consumer, count)


def values_of(got: list[Any]) -> list[int]:
    return [int(message.value()) for message in got]


def acks(servers: str) -> None:
    topic = create(servers)
    for level in ("0", "1", "all"):
        send(servers, topic, 10, acks=level)
    expect(list(range(10)) * 3, values_of(read_assigned(servers, topic, 30)))


def codec(name: str) -> Callable[[str], None]:
    def check(servers: str) -> None:
        topic = create(servers)
        send(servers, topic, 100, **{"compression.type": name, "linger.ms": 50})
        expect(list(range(100)), values_of(read_assigned(servers, topic, 100)))

    return check


def records(servers: str) -> None:
    topic = create(servers)
    sent = [
        (b"key", b"value", [("trace", b"1"), ("trace", b"")]),
        (None, b"no key", None),
        (b"tombstone", None, None),
        (b"", b"", None),
    ]
    wanted = [
        {"key": key, "value": value, "headers": headers or [], "timestamp": T0 + n}
        for n, (key, value, headers) in enumerate(sent)
    ]
    produce(servers, topic, wanted)
    got = read_assigned(servers, topic, len(sent))
    expect(sent, [(m.key(), m.value(), m.headers()) for m in got])
    expect([(n, T0 + n) for n in range(4)], [(m.offset(), m.timestamp()[1]) for m in got])


def idempotent(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, 200, **{"enable.idempotence": True, "linger.ms": 5})
    expect(list(range(200)), values_of(read_assigned(servers, topic, 200)))


def assign(servers: str) -> None:
    topic = create(servers, 2)
    send(servers, topic, 10)
    with consumer_of(servers) as consumer:
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(2)])
        expect(set(range(10)), set(values_of(read(consumer, 10))))


def subscribe(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, 10)
    with consumer_of(servers) as consumer:
        consumer.subscribe([f"^{topic[:-1]}.$"])
        expect(list(range(10)), values_of(read(consumer, 10)))


def seek(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, 10)
    with consumer_of(servers) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        read(consumer, 1)
        consumer.seek(TopicPartition(topic, 0, 7))
        expect([7], values_of(read(consumer, 1)))
        consumer.seek(TopicPartition(topic, 0, OFFSET_BEGINNING))
        expect([0], values_of(read(consumer, 1)))
        consumer.seek(TopicPartition(topic, 0, OFFSET_END))
        expect(None, consumer.poll(1))


def times(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, 10, **{"linger.ms": 50})
    with consumer_of(servers) as consumer:
        for time_ms, offset in ((T0 + 2500, 3), (T0 * 2, OFFSET_END)):
            (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, time_ms)], 30)
            expect(offset, found.offset)
        expect((0, 10), consumer.get_watermark_offsets(TopicPartition(topic, 0), 30))


def pause(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, 10)
    partition = TopicPartition(topic, 0, OFFSET_BEGINNING)
    with consumer_of(servers) as consumer:
        consumer.assign([partition])
        expect([0], values_of(read(consumer, 1)))
        consumer.pause([partition])
        expect(None, consumer.poll(0.5))
        consumer.resume([partition])
        expect(list(range(1, 10)), values_of(read(consumer, 9)))


def member(servers: str, topic: str, group: str, **config: Any) -> Member:
    def live(member: Member) -> None:
        with consumer_of(servers, group, **config) as consumer:
            consumer.subscribe([topic])
            while not member.is_leaving():
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    member.values.append(int(message.value()))
                member.assigned = {each.partition for each in consumer.assignment()}
                if member.values:
                    # In the middle of a rebalance there may be nothing to commit.
                    with contextlib.suppress(KafkaException):
                        consumer.commit(asynchronous=False)

    return Member(live)


def group_with(assignor: str) -> Callable[[str], None]:
    def check(servers: str) -> None:
        topic, group = create(servers, 4), fresh("group")
        config = {"partition.assignment.strategy": assignor}
        # Without a sticky partitioner, so that all partitions get some.
        spread = {"sticky.partitioning.linger.ms": 0}
        members_come_and_leave(
            lambda: member(servers, topic, group, **config),
            lambda: send(servers, topic, 40, **spread),
        )

    return check


def static(servers: str) -> None:
    topic, group = create(servers, 2), fresh("group")
    static_member_returns(lambda name: member(servers, topic, group, **{"group.instance.id": name}))


def commit(servers: str) -> None:
    topic, group = create(servers), fresh("group")
    send(servers, topic, 10)
    with consumer_of(servers, group) as consumer:
        consumer.subscribe([topic])
        read(consumer, 4)
        consumer.commit(offsets=[TopicPartition(topic, 0, 4, "four")], asynchronous=False)
        (committed,) = consumer.committed([TopicPartition(topic, 0)], 30)
        expect((4, "four"), (committed.offset, committed.metadata))
    with consumer_of(servers, group) as consumer:
        consumer.subscribe([topic])
        expect([4], values_of(read(consumer, 1)))


def reset(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, 10)
    with consumer_of(servers) as consumer:
        consumer.assign([TopicPartition(topic, 0, 1000)])
        expect([0], values_of(read(consumer, 1)))
    with consumer_of(servers, **{"auto.offset.reset": "latest"}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 1000)])
        expect(None, consumer.poll(1.5))
        produce(servers, topic, [{"value": b"10"}])
        expect([10], [message.offset() for message in read(consumer, 1)])
    with consumer_of(servers, **{"auto.offset.reset": "error"}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 1000)])
        expect(KafkaError._AUTO_OFFSET_RESET, code_of(lambda: read(consumer, 1)))


def code_of(attempt: Callable[[], object]) -> int | None:
    """The error code of what is attempted; None if it is done."""
    try:
        attempt()
    except KafkaException as error:
        code: int = error.args[0].code()
        return code
    return None


def topics(servers: str) -> None:
    topic = create(servers, 3)
    admin = admin_of(servers)
    expect(3, len(admin.list_topics(timeout=30).topics[topic].partitions))
    admin.delete_topics([topic])[topic].result(30)
    assert topic not in admin.list_topics(timeout=30).topics


def partitions(servers: str) -> None:
    topic = create(servers)
    admin = admin_of(servers)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(30)
    expect(4, len(admin.list_topics(topic, 30).topics[topic].partitions))


def configs(servers: str) -> None:
    topic = create(servers)
    admin = admin_of(servers)
    entry = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    found = admin.describe_configs([resource])[resource].result(30)
    expect(("60000", False), (found["retention.ms"].value, found["retention.ms"].is_default))
    expect(("delete", True), (found["cleanup.policy"].value, found["cleanup.policy"].is_default))
    broker = ConfigResource(ResourceType.BROKER, str(next(iter(admin.list_topics().brokers))))
    assert "log.retention.hours" in admin.describe_configs([broker])[broker].result(30)


def delete_records(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, 10)
    partition = TopicPartition(topic, 0, 6)
    admin = admin_of(servers)
    deleted = admin.delete_records([partition])[partition].result(30)
    expect(6, deleted.low_watermark)
    expect([6], values_of(read_assigned(servers, topic, 1)))


def groups(servers: str) -> None:
    topic, group = create(servers), fresh("group")
    send(servers, topic, 10)
    admin = admin_of(servers)
    with consumer_of(servers, group) as consumer:
        consumer.subscribe([topic])
        read(consumer, 10)
        consumer.commit(asynchronous=False)
        listed = admin.list_consumer_groups().result(30)
        assert group in {each.group_id for each in listed.valid}
        described = admin.describe_consumer_groups([group])[group].result(30)
        expect("STABLE", described.state.name)
        expect(1, len(described.members[0].assignment.topic_partitions))
        asked = ConsumerGroupTopicPartitions(group)
        offsets = admin.list_consumer_group_offsets([asked])[group].result(30)
        expect([10], [each.offset for each in offsets.topic_partitions])
    admin.delete_consumer_groups([group])[group].result(30)


def leaders(servers: str) -> None:
    topic = create(servers)
    partition = TopicPartition(topic, 0)
    admin = admin_of(servers)
    answers = admin.elect_leaders(ElectionType.PREFERRED, [partition]).result(30)
    expect([KafkaError.ELECTION_NOT_NEEDED], [answer.code() for answer in answers.values()])


def cluster(servers: str) -> None:
    admin = admin_of(servers)
    described = admin.describe_cluster().result(30)
    expect(1, len(described.nodes))
    assert described.cluster_id


def too_large(servers: str) -> None:
    topic = create(servers)
    large = [{"value": bytes(2_000_000)}]
    config = {"message.max.bytes": 8_000_000}
    expect(KafkaError.MSG_SIZE_TOO_LARGE, code_of(lambda: produce(servers, topic, large, **config)))
    send(servers, topic, 1)
    expect([0], values_of(read_assigned(servers, topic, 1)))


def unknown(servers: str) -> None:
    topic = fresh("nowhere")
    admin = admin_of(servers)
    deleted = admin.delete_topics([topic])[topic]
    expect(KafkaError.UNKNOWN_TOPIC_OR_PART, code_of(lambda: deleted.result(30)))


def transactions(servers: str) -> None:
    topic = create(servers)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": fresh("tx")})
    try:
        producer.init_transactions(WAIT_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise
        kind = "fatal" if error.args[0].fatal() else "not fatal"
        raise Refused(f"{error.args[0].name()} ({kind}): {error.args[0].str()}") from error
    producer.begin_transaction()
    producer.produce(topic, b"value")
    producer.commit_transaction(30)


def send_and_read(login: Login) -> None:
    topic, settings = fresh("confluent"), login.properties()
    servers = settings.pop("bootstrap.servers")
    produce(servers, topic, [{"value": b"0"}], **settings)
    with consumer_of(servers, **settings) as consumer:
        consumer.subscribe([topic])
        expect([0], values_of(read(consumer, 1)))


def is_refused(login: Login) -> None:
    """It tries again and again, and says why by its callback only."""
    said: list[KafkaError] = []
    config: dict[str, Any] = {**login.properties(), "error_cb": said.append}
    admin = AdminClient(config)
    expect(KafkaError._TRANSPORT, code_of(lambda: admin.list_topics(timeout=2)))
    admin.poll(0)
    assert KafkaError._AUTHENTICATION in [error.code() for error in said], said


if __name__ == "__main__":
    run(
        by_name(acks, records, idempotent, assign, subscribe, seek, times, pause)
        | by_name(static, commit, reset, topics, partitions, configs, delete_records, groups)
        | by_name(leaders, cluster, too_large, unknown, transactions)
        | {name: codec(name) for name in CODECS}
        | {name: group_with(name) for name in ("range", "roundrobin")}
        | {
            "cooperative": group_with("cooperative-sticky"),
            "next-change": next_groups.change(create),
        }
        | {"member": next_groups.stay}
        | {f"next-{name}": next_groups.members(name, create) for name in ("uniform", "range")}
        | login_checks(send_and_read, is_refused)
    )
