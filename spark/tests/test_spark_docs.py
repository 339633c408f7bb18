"""The examples of docs/spark.md and docs/spark-reading.md run as they are written, one after the
other, and do what is said."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
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

DOCUMENTS = Path(asyncbroker.__file__).resolve().parent.parent / "docs"
PAGES = (DOCUMENTS / "spark.md", DOCUMENTS / "spark-reading.md")
MIDNIGHT = 1_735_689_600_000
MINUTE = 60_000
HOURS = 4

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not DOCUMENTS.exists(), reason="documents are in a checkout only"),
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
        for topic in ("flights", "flights-mended", "late-flights"):
            create_topic(cluster, topic, partitions=3)
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
    names: dict[str, Any] = {"spark": spark, "servers": servers, "folder": str(tmp_path)}
    snippets = [
        snippet
        for page in PAGES
        for snippet in re.findall(
            r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        )
    ]
    assert len(snippets) == 8
    for snippet in snippets:
        patiently(partial(exec, compile(snippet, snippet.splitlines()[0], "exec"), names))

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

    assert names["late_of_all"] == len(late)
    assert {row["count(1)"] for row in names["by_partition"].collect()} == {flights // 6}

    values = names["flights"].where("_corrupt_record IS NULL AND delay IS NOT NULL")
    assert sorted(row.flight for row in values.collect()) == list(range(flights))


def test_the_command_for_a_plan_is_as_it_is_written(spark_bootstrap_servers: str) -> None:
    (line,) = re.findall(r"^asyncbroker (spark plan .*)$", PAGES[0].read_text(), re.MULTILINE)
    words = shlex.split(line.replace("localhost:9092", spark_bootstrap_servers))
    words[words.index("flights")] = "flights-to-plan"
    with Cluster(spark_bootstrap_servers) as cluster:
        create_topic(cluster, "flights-to-plan", partitions=2)
        records = [Record(0, MIDNIGHT + MINUTE * 90, None, b"v")] * 3
        places = [TopicPartition("flights-to-plan", partition) for partition in range(2)]
        produce(cluster, {place: build_batch(records) for place in places})
    command = [sys.executable, "-m", "asyncbroker", *words]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("flights-to-plan") == 2
