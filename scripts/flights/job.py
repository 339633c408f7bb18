"""The Spark job: delay by carrier and hour from offset ranges of the topic, and in pandas."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pandas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "row BIGINT, carrier STRING, hour INT, dep_delay DOUBLE"
TOLERANCE_MINUTES = 1e-6


def start_spark() -> SparkSession:
    """A local session on two cores, quiet, whose workers are of this virtual environment."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

    return (
        SparkSession.builder.master("local[2]")
        .appName("asyncbroker demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def delays_by_spark(
    spark: SparkSession, servers: str, topic: str, ending_offsets: str
) -> tuple[pandas.DataFrame, int]:
    """Flights and mean departure delay by carrier and hour, and in how many ranges it was read."""
    from pyspark.sql import functions

    records = (
        spark.read.format("asyncbroker")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", ending_offsets)
        .option("minPartitions", "12")
        .schema("value binary")
        .load()
    )
    flights = records.select(
        functions.from_json(records.value.cast("string"), SCHEMA).alias("flight")
    ).select("flight.*")
    delays = (
        flights.groupBy("carrier", "hour")
        .agg(
            functions.count("*").alias("flights"),
            functions.avg("dep_delay").alias("delay"),
        )
        .orderBy("carrier", "hour")
    )
    return delays.toPandas(), records.rdd.getNumPartitions()


def delays_by_pandas(table: pandas.DataFrame) -> pandas.DataFrame:
    """The same from the original table."""
    grouped = table.groupby(["carrier", "hour"], as_index=False)
    return grouped.agg(flights=("flight", "size"), delay=("dep_delay", "mean"))


def is_same(
    ours: pandas.DataFrame, theirs: pandas.DataFrame, groups: list[str], counts: list[str]
) -> bool:
    """Whether both tables have the same groups and counts, and delays equal but for rounding."""
    exact = groups + counts
    ours = ours.sort_values(groups).reset_index(drop=True)
    theirs = theirs.sort_values(groups).reset_index(drop=True)
    if len(ours) != len(theirs) or (ours[exact].to_numpy() != theirs[exact].to_numpy()).any():
        return False
    difference = (ours["delay"].astype(float) - theirs["delay"].astype(float)).abs()
    both_empty = ours["delay"].isna() & theirs["delay"].isna()
    return bool((both_empty | (difference <= TOLERANCE_MINUTES)).all())
