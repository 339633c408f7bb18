"""Disks that are full, slow or gone, directories that two brokers want, and memory under load."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from asyncbroker.tests.history.history import End, Ended, History
from compat_tests.chaos.ext4 import why_not_mounted
from compat_tests.chaos.load import (
    QUICK,
    ProducerLoad,
    assert_kept,
    create_topic,
    read_all,
)
from compat_tests.chaos.nemesis import (
    CHAOS_SETTINGS,
    SLOW_FSYNC,
    ChaosBroker,
    fill,
    running,
    small_disk,
    wait_until,
)

IDEMPOTENT: dict[str, Any] = {"enable.idempotence": True}
# What a full disk refuses is not tried for long.
REFUSED_SOON: dict[str, Any] = {
    "acks": "all",
    "message.timeout.ms": 1500,
    "message.send.max.retries": 2,
}
PARTITIONS = 2
# What each fsync of a slow disk takes; a session is six of them.
SLOW_SECONDS = 0.5
# What producers fill a disk up with by themselves.
LEFT_BYTES = 512 << 10


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data directory on a file system of 48 MB."""
    if why := why_not_mounted():
        pytest.skip(why)
    with small_disk(tmp_path / "disk", 48) as disk:
        yield disk / "data"


@pytest.mark.timeout(300)
def test_a_full_disk_fails_requests_keeps_reads_and_heals_by_itself(data: Path) -> None:
    with running(data) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "full", PARTITIONS)
        create_topic(servers, "old", 1)
        old = Producer({"bootstrap.servers": servers, **QUICK})
        for _ in range(10):
            old.produce("old", b"old")
        assert old.flush(30) == 0
        history = History()
        before = ProducerLoad(
            servers, "full", "before", history, partitions=PARTITIONS, **IDEMPOTENT
        )
        wait_until(lambda: before.answers.acknowledged_count > 1000, "records before")
        ballast = data.parent / "ballast"
        fill(ballast, leave_bytes=LEFT_BYTES)
        refused = ProducerLoad(
            servers,
            "full",
            "refused",
            history,
            partitions=PARTITIONS,
            **REFUSED_SOON,
        )
        wait_until(lambda: refused.refused_count > 0, "a refusal")
        # Reads, and their groups' questions, go on.
        assert sum(len(read.records) for read in read_all(servers, "full", PARTITIONS)) >= 1000
        commit(servers, "full", 1)
        # A kill while it is full, and a start on the full disk.
        broker.restart()
        history.add(Ended(End.KILL, time.monotonic()))
        assert sum(len(read.records) for read in read_all(servers, "full", PARTITIONS)) >= 1000
        commit(servers, "full", 2)
        admin = AdminClient({"bootstrap.servers": servers})
        deleted = admin.delete_records([TopicPartition("old", 0, 5)])
        assert deleted[TopicPartition("old", 0)].result(30).low_watermark == 5
        # In order, on the full disk as well.
        assert broker.stop() == 0
        broker.start()
        ballast.unlink()
        before.answers.wait_for_more()
        refused.answers.wait_for_more()
        before.finish()
        refused.finish()
        assert_kept(history, read_all(servers, "full", PARTITIONS))


@pytest.mark.timeout(300)
def test_a_topic_can_be_deleted_on_a_full_disk_and_makes_room(data: Path) -> None:
    with running(data, (*CHAOS_SETTINGS, "log.segment.delete.delay.ms=0")) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "bulk", 1)
        history = History()
        bulk = Producer({"bootstrap.servers": servers, **IDEMPOTENT, **QUICK})
        for _ in range(100):
            bulk.produce("bulk", bytes(100_000))
        assert bulk.flush(30) == 0
        fill(data.parent / "ballast")
        admin = AdminClient({"bootstrap.servers": servers})
        admin.delete_topics(["bulk"])["bulk"].result(30)
        wait_until(
            lambda: shutil.disk_usage(data).free > 5_000_000, "the room of the deleted topic"
        )
        create_topic(servers, "next", PARTITIONS)
        load = ProducerLoad(servers, "next", "p", history, partitions=PARTITIONS, **IDEMPOTENT)
        wait_until(lambda: load.answers.acknowledged_count > 100, "records of the next topic")
        load.finish()
        assert_kept(history, read_all(servers, "next", PARTITIONS))


