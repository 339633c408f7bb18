"""One stream by either connector, from its first start until there is nothing new."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException, StreamingQueryException

from asyncbroker.spark.tests.patience import patiently

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Streamed:
    """The partitions and offsets of its rows, each as often as it came; the ends of its batches
    in the checkpoint, but for those without rows; and for each task the partition, the first offset
    and the last one that it read."""

    rows: list[tuple[str, int, int]]
    ends: list[Any]
    tasks: list[tuple[str, int, int, int]]


def stream(
    spark: SparkSession, form: str, options: Mapping[str, str], folder: Path
) -> Streamed | str:
    """What a stream of this format gives, or why it gives nothing."""

    def run() -> None:
        rows = spark.readStream.format(form).options(**options).load()
        query = (
            rows.select("topic", "partition", "offset")
            .writeStream.format("json")
            .option("path", str(folder / "rows"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    try:
        patiently(run)
    except (PySparkException, StreamingQueryException) as error:
        return str(error)
    rows, tasks = [], []
    # A file for each task of each batch.
    for path in (folder / "rows").glob("*.json"):
        found_rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows += [(row["topic"], row["partition"], row["offset"]) for row in found_rows]
        if found_rows:
            first, last = min(rows[-len(found_rows) :]), max(rows[-len(found_rows) :])
            tasks.append((*first, last[2]))
    found = (folder / "checkpoint" / "offsets").glob("[0-9]*")
    logs = sorted(found, key=lambda path: int(path.name))
    ends = [json.loads(path.read_text().splitlines()[2]) for path in logs]
    return Streamed(sorted(rows), ends, sorted(tasks))
