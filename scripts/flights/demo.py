"""The main job; `scripts/demo` sets up what it needs and runs it. Read `FlightsDemo.run` first.

Each check compares two things that were counted in different ways; the exit status is 1 when any of
them differs.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import click
from confluent_kafka import Consumer, TopicPartition
from flights import load_flights, write_records
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sending import Sending

from asyncbroker.demo.generations import GenerationWatcher
from asyncbroker.demo.processes import BrokerProcess, DemoError, MemberProcess, stop_all
from asyncbroker.demo.rebalance import create_topic, wait_for_members, wait_until
from asyncbroker.demo.show import Show
from asyncbroker.demo.store import CountStore

TOPIC = "flights"
GROUP = "flights-per-carrier"
PARTITIONS = 6
SETTINGS = ("group.initial.rebalance.delay.ms=500", "log.segment.bytes=16777216")

# What happens when this part of the flights has been acknowledged.
JOIN_AT, KILL_MEMBER_AT, KILL_BROKER_AT = 0.15, 0.35, 0.7
READ_SECONDS_MAX = 60.0


class FlightsDemo:
    """One run: its broker, its members, what happened when."""

    def __init__(self, show: Show, folder: Path, output: Path, stack: ExitStack) -> None:
        self.show = show
        self.folder = folder
        self.output = output
        self.stack = stack
        self.events: list[tuple[float, str]] = []
        self.members: dict[str, MemberProcess] = {}
        self.broker = BrokerProcess(folder / "data", SETTINGS, folder / "broker.log")

    def run(self, flights_file: Path | None, every: int, seconds: float, with_spark: bool) -> None:
        """The whole job, in the order in which it is told."""
        table = load_flights(flights_file, every)
        rows = self.folder / "flights.tsv"
        write_records(table, rows)
        self.show.headline(f"{len(table):,} flights; a broker process on a data directory")
        self.broker.start()
        self.stack.callback(self.broker.stop)
        create_topic(self.broker.address, TOPIC, PARTITIONS)
        watcher = GenerationWatcher(self.broker.address, GROUP, self.show.generation)
        watcher.start()
        self.stack.callback(watcher.close)
        store = CountStore(self.folder / "counts.sqlite")
        self.stack.callback(store.close)

        self.show.headline("three members join the group")
        for name in ("member-1", "member-2", "member-3"):
            self.join(name)
        wait_for_members(watcher, 3)

        self.show.headline("aiokafka and confluent-kafka send a half each, keyed by aircraft")
        sending = Sending(
            self.broker.address, TOPIC, rows, len(table) / max(seconds, 0.1), self.folder
        )
        self.stack.callback(sending.close)
        self.stream(sending, watcher, len(table))

        self.show.headline("everything is sent; the group catches up")
        wait_until(lambda: store.record_count() >= len(table), "the group counted every flight")
        counts = dict(sorted(store.totals().items()))
        expected = {str(c): int(n) for c, n in table["carrier"].value_counts().sort_index().items()}
        self.show.check("the group's counts per carrier equal the table", counts == expected)
        self.show.note("  ".join(f"{carrier} {count:,}" for carrier, count in counts.items()))
        stored = self.read_rows()
        self.show.check(
            "every flight is stored exactly once",
            stored == Counter(range(len(table))),
            f"{sum(stored.values()):,} records",
        )
        ended = time.monotonic()
        watcher.close()
        stop_all(list(self.members.values()))
        if with_spark:
            self.spark(table)
        self.draw_ownership(watcher, ended)

    def stream(self, sending: Sending, watcher: GenerationWatcher, total: int) -> None:
        """Follows the producers; at some points of the way something happens."""
        steps = [
            (JOIN_AT, lambda: self.add_a_member(watcher)),
            (KILL_MEMBER_AT, lambda: self.kill_a_member(watcher)),
            (KILL_BROKER_AT, lambda: self.kill_the_broker(sending)),
        ]
        columns = (TextColumn("acknowledged"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeElapsedColumn(), console=self.show.console) as progress:
            bar = progress.add_task("acknowledged", total=total)
            while (count := sending.acknowledged_count()) < total:
                sending.check_alive()
                progress.update(bar, completed=count)
                if steps and count >= steps[0][0] * total:
                    _, step = steps.pop(0)
                    step()
                time.sleep(0.1)
            progress.update(bar, completed=total)
        for _, step in steps:
            step()

    def join(self, name: str) -> None:
        self.members[name] = MemberProcess(
            name,
            self.broker.address,
            GROUP,
            TOPIC,
            "carrier",
            self.folder / "counts.sqlite",
            self.folder / f"{name}.log",
        )
        self.stack.callback(self.members[name].stop)

    def add_a_member(self, watcher: GenerationWatcher) -> None:
        self.note("a fourth joins")
        self.show.headline("a fourth member joins")
        self.join("member-4")
        wait_for_members(watcher, 4)

    def kill_a_member(self, watcher: GenerationWatcher) -> None:
        self.note("kill -9 member-2")
        self.show.headline("kill -9 of member-2: the others take over when its session ends (6 s)")
        self.members.pop("member-2").kill()
        wait_for_members(watcher, 3)

    def kill_the_broker(self, sending: Sending) -> None:
        """Everything that was acknowledged before the kill must be there after the restart."""
        self.note("kill -9 broker")
        self.show.headline("kill -9 of the broker, in the middle, and a restart")
        self.broker.kill()
        acknowledged = sending.acknowledged()
        start = time.monotonic()
        self.broker.start()
        self.show.note(f"it answers again after {time.monotonic() - start:.2f} s")
        stored = self.read_rows()
        lost = sum(1 for row in acknowledged if row not in stored)
        self.show.check(
            "nothing acknowledged is lost by kill -9",
            lost == 0,
            f"{len(acknowledged):,} acknowledged, {lost} lost",
        )

    def read_rows(self) -> Counter[int]:
        """Reads the whole topic, as it is now: how often each row number is in it."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.address,
                "group.id": "check",
                "enable.auto.commit": False,
            }
        )
        ends = {p: self.end_offset(consumer, p) for p in range(PARTITIONS)}
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in ends])
        rows: Counter[int] = Counter()
        missing = {partition for partition, end in ends.items() if end}
        deadline = time.monotonic() + READ_SECONDS_MAX
        while missing:
            if time.monotonic() > deadline:
                raise DemoError(f"could not read the topic in {READ_SECONDS_MAX:.0f} s")
            for message in consumer.consume(10_000, timeout=0.2):
                if message.error():
                    raise DemoError(str(message.error()))
                rows[json.loads(message.value())["row"]] += 1
                if message.offset() + 1 >= ends[message.partition()]:
                    missing.discard(message.partition())
        consumer.close()
        return rows

    def end_offset(self, consumer: Consumer, partition: int) -> int:
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=20)
        return int(end)

    def spark(self, table: object) -> None:
        """The job over offset ranges, and its check against pandas."""
        import job
        import pandas
        import pictures

        assert isinstance(table, pandas.DataFrame)
        self.show.headline("Spark reads the topic in offset ranges: delay by carrier and hour")
        spark = job.start_spark()
        self.stack.callback(spark.stop)
        start = time.monotonic()
        delays, ranges = job.delays_by_spark(spark, self.broker.address, TOPIC, "latest")
        self.show.note(f"{ranges} ranges, {time.monotonic() - start:.1f} s")
        expected = job.delays_by_pandas(table)
        self.show.check(
            "Spark's delays equal those of pandas on the original table",
            job.is_same(delays, expected, ["carrier", "hour"], ["flights"]),
            f"{len(delays)} groups",
        )
        picture = self.output / "delay-by-carrier-and-hour.png"
        pictures.draw_delays(delays, picture)
        self.show.note(f"picture: {picture}")

    def draw_ownership(self, watcher: GenerationWatcher, ended: float) -> None:
        import pictures

        picture = self.output / "partition-owners.png"
        generations = [g for g in watcher.generations if g.at <= ended]
        pictures.draw_ownership(generations, self.events, ended, PARTITIONS, picture)
        self.show.note(f"picture: {picture}")

    def note(self, what: str) -> None:
        self.events.append((time.monotonic(), what))


@click.command()
@click.option("--quick", is_flag=True, help="A tenth of the flights, in less time.")
@click.option("--flights", type=click.Path(path_type=Path, exists=True), help="Another CSV file.")
@click.option("--seconds", type=float, help="How long the sending takes; 60, or 20 with --quick.")
@click.option("--no-spark", is_flag=True, help="Leave the Spark job out.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("demo-output"))
def main(
    quick: bool, flights: Path | None, seconds: float | None, no_spark: bool, output: Path
) -> None:
    """Flights through two clients, a group, a kill -9 and Spark."""
    show = Show()
    output.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="asyncbroker-demo-")))
        demo = FlightsDemo(show, folder, output, stack)
        try:
            demo.run(flights, 10 if quick else 1, seconds or (20 if quick else 60), not no_spark)
        except DemoError as error:
            for log in sorted(folder.glob("*.log")):
                click.echo(f"--- {log.name}\n{log.read_text()[-2000:]}", err=True)
            raise click.ClickException(str(error)) from error
    if show.failures:
        show.headline(f"[red]{len(show.failures)} checks failed[/]")
        sys.exit(1)
    show.headline("[green]all checks hold[/]")


if __name__ == "__main__":
    main()