@pytest.mark.timeout(300)
def test_while_a_disk_is_slow_groups_live_on_and_acknowledgements_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAOS_FSYNC_SECONDS", str(SLOW_SECONDS))
    with running(
        tmp_path / "data", (*CHAOS_SETTINGS, "group.min.session.timeout.ms=500"), SlowBroker
    ) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "slow", PARTITIONS)
        history = History()
        durable = ProducerLoad(servers, "slow", "all", history, partitions=PARTITIONS, **IDEMPOTENT)
        cached = ProducerLoad(servers, "slow", "one", history, partitions=PARTITIONS, acks="1")
        lost: list[object] = []
        member = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "slow-group",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": int(6000 * SLOW_SECONDS),
                "heartbeat.interval.ms": 200,
                "enable.auto.commit": False,
                **QUICK,
            }
        )
        member.subscribe(["slow"], on_revoke=lambda _, partitions: lost.append(partitions))
        wait_until(lambda: member.poll(0.1) is not None, "a record for the member")
        # Six fsyncs long: no session ends, and acks=1 does not wait for any of them.
        deadline = time.monotonic() + 6 * SLOW_SECONDS
        gaps = []
        while time.monotonic() < deadline:
            since = time.monotonic()
            cached.answers.wait_for_more()
            gaps.append(time.monotonic() - since)
            member.poll(0.01)
        assert lost == []
        assert sorted(gaps)[len(gaps) // 2] < SLOW_SECONDS
        assert durable.answers.acknowledged_count > 0
        member.close()
        durable.finish()
        cached.finish()
        assert_kept(history, read_all(servers, "slow", PARTITIONS))
        broker.kill()


def commit(servers: str, topic: str, offset: int) -> None:
    """A group's offset, which can be committed and asked for."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "committing", **QUICK})
    place = TopicPartition(topic, 0, offset)
    (answer,) = consumer.commit(offsets=[place], asynchronous=False)
    assert answer.error is None
    (answer,) = consumer.committed([place], timeout=30)
    assert answer.offset == offset
    consumer.close()


class SlowBroker(ChaosBroker):
    program = ("-c", SLOW_FSYNC)


@pytest.mark.timeout(300)
def test_a_deleted_data_directory_fails_requests_and_not_the_process(tmp_path: Path) -> None:
    with running(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "gone", 1)
        producer = Producer({"bootstrap.servers": servers, "message.timeout.ms": 3000, **QUICK})
        codes: list[object] = []
        producer.produce("gone", b"there")
        assert producer.flush(30) == 0
        shutil.rmtree(tmp_path / "data")

        def refused() -> bool:
            producer.produce(
                "gone", b"nowhere", on_delivery=lambda e, _: codes.append(e and e.code())
            )
            producer.flush(10)
            return bool(codes) and codes[-1] is not None

        wait_until(refused, "an error for what cannot be kept")
        assert broker.is_running()
        with pytest.raises(KafkaException) as caught:
            create_topic(servers, "another", 1)
        assert caught.value.args[0].code() == KafkaError.KAFKA_STORAGE_ERROR
        broker.stop()
        broker.start()
        create_topic(servers, "gone", 1)
        assert [read.records for read in read_all(servers, "gone", 1)] == [[]]


def test_a_second_broker_on_the_directory_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with running(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "mine", PARTITIONS)
        history = History()
        load = ProducerLoad(servers, "mine", "p", history, partitions=PARTITIONS, **IDEMPOTENT)
        serve = [sys.executable, "-m", "asyncbroker", "serve"]
        for _ in range(3):
            second = subprocess.run(
                [*serve, "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert second.returncode != 0
            assert "in use by another broker" in second.stderr
            assert "Traceback" not in second.stderr
        load.finish()
        broker.restart()
        history.add(Ended(End.KILL, time.monotonic()))
        assert_kept(history, read_all(servers, "mine", PARTITIONS))


@pytest.mark.timeout(300)
def test_memory_stays_flat_under_load_with_readers_that_do_not_read(tmp_path: Path) -> None:
    with running(tmp_path / "data", ("group.initial.rebalance.delay.ms=0",)) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "heavy", PARTITIONS, {"segment.bytes": str(64 << 20)})
        idle = [_stuck_reader(servers) for _ in range(5)]
        chance = random.Random(4)
        with broker.watching_memory() as seen:
            producer = Producer(
                {"bootstrap.servers": servers, "linger.ms": 20, "batch.size": 900_000, "acks": 1}
            )
            value = chance.randbytes(10_000)
            for number in range(60_000):
                producer.produce("heavy", value, partition=number % PARTITIONS)
                while len(producer) > 3000:
                    producer.poll(0.05)
            assert producer.flush(60) == 0
        for consumer in idle:
            consumer.close()
        assert max(seen) < 200 << 20, f"{max(seen) >> 20} MB"


def _stuck_reader(servers: str) -> Consumer:
    """It asks for much, and never takes what comes."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "stuck",
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": 1024,
            "fetch.message.max.bytes": 50_000_000,
        }
    )
    consumer.subscribe(["heavy"])
    consumer.poll(0.1)
    return consumer
