"""Our Spark source beside Spark's own Kafka connector: the same topics and session, interleaved.

Called by `scripts/bench spark`. Every case is run by each reader in turn, `--rounds` times after a
first time that does not count; what is printed are medians in M rows/s, and how many times the
connector's they are. The connector is measured with its defaults and "tuned": fetches of 8 MB,
polls of 50,000 records, a large receive buffer. Of ours nothing is tuned.

Two more things need sessions of their own: the first row of a small topic in a fresh session, and a
topic of one partition with everything pinned to one core and to two.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from brokers import asyncbroker

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.partitions import produce
from asyncbroker.client.topics import create_topic
from asyncbroker.protocol.batches import stamp
from asyncbroker.protocol.records import Record, build_batch

# As many of the small records as are in a batch of Java's producer (16 KB).
RECORDS_PER_BATCH: Final = 145
KILOBYTE_RECORDS_PER_BATCH: Final = 15
TUNED: Final = {
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.max.poll.records": "50000",
    "kafka.receive.buffer.bytes": str(4 << 20),
}
JSON_SCHEMA: Final = "carrier string, delay int, origin string, flight bigint, distance double"
SMALL: Final = "small"

Case = Callable[[Any, str, dict[str, str]], None]


# ---- topics


def small_value(number: int) -> bytes:
    """About 100 bytes of JSON."""
    return (
        b'{"carrier":"%s","delay":%d,"origin":"%s","flight":%d,"distance":%d.5,"tail":"N%05dAA"}'
        % (
            (b"UA", b"AA", b"DL", b"B6")[number % 4],
            number % 180 - 20,
            (b"JFK", b"LGA", b"EWR")[number % 3],
            10_000_000 + number,
            200 + number % 2400,
            number % 100_000,
        )
    )


def kilobyte_value(number: int) -> bytes:
    return small_value(number).ljust(1024, b".")


def fill(
    cluster: Cluster,
    topic: str,
    partitions: int,
    count: int,
    value: Callable[[int], bytes],
    per_batch: int,
) -> int:
    """Batches of some thousand different records, over and over; how many there are then, which is
    at most `count`."""
    create_topic(cluster, topic, partitions=partitions, configs={"retention.ms": "-1"})
    some = [
        build_batch(
            [
                Record(0, 1_700_000_000_000 + n, b"k%07d" % n, value(n))
                for n in range(first, first + per_batch)
            ]
        )
        for first in range(0, 32 * per_batch, per_batch)
    ]
    # A partition takes one batch a request; the broker renumbers what it is sent.
    round_count = count // (per_batch * partitions)
    for number in range(round_count):
        batch = some[number % len(some)]
        stamp(batch, 0, -1)
        produce(cluster, {TopicPartition(topic, index): batch for index in range(partitions)})
    return round_count * per_batch * partitions


# ---- cases


def reader(spark: Any, form: str, servers: str, topic: str, options: dict[str, str]) -> Any:
    frame = spark.read.format(form).option("kafka.bootstrap.servers", servers)
    for name, text in {**options, "subscribe": topic}.items():
        frame = frame.option(name, text)
    return frame


def to_nowhere(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def all_columns(spark: Any, form: str, servers: str, topic: str, options: dict[str, str]) -> None:
    to_nowhere(reader(spark, form, servers, topic, options).load())


def value_only(spark: Any, form: str, servers: str, topic: str, options: dict[str, str]) -> None:
    frame = reader(spark, form, servers, topic, options)
    if form == "kafka":
        to_nowhere(frame.load().select("value"))
    else:
        to_nowhere(frame.schema("value binary").load())


def count(spark: Any, form: str, servers: str, topic: str, options: dict[str, str]) -> None:
    frame = reader(spark, form, servers, topic, options)
    if form == "kafka":
        frame.load().count()
    else:
        frame.schema("offset bigint").load().count()


def json_columns(spark: Any, form: str, servers: str, topic: str, options: dict[str, str]) -> None:
    """JSON to typed columns, and a little done with them."""
    from pyspark.sql import functions as f

    frame = reader(spark, form, servers, topic, options)
    if form == "kafka":
        parsed = f.from_json(f.col("value").cast("string"), JSON_SCHEMA)
        rows = frame.load().select(parsed.alias("row")).select("row.*")
    else:
        rows = frame.option("valueFormat", "json").schema(JSON_SCHEMA).load()
    rows.groupBy("carrier", "origin").agg(
        f.avg("delay"), f.max("flight"), f.sum("distance")
    ).collect()


CASES: Final = {
    "100 B, 7 columns": ("flights", all_columns),
    "100 B, value only": ("flights", value_only),
    "100 B, count": ("flights", count),
    "100 B, JSON to 5 columns": ("flights", json_columns),
    "1 KB, 7 columns": ("kilobytes", all_columns),
    "1 KB, value only": ("kilobytes", value_only),
}


# ---- Spark


def session(cores: int) -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = Path(os.environ["ASYNCBROKER_CONNECTOR_CLASSPATH"]).read_text().strip()
    settings = {
        "spark.jars": jars.replace(":", ","),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("asyncbroker bench")
    for name, text in settings.items():
        builder = builder.config(name, text)
    return builder.getOrCreate()


def measure(
    servers: str, rounds: int, rows: dict[str, int], only: str
) -> dict[str, dict[str, list[float]]]:
    """Seconds of every round, by case and reader."""
    spark = session(2)
    readers = {"ours": ("asyncbroker", {}), "connector": ("kafka", {}), "tuned": ("kafka", TUNED)}
    found: dict[str, dict[str, list[float]]] = {}
    for case, (topic, run) in CASES.items():
        if only not in case:
            continue
        seconds = found.setdefault(case, {name: [] for name in readers})
        for number in range(rounds + 1):
            for name, (form, options) in readers.items():
                began = time.perf_counter()
                run(spark, form, servers, topic, options)
                if number:
                    seconds[name].append(time.perf_counter() - began)
        print_case(case, rows[topic], seconds)
    spark.stop()
    return found


def print_case(case: str, rows: int, seconds: dict[str, list[float]]) -> None:
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    rates = "  ".join(f"{name} {rows / 1e6 / m:5.2f}" for name, m in medians.items())
    ours = medians["ours"]
    print(
        f"{case:24} M rows/s: {rates}   times the connector: "
        f"{medians['connector'] / ours:.1f} ({medians['tuned'] / ours:.1f} tuned)",
        flush=True,
    )


# ---- sessions of their own


def child(*arguments: str, pinned_to: str = "") -> float:
    """What a child process of this file prints last."""
    command = [sys.executable, __file__, *arguments]
    if pinned_to:
        command = ["taskset", "-c", pinned_to, *command]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(output.split()[-1])


def one_partition(servers: str, rounds: int, cores: int) -> float:
    """Seconds for a topic of one partition, value only."""
    spark = session(cores)
    seconds = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        value_only(spark, "asyncbroker", servers, "one", {})
        seconds.append(time.perf_counter() - began)
    spark.stop()
    return statistics.median(seconds[1:])


def first_row(servers: str, form: str) -> float:
    """Seconds from a new session to the first row of a small topic."""
    spark = session(2)
    began = time.perf_counter()
    reader(spark, form, servers, SMALL, {}).load().count()
    seconds = time.perf_counter() - began
    spark.stop()
    return seconds


# ---- the whole


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compares our Spark source with the connector.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=4_000_000, help="of 100 B; 1 KB: a quarter")
    parser.add_argument("--only", default="", help="cases whose names have this in them")
    parser.add_argument("--no-sessions", action="store_true", help="leave out start and cores")
    parser.add_argument("--child", choices=("one-partition", "first-row"), help=argparse.SUPPRESS)
    parser.add_argument("--servers", help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, default=2, help=argparse.SUPPRESS)
    parser.add_argument("--format", default="asyncbroker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not any(arguments.only in case for case in CASES):
        parser.error(f"no case's name has {arguments.only!r} in it: {'; '.join(CASES)}")
    return arguments


def compare(arguments: argparse.Namespace, servers: str, broker_pid: int) -> dict[str, Any]:
    rounds, count = arguments.rounds, arguments.records
    small = (small_value, RECORDS_PER_BATCH)
    large = (kilobyte_value, KILOBYTE_RECORDS_PER_BATCH)
    with Cluster(servers) as cluster:
        rows = {
            "flights": fill(cluster, "flights", 4, count, *small),
            "kilobytes": fill(cluster, "kilobytes", 4, count // 4, *large),
        }
        fill(cluster, "one", 1, count // 2, *small)
        fill(cluster, SMALL, 1, 1000, *small)
    result: dict[str, Any] = {"cases": measure(servers, rounds, rows, arguments.only)}
    if arguments.no_sessions:
        return result
    common = ("--servers", servers, "--rounds", str(rounds))
    for form in ("asyncbroker", "kafka"):
        seconds = [
            child("--child", "first-row", "--format", form, *common) for _ in range(min(rounds, 3))
        ]
        result[f"first row, {form}"] = seconds
        print(f"first count of a small topic, {form}: {statistics.median(seconds):.1f} s")
    by_cores = {}
    for cores, pinned_to in ((1, "0"), (2, "0,1")):
        pin = ["taskset", "-a", "-cp", pinned_to, str(broker_pid)]
        subprocess.run(pin, check=True, stdout=subprocess.DEVNULL)
        by_cores[cores] = child(
            "--child", "one-partition", "--cores", str(cores), *common, pinned_to=pinned_to
        )
    result["one partition, seconds by cores"] = by_cores
    print(f"one partition: two cores are {by_cores[1] / by_cores[2]:.2f} times one core")
    return result


def main() -> int:
    arguments = parse_arguments()
    if arguments.child == "one-partition":
        print(one_partition(arguments.servers, arguments.rounds, arguments.cores))
        return 0
    if arguments.child == "first-row":
        print(first_row(arguments.servers, arguments.format))
        return 0
    with tempfile.TemporaryDirectory() as directory, asyncbroker(Path(directory)) as broker:
        result = compare(arguments, broker.address, broker.pid)
    output = Path("bench-output")
    output.mkdir(exist_ok=True)
    (output / "bench-spark.json").write_text(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
