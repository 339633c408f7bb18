"""What Spark's own guide to Kafka shows, example by example, with the format's name changed.

The guide is "Structured Streaming + Kafka Integration Guide". Where an example needs more than
another name, it says so here, and docs/spark-reading.md has it in a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.partitions import produce
from asyncbroker.client.topics import create_topic
from asyncbroker.protocol.records import Record, build_batch
from asyncbroker.spark.tests.patience import patiently

pytestmark = pytest.mark.timeout(300)

TEXTS = ("CAST(key AS STRING)", "CAST(value AS STRING)")
# The topics of each partition; a record's key says where it is, its value is its offset.
PLACES = [("guide1", 0), ("guide1", 1), ("guide2", 0)]
EVERYTHING = sorted(
    (f"{topic}-{partition}", str(i)) for topic, partition in PLACES for i in range(60)
)


@pytest.fixture(scope="module")
def cluster(spark_bootstrap_servers: str) -> Iterator[Cluster]:
    """With 60 records in each partition, a millisecond apart."""
    with Cluster(spark_bootstrap_servers) as cluster:
        for topic, partitions in (("guide1", 2), ("guide2", 1)):
            create_topic(cluster, topic, partitions=partitions)
        put(cluster, 0, 60)
        for number in range(1, 5):
            create_topic(cluster, f"written{number}", partitions=1)
        yield cluster


def put(cluster: Cluster, first: int, last: int) -> None:
    cluster.forget()
    produce(
        cluster,
        {
            TopicPartition(topic, partition): build_batch(
                [
                    Record(0, 1000 + i, f"{topic}-{partition}".encode(), b"%d" % i, [("h", b"x")])
                    for i in range(first, last)
                ]
            )
            for topic, partition in PLACES
        },
    )


@pytest.fixture
def servers(spark_bootstrap_servers: str, cluster: Cluster) -> str:
    return spark_bootstrap_servers


def texts(frame: DataFrame) -> list[tuple[str, str]]:
    """Keys and values as the guide selects them."""
    return sorted((row[0], row[1]) for row in frame.selectExpr(*TEXTS).collect())


# ---- batches


BATCHES: dict[str, tuple[dict[str, str], list[tuple[str, str]]]] = {
    "one topic": ({"subscribe": "guide2"}, [row for row in EVERYTHING if row[0] == "guide2-0"]),
    "several topics with explicit offsets": (
        {
            "subscribe": "guide1,guide2",
            "startingOffsets": '{"guide1":{"0":23,"1":-2},"guide2":{"0":-2}}',
            "endingOffsets": '{"guide1":{"0":50,"1":-1},"guide2":{"0":-1}}',
        },
        [row for row in EVERYTHING if row[0] != "guide1-0" or 23 <= int(row[1]) < 50],
    ),
    "a pattern": (
        {
            "subscribePattern": "guide.*",
            "startingOffsets": "earliest",
            "endingOffsets": "latest",
        },
        EVERYTHING,
    ),
    "partitions": (
        {"assign": '{"guide1":[1]}'},
        [row for row in EVERYTHING if row[0] == "guide1-1"],
    ),
    "offsets by timestamp": (
        {
            "subscribe": "guide2",
            "startingOffsetsByTimestamp": '{"guide2":{"0": 1010}}',
            "endingOffsetsByTimestamp": '{"guide2":{"0": 1020}}',
        },
        sorted(("guide2-0", str(i)) for i in range(10, 20)),
    ),
    "one timestamp": (
        {"subscribePattern": "guide.*", "startingTimestamp": "1058", "endingTimestamp": "5000"},
        [row for row in EVERYTHING if int(row[1]) >= 58],
    ),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches_of_the_guide(spark: SparkSession, servers: str, name: str) -> None:
    options, expected = BATCHES[name]
    reader = spark.read.format("asyncbroker").option("kafka.bootstrap.servers", servers)
    assert texts(reader.options(**options).load()) == expected


def test_batch_writes_of_the_guide(spark: SparkSession, servers: str) -> None:
    """They need `.mode("append")`: a Python source is not asked about Spark's default mode."""
    reader = spark.read.format("asyncbroker").option("kafka.bootstrap.servers", servers)
    df = reader.option("subscribe", "guide2").load()
    by_option = (
        df.selectExpr(*TEXTS)
        .write.format("asyncbroker")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "written1")
    )
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        by_option.save()
    by_option.mode("append").save()
    (
        df.selectExpr("'written2' AS topic", *TEXTS)
        .write.format("asyncbroker")
        .option("kafka.bootstrap.servers", servers)
        .mode("append")
        .save()
    )
    for topic in ("written1", "written2"):
        written = spark.read.format("asyncbroker").option("kafka.bootstrap.servers", servers)
        assert texts(written.option("subscribe", topic).load()) == texts(df)


