"""A Spark driver for `test_spark_beside_kafka.py` that logs in and tells all that Spark can tell.

The first argument is a file of JSON: options that log in, the same with a wrong password, a topic
and a folder. Plans, progress, errors, log and event log go to standard output and into the folder.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from asyncbroker.spark.tests.patience import patiently
from asyncbroker.spark.tests.session import SETTINGS


def main(path: Path) -> None:
    """Reads, streams, writes, and is refused."""
    given = json.loads(path.read_text())
    folder, topic = Path(given["folder"]), given["topic"]
    (folder / "events").mkdir()
    settings: dict[str, bool | float | int | str | None] = {
        **SETTINGS,
        "spark.log.level": "INFO",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
    }
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    good = {**given["good"], "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.read.format("asyncbroker").options(**good).load()
    rows.explain(mode="extended")
    rows.explain(mode="formatted")
    print(rows, rows.count(), "rows")
    rows.write.format("asyncbroker").options(**given["good"], topic=f"{topic}-copy").mode(
        "append"
    ).save()
    stream = (
        spark.readStream.format("asyncbroker")
        .options(**good)
        .load()
        .writeStream.format("asyncbroker")
        .options(**given["good"], topic=f"{topic}-stream")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )

    def run() -> None:
        query = stream.start()
        query.awaitTermination()
        query.explain(extended=True)
        print(query.lastProgress)

    patiently(run)
    refused = {**given["wrong"], "subscribe": topic}
    for action in (
        lambda: spark.read.format("asyncbroker").options(**refused).load().count(),
        lambda: (
            rows.write.format("asyncbroker")
            .options(**given["wrong"], topic=topic)
            .mode("append")
            .save()
        ),
    ):
        try:
            action()
        except PySparkException as error:
            print("refused:", error)
    spark.stop()
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
