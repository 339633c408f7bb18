"""aiokafka, the asyncio client, against the broker."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from compat_tests.conftest import BrokerProcess

Fresh = Callable[[str], str]
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
ASSIGNORS = [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]
T0 = 1_600_000_000_000


async def create_topic(servers: str, topic: str, partitions: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, partitions, 1)])
    finally:
        await admin.close()


async def read(servers: str, topic: str, count: int) -> list[Any]:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        return [await asyncio.wait_for(consumer.getone(), 20) for _ in range(count)]
    finally:
        await consumer.stop()


@pytest.mark.parametrize("codec", CODECS)
async def test_records_come_back_as_they_were_sent(
    bootstrap_servers: str, fresh: Fresh, codec: str | None
) -> None:
    topic = fresh("codec")
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, compression_type=codec)
    await producer.start()
    sent = [
        (b"key", b"value" * 50, [("trace", b"1"), ("trace", b""), ("other", b"\xff")]),
        (None, b"no key", []),
        (b"tombstone", None, []),
        (b"", b"", [("empty", b"")]),
    ]
    for index, (key, value, headers) in enumerate(sent):
        await producer.send_and_wait(
            topic, value, key, partition=0, timestamp_ms=T0 + index, headers=headers
        )
    await producer.stop()

    records = await read(bootstrap_servers, topic, len(sent))
    assert [(r.key, r.value, list(r.headers)) for r in records] == sent
    assert [r.offset for r in records] == [0, 1, 2, 3]
    assert [r.timestamp for r in records] == [T0, T0 + 1, T0 + 2, T0 + 3]


async def test_idempotent_producer_with_acks_all(bootstrap_servers: str, fresh: Fresh) -> None:
    topic = fresh("idempotent")
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, enable_idempotence=True)
    await producer.start()
    sends = [await producer.send(topic, b"%d" % n, partition=0) for n in range(500)]
    offsets = [(await send).offset for send in sends]
    await producer.stop()
    assert offsets == list(range(500))


async def test_offsets_by_time_beginning_and_end(bootstrap_servers: str, fresh: Fresh) -> None:
    topic = fresh("times")
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, compression_type="gzip")
    await producer.start()
    batch = producer.create_batch()
    for index in range(10):
        batch.append(key=None, value=b"%d" % index, timestamp=T0 + 1000 * index)
    batch.close()
    await producer.send_batch(batch, topic, partition=0)
    await producer.flush()
    await producer.stop()

    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers)
    await consumer.start()
    partition = TopicPartition(topic, 0)
    inside = await consumer.offsets_for_times({partition: T0 + 2500})
    assert (inside[partition].offset, inside[partition].timestamp) == (3, T0 + 3000)
    after = await consumer.offsets_for_times({partition: T0 + 10_000})
    assert after[partition] is None
    assert await consumer.beginning_offsets([partition]) == {partition: 0}
    assert await consumer.end_offsets([partition]) == {partition: 10}
    await consumer.stop()


class Owners(ConsumerRebalanceListener):  # type: ignore[misc]
    """Who owns which partition now, over all members."""

    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self.owned -= set(revoked)

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.owned = set(assigned)


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda a: a.name)
async def test_group_shares_partitions_and_takes_over(
    bootstrap_servers: str, fresh: Fresh, assignor: type
) -> None:
    topic, group = fresh("group-topic"), fresh("group")
    await create_topic(bootstrap_servers, topic, 4)
    members = []
    for _ in range(2):
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=(assignor,),
            heartbeat_interval_ms=200,
            session_timeout_ms=6000,
        )
        owners = Owners()
        consumer.subscribe([topic], listener=owners)
        await consumer.start()
        members.append((consumer, owners))

    async def settled(counts: list[int]) -> None:
        while sorted(len(o.owned) for _, o in members) != counts:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    await asyncio.wait_for(settled([2, 2]), 30)
    assert not members[0][1].owned & members[1][1].owned

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers)
    await producer.start()
    for index in range(40):
        await producer.send_and_wait(topic, b"%d" % index, partition=index % 4)
    await producer.stop()

    seen: dict[int, list[int]] = defaultdict(list)
    while sum(map(len, seen.values())) < 40:
        for number, (consumer, _) in enumerate(members):
            for records in (await consumer.getmany(timeout_ms=100)).values():
                seen[number] += [int(r.value) for r in records]
            await consumer.commit()
    assert sorted(seen[0] + seen[1]) == list(range(40))
    assert len(seen[0]) == len(seen[1]) == 20

    leaver, _ = members.pop()
    await leaver.stop()
    await asyncio.wait_for(settled([4]), 30)
    survivor = members[0][0]
    for partition in range(4):
        assert await survivor.committed(TopicPartition(topic, partition)) == 10
    await survivor.stop()


async def test_records_offsets_and_producer_survive_a_restart(
    own_broker: BrokerProcess, fresh: Fresh
) -> None:
    servers, topic, group = own_broker.bootstrap_servers, fresh("restart"), fresh("group")
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True, request_timeout_ms=5000
    )
    await producer.start()
    for index in range(10):
        await producer.send_and_wait(topic, b"%d" % index, partition=0)
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    first = [int((await consumer.getone()).value) for _ in range(6)]
    await consumer.commit({TopicPartition(topic, 0): 6})

    own_broker.kill()
    own_broker.start()

    for index in range(10, 20):
        await producer.send_and_wait(topic, b"%d" % index, partition=0)
    await producer.stop()
    await consumer.stop()

    resumed = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await resumed.start()
    rest = [int((await asyncio.wait_for(resumed.getone(), 30)).value) for _ in range(14)]
    await resumed.stop()
    assert first + rest == list(range(20))
