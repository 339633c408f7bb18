"""Runs the same loads against several brokers, interleaved, and compares the medians.

Run it through scripts/bench, which builds the load generator (load.c) and finds Apache Kafka. Each
round runs every load on every broker in turn, so that a slow minute of the machine meets all of
them. Each load has a topic of its own, deleted after it, so that the disk does not fill. Before
each round the disk itself is measured (disk.py): what waits for it is held against that too.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import brokers
import click
import disk
from brokers import Target
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

FREE_DISK_GB_MIN = 15.0
FILL_SECONDS = 2.0
# Apache Kafka answers NOT_LEADER_OR_FOLLOWER for a moment after it has made a topic, and for longer
# on a busy machine.
LEADER_SECONDS = 1.0
LEADER_SECONDS_MAX = 60.0
# The first commit of all has the offsets topic made, which takes a while.
COORDINATOR_SECONDS_MAX = 30.0
DISK_SECONDS = 3.0
MANY_PARTITIONS = 10_000
MANY_ROUNDS = 3
SETTLE_SECONDS = 10.0
ACKS_ALL = -1
FIGURES = (
    "requests_per_s",
    "mb_per_s",
    "p50_ms",
    "p99_ms",
    "cpu_s_per_gb",
    "cpu_us_per_request",
)


@dataclass(frozen=True)
class Load:
    """One load. For "produce": acks, records a batch, bytes a record, and a rate if requests are to
    come by the clock (requests a second in all); for "fetch": max bytes; for "commit", a group for
    each connection: nothing."""

    name: str
    kind: str
    partitions: int
    connections: int
    depth: int
    arguments: tuple[int, ...]


ONE_RECORD = Load("1 record, 10 connections x 5", "produce", 10, 10, 5, (1, 1, 100))
LOADS = (
    Load("1 record, 1 connection, one at a time", "produce", 1, 1, 1, (1, 1, 100)),
    ONE_RECORD,
    Load("1 record, acks=all, 10 connections x 1", "produce", 10, 10, 1, (-1, 1, 100)),
    Load("1 record, acks=all, 100 connections x 1", "produce", 10, 100, 1, (-1, 1, 100)),
    Load("1 record, acks=all, 2,000/s by 10", "produce", 10, 10, 1, (-1, 1, 100, 2000)),
    Load("16 KB batches of 100 B, 5 x 5", "produce", 5, 5, 5, (1, 140, 100)),
    Load("1 MB batches of 1 KB, 4 x 3", "produce", 4, 4, 3, (1, 1000, 1000)),
    Load("1 MB batches of 1 KB, acks=all, 4 x 3", "produce", 4, 4, 3, (-1, 1000, 1000)),
    Load("offset commits of 200 groups", "commit", 10, 200, 1, ()),
    Load("fetch 1 MB, 4 x 1", "fetch", 4, 4, 1, (1 << 20,)),
    Load("fetch 64 KB, 10 x 1", "fetch", 4, 10, 1, (1 << 16,)),
)
# What a fetch reads: batches that fit into what it asks for.
FILLS = {
    "fetch 1 MB, 4 x 1": Load("fill", "produce", 4, 4, 3, (1, 1000, 1000)),
    "fetch 64 KB, 10 x 1": Load("fill", "produce", 4, 4, 3, (1, 140, 100)),
}


class Bench:
    """The targets, the topics made on them, and every figure that was measured."""

    def __init__(self, targets: list[Target], seconds: float, directory: Path) -> None:
        self.targets = targets
        self.results: list[dict[str, object]] = []
        self.disk: list[dict[str, float]] = []
        self._seconds = seconds
        self._directory = directory
        self._admins = {
            t.name: AdminClient({"bootstrap.servers": t.address, "log_level": 2}) for t in targets
        }
        self._topic_count = 0

    def measure(self, load: Load, target: Target, seconds: float, topic: str) -> dict[str, float]:
        """Runs the load generator once; raises when any request failed."""
        command = [os.environ["ASYNCBROKER_LOAD"], load.kind, target.host, str(target.port)]
        command += [topic, str(load.partitions), str(load.connections), str(load.depth)]
        command += [str(seconds), str(target.pid), *map(str, load.arguments)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120)
        if result.returncode:
            raise RuntimeError(f"{load.name} on {target.name}: {result.stderr}{result.stdout}")
        figures: dict[str, float] = json.loads(result.stdout)
        return figures

    @contextlib.contextmanager
    def topic(self, target: Target, partitions: int) -> Iterator[str]:
        """A topic for one load, deleted afterwards."""
        if brokers.free_disk_gb(self._directory) < FREE_DISK_GB_MIN:
            raise RuntimeError(f"less than {FREE_DISK_GB_MIN} GB of disk is free")
        self._topic_count += 1
        name = f"load-{self._topic_count}"
        admin = self._admins[target.name]
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
        time.sleep(LEADER_SECONDS)
        try:
            self._wait_for_leaders(target, name, partitions)
            yield name
        finally:
            admin.delete_topics([name])[name].result(60)

    def _wait_for_leaders(self, target: Target, topic: str, partitions: int) -> None:
        """Until each partition has taken a record."""
        first = Load("one record each", "produce", partitions, partitions, 1, (1, 1, 10))
        deadline = time.monotonic() + LEADER_SECONDS_MAX
        while True:
            try:
                self.measure(first, target, 0.0, topic)
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(LEADER_SECONDS)
            else:
                return

    def run(
        self, load: Load, target: Target, round_number: int, filled: dict[tuple[str, str], str]
    ) -> None:
        if load.kind == "fetch":
            topic = filled[load.name, target.name]
            figures = self.measure(load, target, self._seconds, topic)
        else:
            with self.topic(target, load.partitions) as name:
                figures = self.measure(load, target, self._seconds, name)
        if round_number:  # round 0 warms up
            self.results.append(
                {"load": load.name, "broker": target.name, "round": round_number, **figures}
            )

    def measure_disk(self) -> None:
        """The disk without a broker."""
        self.disk.append(disk.measure(self._directory, DISK_SECONDS))

    def open_coordinator(self, target: Target) -> None:
        """Has the offsets topic made, and waits until its groups are served."""
        with self.topic(target, 1) as topic:
            group = {"bootstrap.servers": target.address, "group.id": "first", "log_level": 2}
            consumer = Consumer(group)
            deadline = time.monotonic() + COORDINATOR_SECONDS_MAX
            try:
                while True:
                    try:
                        offset = TopicPartition(topic, 0, 0)
                        consumer.commit(offsets=[offset], asynchronous=False)
                    except KafkaException:
                        if time.monotonic() > deadline:
                            raise
                        time.sleep(LEADER_SECONDS)
                    else:
                        break
            finally:
                consumer.close()
        time.sleep(LEADER_SECONDS)

    def many_partitions(self, target: Target) -> None:
        """The small-request rate on one topic, before and after many others were made."""
        with self.topic(target, ONE_RECORD.partitions) as topic:
            self._measure_beside(target, topic, "10")
            name = "many"
            start = time.monotonic()
            new = NewTopic(name, MANY_PARTITIONS, 1)
            self._admins[target.name].create_topics([new], request_timeout=300)[name].result(300)
            seconds = time.monotonic() - start
            click.echo(f"{MANY_PARTITIONS} partitions made in {seconds:.1f} s", err=True)
            # The disk has work with the new directories for a while.
            time.sleep(SETTLE_SECONDS)
            self._measure_beside(target, topic, str(MANY_PARTITIONS))

    def _measure_beside(self, target: Target, topic: str, partitions: str) -> None:
        for round_number in range(1, MANY_ROUNDS + 1):
            figures = self.measure(ONE_RECORD, target, self._seconds, topic)
            load = f"{ONE_RECORD.name}, {partitions} partitions"
            self.results.append(
                {"load": load, "broker": target.name, "round": round_number, **figures}
            )


def medians(results: list[dict[str, object]]) -> dict[tuple[str, str], dict[str, float]]:
    grouped: dict[tuple[str, str], list[dict[str, object]]] = {}
    for row in results:
        grouped.setdefault((str(row["load"]), str(row["broker"])), []).append(row)
    return {
        key: {figure: statistics.median(float(str(r[figure])) for r in rows) for figure in FIGURES}
        for key, rows in grouped.items()
    }


def medians_of_disk(figures: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(each[name] for each in figures) for name in figures[0]}


def beside_the_disk(load: Load, figures: dict[str, float], of_disk: dict[str, float]) -> str:
    """What waits for the disk, in its own measure: large batches in its rate, small ones in times
    of one fsync."""
    if load.kind == "fetch" or (load.kind == "produce" and load.arguments[0] != ACKS_ALL):
        return ""
    if load.kind == "produce" and load.arguments[1] > 1:
        return f"{figures['mb_per_s'] / of_disk['mb_per_s']:.2f} of its rate"
    median, slow = of_disk["fsync_p50_ms"], of_disk["fsync_p99_ms"]
    return f"p99: {figures['p99_ms'] / median:.1f} fsyncs, {figures['p99_ms'] / slow:.1f} slow ones"


def table_of(results: list[dict[str, object]], of_disk: dict[str, float]) -> Table:
    table = Table(title=f"medians, {platform.machine()}, {os.cpu_count()} cores")
    for column in ("load", "broker"):
        table.add_column(column, no_wrap=True)
    for column in ("req/s", "MB/s", "p50 ms", "p99 ms", "CPU s/GB", "CPU us/req"):
        table.add_column(column, justify="right")
    table.add_column("rate, CPU as ratio to Kafka", justify="right")
    table.add_column("to the disk", justify="right")
    loads = {load.name: load for load in LOADS}
    rows = medians(results)
    for (load, broker), figures in rows.items():
        peer = rows.get((load, "Apache Kafka"))
        ratio = ""
        if peer and broker != "Apache Kafka":
            rate = figures["requests_per_s"] / peer["requests_per_s"]
            cpu = figures["cpu_us_per_request"] / (peer["cpu_us_per_request"] or float("nan"))
            ratio = f"{rate:.2f}, {cpu:.2f}"
        formats = ("{:.0f}", "{:.1f}", "{:.3f}", "{:.2f}", "{:.2f}", "{:.1f}")
        cells = [form.format(figures[name]) for form, name in zip(formats, FIGURES, strict=True)]
        known = loads.get(load)
        beside = "" if known is None else beside_the_disk(known, figures, of_disk)
        table.add_row(load, broker, *cells, ratio, beside)
    return table


def show(bench: Bench, memory: dict[str, float]) -> Console:
    """Prints the medians of all, and what they are held against."""
    of_disk = medians_of_disk(bench.disk)
    console = Console(width=max(Console().width, 190))
    console.print(table_of(bench.results, of_disk))
    console.print(
        f"the disk itself: {of_disk['mb_per_s']:.0f} MB/s in order with an fdatasync each "
        f"{disk.CHUNKS_A_SYNC} MB; a small write with its fdatasync "
        f"{of_disk['fsync_p50_ms']:.2f} ms (p99 {of_disk['fsync_p99_ms']:.2f})"
    )
    for name, megabytes in memory.items():
        console.print(f"memory of {name} after all loads: {megabytes:.0f} MB")
    return console


def _targets(_: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> list[Target]:
    try:
        return [Target.parse(text) for text in texts]
    except ValueError as error:
        raise click.BadParameter("NAME=HOST:PORT:PID is expected", param=option) from error


def _loads(_: click.Context, option: click.Parameter, text: str) -> list[Load]:
    loads = [load for load in LOADS if text in load.name]
    if not loads:
        names = "; ".join(load.name for load in LOADS)
        raise click.BadParameter(f"no load's name holds {text!r}: {names}", param=option)
    return loads


@click.command()
@click.option(
    "--rounds", default=3, show_default=True, help="Measured rounds, after one to warm up."
)
@click.option("--seconds", default=5.0, show_default=True, help="Length of each load.")
@click.option(
    "--only", "loads", default="", callback=_loads, help="Only loads whose name holds this text."
)
@click.option("--no-kafka", is_flag=True, help="Leave Apache Kafka out.")
@click.option(
    "--against", multiple=True, callback=_targets, help="NAME=HOST:PORT:PID of one more broker."
)
@click.option("--busy-disk", is_flag=True, help="Another process writes and syncs meanwhile.")
@click.option(
    "--many", is_flag=True, help=f"Also the small load with {MANY_PARTITIONS} partitions."
)
@click.option("--kafka-set", multiple=True, help="A setting for Apache Kafka, name=value.")
@click.option(
    "--fsync-ms", default=0.0, help="So much longer takes each fsync, as on a slower disk."
)
@click.option("--output", default="bench-output", show_default=True, type=Path)
def main(
    rounds: int,
    seconds: float,
    loads: list[Load],
    no_kafka: bool,
    against: list[Target],
    busy_disk: bool,
    many: bool,
    kafka_set: tuple[str, ...],
    fsync_ms: float,
    output: Path,
) -> None:
    """Compares brokers under the same loads, interleaved in one run."""
    if fsync_ms:
        brokers.slow_down_disk(fsync_ms)
    classpath_file = os.environ.get("ASYNCBROKER_KAFKA_CLASSPATH")
    with contextlib.ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="asyncbroker-bench-"))
        )
        targets = [stack.enter_context(brokers.asyncbroker(directory / "asyncbroker"))]
        if classpath_file and not no_kafka:
            classpath = Path(classpath_file).read_text().strip()
            targets.append(
                stack.enter_context(brokers.apache_kafka(directory / "kafka", classpath, kafka_set))
            )
        targets += against
        if busy_disk:
            stack.enter_context(brokers.busy_disk(directory))
        bench = Bench(targets, seconds, directory)
        filled: dict[tuple[str, str], str] = {}
        for load in loads:
            for target in targets if load.kind == "fetch" else ():
                fill = FILLS[load.name]
                topic = stack.enter_context(bench.topic(target, fill.partitions))
                bench.measure(fill, target, FILL_SECONDS, topic)
                filled[load.name, target.name] = topic
            for target in targets if load.kind == "commit" else ():
                bench.open_coordinator(target)
        for round_number in range(rounds + 1):
            # Who comes second finds the page cache that the first one has left: take turns.
            in_turn = targets if round_number % 2 else targets[::-1]
            bench.measure_disk()
            for load in loads:
                for target in in_turn:
                    click.echo(f"round {round_number}: {load.name}: {target.name}", err=True)
                    bench.run(load, target, round_number, filled)
        memory = {target.name: target.memory_mb() for target in targets}
        if many:
            bench.many_partitions(targets[0])
    console = show(bench, memory)
    output.mkdir(parents=True, exist_ok=True)
    report = {
        "machine": {
            "cpu": platform.machine(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
        },
        "python": sys.version.split()[0],
        "busy_disk": busy_disk,
        "fsync_extra_ms": fsync_ms,
        "memory_mb": memory,
        "disk": bench.disk,
        "results": bench.results,
    }
    (output / "bench.json").write_text(json.dumps(report, indent=2) + "\n")
    console.print(f"every figure: {output / 'bench.json'}")


if __name__ == "__main__":
    main()
