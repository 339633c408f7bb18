"""kafka-python against the broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    NewTopic,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import RebalanceInProgressError, SecurityDisabledError
from kafka.structs import OffsetAndMetadata

from compat_tests.conftest import BrokerProcess

Fresh = Callable[[str], str]
T0 = 1_600_000_000_000


def create(servers: str, topic: str, partitions: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics([NewTopic(topic, partitions, 1)])
    admin.close()


def read(servers: str, topic: str, count: int) -> list[Any]:
    consumer = KafkaConsumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    records = [record for _, record in zip(range(count), consumer, strict=False)]
    consumer.close()
    return records


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(
    bootstrap_servers: str, fresh: Fresh, codec: str | None
) -> None:
    topic = fresh("codec")
    create(bootstrap_servers, topic, 1)
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, compression_type=codec)
    sent = [
        (b"key", b"value" * 50, [("trace", b"1"), ("trace", b"")]),
        (None, b"no key", []),
        (b"tombstone", None, []),
        (b"", b"", []),
    ]
    for index, (key, value, headers) in enumerate(sent):
        producer.send(topic, value, key, headers, partition=0, timestamp_ms=T0 + index)
    producer.close()
    records = read(bootstrap_servers, topic, len(sent))
    assert [(r.key, r.value, list(r.headers)) for r in records] == sent
    assert [(r.offset, r.timestamp) for r in records] == [(n, T0 + n) for n in range(4)]


def test_offsets_by_time(bootstrap_servers: str, fresh: Fresh) -> None:
    topic = fresh("times")
    create(bootstrap_servers, topic, 1)
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, linger_ms=100)
    for index in range(10):
        producer.send(topic, b"%d" % index, partition=0, timestamp_ms=T0 + 1000 * index)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers)
    partition = TopicPartition(topic, 0)
    found = consumer.offsets_for_times({partition: T0 + 2500})[partition]
    assert (found.offset, found.timestamp) == (3, T0 + 3000)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 10}
    consumer.close()


class Member(threading.Thread):
    """One member of a group, polling in a thread of its own until it is told to leave."""

    def __init__(self, servers: str, group: str, topic: str, assignor: type) -> None:
        super().__init__(daemon=True)
        self.values: list[int] = []
        self.assignment: set[TopicPartition] = set()
        self.leaving = threading.Event()
        self._consumer = KafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=[assignor],
            heartbeat_interval_ms=200,
            metadata_max_age_ms=1000,
            session_timeout_ms=6000,
        )
        self._consumer.subscribe([topic])

    def run(self) -> None:
        while not self.leaving.is_set():
            for records in self._consumer.poll(timeout_ms=100).values():
                self.values += [int(record.value) for record in records]
            self.assignment = set(self._consumer.assignment())
            if self.values:
                # A poll that ends in the middle of a rebalance leaves nothing to commit.
                with suppress(RebalanceInProgressError):
                    self._consumer.commit()
        self._consumer.close()


class ClientIsStuck(Exception):
    """kafka-python 3.0 can lose a wake-up between its threads on a busy machine: a member polls or
    heartbeats no more, though every answer of the broker has been read."""


def wait_for_members(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + STUCK_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise ClientIsStuck
        time.sleep(0.05)


STUCK_SECONDS = 15
ATTEMPTS = 5
ASSIGNORS = [RangePartitionAssignor, RoundRobinPartitionAssignor, CooperativeStickyAssignor]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda a: a.name)
def test_group_shares_partitions_and_takes_over(
    bootstrap_servers: str, fresh: Fresh, assignor: type
) -> None:
    for _ in range(ATTEMPTS):
        topic, group = fresh("group-topic"), fresh("group")
        create(bootstrap_servers, topic, 4)
        members = [Member(bootstrap_servers, group, topic, assignor) for _ in range(2)]
        try:
            share_and_take_over(bootstrap_servers, members, topic)
        except ClientIsStuck:
            for member in members:
                member.leaving.set()
            continue
        break
    else:
        raise AssertionError(f"the client got stuck {ATTEMPTS} times")
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    offsets = admin.list_group_offsets([group])
    admin.close()
    assert sorted(offset.offset for offset in offsets[group].values()) == [10] * 4


def share_and_take_over(servers: str, members: list[Member], topic: str) -> None:
    """Two members share four partitions; one leaves, and the other has them all."""
    for member in members:
        member.start()
    wait_for_members(lambda: [len(m.assignment) for m in members] == [2, 2])
    producer = KafkaProducer(bootstrap_servers=servers)
    for index in range(40):
        producer.send(topic, b"%d" % index, partition=index % 4)
    producer.close()
    wait_for_members(lambda: {*members[0].values, *members[1].values} == set(range(40)))
    members[1].leaving.set()
    wait_for_members(lambda: len(members[0].assignment) == 4)
    members[0].leaving.set()
    for member in members:
        member.join(20)
        if member.is_alive():
            raise ClientIsStuck


def test_admin_deletes_offsets_that_nobody_reads(bootstrap_servers: str, fresh: Fresh) -> None:
    topic, group = fresh("forgotten-topic"), fresh("forgetting")
    create(bootstrap_servers, topic, 2)
    partitions = [TopicPartition(topic, index) for index in range(2)]
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    admin.alter_group_offsets(group, {p: OffsetAndMetadata(0, "", -1) for p in partitions})
    admin.delete_group_offsets(group, partitions[:1])
    assert list(admin.list_group_offsets([group])[group]) == partitions[1:]
    admin.close()


def test_admin_sees_sizes_of_partitions(bootstrap_servers: str, fresh: Fresh) -> None:
    topic = fresh("sized")
    create(bootstrap_servers, topic, 2)
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers)
    producer.send(topic, bytes(10_000), partition=1)
    producer.close()
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    (broker,) = admin.describe_log_dirs({topic: [0, 1]})
    admin.close()
    (directory,) = broker["log_dirs"]
    partitions = directory["topics"][0]["partitions"]
    sizes = {each["partition_index"]: each["partition_size"] for each in partitions}
    assert sizes.keys() == {0, 1}
    assert sizes[0] == 0
    assert 10_000 < sizes[1] < 10_200
    assert 0 < directory["usable_bytes"] < directory["total_bytes"]


def test_admin_describes_topics_page_by_page(bootstrap_servers: str, fresh: Fresh) -> None:
    topics = sorted(fresh("paged") for _ in range(2))
    for topic in topics:
        create(bootstrap_servers, topic, 3)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    seen, cursor = [], None
    while True:
        page = admin.describe_topic_partitions(topics, response_partition_limit=2, cursor=cursor)
        for topic in page["topics"]:
            seen += [(topic["name"], p["partition_index"]) for p in topic["partitions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    admin.close()
    assert seen == [(topic, index) for topic in topics for index in range(3)]


def test_admin_finds_no_partition_on_its_way(bootstrap_servers: str, fresh: Fresh) -> None:
    topic = fresh("still")
    create(bootstrap_servers, topic, 1)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    assert not admin.list_partition_reassignments({topic: [0]})
    admin.close()


def test_admin_is_told_that_there_is_no_access_control(bootstrap_servers: str) -> None:
    any_resource = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    any_rule = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, any_resource)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    with pytest.raises(SecurityDisabledError):
        admin.describe_acls(any_rule)
    admin.close()


def test_records_survive_a_restart(own_broker: BrokerProcess, fresh: Fresh) -> None:
    topic = fresh("restart")
    servers = own_broker.bootstrap_servers
    producer = KafkaProducer(bootstrap_servers=servers, acks="all")
    for index in range(100):
        producer.send(topic, b"%d" % index).get(20)
    own_broker.kill()
    own_broker.start()
    for index in range(100, 200):
        producer.send(topic, b"%d" % index).get(20)
    producer.close()
    assert [int(r.value) for r in read(servers, topic, 200)] == list(range(200))
