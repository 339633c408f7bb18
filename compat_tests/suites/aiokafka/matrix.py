"""aiokafka's program of checks; see `checks.py`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartitionError,
)
from aiokafka.structs import OffsetAndMetadata

from compat_tests.suites.checks import (
    CODECS,
    T0,
    WAIT_SECONDS,
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


@contextlib.asynccontextmanager
async def admin_of(servers: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def create(servers: str, partitions: int = 1, **configs: str) -> str:
    topic = fresh("aiokafka")
    async with admin_of(servers) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])
    return topic


async def send(servers: str, topic: str, count: int, **config: Any) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers, **config) as producer:
        waiting = [
            await producer.send(topic, b"%d" % n, timestamp_ms=T0 + 1000 * n) for n in range(count)
        ]
        for future in waiting:
            await future


async def read(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    return [await asyncio.wait_for(consumer.getone(), WAIT_SECONDS) for _ in range(count)]


async def read_assigned(servers: str, topic: str, count: int) -> list[Any]:
    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        return await read(consumer, count)


async def acks(servers: str) -> None:
    topic = await create(servers)
    for level in (0, 1, "all"):
        await send(servers, topic, 10, acks=level)
    expect(
        [b"%d" % n for n in range(10)] * 3,
        [r.value for r in await read_assigned(servers, topic, 30)],
    )


def codec(name: str) -> Callable[[str], Awaitable[None]]:
    async def check(servers: str) -> None:
        topic = await create(servers)
        await send(servers, topic, 100, compression_type=name, linger_ms=50)
        records = await read_assigned(servers, topic, 100)
        expect([b"%d" % n for n in range(100)], [record.value for record in records])

    return check


async def records(servers: str) -> None:
    topic = await create(servers)
    sent = [
        (b"key", b"value", (("trace", b"1"), ("trace", b""))),
        (None, b"no key", ()),
        (b"tombstone", None, ()),
        (b"", b"", ()),
    ]
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for n, (key, value, headers) in enumerate(sent):
            await producer.send_and_wait(topic, value, key, 0, T0 + n, list(headers))
    got = await read_assigned(servers, topic, len(sent))
    expect(sent, [(r.key, r.value, r.headers) for r in got])
    expect([(n, T0 + n) for n in range(4)], [(r.offset, r.timestamp) for r in got])


async def idempotent(servers: str) -> None:
    topic = await create(servers)
    await send(servers, topic, 200, enable_idempotence=True, linger_ms=5)
    got = await read_assigned(servers, topic, 200)
    expect([b"%d" % n for n in range(200)], [record.value for record in got])


async def assign(servers: str) -> None:
    topic = await create(servers, 2)
    await send(servers, topic, 10)
    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        partitions = [TopicPartition(topic, index) for index in range(2)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning()
        expect(set(range(10)), {int(record.value) for record in await read(consumer, 10)})


async def subscribe(servers: str) -> None:
    topic = await create(servers)
    await send(servers, topic, 10)
    async with AIOKafkaConsumer(
        bootstrap_servers=servers, group_id=fresh("group"), auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(pattern=f"^{topic[:-1]}.$")
        expect(list(range(10)), [int(record.value) for record in await read(consumer, 10)])


async def seek(servers: str) -> None:
    topic = await create(servers)
    await send(servers, topic, 10)
    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 7)
        expect([7], [record.offset for record in await read(consumer, 1)])
        await consumer.seek_to_beginning(partition)
        expect([0], [record.offset for record in await read(consumer, 1)])
        await consumer.seek_to_end(partition)
        expect(10, await consumer.position(partition))


async def times(servers: str) -> None:
    topic = await create(servers)
    await send(servers, topic, 10, linger_ms=50)
    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        found = await consumer.offsets_for_times({partition: T0 + 2500})
        expect((3, T0 + 3000), tuple(found[partition]))
        expect({partition: None}, await consumer.offsets_for_times({partition: T0 * 2}))
        expect({partition: 0}, await consumer.beginning_offsets([partition]))
        expect({partition: 10}, await consumer.end_offsets([partition]))


async def pause(servers: str) -> None:
    topic = await create(servers)
    await send(servers, topic, 10)
    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        expect([0], [record.offset for record in await read(consumer, 1)])
        consumer.pause(partition)
        expect({}, await consumer.getmany(timeout_ms=500))
        consumer.resume(partition)
        expect(list(range(1, 10)), [record.offset for record in await read(consumer, 9)])


def member(servers: str, topic: str, group: str, **config: Any) -> Member:
    config = {**QUICK, "group_id": group, "auto_offset_reset": "earliest", **config}

    async def live(member: Member) -> None:
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=servers, enable_auto_commit=False, **config
        ) as consumer:
            while not member.is_leaving():
                for got in (await consumer.getmany(timeout_ms=100)).values():
                    member.values += [int(record.value) for record in got]
                member.assigned = {each.partition for each in consumer.assignment()}
                if member.values:
                    # In the middle of a rebalance there may be nothing to commit.
                    with contextlib.suppress(KafkaError):
                        await consumer.commit()

    return Member(live)


def group_with(assignor: type) -> Callable[[str], None]:
    def check(servers: str) -> None:
        topic, group = asyncio.run(create(servers, 4)), fresh("group")
        config = {"partition_assignment_strategy": [assignor]}
        members_come_and_leave(
            lambda: member(servers, topic, group, **config),
            lambda: asyncio.run(send(servers, topic, 40)),
        )

    return check


def static(servers: str) -> None:
    topic, group = asyncio.run(create(servers, 2)), fresh("group")
    static_member_returns(lambda name: member(servers, topic, group, group_instance_id=name))


async def commit(servers: str) -> None:
    topic, group = await create(servers), fresh("group")
    await send(servers, topic, 10)
    partition = TopicPartition(topic, 0)
    config = {"bootstrap_servers": servers, "group_id": group, "enable_auto_commit": False}
    async with AIOKafkaConsumer(topic, **config, auto_offset_reset="earliest") as consumer:
        await read(consumer, 4)
        await consumer.commit({partition: OffsetAndMetadata(4, "four")})
        expect(4, await consumer.committed(partition))
    async with AIOKafkaConsumer(topic, **config) as consumer:
        expect([4], [record.offset for record in await read(consumer, 1)])


async def reset(servers: str) -> None:
    topic = await create(servers)
    await send(servers, topic, 10)
    partition = TopicPartition(topic, 0)
    for where, offset in (("earliest", 0), ("latest", 11)):
        async with AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset=where) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 1000)
            task = asyncio.create_task(consumer.getone())
            await asyncio.sleep(1)
            await send(servers, topic, 1)
            record = await asyncio.wait_for(task, WAIT_SECONDS)
            expect(offset, record.offset)
    async with AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1000)
        try:
            await asyncio.wait_for(consumer.getone(), WAIT_SECONDS)
        except OffsetOutOfRangeError:
            return
        raise AssertionError("an offset out of range was no error")


async def topics(servers: str) -> None:
    topic = await create(servers, 3)
    async with admin_of(servers) as admin:
        assert topic in await admin.list_topics()
        (described,) = await admin.describe_topics([topic])
        expect(3, len(described["partitions"]))
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()


async def partitions(servers: str) -> None:
    topic = await create(servers)
    async with admin_of(servers) as admin:
        await admin.create_partitions({topic: NewPartitions(4)})
        (described,) = await admin.describe_topics([topic])
        expect(4, len(described["partitions"]))


async def configs(servers: str) -> None:
    topic = await create(servers)
    async with admin_of(servers) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "60000"})
        await admin.alter_configs([resource])
        node = (await admin.describe_cluster())["brokers"][0]["node_id"]
        asked = (ConfigResourceType.BROKER, str(node)), (ConfigResourceType.TOPIC, topic)
        answers = await admin.describe_configs([ConfigResource(*each) for each in asked])
        of_broker, of_topic = (
            {entry[0]: entry[1] for entry in answer.resources[0][4]} for answer in answers
        )
        expect("60000", of_topic["retention.ms"])
        expect("delete", of_topic["cleanup.policy"])
        assert "log.retention.hours" in of_broker


async def delete_records(servers: str) -> None:
    topic = await create(servers)
    await send(servers, topic, 10)
    partition = TopicPartition(topic, 0)
    async with admin_of(servers) as admin:
        await admin.delete_records({partition: RecordsToDelete(before_offset=6)})
    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        expect({partition: 6}, await consumer.beginning_offsets([partition]))


async def groups(servers: str) -> None:
    topic, group = await create(servers), fresh("group")
    await send(servers, topic, 10)
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        await read(consumer, 10)
        await consumer.commit()
        async with admin_of(servers) as admin:
            assert (group, "consumer") in await admin.list_consumer_groups()
            (answer,) = await admin.describe_consumer_groups([group])
            expect("Stable", answer.groups[0][2])
            offsets = await admin.list_consumer_group_offsets(group)
            expect(10, offsets[TopicPartition(topic, 0)].offset)


async def cluster(servers: str) -> None:
    async with admin_of(servers) as admin:
        described = await admin.describe_cluster()
        expect(1, len(described["brokers"]))
        assert described["cluster_id"]


async def too_large(servers: str) -> None:
    topic = await create(servers)
    async with AIOKafkaProducer(bootstrap_servers=servers, max_request_size=8_000_000) as producer:
        try:
            await producer.send_and_wait(topic, bytes(2_000_000))
        except MessageSizeTooLargeError:
            expect(0, (await producer.send_and_wait(topic, b"small")).offset)
        else:
            raise AssertionError("2 MB were taken")


async def unknown(servers: str) -> None:
    topic = fresh("nowhere")
    async with admin_of(servers) as admin:
        answer = await admin.delete_topics([topic])
        expect([(topic, UnknownTopicOrPartitionError.errno)], answer.topic_error_codes)


async def transactions(servers: str) -> None:
    topic = await create(servers)
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=fresh("tx"))
    try:
        with refused_by(TransactionalIdAuthorizationFailed):
            await asyncio.wait_for(producer.start(), WAIT_SECONDS)
        async with producer.transaction():
            await producer.send_and_wait(topic, b"value")
    finally:
        await producer.stop()


async def send_and_read(login: Login) -> None:
    topic, settings = fresh("aiokafka"), login.settings()
    async with AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait(topic, b"value")
    async with AIOKafkaConsumer(
        topic, group_id=fresh("group"), auto_offset_reset="earliest", **settings
    ) as consumer:
        expect([b"value"], [record.value for record in await read(consumer, 1)])


async def is_refused(login: Login) -> None:
    producer = AIOKafkaProducer(**login.settings())
    try:
        await producer.start()
    except KafkaConnectionError:
        # The reason it keeps for its log.
        pass
    else:
        raise AssertionError("a wrong password was taken")
    finally:
        await producer.stop()


if __name__ == "__main__":
    run(
        by_name(acks, records, idempotent, assign, subscribe, seek, times, pause)
        | by_name(static, commit, reset, topics, partitions, configs, delete_records, groups)
        | by_name(cluster, too_large, unknown, transactions)
        | {name: codec(name) for name in CODECS}
        | login_checks(send_and_read, is_refused)
        | {
            "range": group_with(RangePartitionAssignor),
            "roundrobin": group_with(RoundRobinPartitionAssignor),
            "sticky": group_with(StickyPartitionAssignor),
        }
    )
