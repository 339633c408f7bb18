"""A Spark job for `test_spark_masters.py`, which knows nothing of where it runs.

Copies the topic `rows` into `copies`, streams that into Parquet files, and prints as JSON what has
arrived and where tasks have read. The arguments are the broker's address and an empty folder.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession


def places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The folder in which this task works, which is its executor's, and how many rows it has."""
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"place": [os.getcwd()], "rows": [rows]})


def main(servers: str, folder: str) -> None:
    """Runs the job."""
    spark = SparkSession.builder.getOrCreate()
    rows = (
        spark.read.format("asyncbroker")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "rows")
        .load()
    )
    (
        rows.select("key", "value")
        .write.format("asyncbroker")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "copies")
        .mode("append")
        .save()
    )
    copies = (
        spark.readStream.format("asyncbroker")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "copies")
        .option("startingOffsets", "earliest")
        .load()
    )
    stream = copies.selectExpr("cast(string(value) as int) as number").writeStream
    stream = stream.option("checkpointLocation", f"{folder}/checkpoint")
    stream.trigger(availableNow=True).start(f"{folder}/numbers", "parquet").awaitTermination()
    numbers = spark.read.parquet(f"{folder}/numbers").orderBy("number").collect()
    read = rows.mapInArrow(places, "place string, rows long").collect()
    report = {
        "session": type(spark).__module__,
        "numbers": [row.number for row in numbers],
        "places": sorted({row.place for row in read}),
        "rows": sum(row.rows for row in read),
    }
    print(json.dumps(report), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
