"""Data directories go back and forth between Apache Kafka and asyncbroker.

One Kafka is filled once, killed, started again and stopped in order; each of the two directories is
opened by asyncbroker, with records, groups and transactions. Kafka's DumpLogSegments reads what
asyncbroker writes, and a Kafka goes on with a log of asyncbroker's.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.conftest import BrokerProcess, running
from compat_tests.java import dump_log_segments, needs_jars
from compat_tests.kafka import KAFKA_SECONDS_MAX, Kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PLAIN, TRANSACTIONS, MOVED, GROUP = "plain", "transactions", "moved", "movers"

pytestmark = [pytest.mark.timeout(400), needs_jars]

Found = list[tuple[int, bytes | None, bytes | None]]
"""Offset, key and value of records."""


@dataclass
class FilledKafka:
    """What Kafka had, and its directory after a kill and after a stop in order."""

    killed: Path
    stopped: Path
    plain: Found
    committed: Found


def create(servers: str, **partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    config = {"segment.bytes": "1048576", "index.interval.bytes": "300"}
    topics = [NewTopic(name, count, 1, config=config) for name, count in partitions.items()]
    for future in admin.create_topics(topics).values():
        future.result(KAFKA_SECONDS_MAX)


def produce_plain(servers: str, topic: str) -> None:
    """Batches of all codecs, with headers, of idempotent producers, in several segments."""
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "compression.type": codec,
                "enable.idempotence": True,
                "linger.ms": 5,
            }
        )
        for n in range(400):
            value = f"{codec}-{n}-".encode() + os.urandom(1500).hex().encode()
            producer.produce(topic, value, f"key-{n}".encode(), headers={"codec": codec})
            producer.poll(0)
        assert producer.flush(60) == 0


def produce_transactions(servers: str) -> None:
    """Committed, aborted and again committed ones, between other records."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "mover"})
    producer.init_transactions(60)
    for name, is_good in (("first", True), ("aborted", False), ("second", True), ("gone", False)):
        producer.begin_transaction()
        for n in range(10):
            producer.produce(TRANSACTIONS, f"{name} {n}".encode())
        producer.flush(60)
        if is_good:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    plain = Producer({"bootstrap.servers": servers})
    plain.produce(TRANSACTIONS, b"last")
    assert plain.flush(60) == 0


def consume(servers: str, topic: str, last: bytes) -> Found:
    """All committed records of a topic, up to the one with a value that begins so."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"reader-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "check.crcs": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: Found = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        assert message.error() is None, message.error()
        found.append((message.offset() or 0, message.key(), message.value()))
        if (message.value() or b"").startswith(last):
            consumer.close()
            return found
    raise AssertionError(f"{topic} has no {last!r} after {len(found)} records")


def commit(servers: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(servers: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    [found] = consumer.committed([TopicPartition(topic, 0)], timeout=60)
    consumer.close()
    offset: int = found.offset
    return offset


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilledKafka]:
    home = tmp_path_factory.mktemp("kafka")
    kafka = Kafka(home / "data")
    try:
        kafka.start()
        create(kafka.servers, **{PLAIN: 1, TRANSACTIONS: 1, MOVED: 1})
        produce_plain(kafka.servers, PLAIN)
        produce_transactions(kafka.servers)
        commit(kafka.servers, PLAIN, 123)
        plain = consume(kafka.servers, PLAIN, b"zstd-399-")
        good = consume(kafka.servers, TRANSACTIONS, b"last")
        kafka.end(signal.SIGKILL)
        killed = home / "killed"
        shutil.copytree(kafka.data, killed)
        kafka.start()
        kafka.end(signal.SIGTERM)
        yield FilledKafka(killed, kafka.data, plain, good)
    finally:
        kafka.end(signal.SIGKILL)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_directory_of_kafkas_is_served_records_groups_and_transactions(
    kafka: FilledKafka, how: str, tmp_path: Path
) -> None:
    shutil.copytree(getattr(kafka, how), tmp_path / "data")
    with running(BrokerProcess(tmp_path / "data")) as broker:
        for _ in range(2):
            servers = broker.bootstrap_servers
            assert consume(servers, PLAIN, b"zstd-399-") == kafka.plain
            assert committed(servers, PLAIN) == 123
            found = consume(servers, TRANSACTIONS, b"last")
            assert [value for _, _, value in found] == [value for _, _, value in kafka.committed]
            assert found == kafka.committed
            assert broker.stop() == 0
            broker.start()
        # A producer of ours is taken for none of those that Kafka has had.
        produce_each(servers, PLAIN, ours := [b"ours-%d" % number for number in range(3)])
        found = consume(servers, PLAIN, ours[-1])
        assert [value for _, _, value in found[len(kafka.plain) :]] == ours


def produce_each(servers: str, topic: str, values: list[bytes]) -> None:
    """A batch for each value."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value)
        assert producer.flush(60) == 0


def written_by_ours(data: Path) -> Found:
    with running(BrokerProcess(data)) as broker:
        servers = broker.bootstrap_servers
        create(servers, **{MOVED: 1})
        produce_plain(servers, MOVED)
        commit(servers, MOVED, 77)
        return consume(servers, MOVED, b"zstd-399-")


def test_kafkas_dump_log_segments_reads_what_we_write(tmp_path: Path) -> None:
    written = written_by_ours(tmp_path / "data")
    partition, offsets = (
        tmp_path / "data" / name for name in (f"{MOVED}-0", "__consumer_offsets-0")
    )
    suffixes = (".log", ".index", ".timeindex", ".snapshot")
    files = [path for path in sorted(partition.iterdir()) if path.suffix in suffixes]
    assert sum(path.suffix == ".log" for path in files) > 2
    dumped = dump_log_segments(files, "--deep-iteration", "--print-data-log")
    assert dumped.count("| offset: ") == len(written)
    assert dumped.count("isvalid: true") >= 2 * len(CODECS)
    assert "producerId: " in dumped
    assert dumped.count("headerKeys: [codec]") == len(written)
    for codec in CODECS:
        assert f"compresscodec: {codec}" in dumped
    decoded = dump_log_segments(offsets.glob("*.log"), "--offsets-decoder")
    assert f'"group":"{GROUP}","topic":"{MOVED}","partition":0' in decoded
    assert '"offset":77' in decoded


def test_kafka_goes_on_with_a_log_of_ours(kafka: FilledKafka, tmp_path: Path) -> None:
    """What it takes: the topic exists in Kafka's metadata, with as many partitions; the directory
    keeps Kafka's `partition.metadata`, which has the id that Kafka gave; the marker of a clean stop
    is taken away, so that Kafka looks at the logs."""
    written = written_by_ours(tmp_path / "ours")
    data = tmp_path / "data"
    shutil.copytree(kafka.stopped, data)
    for name in (f"{MOVED}-0", "__consumer_offsets-0"):
        metadata = (data / name / "partition.metadata").read_bytes()
        shutil.rmtree(data / name)
        shutil.copytree(tmp_path / "ours" / name, data / name)
        (data / name / "partition.metadata").write_bytes(metadata)
    (data / ".kafka_cleanshutdown").unlink()
    theirs = Kafka(data)
    try:
        theirs.start()
        assert consume(theirs.servers, MOVED, b"zstd-399-") == written
        assert committed(theirs.servers, MOVED) == 77
        producer = Producer({"bootstrap.servers": theirs.servers, "enable.idempotence": True})
        producer.produce(MOVED, b"end")
        assert producer.flush(60) == 0
        found = consume(theirs.servers, MOVED, b"end")
        assert found == [*written, (len(written), None, b"end")]
    finally:
        theirs.end(signal.SIGKILL)