# ---- streams


STREAMS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "one": ({"subscribe": "guide1"}, ("guide1-0", "guide1-1")),
    "headers": ({"subscribe": "guide2", "includeHeaders": "true"}, ("guide2-0",)),
    "several": ({"subscribe": "guide1,guide2"}, ("guide1-0", "guide1-1", "guide2-0")),
    "pattern": ({"subscribePattern": "guide.*"}, ("guide1-0", "guide1-1", "guide2-0")),
}


def test_streams_of_the_guide(spark: SparkSession, servers: str, cluster: Cluster) -> None:
    """They begin at the latest offsets."""

    def start(name: str) -> StreamingQuery:
        options, _ = STREAMS[name]
        df = spark.readStream.format("asyncbroker").option("kafka.bootstrap.servers", servers)
        has_headers = ["headers"] if "includeHeaders" in options else []
        rows = df.options(**options).load().selectExpr(*TEXTS, *has_headers)
        query = rows.writeStream.format("memory").queryName(f"guide_{name}").start()
        # Until it has started, there is no latest.
        query.processAllAvailable()
        return query

    queries = {name: patiently(lambda name=name: start(name)) for name in STREAMS}  # type: ignore[misc]
    put(cluster, 60, 65)
    for name, (_, keys) in STREAMS.items():
        queries[name].processAllAvailable()
        queries[name].stop()
        found = spark.table(f"guide_{name}")
        assert texts(found) == sorted((key, str(i)) for key in keys for i in range(60, 65))
    headers = [row.headers for row in spark.table("guide_headers").collect()]
    assert headers == [[("h", b"x")]] * 5


def test_stream_writes_of_the_guide(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    """With a checkpoint, which the guide leaves to the session's settings."""
    df = (
        spark.readStream.format("asyncbroker")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "guide2")
        .option("startingOffsets", "earliest")
        .load()
    )
    frames: dict[str, Callable[[], Any]] = {
        "written3": lambda: df.selectExpr(*TEXTS).writeStream.option("topic", "written3"),
        "written4": lambda: df.selectExpr("'written4' AS topic", *TEXTS).writeStream,
    }
    for topic, writer in frames.items():

        def run(topic: str = topic, writer: Callable[[], Any] = writer) -> None:
            query = (
                writer()
                .format("asyncbroker")
                .option("kafka.bootstrap.servers", servers)
                .option("checkpointLocation", str(tmp_path / topic))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()

        patiently(run)
        reader = spark.read.format("asyncbroker").option("kafka.bootstrap.servers", servers)
        source = reader.option("subscribe", "guide2").load()
        assert texts(reader.option("subscribe", topic).load()) == texts(source)


def test_what_the_guide_says_cannot_be_set_is_refused(spark: SparkSession, servers: str) -> None:
    for name in ("auto.offset.reset", "key.deserializer", "enable.auto.commit"):
        reader = spark.read.format("asyncbroker").option("kafka.bootstrap.servers", servers)
        with pytest.raises(AnalysisException, match=name):
            reader.option("subscribe", "guide1").option(f"kafka.{name}", "x").load()
