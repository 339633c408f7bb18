"""Topics in SQL: tables of the catalog, which keep their options, and temporary views."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.partitions import produce
from asyncbroker.client.topics import create_topic
from asyncbroker.protocol.records import Record, build_batch
from asyncbroker.spark.columns import full_schema
from asyncbroker.spark.options import warn_of_ineffective
from asyncbroker.spark.source import AsyncbrokerDataSource
from asyncbroker.spark.table_options import METADATA, query_options
from asyncbroker.spark.tests.patience import patiently
from asyncbroker.spark.write_options import warn_of_unknown

pytestmark = pytest.mark.timeout(300)

SERVERS = "kafka.bootstrap.servers"


def fill(servers: str, topic: str) -> None:
    with Cluster(servers) as cluster:
        create_topic(cluster, topic, partitions=2)
        for partition, count in ((0, 4), (1, 3)):
            records = [Record(0, i, b"k", b"%d" % i) for i in range(count)]
            produce(cluster, {TopicPartition(topic, partition): build_batch(records)})


def test_a_table_keeps_its_options_for_queries_and_streams(
    spark: SparkSession, spark_bootstrap_servers: str, tmp_path: Path
) -> None:
    fill(spark_bootstrap_servers, "sql-table")
    spark.sql(
        f"CREATE TABLE sql_table USING asyncbroker OPTIONS ('{SERVERS}' "
        f"'{spark_bootstrap_servers}', subscribe 'sql-table', startingOffsets 'earliest', "
        "includeHeaders true)"
    )
    assert spark.table("sql_table").columns[-1] == "headers"
    assert spark.sql("SELECT partition FROM sql_table WHERE offset > 1").count() == 3
    start = '{"sql-table": {"0": 3, "1": -2}}'
    later = spark.sql(f"SELECT * FROM sql_table WITH ('startingOffsets' = '{start}')")
    assert later.count() == 4

    def stream() -> None:
        query = (
            spark.readStream.table("sql_table")
            .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .toTable("sql_copy", format="parquet")
        )
        query.awaitTermination()

    patiently(stream)
    assert spark.table("sql_copy").count() == 7


def test_a_table_without_options_is_refused_with_a_way_out(
    spark: SparkSession, spark_bootstrap_servers: str
) -> None:
    given = f"('{SERVERS}' '{spark_bootstrap_servers}', subscribe 'x', topic 'x')"
    spark.sql(f"CREATE TABLE sql_named (value BINARY) USING asyncbroker OPTIONS {given}")
    with pytest.raises(AnalysisException, match="leave the columns out"):
        spark.table("sql_named").collect()
    with pytest.raises(AnalysisException, match="name them in INSERT INTO table WITH"):
        spark.sql("INSERT INTO sql_named VALUES (CAST('v' AS BINARY))")
    spark.sql(f"CREATE TABLE sql_properties USING asyncbroker TBLPROPERTIES {given}")
    with pytest.raises(AnalysisException, match="A table keeps those of CREATE TABLE"):
        spark.table("sql_properties").collect()


def test_rows_are_inserted_into_a_table_where_options_are_named(
    spark: SparkSession, spark_bootstrap_servers: str
) -> None:
    fill(spark_bootstrap_servers, "sql-insert")
    given = f"'{SERVERS}' '{spark_bootstrap_servers}', subscribe 'sql-insert', topic 'sql-insert'"
    spark.sql(f"CREATE TABLE sql_insert USING asyncbroker OPTIONS ({given})")
    with pytest.raises(AnalysisException, match="name them in INSERT INTO table WITH"):
        spark.sql("INSERT INTO sql_insert SELECT * FROM sql_insert")
    named = f"'{SERVERS}' = '{spark_bootstrap_servers}', 'topic' = 'sql-insert'"
    spark.sql(f"INSERT INTO sql_insert WITH ({named}) SELECT * FROM sql_insert")
    assert spark.table("sql_insert").count() == 14


def test_a_view_is_read_and_written(spark: SparkSession, spark_bootstrap_servers: str) -> None:
    fill(spark_bootstrap_servers, "sql-view")
    spark.sql(
        "CREATE TEMPORARY VIEW sql_view (key BINARY, value BINARY) USING asyncbroker OPTIONS "
        f"({SERVERS} '{spark_bootstrap_servers}', subscribe 'sql-view', topic 'sql-view')"
    )
    spark.sql("INSERT INTO sql_view SELECT CAST('new' AS BINARY), CAST('v' AS BINARY)")
    found = spark.sql("SELECT count(*) AS rows, max(string(key)) AS key FROM sql_view").first()
    assert found is not None
    assert (found.rows, found.key) == (8, "new")


def test_a_view_for_reading_and_writing_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    options = {SERVERS: "b", "subscribe": "t", "topic": "t", "startingoffsets": "earliest"}
    with caplog.at_level(logging.WARNING):
        warn_of_ineffective(options)
        warn_of_unknown(options)
    assert not caplog.records


def given(**options: str) -> dict[str, str]:
    """Options as Spark gives them where a table is made."""
    named = {SERVERS: "127.0.0.1:1", "subscribe": "t", **options}
    return {"provider": "asyncbroker", **named} | {f"option.{n}": v for n, v in named.items()}


def test_only_the_first_column_of_a_table_carries_its_options() -> None:
    first, *others = AsyncbrokerDataSource(given()).schema().fields
    assert json.loads(first.metadata[METADATA]) == {SERVERS: "127.0.0.1:1", "subscribe": "t"}
    assert not any(field.metadata for field in others)
    query = {SERVERS: "127.0.0.1:1", "subscribe": "t"}
    assert AsyncbrokerDataSource(query).schema() == full_schema(include_headers=False)


def test_a_query_that_names_brokers_has_nothing_of_a_table() -> None:
    schema = AsyncbrokerDataSource(given()).schema()
    source = AsyncbrokerDataSource({SERVERS: "127.0.0.1:1", "assign": '{"t": [0]}'})
    source.reader(StructType(schema.fields[:2]))


@pytest.mark.parametrize("name", ["sasl.jaas.config", "sasl.password", "ssl.keystore.key"])
def test_a_table_keeps_no_secrets(name: str) -> None:
    with pytest.raises(ValueError, match=f"must not keep the option 'kafka.{name}'"):
        AsyncbrokerDataSource(given(**{f"kafka.{name}": "s3cret"})).schema()


def test_a_query_of_a_table_brings_the_secrets() -> None:
    schema = AsyncbrokerDataSource(given()).schema()
    login = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": 'PlainLoginModule required username="u" password="s3cret";',
    }
    assert query_options(login, schema) == {SERVERS: "127.0.0.1:1", "subscribe": "t", **login}
    AsyncbrokerDataSource(login).reader(schema)
