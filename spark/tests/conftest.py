"""A real Spark and a real broker for the tests that need them; each is started once a session.

By default the broker is `asyncbroker serve --memory`; `BOOTSTRAP_SERVERS=host:port` runs the same
tests against any other, such as Apache Kafka.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_SECONDS_MAX = 20

SPARK_SETTINGS = {
    # Little is run, and each of it once: compiling it well would take longer.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="session")
def spark_bootstrap_servers() -> Iterator[str]:
    """The address of a broker; topics have names of their own."""
    if other := os.environ.get("BOOTSTRAP_SERVERS"):
        yield other
        return
    command = [sys.executable, "-m", "asyncbroker", "serve", "--memory", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline().split()
        assert line[:2] == ["asyncbroker", "ready"], f"not ready: {line}"
        yield line[2]
        process.terminate()
        assert process.wait(STOP_SECONDS_MAX) == 0


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark of two cores, in which nothing is registered; with Spark's own connector, if
    ASYNCBROKER_CONNECTOR_CLASSPATH names the file with its jars."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("asyncbroker tests")
    for name, value in SPARK_SETTINGS.items():
        builder = builder.config(name, value)
    if classpath := os.environ.get("ASYNCBROKER_CONNECTOR_CLASSPATH"):
        jars = Path(classpath).read_text(encoding="utf-8").strip()
        builder = builder.config("spark.jars", jars.replace(":", ","))
    builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    with warnings.catch_warnings():
        # PySpark says of pandas that it is newer than itself.
        warnings.simplefilter("ignore", FutureWarning)
        session = builder.getOrCreate()
    yield session
    session.stop()
