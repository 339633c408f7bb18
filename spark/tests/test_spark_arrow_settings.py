"""Spark's settings for Arrow make no difference to what is read and written."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.topics import create_topic
from asyncbroker.spark.tests.patience import patiently

pytestmark = pytest.mark.timeout(300)

ROWS = 50
SETTINGS = {
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
}
COLUMNS = (
    "IF(id % 3 = 0, NULL, string(id)) AS key",
    """concat('{"id":', id, ',"name":"n', id, '"}') AS value""",
    "IF(id % 5 = 0, NULL, array(named_struct('key', 'h', 'value', CAST('x' AS BINARY)))) "
    "AS headers",
)


@pytest.mark.parametrize("setting", SETTINGS)
def test_rows_are_written_and_read_the_same(
    spark: SparkSession, spark_bootstrap_servers: str, tmp_path: Path, setting: str
) -> None:
    topics = [f"{setting.rpartition('.')[2]}-{name}" for name in ("batch", "stream")]
    with Cluster(spark_bootstrap_servers) as cluster:
        for topic in topics:
            create_topic(cluster, topic, partitions=1)
    common = {"kafka.bootstrap.servers": spark_bootstrap_servers, "includeHeaders": "true"}

    def copy() -> None:
        stream = spark.readStream.format("asyncbroker").options(**common)
        rows = stream.option("subscribe", topics[0]).option("startingOffsets", "earliest").load()
        query = (
            rows.select("key", "value", "headers")
            .writeStream.format("asyncbroker")
            .options(**common)
            .option("topic", topics[1])
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    spark.conf.set(setting, SETTINGS[setting])
    try:
        frame = spark.range(ROWS).coalesce(1).selectExpr(*COLUMNS)
        writer = frame.write.format("asyncbroker").options(**common).option("topic", topics[0])
        writer.mode("append").save()
        patiently(copy)
        expected = [
            (
                None if i % 3 == 0 else b"%d" % i,
                b'{"id":%d,"name":"n%d"}' % (i, i),
                None if i % 5 == 0 else [("h", b"x")],
            )
            for i in range(ROWS)
        ]
        for topic in topics:
            reader = spark.read.format("asyncbroker").options(**common).option("subscribe", topic)
            rows = reader.load().select("key", "value", "headers").collect()
            assert sorted(map(tuple, rows), key=lambda row: row[1]) == sorted(
                expected, key=lambda row: row[1]
            )
        reader = reader.option("valueFormat", "json").option("keyFormat", "string")
        typed = reader.schema("key STRING, id BIGINT, name STRING").load().collect()
        assert sorted(row.id for row in typed) == list(range(ROWS))
    finally:
        spark.conf.unset(setting)
