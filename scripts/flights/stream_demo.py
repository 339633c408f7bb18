"""The streaming job; `scripts/demo-stream` sets up what it needs and runs it. Read `run` first.

A flight is sent when it left, and its event time is when it was scheduled to leave: one that was
delayed for hours comes after others that were scheduled later. The watermark waits longer than the
longest delay. What comes later still (flights of January, sent again at the end of the year) is
dropped, which the comparison with pandas shows.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pandas
from flights import packaged_file
from job import is_same, start_spark

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.producer import Producer
from asyncbroker.client.topics import create_topic
from asyncbroker.demo.processes import BrokerProcess, DemoError
from asyncbroker.demo.show import Show
from asyncbroker.spark.lag import lag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TOPIC = "departures"
PARTITIONS = 3
WINDOW = "6 hours"
# A day is sent at a time, by partition, and the longest delay is of 22 hours.
WATERMARK = "3 days"
SCHEMA = "scheduled TIMESTAMP, origin STRING, dep_delay DOUBLE"
COLUMNS = ["year", "month", "day", "hour", "minute", "origin", "dep_delay"]
TOO_LATE = 50
# Closes all windows before it, and stays in one that is never closed.
LAST_WORD = {"scheduled": "2014-03-01 00:00:00", "origin": "END", "dep_delay": None}
# Longer than the sending is meant to take.
EXTRA_SECONDS_MAX = 120.0


def load_departures(every: int, file: Path | None = None) -> pandas.DataFrame:
    """The flights in the order in which they left; those that were cancelled, when they should."""
    table = pandas.read_csv(file or packaged_file(), usecols=COLUMNS).iloc[::every]
    table["scheduled"] = pandas.to_datetime(table[["year", "month", "day", "hour", "minute"]])
    delay = pandas.to_timedelta(table["dep_delay"].fillna(0), unit="min")
    table["left"] = table["scheduled"] + delay
    return table.sort_values("left", kind="stable").reset_index(drop=True)


def delays_by_pandas(table: pandas.DataFrame) -> pandas.DataFrame:
    """Flights and mean delay by airport and window."""
    grouped = table.groupby([table["scheduled"].dt.floor("6h").rename("start"), "origin"])
    columns = {"flights": ("hour", "size"), "flown": ("dep_delay", "count")}
    return grouped.agg(**columns, delay=("dep_delay", "mean")).reset_index()


def count_late(table: pandas.DataFrame) -> int:
    """How many flights are sent after one that was scheduled for a later window."""
    windows = table["scheduled"].dt.floor("6h")
    return int((windows < windows.cummax()).sum())


def send(servers: str, table: pandas.DataFrame, seconds: float) -> None:
    """Sends a year in so many seconds, day by day, and then what closes its last windows."""
    with Cluster(servers) as cluster, Producer(cluster, TOPIC) as producer:
        days = list(table.groupby(table["left"].dt.floor("D")))
        start = time.monotonic()
        for number, (_, day) in enumerate(days):
            for flight in records_of(day):
                put(producer, flight)
            producer.flush()
            time.sleep(max(0.0, start + seconds * number / len(days) - time.monotonic()))
        put(producer, LAST_WORD)
        producer.flush()


def send_too_late(servers: str, table: pandas.DataFrame) -> None:
    """Sends the first flights of the year again."""
    with Cluster(servers) as cluster, Producer(cluster, TOPIC) as producer:
        for flight in records_of(table.head(TOO_LATE)):
            put(producer, flight)
        producer.flush()


def put(producer: Producer, flight: dict[str, object]) -> None:
    """Flights of an airport stay in order."""
    producer.send(json.dumps(flight).encode(), key=str(flight["origin"]).encode())


def records_of(table: pandas.DataFrame) -> list[dict[str, object]]:
    """What is sent of each flight."""
    rows = zip(table["scheduled"], table["origin"], table["dep_delay"], strict=True)
    return [
        {
            "scheduled": str(scheduled),
            "origin": origin,
            "dep_delay": None if pandas.isna(delay) else delay,
        }
        for scheduled, origin, delay in rows
    ]


def delays_of(spark: SparkSession, servers: str) -> DataFrame:
    """The stream: flights and mean delay by airport and window."""
    from pyspark.sql import functions

    records = (
        spark.readStream.format("asyncbroker")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load()
    )
    value = functions.from_json(records.value.cast("string"), SCHEMA)
    flights = records.select(value.alias("flight")).select("flight.*")
    return (
        flights.withWatermark("scheduled", WATERMARK)
        .groupBy(functions.window("scheduled", WINDOW), "origin")
        .agg(
            functions.count("*").alias("flights"),
            functions.count("dep_delay").alias("flown"),
            functions.avg("dep_delay").alias("delay"),
        )
        .select("window.start", "origin", "flights", "flown", "delay")
    )


def start_query(spark: SparkSession, servers: str, folder: Path) -> StreamingQuery:
    """Windows go to Parquet when they are closed."""
    return (
        delays_of(spark, servers)
        .writeStream.format("parquet")
        .option("path", str(folder / "delays"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )


def follow(query: StreamingQuery, sender: threading.Thread, seconds: float, show: Show) -> None:
    """Tells how far the stream is, until everything is sent, in about so many seconds, and read."""
    deadline = time.monotonic() + seconds + EXTRA_SECONDS_MAX
    told = -1
    while sender.is_alive():
        if time.monotonic() > deadline:
            raise DemoError("the flights were not sent in time")
        progress = query.lastProgress
        if progress is not None and progress["batchId"] != told:
            told = progress["batchId"]
            found = lag(progress)[0]
            behind = 0 if found is None else found.total_offsets_behind
            watermark = progress["eventTime"].get("watermark", "")[:10]
            show.note(f"batch {told}: watermark {watermark}, {behind:,} records behind")
        sender.join(2.0)
    query.processAllAvailable()


def run(show: Show, folder: Path, output: Path, every: int, seconds: float) -> None:
    """The whole job, in the order in which it is told."""
    with ExitStack() as stack:
        table = load_departures(every)
        show.headline(f"{len(table):,} flights, {count_late(table):,} of them behind later ones")
        broker = BrokerProcess(folder / "data", (), folder / "broker.log")
        broker.start()
        stack.callback(broker.stop)
        with Cluster(broker.address) as cluster:
            create_topic(cluster, TOPIC, partitions=PARTITIONS)
        spark = start_spark()
        stack.callback(spark.stop)
        # What pandas calls a time without a zone is the same in Spark.
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        query = start_query(spark, broker.address, folder)
        stack.callback(query.stop)
        show.headline(f"a year of departures in {seconds:.0f} s, and a stream of {WINDOW} windows")
        sender = threading.Thread(target=send, args=(broker.address, table, seconds), daemon=True)
        start = time.monotonic()
        sender.start()
        follow(query, sender, seconds, show)
        show.note(f"all sent and read after {time.monotonic() - start:.0f} s")
        show.headline(f"{TOO_LATE} flights of January once more: too late")
        send_too_late(broker.address, table)
        query.processAllAvailable()
        delays = spark.read.parquet(str(folder / "delays")).toPandas()
        expected = delays_by_pandas(table)
        show.check(
            "the windows equal those of pandas, late flights in and those that are too late out",
            is_same(delays, expected, ["start", "origin"], ["flights", "flown"]),
            f"{len(delays):,} windows, {len(expected):,} by pandas",
        )
        import pictures  # It takes a while to import.

        picture = output / "delay-by-airport.png"
        pictures.draw_weeks(delays, picture)
        show.note(f"picture: {picture}")


@click.command()
@click.option("--quick", is_flag=True, help="A tenth of the flights, in less time.")
@click.option("--seconds", type=float, help="How long a year takes; 30, or 15 with --quick.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("demo-output"))
def main(quick: bool, seconds: float | None, output: Path) -> None:
    """Flights as a stream: windowed delays with late data."""
    show = Show()
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="asyncbroker-demo-") as name:
        folder = Path(name)
        try:
            run(show, folder, output, 10 if quick else 1, seconds or (15 if quick else 30))
        except DemoError as error:
            if (log := folder / "broker.log").exists():
                click.echo(f"--- {log.name}\n{log.read_text()[-2000:]}", err=True)
            raise click.ClickException(str(error)) from error
    if show.failures:
        show.headline(f"[red]{len(show.failures)} checks failed[/]")
        sys.exit(1)
    show.headline("[green]all checks hold[/]")


if __name__ == "__main__":
    main()
