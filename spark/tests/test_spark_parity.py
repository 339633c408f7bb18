"""The options of Spark's own Kafka connector, on it and on ours: the same rows, the same refusals.

Both read the same broker. Of a refusal both have to say the same words, those that people search
for. Ours is planned and read in this process, since the way through Spark is tested elsewhere.
Needs the connector's jars: `ASYNCBROKER_CONNECTOR_CLASSPATH`, which `scripts/test` sets. Where the
two differ on purpose is at the end, and in the documentation.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timezone
from typing import Any

import pytest
from pyspark.sql import SparkSession

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.errors import ClientError
from asyncbroker.client.partitions import produce
from asyncbroker.client.topics import create_topic
from asyncbroker.protocol.records import Compression, Record, build_batch
from asyncbroker.spark.planner import DataLost
from asyncbroker.spark.source import AsyncbrokerDataSource

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        "ASYNCBROKER_CONNECTOR_CLASSPATH" not in os.environ, reason="needs Spark's Kafka connector"
    ),
]

NOW = 1_700_000_000_000
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Topics:
    """`many` has 3 partitions of 15, 5 and 0 records; `late` has the broker's time; of `short` the
    first 20 records are deleted."""

    many: str
    late: str
    short: str
    servers: str

    def text(self, value: str) -> str:
        """With the topics' names in their places."""
        for name in ("many", "late", "short"):
            value = value.replace(f"<{name}>", getattr(self, name))
        return value

    def options(self, given: dict[str, str]) -> dict[str, str]:
        strategies = {"subscribe", "subscribepattern", "assign"}
        base = {"kafka.bootstrap.servers": self.servers}
        if strategies.isdisjoint(name.lower() for name in given):
            base["subscribe"] = self.many
        texts = {name: self.text(value) for name, value in given.items()}
        return {n: v for n, v in (base | texts).items() if v != "<absent>"}


