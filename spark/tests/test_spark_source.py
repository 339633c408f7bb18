"""The source in a real Spark, reading from a real broker process.

Each `load` and each first action starts a Python process that plans, so what can be tested without
Spark is tested without it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.partitions import produce
from asyncbroker.client.topics import create_topic
from asyncbroker.protocol.records import Compression, Record, build_batch

# Of which most goes by before the first test, on a machine that does much else.
pytestmark = pytest.mark.timeout(300)

NOW = 1_700_000_000_000
EPOCH = datetime(1970, 1, 1)
PARTITIONS = 3
RECORDS_PER_BATCH = 40


def some_records(partition: int, first: int) -> list[Record]:
    """Records with every kind of key, value and headers."""
    return [
        Record(
            offset=first + i,
            timestamp=NOW + 1000 * partition + i,
            key=(None, b"", b"key-%d" % i)[i % 3],
            value=(b"value-%d" % i, b"", None, b"v" * 500)[i % 4],
            headers=([], [("a", b"1"), ("a", None), ("é", b"")])[i % 2],
        )
        for i in range(RECORDS_PER_BATCH)
    ]


class Topics:
    """Makes topics, and knows what is in them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.records: dict[TopicPartition, list[Record]] = {}

    def create(self, partitions: int = PARTITIONS, **configs: str) -> str:
        name = f"topic-{uuid.uuid4().hex[:12]}"
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        create_topic(self.cluster, name, partitions=partitions, configs=dotted)
        return name

    def fill(self, topic: str, partitions: int, codecs: list[Compression]) -> None:
        for codec in codecs:
            batches = {}
            for index in range(partitions):
                partition = TopicPartition(topic, index)
                known = self.records.setdefault(partition, [])
                added = some_records(index, len(known))
                known += added
                batches[partition] = build_batch(added, compression=codec)
            produce(self.cluster, batches)


@pytest.fixture(scope="module")
def topics(spark_bootstrap_servers: str) -> Iterator[Topics]:
    with Cluster(spark_bootstrap_servers) as cluster:
        yield Topics(cluster)


@pytest.fixture(scope="module")
def filled(topics: Topics) -> str:
    """A topic with records in every codec, which no test changes."""
    topic = topics.create()
    topics.fill(topic, PARTITIONS, list(Compression))
    return topic


RECORDS_PER_PARTITION = RECORDS_PER_BATCH * len(Compression)

Read = Callable[..., DataFrameReader]


@pytest.fixture
def read(spark: SparkSession, spark_bootstrap_servers: str) -> Read:
    def reader(topic: str | None = None, **options: str) -> DataFrameReader:
        """A reader with these options; double underscores stand for dots."""
        frame = spark.read.format("asyncbroker")
        frame = frame.option("kafka.bootstrap.servers", spark_bootstrap_servers)
        if topic is not None:
            frame = frame.option("subscribe", topic)
        for name, value in options.items():
            frame = frame.option(name.replace("__", "."), value)
        return frame

    return reader


def offsets(frame: DataFrame) -> dict[int, list[int]]:
    """The offsets that a query gives, by partition."""
    found: dict[int, list[int]] = {}
    for row in frame.select("partition", "offset").collect():
        found.setdefault(row.partition, []).append(row.offset)
    return found


def test_every_column_of_every_record_comes_through(
    read: Read, topics: Topics, filled: str
) -> None:
    frame = read(filled, includeHeaders="true").load()
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    rows = [tuple(row) for row in frame.orderBy("partition", "offset").collect()]
    assert rows == [
        (
            record.key,
            record.value,
            filled,
            index,
            record.offset,
            EPOCH + timedelta(milliseconds=record.timestamp),
            0,
            record.headers or None,
        )
        for index in range(PARTITIONS)
        for record in topics.records[TopicPartition(filled, index)]
    ]


