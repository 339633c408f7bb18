"""The source and the sink where Spark is not one process: executors apart, and Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.types import StructType

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.topics import create_topic
from asyncbroker.spark.write_options import WriteOptions
from asyncbroker.spark.writer import TaskWriter
from compat_tests.conftest import BrokerProcess

JOB = Path(__file__).parent / "spark_job.py"
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    # Nothing begins before all executors are there.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}
ROWS = 1000
PARTITIONS = 4


@pytest.mark.timeout(600)
def test_executors_in_processes_of_their_own_read_and_write(
    own_broker: BrokerProcess, tmp_path: Path
) -> None:
    # Two executors of one core each.
    submit: list[str | Path] = [SUBMIT, "--master", "local-cluster[2,1,1024]"]
    report = run_job(own_broker, tmp_path, submit)
    assert report["session"] == "pyspark.sql.session"
    assert_all_was_copied(report)
    assert len(report["places"]) == 2


@pytest.mark.timeout(600)
def test_a_client_of_spark_connect_reads_and_writes(
    own_broker: BrokerProcess, tmp_path: Path
) -> None:
    # With SPARK_TESTING the server listens on any free port.
    report = run_job(
        own_broker, tmp_path, [sys.executable], SPARK_REMOTE="local[2]", SPARK_TESTING="1"
    )
    assert report["session"] == "pyspark.sql.connect.session"
    assert_all_was_copied(report)


def run_job(
    broker: BrokerProcess, folder: Path, command: Sequence[str | Path], **where: str
) -> Any:
    """Runs the job by that command and environment, with numbers in its topic; what it reports."""
    servers = broker.bootstrap_servers
    with Cluster(servers) as cluster:
        create_topic(cluster, "rows", partitions=PARTITIONS)
        create_topic(cluster, "copies", partitions=2)
    values = pa.array([b"%d" % number for number in range(ROWS)])
    options = WriteOptions.parse({"kafka.bootstrap.servers": servers, "topic": "rows"})
    writer = TaskWriter(options, StructType().add("key", "binary").add("value", "binary"))
    writer.write(iter([pa.RecordBatch.from_pydict({"key": values, "value": values})]))
    lines = [f"{name} {value}\n" for name, value in SETTINGS.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "workers"),
    }
    done = subprocess.run(
        [*command, JOB, servers, folder],
        env=os.environ | environment | where,
        stdout=subprocess.PIPE,
        text=True,
        timeout=500,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def assert_all_was_copied(report: Any) -> None:
    assert report["numbers"] == list(range(ROWS))
    assert report["rows"] == ROWS
