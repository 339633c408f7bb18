"""What both demos do with Spark, on a small sample: `scripts/demo` and `scripts/demo-stream` do it
on the whole table, beside clients and kills."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import asyncbroker
from asyncbroker.client.cluster import Cluster
from asyncbroker.client.producer import Producer
from asyncbroker.client.topics import create_topic
from asyncbroker.spark.tests.patience import patiently

CHECKOUT = Path(asyncbroker.__file__).resolve().parent.parent
SAMPLE = CHECKOUT / "compat_tests" / "data" / "flights-sample.csv"
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not SAMPLE.exists(), reason="the demos are in a checkout only"),
]


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demos are scripts, which import each other."""
    monkeypatch.syspath_prepend(str(CHECKOUT / "scripts" / "flights"))


def script(name: str) -> Any:
    return importlib.import_module(name)


def test_delays_of_the_main_job_equal_those_of_pandas(
    spark: SparkSession, spark_bootstrap_servers: str, tmp_path: Path
) -> None:
    flights, job = script("flights"), script("job")
    table = flights.load_flights(SAMPLE, 1)
    with Cluster(spark_bootstrap_servers) as cluster:
        create_topic(cluster, "demo-flights", partitions=6)
        with Producer(cluster, "demo-flights") as producer:
            for key, value in flights.records_of(table):
                producer.send(value.encode(), key=key.encode())
            producer.flush()
    delays, ranges = job.delays_by_spark(spark, spark_bootstrap_servers, "demo-flights", "latest")
    assert ranges >= 12
    expected = job.delays_by_pandas(table)
    assert job.is_same(delays, expected, ["carrier", "hour"], ["flights"])
    delays.loc[0, "delay"] += 1
    assert not job.is_same(delays, expected, ["carrier", "hour"], ["flights"])
    script("pictures").draw_delays(delays, tmp_path / "delays.png")
    assert (tmp_path / "delays.png").stat().st_size > 10_000


def test_windows_of_the_stream_equal_those_of_pandas(
    spark: SparkSession, spark_bootstrap_servers: str, tmp_path: Path
) -> None:
    demo, job = script("stream_demo"), script("job")
    table = demo.load_departures(1, SAMPLE)
    with Cluster(spark_bootstrap_servers) as cluster:
        create_topic(cluster, demo.TOPIC, partitions=3)
    query = patiently(lambda: demo.start_query(spark, spark_bootstrap_servers, tmp_path))
    try:
        demo.send(spark_bootstrap_servers, table, 1.0)
        query.processAllAvailable()
        demo.send_too_late(spark_bootstrap_servers, table)
        query.processAllAvailable()
    finally:
        query.stop()
    delays = spark.read.parquet(str(tmp_path / "delays")).toPandas()
    expected = demo.delays_by_pandas(table)
    assert job.is_same(delays, expected, ["start", "origin"], ["flights", "flown"])
    script("pictures").draw_weeks(delays, tmp_path / "weeks.png")
    assert (tmp_path / "weeks.png").stat().st_size > 10_000