def some_records(count: int) -> list[Record]:
    return [
        Record(
            0,
            NOW + 1000 * i if i else -1,
            (None, b"", b"key-%d" % i)[i % 3],
            (b"value-%d" % i, b"", None)[i % 3],
            ([], [("a", b"1"), ("a", None), ("é", b"")])[i % 2],
        )
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def topics(spark_bootstrap_servers: str) -> Iterator[Topics]:
    from confluent_kafka import TopicPartition as Position
    from confluent_kafka.admin import AdminClient

    tag = uuid.uuid4().hex[:8]
    made = Topics(f"many-{tag}", f"late-{tag}", f"short-{tag}", spark_bootstrap_servers)
    forever = {"retention.ms": "-1"}
    with Cluster(spark_bootstrap_servers) as cluster:
        create_topic(cluster, made.many, partitions=3, configs=forever)
        create_topic(
            cluster, made.late, partitions=1, configs={"message.timestamp.type": "LogAppendTime"}
        )
        create_topic(cluster, made.short, partitions=1, configs=forever)
        first = TopicPartition(made.many, 0)
        for codec in Compression:
            produce(cluster, {first: build_batch(some_records(3), compression=codec)})
        produce(cluster, {TopicPartition(made.many, 1): build_batch(some_records(5))})
        produce(cluster, {TopicPartition(made.late, 0): build_batch(some_records(4))})
        produce(cluster, {TopicPartition(made.short, 0): build_batch(some_records(30))})
        admin = AdminClient({"bootstrap.servers": spark_bootstrap_servers})
        for deleted in admin.delete_records([Position(made.short, 0, 20)]).values():
            deleted.result(30)
        yield made


# ---- the two readers


def our_rows(options: dict[str, str]) -> list[Row] | str:
    """The rows, or why there are none."""
    try:
        source = AsyncbrokerDataSource(options)
        schema = source.schema()
        reader = source.reader(schema)
        found: list[Row] = []
        for partition in reader.partitions():
            batches: Any = reader.read(partition)
            for records in batches:
                found += [normal(row) for row in records.to_pylist()]
    except (ValueError, DataLost, ClientError) as error:
        return str(error)
    return sorted(found, key=repr)


def normal(row: dict[str, Any]) -> Row:
    """Comparable: times in ms, headers as pairs."""
    row = dict(row)
    if row.get("headers") is not None:
        row["headers"] = [(header["key"], header["value"]) for header in row["headers"]]
    moment = row["timestamp"]
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    row["timestamp"] = round(moment.timestamp() * 1000)
    return tuple(row.values())


Theirs = Callable[[dict[str, str]], "list[Row] | str"]


@pytest.fixture(scope="module")
def their_rows(spark: SparkSession) -> Theirs:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    def read(options: dict[str, str]) -> list[Row] | str:
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
            found.append(normal(fields))
        return sorted(found, key=repr)

    return read


# ---- the same rows

AT = str(NOW + 2000)
BY_TIME = json.dumps({"<many>": {"0": NOW + 1000, "1": NOW + 2000, "2": 0}})

SAME_ROWS: dict[str, dict[str, str]] = {
    "defaults": {},
    "assign": {"assign": '{"<many>": [1, 0]}'},
    "assign a partition that there is not": {"assign": '{"<many>": [1, 77]}'},
    "subscribe to several, with blanks": {"subscribe": " <many> ,, <late>"},
    "subscribePattern finds in the middle": {"subscribePattern": "any-.*"},
    "subscribePattern without a match": {"subscribePattern": "nothing-like-it"},
    "keys in any case": {"SUBSCRIBE": "<late>", "startingoffsets": "EARLIEST"},
    "startingOffsets and endingOffsets": {
        "startingOffsets": '{"<many>": {"0": 4, "1": -2, "2": 0}}',
        "endingOffsets": '{"<many>": {"0": 9, "1": -1, "2": 0}}',
    },
    "words with blanks": {"startingOffsets": " Earliest ", "endingOffsets": "LATEST"},
    "an empty range": {
        "startingOffsets": '{"<many>": {"0": 4, "1": 5, "2": 0}}',
        "endingOffsets": '{"<many>": {"0": 4, "1": 5, "2": 0}}',
    },
    "startingTimestamp": {"startingTimestamp": AT, "assign": '{"<many>": [0, 1]}'},
    "startingTimestamp comes first": {
        "startingTimestamp": AT,
        "startingOffsetsByTimestamp": "{}",
        "startingOffsets": "latest",
        "assign": '{"<many>": [1]}',
    },
    "startingOffsetsByTimestamp before startingOffsets": {
        "startingOffsetsByTimestamp": BY_TIME,
        "startingOffsets": "latest",
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "no match with the strategy latest": {
        "startingTimestamp": str(NOW + 10**9),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "endingTimestamp": {"endingTimestamp": AT},
    "endingTimestamp beyond the end": {"endingTimestamp": str(NOW + 10**9)},
    "endingOffsetsByTimestamp": {"endingOffsetsByTimestamp": BY_TIME, "endingOffsets": "earliest"},
    "includeHeaders": {"includeHeaders": "true"},
    "the broker's time": {"subscribe": "<late>"},
    "a log that begins late": {"subscribe": "<short>"},
    "loss that is no error": {
        "subscribe": "<short>",
        "startingOffsets": '{"<short>": {"0": 5}}',
        "failOnDataLoss": "false",
    },
    "loss of everything that is no error": {
        "subscribe": "<short>",
        "startingOffsets": '{"<short>": {"0": 5}}',
        "endingOffsets": '{"<short>": {"0": 15}}',
        "failOnDataLoss": "false",
    },
    "groups and settings": {
        "kafka.group.id": "some",
        "groupIdPrefix": "other",
        "kafka.max.poll.records": "7",
        "kafka.isolation.level": "read_committed",
        "kafkaConsumer.pollTimeoutMs": "30000",
        "fetchOffset.numRetries": "5",
        "fetchOffset.retryIntervalMs": "100",
    },
    "options of streams": {"maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "1"},
    "options that nobody knows": {"sbuscribe": "x", "kafka.nothing": "1"},
}


@pytest.mark.parametrize("name", SAME_ROWS)
def test_the_same_rows(name: str, topics: Topics, their_rows: Theirs) -> None:
    options = topics.options(SAME_ROWS[name])
    theirs = their_rows(options)
    assert isinstance(theirs, list), theirs
    assert our_rows(options) == theirs


# ---- the same refusals

REFUSALS: dict[str, tuple[dict[str, str], list[str]]] = {
    "no strategy": ({"subscribe": "<absent>"}, ["One of the following options must be specified"]),
    "two strategies": (
        {"subscribe": "<many>", "subscribePattern": "x"},
        ["Only one of the following options can be specified"],
    ),
    "no servers": ({"kafka.bootstrap.servers": "<absent>"}, ["kafka.bootstrap.servers"]),
    "an empty subscribe": ({"subscribe": " , "}, ["No topics to subscribe to"]),
    "an empty pattern": ({"subscribePattern": ""}, ["Pattern to subscribe is empty"]),
    "an assign that is no JSON": ({"assign": "t-0"}, ["No topicpartitions to assign"]),
    "a start at latest": (
        {"startingOffsets": "latest"},
        ["starting offset can't be latest for batch queries on Kafka"],
    ),
    "an end at earliest": (
        {"endingOffsets": "earliest"},
        ["ending offset can't be earliest for batch queries on Kafka"],
    ),
    "-1 in a start": (
        {"startingOffsets": '{"<many>": {"0": -1, "1": -2, "2": -2}}'},
        ["<many>-0 can't be latest for batch queries on Kafka"],
    ),
    "-2 in an end": (
        {"endingOffsets": '{"<many>": {"0": -2, "1": -1, "2": -1}}'},
        ["<many>-0 can't be earliest for batch queries on Kafka"],
    ),
    "a partition too few": (
        {"startingOffsets": '{"<many>": {"0": 1}}'},
        ["don't match", "<many>-0", "<many>-2"],
    ),
    "a partition too many": (
        {"endingOffsets": '{"<many>": {"0": 1, "1": 1, "2": 0, "3": 1}}'},
        ["don't match", "<many>-3"],
    ),
    "offsets that are no JSON": ({"startingOffsets": "{x"}, ['{"topicA":{"0":23,"1":-1}', "{x"]),
    "an end before the start": (
        {
            "startingOffsets": '{"<many>": {"0": 4, "1": 0, "2": 0}}',
            "endingOffsets": '{"<many>": {"0": 3, "1": 0, "2": 0}}',
        },
        ["start offset 4 is greater than the end offset 3 for topic <many> partition 0"],
    ),
    "a start beyond the log": (
        {"startingOffsets": '{"<many>": {"0": 400, "1": 0, "2": 0}}'},
        ["start offset 400 is greater than the resolved end offset 15 for topic <many>"],
    ),
    "a timestamp that is no number": (
        {"startingTimestamp": "abc"},
        ["Expected a single long value"],
    ),
    "no match of a timestamp": (
        {"startingTimestamp": str(NOW + 10**9), "assign": '{"<many>": [0]}'},
        ["No offset matched from request of topic-partition <many>-0", str(NOW + 10**9)],
    ),
    "timestamps for other partitions": (
        {"startingOffsetsByTimestamp": '{"<many>": {"0": 1}}'},
        ["don't match", "<many>-0"],
    ),
    "a flag that is none": ({"includeHeaders": "maybe"}, ["maybe"]),
    "minPartitions of 0": ({"minPartitions": "0"}, ["minPartitions must be positive"]),
    "data that was lost": (
        {"subscribe": "<short>", "startingOffsets": '{"<short>": {"0": 5}}'},
        ["Some data may have been lost", "failOnDataLoss"],
    ),
    "an unknown topic": ({"subscribe": "no-such"}, ["nknown"]),
    **{
        f"kafka.{name}": ({f"kafka.{name}": "x"}, [name, "not supported"])
        for name in ("key.deserializer", "value.deserializer", "enable.auto.commit")
    },
    "kafka.interceptor.classes": ({"kafka.interceptor.classes": "x"}, ["interceptor.classes"]),
    "kafka.auto.offset.reset": (
        {"kafka.auto.offset.reset": "latest"},
        ["auto.offset.reset", "Instead set the source option"],
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_the_same_refusals(name: str, topics: Topics, their_rows: Theirs) -> None:
    given, words = REFUSALS[name]
    options = topics.options(given)
    for refusal in (their_rows(options), our_rows(options)):
        assert isinstance(refusal, str), f"not refused: {refusal}"
        for word in words:
            assert topics.text(word).lower() in refusal.lower()


# ---- the same tasks

SPLITS: list[dict[str, str]] = [
    {"minPartitions": "4"},
    {"minPartitions": "7"},
    {"minPartitions": "8", "maxRecordsPerPartition": "4"},
    {
        "maxRecordsPerPartition": "4",
        "startingOffsets": '{"<many>": {"0": 0, "1": 0, "2": 0}}',
        "endingOffsets": '{"<many>": {"0": 15, "1": 5, "2": 0}}',
    },
]


@pytest.mark.parametrize("given", SPLITS, ids=str)
def test_as_many_tasks(given: dict[str, str], topics: Topics, spark: SparkSession) -> None:
    options = topics.options(given)
    theirs = spark.read.format("kafka").options(**options).load().rdd.getNumPartitions()
    source = AsyncbrokerDataSource(options)
    assert len(source.reader(source.schema()).partitions()) == theirs


# ---- where ours differs on purpose


def test_ours_has_no_task_for_an_empty_partition(topics: Topics) -> None:
    """The connector has one, as long as it splits nothing."""
    source = AsyncbrokerDataSource(topics.options({"minPartitions": "1"}))
    assert len(source.reader(source.schema()).partitions()) == 2


def test_ours_takes_a_schema_as_a_projection(topics: Topics, spark: SparkSession) -> None:
    from pyspark.errors import AnalysisException

    options = topics.options({})
    with pytest.raises(AnalysisException):
        spark.read.format("kafka").options(**options).schema("value binary").load()
    frame = spark.read.format("asyncbroker").options(**options).schema("value binary").load()
    assert frame.count() == 20


def test_an_end_beyond_the_log_is_an_error_at_once(topics: Topics) -> None:
    """The connector waits for two minutes, and then says the same."""
    beyond = topics.options({"endingOffsets": '{"<many>": {"0": 100, "1": 5, "2": 0}}'})
    assert "Some data may have been lost" in str(our_rows(beyond))


def test_an_unknown_start_offset_is_refused_by_the_driver(topics: Topics) -> None:
    """The connector's tasks fail with an assertion."""
    given = topics.options({"startingOffsets": '{"<many>": {"0": -3, "1": 0, "2": 0}}'})
    assert "-3 for" in str(our_rows(given))
