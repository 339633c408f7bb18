"""The one Spark session of a test run, of two cores, in which nothing is registered."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
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


def start_session(warehouse: Path) -> SparkSession:
    """The session of this process, started if there is none; with Spark's own Kafka connector, if
    ASYNCBROKER_CONNECTOR_CLASSPATH names the file with its jars."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("asyncbroker tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    if classpath := os.environ.get("ASYNCBROKER_CONNECTOR_CLASSPATH"):
        jars = Path(classpath).read_text(encoding="utf-8").strip()
        builder = builder.config("spark.jars", jars.replace(":", ","))
    builder = builder.config("spark.sql.warehouse.dir", str(warehouse))
    with warnings.catch_warnings():
        # PySpark says of pandas that it is newer than itself.
        warnings.simplefilter("ignore", FutureWarning)
        return builder.getOrCreate()
