"""Real clients over a compacted topic, and Kafka's own tool over its files.

The broker compacts while clients produce and consume; afterwards each client must find the last
value of every key, at ascending offsets with gaps between them, also after `kill -9`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from compat_tests.conftest import SETTINGS, BrokerProcess, running
from compat_tests.java import dump_log_segments, needs_jars

pytestmark = pytest.mark.timeout(180)

TOPIC = "compacted"
KEYS = 50
ROUNDS = 200
VALUE_BYTES = 400
CLEANED_SECONDS_MAX = 60
# What is in the newest segment is not compacted; it is a quarter of what is produced.
LEFT_MAX = KEYS * ROUNDS / 2


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    if os.environ.get("BOOTSTRAP_SERVERS"):
        pytest.skip("looks at the files: only for a broker that the test started")
    cleaner = ("log.cleaner.backoff.ms=100", "log.cleaner.min.cleanable.ratio=0.01")
    with running(BrokerProcess(tmp_path / "data", (*SETTINGS, *cleaner))) as broker:
        yield broker


def fill(servers: str) -> dict[bytes, bytes | None]:
    """Writes every key many times over, in all codecs; the last value of each."""
    admin = AdminClient({"bootstrap.servers": servers})
    topic = NewTopic(TOPIC, 1, 1, config={"cleanup.policy": "compact", "segment.bytes": "1048576"})
    for future in admin.create_topics([topic]).values():
        future.result()
    last: dict[bytes, bytes | None] = {}
    for number, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "compression.type": codec,
                "enable.idempotence": True,
                "linger.ms": 20,
            }
        )
        for round_ in range(ROUNDS // 5):
            for key in (b"key-%d" % at for at in range(KEYS)):
                value = None if round_ == 3 else codec.encode() + os.urandom(VALUE_BYTES)
                last[key] = value
                producer.produce(TOPIC, key=key, value=value)
            producer.poll(0)
        assert producer.flush(30) == 0, number
    return last


def last_of(records: list[tuple[int, bytes, bytes | None]]) -> dict[bytes, bytes | None]:
    offsets = [offset for offset, _, _ in records]
    assert offsets == sorted(set(offsets))
    return {key: value for _, key, value in records}


def read_confluent(servers: str) -> list[tuple[int, bytes, bytes | None]]:
    consumer: Any = Consumer({"bootstrap.servers": servers, "group.id": "any"})
    partition = TopicPartition(TOPIC, 0, 0)
    _, end = consumer.get_watermark_offsets(partition)
    consumer.assign([partition])
    found: list[tuple[int, bytes, bytes | None]] = []
    while not found or found[-1][0] < end - 1:
        message = consumer.poll(10)
        assert message is not None
        assert message.error() is None
        found.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return found


def read_kafka_python(servers: str) -> list[tuple[int, bytes, bytes | None]]:
    consumer = KafkaConsumer(bootstrap_servers=servers, consumer_timeout_ms=3000)
    partition = KafkaPythonPartition(TOPIC, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    found = [(record.offset, record.key, record.value) for record in consumer]
    consumer.close()
    return found


async def read_aiokafka(servers: str) -> list[tuple[int, bytes, bytes | None]]:
    found: list[tuple[int, bytes, bytes | None]] = []
    async with AIOKafkaConsumer(
        TOPIC, bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        while True:
            batches = await consumer.getmany(timeout_ms=3000)
            if not batches:
                return found
            for records in batches.values():
                found += [(record.offset, record.key, record.value) for record in records]


def wait_until_compacted(servers: str) -> list[tuple[int, bytes, bytes | None]]:
    deadline = time.monotonic() + CLEANED_SECONDS_MAX
    while len(found := read_confluent(servers)) > LEFT_MAX:
        assert time.monotonic() < deadline, f"{len(found)} records are left"
        time.sleep(0.3)
    return found


async def test_every_client_finds_the_last_value_of_each_key(broker: BrokerProcess) -> None:
    last = fill(broker.bootstrap_servers)
    found = wait_until_compacted(broker.bootstrap_servers)
    assert len(found) < KEYS * ROUNDS
    assert last_of(found) == last
    assert last_of(read_kafka_python(broker.bootstrap_servers)) == last
    assert last_of(await read_aiokafka(broker.bootstrap_servers)) == last
    broker.kill()
    broker.start()
    assert last_of(read_confluent(broker.bootstrap_servers)) == last


@needs_jars
def test_kafkas_dump_log_segments_reads_a_compacted_log(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    fill(broker.bootstrap_servers)
    wait_until_compacted(broker.bootstrap_servers)
    assert broker.stop() == 0
    suffixes = (".log", ".index", ".timeindex")
    partition = tmp_path / "data" / f"{TOPIC}-0"
    files = [path for path in sorted(partition.iterdir()) if path.suffix in suffixes]
    assert "isvalid: true" in dump_log_segments(files, "--deep-iteration")