def test_a_schema_reads_only_its_columns(read: Read, topics: Topics, filled: str) -> None:
    frame = read(filled).schema("OFFSET bigint, Value binary").load()
    assert frame.columns == ["OFFSET", "Value"]
    expected = [
        (record.offset, record.value)
        for index in range(PARTITIONS)
        for record in topics.records[TopicPartition(filled, index)]
    ]
    key: Callable[[Any], Any] = lambda row: (row[0], row[1] or b"")  # noqa: E731
    assert sorted((tuple(row) for row in frame.collect()), key=key) == sorted(expected, key=key)


def test_the_option_columns_reads_only_those(read: Read, filled: str) -> None:
    frame = read(filled, columns="OFFSET, partition").load()
    assert frame.schema.simpleString() == "struct<OFFSET:bigint,partition:int>"
    assert frame.count() == PARTITIONS * RECORDS_PER_PARTITION


@pytest.mark.parametrize("is_enabled", ["true", "false"])
def test_filters_find_the_same_rows_whether_they_are_pushed_down_or_not(
    spark: SparkSession, read: Read, filled: str, is_enabled: str
) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", is_enabled)
    since = "timestamp_millis(1700000001010)"
    try:
        frame = read(filled).load()
        found = frame.where("partition = 1 AND offset >= 30 AND offset < 60")
        tasks = found.rdd.getNumPartitions()
        assert offsets(found) == {1: list(range(30, 60))}
        assert tasks == (1 if is_enabled == "true" else PARTITIONS)
        late = offsets(frame.where(f"timestamp >= {since} AND partition < 2"))
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    late_ones = range(10, RECORDS_PER_BATCH)
    assert late == {
        1: [
            RECORDS_PER_BATCH * batch + number
            for batch in range(len(Compression))
            for number in late_ones
        ]
    }


def test_json_is_decoded_into_the_users_schema(read: Read, topics: Topics) -> None:
    topic = topics.create(partitions=1)
    values = [b'{"name":"a","at":"2024-01-01T00:00:00Z"}', b"{", None]
    records = [Record(0, NOW, None, value) for value in values]
    produce(topics.cluster, {TopicPartition(topic, 0): build_batch(records)})
    schema = "offset bigint, name string, at timestamp, _corrupt_record string"
    frame = read(topic, valueFormat="json", onDecodeError="null").schema(schema).load()
    assert [tuple(row) for row in frame.orderBy("offset").collect()] == [
        (0, "a", datetime(2024, 1, 1), None),
        (1, None, None, "{"),
        (2, None, None, None),
    ]
    with pytest.raises(PythonException, match="offset 1: the value is not what valueFormat=json"):
        read(topic, valueFormat="json").schema(schema).load().collect()


def test_sql_can_read_it(spark: SparkSession, spark_bootstrap_servers: str, filled: str) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW flights USING asyncbroker OPTIONS ("
        f"`kafka.bootstrap.servers` '{spark_bootstrap_servers}', subscribe '{filled}')"
    )
    rows = spark.sql(
        "SELECT partition, count(*), count(key), min(offset), max(offset), min(timestamp) "
        "FROM flights GROUP BY partition ORDER BY partition"
    ).collect()
    per_batch = sum(record.key is not None for record in some_records(0, 0))
    assert [tuple(row) for row in rows] == [
        (
            index,
            RECORDS_PER_PARTITION,
            per_batch * len(Compression),
            0,
            RECORDS_PER_PARTITION - 1,
            EPOCH + timedelta(milliseconds=NOW + 1000 * index),
        )
        for index in range(PARTITIONS)
    ]


def test_ranges_are_exact_and_split_among_tasks(read: Read, filled: str) -> None:
    frame = read(
        filled,
        startingOffsets=f'{{"{filled}": {{"0": 17, "1": -2, "2": 100}}}}',
        endingOffsets=f'{{"{filled}": {{"0": 150, "1": -1, "2": 100}}}}',
        minPartitions="7",
        maxRecordsPerPartition="50",
    ).load()
    assert frame.rdd.getNumPartitions() == 7
    assert {index: sorted(found) for index, found in offsets(frame).items()} == {
        0: list(range(17, 150)),
        1: list(range(RECORDS_PER_PARTITION)),
    }


