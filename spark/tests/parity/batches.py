"""One batch query by Spark's own Kafka connector, and by ours: its rows, or why there are none.

Ours is planned and read in this process, since the way through Spark is tested elsewhere.
"""

from __future__ import annotations

from datetime import timezone
from typing import TYPE_CHECKING, Any

from asyncbroker.client.errors import ClientError
from asyncbroker.spark.planner import DataLost
from asyncbroker.spark.source import AsyncbrokerDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[Any, ...]


def rows_here(options: dict[str, str]) -> list[Row] | str:
    """What our source gives."""
    try:
        source = AsyncbrokerDataSource(options)
        schema = source.schema()
        reader = source.reader(schema)
        found: list[Row] = []
        for partition in reader.partitions():
            batches: Any = reader.read(partition)
            for records in batches:
                found += [_normal(row) for row in records.to_pylist()]
    except (ValueError, DataLost, ClientError) as error:
        return str(error)
    return sorted(found, key=repr)


def rows_of_connector(spark: SparkSession, options: dict[str, str]) -> list[Row] | str:
    """What Spark's own connector gives."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        rows = spark.read.format("kafka").options(**options).load().collect()
    except (PySparkException, Py4JJavaError) as error:
        return str(error)
    found = []
    for row in rows:
        fields = row.asDict(recursive=True)
        fields = {n: bytes(v) if isinstance(v, bytearray) else v for n, v in fields.items()}
        if fields.get("headers"):
            for header in fields["headers"]:
                header["value"] = None if header["value"] is None else bytes(header["value"])
        found.append(_normal(fields))
    return sorted(found, key=repr)


def _normal(row: dict[str, Any]) -> Row:
    """Times in ms, headers as pairs."""
    row = dict(row)
    if row.get("headers") is not None:
        row["headers"] = [(header["key"], header["value"]) for header in row["headers"]]
    moment = row["timestamp"]
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    row["timestamp"] = round(moment.timestamp() * 1000)
    return tuple(row.values())
