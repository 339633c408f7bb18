"""A real Spark and a real broker for the tests that need them; each is started once a session.

By default the broker is `asyncbroker serve --memory`; `BOOTSTRAP_SERVERS=host:port` runs the same
tests against any other, such as Apache Kafka, which should have the same setting: nothing is too
old to be kept. Many records are of 1970, and else would be gone before a slow test has read them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from asyncbroker.spark.tests.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_SECONDS_MAX = 20


@pytest.fixture(scope="session")
def spark_bootstrap_servers() -> Iterator[str]:
    """The address of a broker; topics have names of their own."""
    if other := os.environ.get("BOOTSTRAP_SERVERS"):
        yield other
        return
    serve = ["serve", "--memory", "--listen", "127.0.0.1:0", "--set", "log.retention.ms=-1"]
    command = [sys.executable, "-m", "asyncbroker", *serve]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline().split()
        assert line[:2] == ["asyncbroker", "ready"], f"not ready: {line}"
        yield line[2]
        process.terminate()
        assert process.wait(STOP_SECONDS_MAX) == 0


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark of all tests, with Spark's own connector where its jars are known."""
    session = start_session(tmp_path_factory.mktemp("warehouse"))
    yield session
    session.stop()
