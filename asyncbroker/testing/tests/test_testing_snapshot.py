"""The whole state of a broker, put back: what comes back, what is gone, and what clients see."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.producer import Producer as OwnProducer
from asyncbroker.testing import Broker, BrokerThread, assert_committed, assert_records


@pytest.mark.parametrize("is_on_disk", [False, True], ids=["memory", "directory"])
def test_topics_records_groups_and_offsets_come_back(is_on_disk: bool, tmp_path: Path) -> None:
    with BrokerThread(directory=tmp_path / "data" if is_on_disk else None) as broker:
        servers = broker.bootstrap_servers
        broker.topic("t").create(2, {"max.message.bytes": 5000})
        broker.topic("t").append("one", key="k", partition=1, headers=[("h", b"1")])
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["t"])
        assert consumer.poll(10) is not None
        consumer.commit(asynchronous=False)
        consumer.close()
        records, group = broker.topic("t").records(), broker.group("g")
        before = broker.snapshot()
        assert before.size > 0

        for _ in range(2):
            with Cluster(servers) as cluster, OwnProducer(cluster, "t") as producer:
                producer.send(b"two")
                producer.flush()
            broker.topic("later").create()
            broker.restore(before)
            assert broker.bootstrap_servers == servers
            assert broker.topics == ["t"]
            assert broker.topic("t").records() == records
            assert broker.group("g") == group
            assert_committed(broker.group("g"), {("t", 1): 1})


def test_a_snapshot_is_for_brokers_of_its_kind(tmp_path: Path) -> None:
    with BrokerThread() as broker, BrokerThread() as other:
        broker.topic("t").append("one")
        other.restore(broker.snapshot())
        assert_records(other.topic("t"), ["one"])
        # What is restored is the restored broker's own.
        other.topic("t").append("two")
        assert_records(broker.topic("t"), ["one"])
        with (
            BrokerThread(directory=tmp_path / "data") as on_disk,
            pytest.raises(ValueError, match="for such a broker alone"),
        ):
            on_disk.restore(broker.snapshot())


@pytest.mark.parametrize("is_on_disk", [False, True], ids=["memory", "directory"])
async def test_a_restore_warns_of_nothing_and_goes_on_with_leader_epochs(
    is_on_disk: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(directory=tmp_path / "data" if is_on_disk else None)
    await broker.start()
    await broker.topic("t").append("one")
    before = await broker.snapshot()
    epochs = [broker._node.broker.topics.leader_epoch]
    await broker.restore(before)
    epochs.append(broker._node.broker.topics.leader_epoch)
    await broker.stop()
    await broker.restore(before)
    await broker.start()
    epochs.append(broker._node.broker.topics.leader_epoch)
    await broker.stop()
    assert epochs == sorted(set(epochs))
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_producer_that_was_idempotent_stays_so() -> None:
    with BrokerThread() as broker:
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "enable.idempotence": True,
                "reconnect.backoff.ms": 10,
            }
        )
        producer.produce("t", b"one")
        assert producer.flush(10) == 0
        before = broker.snapshot()
        broker.restore(before)
        # The same producer id with the next sequence: it is known, or this would be out of order.
        producer.produce("t", b"two")
        assert producer.flush(10) == 0
        assert_records(broker.topic("t"), ["one", "two"])


async def test_a_consumer_goes_on_with_what_is_there() -> None:
    async with Broker() as broker:
        servers = broker.bootstrap_servers
        await broker.topic("t").append("one")
        consumer = AIOKafkaConsumer(
            "t", bootstrap_servers=servers, auto_offset_reset="earliest", retry_backoff_ms=10
        )
        async with consumer, AIOKafkaProducer(bootstrap_servers=servers) as producer:
            assert (await consumer.getone()).value == b"one"
            before = await broker.snapshot()
            for value in (b"two", b"three"):
                await producer.send_and_wait("t", value)
                assert (await consumer.getone()).value == value
            await broker.restore(before)
            # Its position is beyond the end now: it begins anew, as it was told to.
            await producer.send_and_wait("t", b"other")
            values = [(await asyncio.wait_for(consumer.getone(), 10)).value for _ in range(2)]
            assert values == [b"one", b"other"]


def test_a_snapshot_of_many_records_is_cheap() -> None:
    with BrokerThread() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for _ in range(2000):
            producer.produce("t", bytes(1000))
        assert producer.flush(20) == 0
        began = time.monotonic()
        before = broker.snapshot()
        broker.restore(before)
        assert time.monotonic() - began < 2
        assert len(broker.topic("t").records()) == 2000
