"""Our Spark source and sink beside Spark's own Kafka connector: the same topics and session,
interleaved.

Called by `scripts/bench spark`. Every case (`spark_cases.py`) is run by each reader in turn,
`--rounds` times after a first time that does not count. What counts are medians, as rows a second,
and as CPU a row of all processes together: of the JVM, Python's workers and the broker, which is
what can be compared on a machine that does something else as well.

Two more things need processes of their own: the first rows of a small topic from nothing, by a
session that has what its reader needs (of the connector jars that were fetched before), and a topic
of one partition with everything pinned to one core and to two.

What has been found is kept in a file after each of them, so that a case that fails, or an end by
hand, takes only itself along; `--write-docs` makes the table of the docs of that file.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from brokers import asyncbroker
from spark_cases import (
    CASES,
    CEILING,
    CONNECTOR,
    ONE_PARTITION,
    OURS,
    READERS,
    SMALL,
    Case,
    Place,
    Reader,
    make_topics,
    to_nowhere,
)
from spark_table import (
    FIRST_ROW_CASE,
    ONE_PARTITION_CASE,
    SESSION_OF,
    Result,
    Run,
    Samples,
    line,
    load,
    put_into,
    table,
)

CASE_NAMES: Final = (*(case.name for case in CASES), ONE_PARTITION_CASE, FIRST_ROW_CASE)
PAGE: Final = Path("docs/spark.md")
KEPT: Final = Path("bench-output/bench-spark.json")
CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")
FIRST_ROW_ROUNDS_MAX: Final = 3


def session(cores: int, *, has_connector: bool = True) -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    if has_connector:
        jars = Path(os.environ["ASYNCBROKER_CONNECTOR_CLASSPATH"]).read_text().strip()
        settings["spark.jars"] = jars.replace(":", ",")
    builder = SparkSession.builder.master(f"local[{cores}]").appName("asyncbroker bench")
    for name, text in settings.items():
        builder = builder.config(name, text)
    return builder.getOrCreate()


def session_with_ceiling() -> Any:
    """Of two cores; the ceiling is a source that only the bench has."""
    from spark_ceiling import Ceiling

    # Where Spark's workers find the module.
    folders = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    spark = session(2)
    spark.dataSource.register(Ceiling)
    return spark


# ---- what a run costs


def cpu_seconds(broker_pid: int) -> dict[int, tuple[str, float]]:
    """What each process below this one is, and the CPU that it has used so far."""
    found: dict[int, tuple[int, str, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        head, _, rest = text.rpartition(")")
        fields = rest.split()
        pid, name = head.split(" (", 1)
        ticks = int(fields[11]) + int(fields[12])
        found[int(pid)] = (int(fields[1]), name, ticks / CLOCK_TICKS)
    below = {os.getpid()}
    is_growing = True
    while is_growing:
        children = {pid for pid, (parent, _, _) in found.items() if parent in below} - below
        below |= children
        is_growing = bool(children)
    kinds = {"java": "jvm"}
    return {
        pid: ("broker" if pid == broker_pid else kinds.get(found[pid][1], "python"), found[pid][2])
        for pid in below
        if pid in found and pid != os.getpid()
    }


def used(
    before: dict[int, tuple[str, float]], after: dict[int, tuple[str, float]]
) -> dict[str, float]:
    """CPU seconds between the two, by what the processes are."""
    seconds: dict[str, float] = defaultdict(float)
    for pid, (kind, total) in after.items():
        seconds[kind] += total - before.get(pid, (kind, 0.0))[1]
    # A plain one: what is kept is copied by `asdict`, which makes each dictionary anew.
    return dict(seconds)


def measure(case: Case, place: Place, rounds: int, broker_pid: int) -> Result:
    """Runs a case by all readers, and by what no source in Python can surpass, in turn."""
    readers = (*READERS, CEILING) if case.reads else READERS
    found = {reader.name: Samples() for reader in readers}
    for number in range(rounds + 1):
        for reader in readers:
            rows, run = case.prepare(place, reader)
            before, began = cpu_seconds(broker_pid), time.perf_counter()
            run()
            seconds, after = time.perf_counter() - began, cpu_seconds(broker_pid)
            if number:
                found[reader.name].add(rows, seconds, used(before, after))
    return Result(case, found)


# ---- sessions of their own


def child(*arguments: str, pinned_to: str = "") -> list[float]:
    """The numbers that a child process of this file prints last."""
    command = [sys.executable, __file__, *arguments]
    if pinned_to:
        command = ["taskset", "-c", pinned_to, *command]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(number) for number in output.splitlines()[-1].split()]


def one_partition(servers: str, rounds: int, cores: int) -> float:
    """Seconds for a topic of one partition, value only."""
    spark = session(cores)
    place = Place(spark, servers, Path(), {})
    seconds = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        to_nowhere(place.frame(OURS, ONE_PARTITION).schema("value binary").load())
        seconds.append(time.perf_counter() - began)
    spark.stop()
    return statistics.median(seconds[1:])


def first_row(servers: str, reader: Reader) -> tuple[float, float]:
    """Seconds from nothing to the rows of a small topic, and those of them until there is a
    session, which has the connector's jars only if it needs them."""
    began = time.perf_counter()
    spark = session(2, has_connector=reader != OURS)
    session_seconds = time.perf_counter() - began
    Place(spark, servers, Path(), {}).frame(reader, SMALL).load().count()
    seconds = time.perf_counter() - began
    spark.stop()
    return seconds, session_seconds


