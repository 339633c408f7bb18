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
    """The partitions and offsets of its rows, each as often as it came; and the ends of its batches
    in the checkpoint, but for those without rows."""

    rows: list[tuple[str, int, int]]
    ends: list[Any]


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
    rows = [
        json.loads(line)
        for path in (folder / "rows").glob("*.json")
        for line in path.read_text().splitlines()
    ]
    found = (folder / "checkpoint" / "offsets").glob("[0-9]*")
    logs = sorted(found, key=lambda path: int(path.name))
    ends = [json.loads(path.read_text().splitlines()[2]) for path in logs]
    return Streamed(sorted((row["topic"], row["partition"], row["offset"]) for row in rows), ends)
