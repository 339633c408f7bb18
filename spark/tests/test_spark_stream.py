"""Streams by Spark itself: restarts from checkpoints, its own connector's too, and triggers."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.groups import committed_offsets
from asyncbroker.client.partitions import produce
from asyncbroker.client.topics import create_partitions, create_topic, delete_topic
from asyncbroker.protocol.records import Record, build_batch
from asyncbroker.spark.lag import Lag, LagListener, lag
from asyncbroker.spark.tests.patience import patiently

pytestmark = pytest.mark.timeout(600)

Stream = Callable[..., DataFrame]


@pytest.fixture
def cluster(spark_bootstrap_servers: str) -> Iterator[Cluster]:
    with Cluster(spark_bootstrap_servers) as cluster:
        yield cluster


@pytest.fixture
def stream(spark: SparkSession, spark_bootstrap_servers: str) -> Stream:
    def reader(topic: str, form: str = "asyncbroker", **options: str) -> DataFrame:
        """A stream with these options; double underscores stand for dots."""
        frame = spark.readStream.format(form).option("subscribe", topic)
        frame = frame.option("kafka.bootstrap.servers", spark_bootstrap_servers)
        for name, value in options.items():
            frame = frame.option(name.replace("__", "."), value)
        return frame.load()

    return reader


def put(cluster: Cluster, topic: str, partition: int, count: int) -> None:
    cluster.forget()
    batch = build_batch([Record(0, 1000 + i, None, b"v%d" % i) for i in range(count)])
    produce(cluster, {TopicPartition(topic, partition): batch})


def run(frame: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    """Appends what there is to files, and returns the finished query."""

    def start() -> StreamingQuery:
        query = (
            frame.select("partition", "offset")
            .writeStream.format("json")
            .option("path", str(folder / "rows"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )
        query.awaitTermination()
        return query

    return patiently(start)


def rows(folder: Path) -> list[tuple[int, int]]:
    """The partitions and offsets that were written, each as often as it was."""
    return sorted(
        (row["partition"], row["offset"])
        for path in (folder / "rows").glob("*.json")
        for row in map(json.loads, path.read_text().splitlines())
    )


def saved_offsets(folder: Path) -> list[dict[str, dict[str, int]]]:
    """The end of each batch, as it is in the checkpoint."""
    paths = sorted((folder / "checkpoint" / "offsets").glob("[0-9]*"))
    return [json.loads(path.read_text().splitlines()[2]) for path in paths]


def test_a_restart_goes_on_where_the_last_run_ended(
    stream: Stream, cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(cluster, "restarts", partitions=2)
    put(cluster, "restarts", 0, 10)
    put(cluster, "restarts", 1, 5)
    options = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "6",
        "commitOffsets": "true",
        "kafka__group__id": "restarts",
    }
    listener = LagListener()
    spark = stream("restarts").sparkSession
    spark.streams.addListener(listener)
    with caplog.at_level(logging.INFO, "asyncbroker.spark.lag"):
        query = run(stream("restarts", **options), tmp_path)
    spark.streams.removeListener(listener)
    assert saved_offsets(tmp_path) == [
        {"restarts": {"0": 4, "1": 2}},
        {"restarts": {"0": 8, "1": 4}},
        {"restarts": {"0": 10, "1": 5}},
    ]
    assert [lag(progress)[0] for progress in query.recentProgress] == [
        Lag(3, 6, 4.5, 9),
        Lag(1, 2, 1.5, 3),
        Lag(0, 0, 0.0, 0),
    ]
    assert "9 offsets behind; by partition 3 to 6, on average 4.5" in caplog.text
    found = committed_offsets(cluster, "restarts")
    assert {partition.partition: committed.offset for partition, committed in found.items()} == {
        0: 10,
        1: 5,
    }
    put(cluster, "restarts", 1, 1)
    create_partitions(cluster, "restarts", 3)
    put(cluster, "restarts", 2, 2)
    run(stream("restarts", startingOffsets="earliest"), tmp_path)
    assert rows(tmp_path) == [
        *[(0, offset) for offset in range(10)],
        *[(1, offset) for offset in range(6)],
        *[(2, offset) for offset in range(2)],
    ]


def test_a_checkpoint_of_sparks_own_connector_is_gone_on_with(
    stream: Stream, cluster: Cluster, tmp_path: Path
) -> None:
    """Written as that connector does, of which batch 0 was finished and batch 1 was not."""
    create_topic(cluster, "moved", partitions=2)
    put(cluster, "moved", 0, 9)
    put(cluster, "moved", 1, 9)
    checkpoint = tmp_path / "checkpoint"
    # PySpark 4.2.0 asks of a batch that was not finished whether it is one with new partitions.
    conf = {"spark.sql.shuffle.partitions": "2"}
    settings = {"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000, "conf": conf}
    files = {
        "metadata": '{"id":"3f0b2b3e-0a53-4b7b-8a3e-0c6f0d1f9a11"}',
        "sources/0/0": '\x00v1\n{"moved":{"0":0,"1":0}}',
        "offsets/0": f'v1\n{json.dumps(settings)}\n{{"moved":{{"0":3,"1":2}}}}',
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
        "offsets/1": f'v1\n{json.dumps(settings)}\n{{"moved":{{"0":5,"1":4}}}}',
    }
    for name, text in files.items():
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text(text)
    run(stream("moved"), tmp_path)
    expected = [*[(0, offset) for offset in range(3, 9)], *[(1, offset) for offset in range(2, 9)]]
    assert rows(tmp_path) == expected


@pytest.mark.skipif(
    "ASYNCBROKER_CONNECTOR_CLASSPATH" not in os.environ, reason="needs Spark's Kafka connector"
)
@pytest.mark.parametrize("first", ["kafka", "asyncbroker"])
def test_a_checkpoint_passes_between_sparks_own_connector_and_ours(
    spark: SparkSession, stream: Stream, cluster: Cluster, tmp_path: Path, first: str
) -> None:
    """Each goes on from the other's, also in the middle of a batch that was not finished."""
    topic = f"passed-{first}"
    create_topic(cluster, topic, partitions=2)
    second = {"kafka": "asyncbroker", "asyncbroker": "kafka"}[first]
    for number, form in enumerate((first, second, first, second)):
        put(cluster, topic, 0, 5)
        put(cluster, topic, 1, 3)
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "6"}
        run(stream(topic, form, **options), tmp_path)
        found = spark.read.json(str(tmp_path / "rows")).collect()
        assert sorted((row.partition, row.offset) for row in found) == [
            *[(0, offset) for offset in range(5 * (number + 1))],
            *[(1, offset) for offset in range(3 * (number + 1))],
        ]
        forget_last_batch(tmp_path)


