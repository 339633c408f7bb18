"""The sink by Spark itself: what is written is what is read, and what it refuses."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.topics import create_topic
from asyncbroker.spark.tests.patience import patiently

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def topic(spark_bootstrap_servers: str) -> str:
    name = f"sink-{uuid.uuid4().hex[:12]}"
    with Cluster(spark_bootstrap_servers) as cluster:
        create_topic(cluster, name, partitions=3)
    return name


@pytest.fixture
def servers(spark_bootstrap_servers: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": spark_bootstrap_servers}


def reader(spark: SparkSession, servers: dict[str, str], topic: str) -> DataFrameReader:
    return spark.read.format("asyncbroker").options(**servers).option("subscribe", topic)


def writer(frame: DataFrame, servers: dict[str, str]) -> DataFrameWriter:
    return frame.write.format("asyncbroker").options(**servers).mode("append")


def test_what_is_written_is_read(spark: SparkSession, servers: dict[str, str], topic: str) -> None:
    rows = spark.range(1000).selectExpr(
        "IF(id % 3 = 0, NULL, concat('key-', id % 10)) AS key",
        "IF(id % 7 = 0, NULL, concat('value-', id)) AS value",
        "CAST(IF(id % 2 = 0, NULL, id % 3) AS INT) AS partition",
        "timestamp_millis(1700000000000 + id) AS timestamp",
        "IF(id % 5 = 0, NULL, array(named_struct('key', 'n', 'value', to_binary(string(id), "
        "'utf-8')))) AS headers",
        "id AS ignored",
    )
    options = {"topic": topic, "kafka.compression.type": "zstd"}
    writer(rows, servers).options(**options).save()
    found = reader(spark, servers, topic).option("includeHeaders", "true").load()
    columns = ["key", "value", "timestamp", "headers"]
    expected = rows.selectExpr("CAST(key AS BINARY)", "CAST(value AS BINARY)", *columns[2:])
    assert Counter(map(str, found.select(columns).collect())) == Counter(
        map(str, expected.collect())
    )
    placed = found.selectExpr("unix_millis(timestamp) - 1700000000000 AS id", "partition")
    assert all(row.partition == row.id % 3 for row in placed.collect() if row.id % 2)


def test_a_stream_writes_to_the_topics_of_its_rows(
    spark: SparkSession, servers: dict[str, str], topic: str, tmp_path: Path
) -> None:
    writer(spark.range(60).selectExpr("string(id) AS value"), servers).option("topic", topic).save()
    stream = spark.readStream.format("asyncbroker").options(**servers).option("subscribe", topic)
    rows = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "25").load()
    frame = (
        rows.selectExpr("value", f"concat('{topic}', '-', int(string(value)) % 2) AS topic")
        .writeStream.format("asyncbroker")
        .options(**servers)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
    )
    patiently(lambda: frame.start().awaitTermination())
    for index in (0, 1):
        found = reader(spark, servers, f"{topic}-{index}").load().collect()
        assert sorted(int(row.value) for row in found) == list(range(index, 60, 2))


def test_a_complete_result_is_written_with_each_batch(
    spark: SparkSession, servers: dict[str, str], topic: str, tmp_path: Path
) -> None:
    writer(spark.range(9).selectExpr("string(id % 3) AS value"), servers).option(
        "topic", topic
    ).save()
    stream = spark.readStream.format("asyncbroker").options(**servers).option("subscribe", topic)
    counts = stream.option("startingOffsets", "earliest").load().groupBy("value").count()
    frame = (
        counts.selectExpr("value AS key", "string(count) AS value")
        .writeStream.format("asyncbroker")
        .options(**servers)
        .option("topic", f"{topic}-counts")
        .option("checkpointLocation", str(tmp_path))
        .outputMode("complete")
        .trigger(availableNow=True)
    )
    patiently(lambda: frame.start().awaitTermination())
    found = reader(spark, servers, f"{topic}-counts").load().collect()
    assert sorted((bytes(row.key), bytes(row.value)) for row in found) == [
        (b"0", b"3"),
        (b"1", b"3"),
        (b"2", b"3"),
    ]


def test_what_cannot_be_written_is_refused(
    spark: SparkSession, servers: dict[str, str], topic: str
) -> None:
    numbers = spark.range(3)
    with pytest.raises(AnalysisException, match="Required attribute 'value' not found"):
        writer(numbers, servers).option("topic", topic).save()
    with pytest.raises(AnalysisException, match="topic option required when no 'topic' attribute"):
        writer(numbers.selectExpr("string(id) AS value"), servers).save()
    rows = numbers.selectExpr("string(id) AS value")
    with pytest.raises(AnalysisException, match="Save mode overwrite not allowed"):
        writer(rows, servers).option("topic", topic).mode("overwrite").save()
    rows = numbers.selectExpr("string(id) AS value", "IF(id = 2, NULL, 'x') AS topic")
    with pytest.raises(Exception, match="contains a null topic"):
        writer(rows, servers).save()
