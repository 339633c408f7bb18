"""What `scripts/bench spark` measures: the topics, the readers, and a case for each kind of query.

A case is prepared, which does not count, and gives what is run and timed. Every reader runs it on
the same topics in the same session; so does, where something is read, `spark_ceiling.py`. Of ours
nothing is tuned; the connector is also measured "tuned": fetches of 8 MB, polls of 50,000 records,
a large receive buffer, and large batches when it writes. Nothing is known here of rounds, medians
and tables.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.errors import BrokerError
from asyncbroker.client.sender import Sender
from asyncbroker.client.topics import create_topic, delete_topic
from asyncbroker.protocol.records import Record, build_batch

# As many of the small records as are in a batch of Java's producer (16 KB).
RECORDS_PER_BATCH: Final = 145
KILOBYTE_RECORDS_PER_BATCH: Final = 15

FLIGHTS: Final = "flights"
KILOBYTES: Final = "kilobytes"
ONE_PARTITION: Final = "one"
SMALL: Final = "small"
WRITTEN: Final = "written"
PARTITION_COUNT: Final = 4

JSON_SCHEMA: Final = "carrier string, delay int, origin string, flight bigint, distance double"


@dataclass(frozen=True)
class Reader:
    """A format of Spark's with its options."""

    name: str
    form: str
    reading: dict[str, str] = field(default_factory=dict)
    writing: dict[str, str] = field(default_factory=dict)

    @property
    def has_projection(self) -> bool:
        """Whether the user's schema says which columns are wanted, and of what types."""
        return self.form in ("asyncbroker", "ceiling")


OURS: Final = Reader("ours", "asyncbroker")
CONNECTOR: Final = Reader("connector", "kafka")
TUNED: Final = Reader(
    "tuned",
    "kafka",
    reading={
        "kafka.max.partition.fetch.bytes": str(8 << 20),
        "kafka.fetch.max.bytes": str(64 << 20),
        "kafka.max.poll.records": "50000",
        "kafka.receive.buffer.bytes": str(4 << 20),
    },
    writing={
        "kafka.batch.size": str(512 << 10),
        "kafka.linger.ms": "50",
        "kafka.buffer.memory": str(64 << 20),
    },
)
READERS: Final = (OURS, CONNECTOR, TUNED)
CEILING: Final = Reader("ceiling", "ceiling")


