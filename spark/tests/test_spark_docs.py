"""The jobs of docs/spark.md run as they are written, one after the other, and do what is said."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import asyncbroker
from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.partitions import produce
from asyncbroker.client.topics import create_topic
from asyncbroker.protocol.records import Record, build_batch
from asyncbroker.spark.tests.patience import patiently

PAGE = Path(asyncbroker.__file__).resolve().parent.parent / "docs" / "spark.md"
MIDNIGHT = 1_735_689_600_000
MINUTE = 60_000
HOURS = 4

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not PAGE.exists(), reason="documents are in a checkout only"),
]


def fill(servers: str) -> int:
    """A flight a minute from midnight on, in three partitions; those of 02:00 have no delays."""
    batches: dict[TopicPartition, list[Record]] = {}
    for minute in range(HOURS * 60):
        delay = "n/a" if minute // 60 == 2 else str(minute % 30)
        value = json.dumps({"flight": minute, "delay": delay}).encode()
        record = Record(0, MIDNIGHT + minute * MINUTE, b"%d" % (minute % 7), value)
        batches.setdefault(TopicPartition("flights", minute % 3), []).append(record)
    with Cluster(servers) as cluster:
        create_topic(cluster, "flights", partitions=3)
        produce(cluster, {place: build_batch(records) for place, records in batches.items()})
    return HOURS * 60


def topic(spark: SparkSession, servers: str, name: str) -> list[dict[str, Any]]:
    """The values of a topic."""
    reader = spark.read.format("asyncbroker").option("kafka.bootstrap.servers", servers)
    rows = reader.option("subscribe", name).load().select("value", "timestamp").collect()
    return [{**json.loads(row.value), "timestamp": row.timestamp} for row in rows]


def test_the_jobs_do_what_is_said(
    spark: SparkSession, spark_bootstrap_servers: str, tmp_path: Path
) -> None:
    servers = spark_bootstrap_servers
    flights = fill(servers)
    sections = re.split(r"^### ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    names: dict[str, Any] = {"spark": spark, "servers": servers, "folder": str(tmp_path)}
    ran = 0
    for section in sections:
        for snippet in re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE):
            code = compile(snippet, section.splitlines()[0], "exec")
            patiently(partial(exec, code, names))
            ran += 1
    assert ran == 6

    backfill = spark.read.parquet(str(tmp_path / "backfill")).collect()
    assert sorted(json.loads(row.flight)["flight"] for row in backfill) == list(range(60, 180))

    loads = spark.read.parquet(str(tmp_path / "loads"))
    assert loads.select("partition", "offset").distinct().count() == loads.count() == flights
    days = {str(row["day"]): row["count"] for row in loads.groupBy("day").count().collect()}
    assert days == {"2025-01-01": flights}

    assert spark.read.parquet(str(tmp_path / "flights")).count() == flights
    assert names["behind"].total_offsets_behind == 0

    mended = topic(spark, servers, "flights-mended")
    assert sorted(row["flight"] for row in mended) == list(range(120, 180))
    assert {row["delay"] for row in mended} == {"0"}
    assert {row["timestamp"].hour for row in mended} == {2}

    late = topic(spark, servers, "late-flights")
    assert sorted(row["flight"] for row in late) == [
        minute for minute in range(flights) if minute // 60 != 2 and minute % 30 > 15
    ]