def forget_last_batch(folder: Path) -> None:
    """As if the driver had been killed in the middle of it."""
    last = max(int(path.name) for path in (folder / "checkpoint" / "commits").glob("[0-9]*"))
    for log in (folder / "checkpoint" / "commits", folder / "rows" / "_spark_metadata"):
        (log / str(last)).unlink(missing_ok=True)
        (log / f".{last}.crc").unlink(missing_ok=True)


def test_a_trigger_of_once_takes_everything_in_one_batch(
    stream: Stream, cluster: Cluster, tmp_path: Path
) -> None:
    create_topic(cluster, "once", partitions=1)
    put(cluster, "once", 0, 8)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    run(stream("once", **options), tmp_path, once=True)
    assert saved_offsets(tmp_path) == [{"once": {"0": 8}}]
    assert len(rows(tmp_path)) == 8


def test_a_topic_that_was_made_again_fails_the_stream_unless_that_is_fine(
    stream: Stream, cluster: Cluster, tmp_path: Path
) -> None:
    create_topic(cluster, "again", partitions=1)
    put(cluster, "again", 0, 5)
    run(stream("again", startingOffsets="earliest"), tmp_path)
    delete_topic(cluster, "again")
    create_topic(cluster, "again", partitions=1)
    put(cluster, "again", 0, 3)
    with pytest.raises(StreamingQueryException, match="Some data may have been lost"):
        run(stream("again", fetchOffset__retryIntervalMs="1"), tmp_path)
    options = {"failOnDataLoss": "false", "fetchOffset__retryIntervalMs": "1"}
    run(stream("again", **options), tmp_path)
    put(cluster, "again", 0, 2)
    run(stream("again", **options), tmp_path)
    assert rows(tmp_path) == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 3), (0, 4), (0, 4)]


def test_what_a_stream_cannot_do_is_an_error_that_says_so(
    stream: Stream, cluster: Cluster, tmp_path: Path
) -> None:
    create_topic(cluster, "bounded", partitions=1)
    with pytest.raises(StreamingQueryException, match="ending offset not valid in streaming"):
        run(stream("bounded", endingOffsets="latest"), tmp_path)