@dataclass(frozen=True)
class Place:
    """Where cases run: a session, a broker, a folder, and how many records each topic has."""

    spark: Any
    servers: str
    folder: Path
    counts: dict[str, int]

    def frame(self, reader: Reader, topic: str, **options: str) -> Any:
        """A reader of a topic, to be loaded."""
        chosen = {"subscribe": topic, **reader.reading, **options}
        if "assign" in options:
            del chosen["subscribe"]
        if reader == CEILING:
            chosen |= self.in_memory(topic, 2 if "assign" in options else 1)
        frame = self.spark.read.format(reader.form)
        return frame.options(**{"kafka.bootstrap.servers": self.servers, **chosen})

    def in_memory(self, topic: str, divisor: int = 1) -> dict[str, str]:
        """What the ceiling is to send: a topic's rows, or those of some of its partitions."""
        return {
            "rows": str(self.counts[topic] // divisor),
            "tasks": str(PARTITION_COUNT // divisor),
            "valueBytes": str(len(VALUES[topic](0))),
        }


Prepared = tuple[int, Callable[[], object]]
"""How many rows it is about, and what is to be timed."""


@dataclass(frozen=True)
class Case:
    """A kind of query, and how many times the connector's rate is wanted: with its defaults, and
    tuned, if anything."""

    name: str
    prepare: Callable[[Place, Reader], Prepared]
    wanted: float
    wanted_of_tuned: float | None = None
    reads: bool = True


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


VALUES: Final = {FLIGHTS: small_value, KILOBYTES: kilobyte_value}


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
    round_count = count // (per_batch * partitions)
    with Sender(cluster, acks=1) as sender:
        for number in range(round_count):
            for index in range(partitions):
                batch = bytearray(some[number % len(some)])
                sender.send(TopicPartition(topic, index), batch)
        sender.flush()
    return round_count * per_batch * partitions


def make_topics(servers: str, count: int) -> dict[str, int]:
    """All that is read: `count` small records, and what goes with that; how many there are."""
    small = (small_value, RECORDS_PER_BATCH)
    with Cluster(servers) as cluster:
        return {
            FLIGHTS: fill(cluster, FLIGHTS, PARTITION_COUNT, count, *small),
            KILOBYTES: fill(
                cluster,
                KILOBYTES,
                PARTITION_COUNT,
                count // 4,
                kilobyte_value,
                KILOBYTE_RECORDS_PER_BATCH,
            ),
            ONE_PARTITION: fill(cluster, ONE_PARTITION, 1, count // 2, *small),
            SMALL: fill(cluster, SMALL, 1, 1000, *small),
        }


# ---- cases


def to_nowhere(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def all_columns(topic: str) -> Callable[[Place, Reader], Prepared]:
    def prepare(place: Place, reader: Reader) -> Prepared:
        return place.counts[topic], lambda: to_nowhere(place.frame(reader, topic).load())

    return prepare


def value_only(place: Place, reader: Reader) -> Prepared:
    def run() -> None:
        frame = place.frame(reader, FLIGHTS)
        if reader.has_projection:
            to_nowhere(frame.schema("value binary").load())
        else:
            to_nowhere(frame.load().select("value"))

    return place.counts[FLIGHTS], run


def count(place: Place, reader: Reader) -> Prepared:
    def run() -> None:
        frame = place.frame(reader, FLIGHTS)
        found = (frame.schema("offset bigint") if reader.has_projection else frame).load().count()
        if found != place.counts[FLIGHTS]:
            raise RuntimeError(f"{found} records, not {place.counts[FLIGHTS]}")

    return place.counts[FLIGHTS], run


def json_columns(place: Place, reader: Reader) -> Prepared:
    """JSON to typed columns, and a little done with them; half of the partitions will do."""
    half = json.dumps({FLIGHTS: list(range(PARTITION_COUNT // 2))})

    def run() -> None:
        from pyspark.sql import functions as f

        frame = place.frame(reader, FLIGHTS, assign=half)
        if reader.has_projection:
            rows = frame.option("valueFormat", "json").schema(JSON_SCHEMA).load()
        else:
            parsed = f.from_json(f.col("value").cast("string"), JSON_SCHEMA)
            rows = frame.load().select(parsed.alias("row")).select("row.*")
        rows.groupBy("carrier", "origin").agg(
            f.avg("delay"), f.max("flight"), f.sum("distance")
        ).collect()

    return place.counts[FLIGHTS] // 2, run


def write(place: Place, reader: Reader) -> Prepared:
    """Keys of 8 and values of 100 bytes to a topic, new each time."""
    row_count = place.counts[FLIGHTS] // 4
    with Cluster(place.servers) as cluster:
        with contextlib.suppress(BrokerError):
            delete_topic(cluster, WRITTEN)
        create_topic(cluster, WRITTEN, partitions=PARTITION_COUNT)
    rows = place.spark.range(0, row_count, 1, PARTITION_COUNT).selectExpr(
        "lpad(cast(id as string), 8, '0') AS key",
        "repeat(lpad(cast(id as string), 10), 10) AS value",
    )
    options = {"kafka.bootstrap.servers": place.servers, "topic": WRITTEN, **reader.writing}
    writer = rows.write.format(reader.form).options(**options).mode("append")
    return row_count, lambda: writer.save()


def stream(place: Place, reader: Reader) -> Prepared:
    """All that is there, by a query that then ends."""
    checkpoint = tempfile.mkdtemp(dir=place.folder)

    def run() -> None:
        options = {
            "kafka.bootstrap.servers": place.servers,
            "subscribe": FLIGHTS,
            "startingOffsets": "earliest",
            **reader.reading,
        }
        if reader == CEILING:
            options |= place.in_memory(FLIGHTS)
        frame = place.spark.readStream.format(reader.form).options(**options).load()
        sink = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = sink.trigger(availableNow=True).start()
        query.awaitTermination()
        read = sum(progress["numInputRows"] for progress in query.recentProgress)
        if read != place.counts[FLIGHTS]:
            raise RuntimeError(f"{read} rows, not {place.counts[FLIGHTS]}")

    return place.counts[FLIGHTS], run


CASES: Final = (
    Case("100 B, 7 columns", all_columns(FLIGHTS), 3, 2),
    Case("100 B, value only", value_only, 5, 4),
    Case("100 B, count", count, 6, 4),
    Case("100 B, JSON to 5 columns", json_columns, 2, 1.7),
    Case("1 KB, 7 columns", all_columns(KILOBYTES), 2.4, 1.5),
    Case("write 100 B", write, 2, reads=False),
    Case("stream, AvailableNow", stream, 2),
)
