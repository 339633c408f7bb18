"""Topics that are deleted, made again, or led by somebody else while a task reads them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.partitions import produce
from asyncbroker.client.topics import create_topic, delete_topic
from asyncbroker.protocol.records import Record, build_batch
from asyncbroker.spark.columns import chosen_schema
from asyncbroker.spark.options import ReadOptions
from asyncbroker.spark.planner import DataLost
from asyncbroker.spark.reader import BatchReader
from asyncbroker.testing import BrokerThread

BATCHES = 24
PER_BATCH = 900
COUNT = BATCHES * PER_BATCH


@pytest.fixture
def cluster(kafka_broker: BrokerThread) -> Iterator[Cluster]:
    with Cluster(kafka_broker.bootstrap_servers) as cluster:
        yield cluster


def make(cluster: Cluster, kind: bytes = b"old") -> None:
    """A topic `t` with as many records of this kind as ever: more than are decoded at a time."""
    cluster.forget()
    create_topic(cluster, "t", partitions=1)
    batch = build_batch([Record(0, 1000, None, kind + bytes(997))] * PER_BATCH)
    for _ in range(BATCHES):
        produce(cluster, {TopicPartition("t", 0): batch})


def make_again(cluster: Cluster) -> None:
    delete_topic(cluster, "t")
    make(cluster, b"new")


def reader(broker: BrokerThread, **options: str) -> BatchReader:
    given = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": "t",
        **options,
    }
    return BatchReader(ReadOptions.parse(given), chosen_schema(["value"]))


def kinds(found: Iterator[Any]) -> list[bytes]:
    """What is read, each record by the first bytes of its value."""
    return [bytes(value[:3]) for records in found for value in records.column("value").to_pylist()]


def test_a_topic_that_was_made_again_after_planning_is_not_taken_for_the_old_one(
    kafka_broker: BrokerThread, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    make(cluster)
    careful, careless = reader(kafka_broker), reader(kafka_broker, failOnDataLoss="false")
    (planned,), (alike,) = careful.partitions(), careless.partitions()
    make_again(cluster)
    with pytest.raises(DataLost, match=r"\[0, 21600\).*t-0.*was deleted and created again"):
        kinds(careful.read(planned))
    with caplog.at_level(logging.WARNING):
        assert kinds(careless.read(alike)) == []
    assert "was deleted and created again" in caplog.text
    (new,) = careful.partitions()
    assert kinds(careful.read(new)) == [b"new"] * COUNT


@pytest.mark.parametrize("is_careful", [True, False])
def test_a_topic_that_is_made_again_while_it_is_read_does_not_go_on_as_the_old_one(
    kafka_broker: BrokerThread, cluster: Cluster, is_careful: bool
) -> None:
    make(cluster)
    task = reader(kafka_broker, failOnDataLoss=str(is_careful))
    (planned,) = task.partitions()
    found = task.read(planned)
    first = kinds(iter([next(found)]))
    make_again(cluster)
    if is_careful:
        with pytest.raises(DataLost, match="was deleted and created again"):
            kinds(found)
        return
    read = first + kinds(found)
    assert set(read) == {b"old"}
    assert len(read) < COUNT


def test_a_topic_that_is_deleted_while_it_is_read_is_a_loss(
    kafka_broker: BrokerThread, cluster: Cluster
) -> None:
    make(cluster)
    careful, careless = reader(kafka_broker), reader(kafka_broker, failOnDataLoss="false")
    (planned,) = careful.partitions()
    found, alike = careful.read(planned), careless.read(planned)
    next(found)
    next(alike)
    delete_topic(cluster, "t")
    with pytest.raises(DataLost, match="UNKNOWN_TOPIC_OR_PARTITION"):
        kinds(found)
    assert len(kinds(alike)) < COUNT


@pytest.mark.kafka(nodes=3)
def test_a_leader_that_moves_while_it_is_read_is_followed(
    kafka_broker: BrokerThread, cluster: Cluster
) -> None:
    make(cluster)
    task = reader(kafka_broker)
    (planned,) = task.partitions()
    found = task.read(planned)
    count = 0
    for node in (2, 3):
        count += len(kinds(iter([next(found)])))
        kafka_broker.move_leader("t", 0, to=node)
    assert count + len(kinds(found)) == COUNT


def test_nothing_is_read_for_a_partition_without_a_value(kafka_broker: BrokerThread) -> None:
    assert kinds(reader(kafka_broker).read(InputPartition(None))) == []