def by_cores(servers: str, rounds: int, broker_pid: int) -> dict[str, float]:
    """Seconds with everything pinned to one core, and to two."""
    found = {}
    for cores, pinned_to in ((1, "0"), (2, "0,1")):
        pin = ["taskset", "-a", "-cp", pinned_to, str(broker_pid)]
        subprocess.run(pin, check=True, stdout=subprocess.DEVNULL)
        common = ("--servers", servers, "--rounds", str(rounds), "--cores", str(cores))
        (found[str(cores)],) = child("--child", "one-partition", *common, pinned_to=pinned_to)
    return found


def first_rows(servers: str, rounds: int) -> dict[str, float]:
    """Median seconds by reader, and those until there is a session; in turn, and after a first time
    of each that finds nothing in the page cache."""
    readers = (OURS, CONNECTOR)
    found: dict[str, list[float]] = defaultdict(list)
    for number in range(min(rounds, FIRST_ROW_ROUNDS_MAX) + 1):
        for reader in readers:
            whole, until_session = child(
                "--child", "first-row", "--reader", reader.name, "--servers", servers
            )
            if number:
                found[reader.name].append(whole)
                found[SESSION_OF[reader.name]].append(until_session)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


# ---- the whole


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compares our Spark source with the connector.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=4_000_000, help="of 100 B; 1 KB: a quarter")
    parser.add_argument(
        "--only", action="append", help="cases whose names have this in them; may be given again"
    )
    parser.add_argument(
        "--write-docs",
        action="store_true",
        help=f"measure nothing: put what the last run has left in {KEPT} into {PAGE}",
    )
    parser.add_argument("--child", choices=("one-partition", "first-row"), help=argparse.SUPPRESS)
    parser.add_argument("--servers", help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, default=2, help=argparse.SUPPRESS)
    parser.add_argument("--reader", default=OURS.name, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write_docs and not KEPT.exists():
        parser.error(f"there is no {KEPT} yet: a run without --write-docs makes it")
    for part in arguments.only or ():
        if not any(part in name for name in CASE_NAMES):
            parser.error(f"no case's name has {part!r} in it: {'; '.join(CASE_NAMES)}")
    return arguments


def compare(arguments: argparse.Namespace, servers: str, broker_pid: int, folder: Path) -> None:
    """Runs all cases that are asked for, and the sessions of their own; tells and keeps each."""
    run = Run(arguments.rounds, arguments.records)
    chosen = [n for n in CASE_NAMES if not arguments.only or any(p in n for p in arguments.only)]
    counts = make_topics(servers, arguments.records)
    if cases := [case for case in CASES if case.name in chosen]:
        spark = session_with_ceiling()
        for case in cases:
            place = Place(spark, servers, folder, counts)
            run.results.append(measure(case, place, arguments.rounds, broker_pid))
            print(line(run.results[-1]), flush=True)
            run.save(KEPT)
        spark.stop()
    if ONE_PARTITION_CASE in chosen:
        found = run.sessions[ONE_PARTITION_CASE] = by_cores(servers, arguments.rounds, broker_pid)
        print(f"{ONE_PARTITION_CASE}: two are {found['1'] / found['2']:.2f} times one", flush=True)
        run.save(KEPT)
    if FIRST_ROW_CASE in chosen:
        found = run.sessions[FIRST_ROW_CASE] = first_rows(servers, arguments.rounds)
        print(f"{FIRST_ROW_CASE}: " + ", ".join(f"{n} {s:.1f} s" for n, s in found.items()))
        run.save(KEPT)


def main() -> int:
    arguments = parse_arguments()
    if arguments.child == "one-partition":
        print(one_partition(arguments.servers, arguments.rounds, arguments.cores))
        return 0
    if arguments.child == "first-row":
        reader = next(reader for reader in READERS if reader.name == arguments.reader)
        print(*first_row(arguments.servers, reader))
        return 0
    if arguments.write_docs:
        put_into(PAGE, table(load(KEPT)))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        data, folder = Path(directory, "data"), Path(directory, "spark")
        folder.mkdir()
        with asyncbroker(data) as broker:
            compare(arguments, broker.address, broker.pid, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
