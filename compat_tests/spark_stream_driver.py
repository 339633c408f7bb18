"""A Spark driver for `test_spark_kills.py`: streams the topic `rows` into a file for each batch.

The sink is idempotent: a batch that is run again replaces its file. The first argument is the
broker's address, the second a folder. Ends when everything is read that was there at the start; or,
with a number as the third argument, when there are so many rows in the files.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from asyncbroker.spark.tests.patience import patiently

ROWS_PER_BATCH = "400"


def main(servers: str, folder: Path, rows_until: int | None) -> None:
    """Runs until there is nothing left to read, or there are so many rows."""
    sink = folder / "sink"
    sink.mkdir(exist_ok=True)

    def save(rows: DataFrame, number: int) -> None:
        values = [bytes(row.value).decode() for row in rows.select("value").collect()]
        unfinished = sink / f"unfinished-{number}.txt"
        unfinished.write_text("".join(f"{value}\n" for value in values))
        os.replace(unfinished, sink / f"batch-{number}.txt")
        saved[number] = len(values)
        print("batch", number, flush=True)

    saved: dict[int, int] = {}

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    rows = (
        spark.readStream.format("asyncbroker")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "rows")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS_PER_BATCH)
        .load()
    )
    stream = rows.writeStream.foreachBatch(save)
    stream = stream.option("checkpointLocation", str(folder / "checkpoint"))
    if rows_until is None:
        patiently(lambda: stream.trigger(availableNow=True).start().awaitTermination())
    else:
        query = stream.start()
        while sum(saved.values()) < rows_until and not query.awaitTermination(1):
            continue
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if sys.argv[3:] else None)