def test_timestamps_choose_where_to_start_and_end(read: Read, filled: str) -> None:
    frame = read(
        filled, startingTimestamp=str(NOW + 2010), startingOffsetsByTimestampStrategy="latest"
    )
    # Each batch has the same timestamps, and those of partition 2 alone are so late.
    assert offsets(frame.load()) == {2: list(range(10, RECORDS_PER_PARTITION))}


def test_partitions_and_patterns_choose_what_to_read(read: Read, filled: str) -> None:
    frame = read(assign=f'{{"{filled}": [2]}}', endingTimestamp=str(NOW + 2005)).load()
    assert offsets(frame) == {2: list(range(5))}
    assert read(subscribePattern="^nothing-like-it$").load().count() == 0


def test_what_a_frame_reads_is_frozen(read: Read, topics: Topics) -> None:
    topic = topics.create(partitions=1)
    topics.fill(topic, 1, [Compression.NONE])
    frame = read(topic).load()
    assert frame.count() == RECORDS_PER_BATCH
    topics.fill(topic, 1, [Compression.ZSTD])
    assert frame.count() == RECORDS_PER_BATCH
    assert read(topic).load().count() == 2 * RECORDS_PER_BATCH


def test_the_brokers_time_is_told_apart_from_the_producers(read: Read, topics: Topics) -> None:
    topic = topics.create(partitions=1, message_timestamp_type="LogAppendTime")
    before = datetime.now(timezone.utc).replace(tzinfo=None) - timedelta(seconds=5)
    topics.fill(topic, 1, [Compression.NONE, Compression.LZ4])
    rows = read(topic).schema("timestamp timestamp, timestampType int").load().distinct().collect()
    assert len(rows) <= 2  # one for each batch
    for row in rows:
        assert row.timestampType == 1
        assert row.timestamp >= before


def test_bad_options_are_refused(read: Read, filled: str) -> None:
    with pytest.raises(AnalysisException, match="starting offset can't be latest for batch"):
        read(filled, startingOffsets="latest").load().count()


def test_an_unknown_topic_is_an_error_that_names_it(read: Read) -> None:
    with pytest.raises(AnalysisException, match=r"no-such-topic.*UNKNOWN_TOPIC_OR_PARTITION"):
        read("no-such-topic").load().count()


def test_an_end_beyond_the_log_is_an_error_at_once(read: Read, topics: Topics) -> None:
    topic = topics.create(partitions=1)
    topics.fill(topic, 1, [Compression.NONE])
    beyond = f'{{"{topic}": {{"0": 1000}}}}'
    with pytest.raises(AnalysisException, match="Some data may have been lost"):
        read(topic, endingOffsets=beyond).load().count()


@pytest.mark.skipif(
    "BOOTSTRAP_SERVERS" not in os.environ, reason="asyncbroker has no transactions yet"
)
def test_read_committed_leaves_out_what_was_aborted_and_what_is_undecided(
    read: Read, topics: Topics, spark_bootstrap_servers: str
) -> None:
    from confluent_kafka import Producer

    topic = topics.create(partitions=1)
    settings = {"bootstrap.servers": spark_bootstrap_servers}
    producer = Producer({**settings, "transactional.id": topic})
    producer.init_transactions()
    for fate in ("committed", "aborted", "committed", "undecided"):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(topic, f"{fate}-{number}")
        producer.flush()
        if fate == "committed":
            producer.commit_transaction()
        elif fate == "aborted":
            producer.abort_transaction()

    def count(isolation_level: str) -> dict[str, int]:
        frame = read(topic, kafka__isolation__level=isolation_level).load()
        rows = frame.selectExpr("split(string(value), '-')[0] AS fate").groupBy("fate").count()
        return {row["fate"]: row["count"] for row in rows.collect()}

    assert count("read_committed") == {"committed": 20}
    assert count("read_uncommitted") == {"committed": 20, "aborted": 10, "undecided": 10}
    producer.abort_transaction()
