"""What a writing task does with its rows, on a broker in the process; Spark itself is elsewhere."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.partitioning import partition_for
from asyncbroker.client.sender import Sender
from asyncbroker.client.topics import create_topic
from asyncbroker.protocol.records import Compression
from asyncbroker.spark import row_writer
from asyncbroker.spark.row_writer import NullTopic, RowWriter
from asyncbroker.spark.write_options import WriteOptions, warn_of_unknown
from asyncbroker.spark.writer import TaskWriter
from asyncbroker.testing import BrokerThread
from asyncbroker.testing.hands import Record

SERVERS = {"kafka.bootstrap.servers": "broker:9092"}

Write = Callable[..., int]


@pytest.fixture
def cluster(kafka_broker: BrokerThread) -> Iterator[Cluster]:
    with Cluster(kafka_broker.bootstrap_servers) as cluster:
        create_topic(cluster, "t", partitions=3)
        yield cluster


@pytest.fixture
def write(cluster: Cluster) -> Write:
    def writer(*batches: dict[str, pa.Array], **options: str) -> int:
        """Writes rows, and returns their count; double underscores stand for dots."""
        given = {name.replace("__", "."): value for name, value in options.items()}
        with Sender(cluster) as sender:
            writer = RowWriter(WriteOptions.parse(SERVERS | given), cluster, sender)
            writer.write(pa.RecordBatch.from_pydict(batch) for batch in batches)
        return writer.row_count

    return writer


def records(broker: BrokerThread, topic: str = "t") -> list[Record]:
    return broker.topic(topic).records()


def test_every_column_is_written(kafka_broker: BrokerThread, write: Write) -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, 678_999, timezone.utc)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    count = write(
        {
            "key": pa.array(["k", None, "é"]),
            "value": pa.array([b"v", b"", None]),
            "topic": pa.array(["t", "t", "t"]),
            "partition": pa.array([2, 1, None], pa.int32()),
            "timestamp": pa.array([when] * 3, pa.timestamp("us", tz="Europe/Berlin")),
            "headers": pa.array([[{"key": "h", "value": None}], [], None], headers),
            "other": pa.array([1, 2, 3]),
        }
    )
    assert count == 3
    found = {record.value: record for record in records(kafka_broker)}
    assert (found[b"v"].key, found[b"v"].partition) == (b"k", 2)
    assert (found[b""].key, found[b""].partition) == (None, 1)
    assert (found[None].key, found[None].partition) == ("é".encode(), partition_for(b"\xc3\xa9", 3))
    assert {record.timestamp for record in found.values()} == {when.timestamp() // 0.001 // 1}
    assert list(found[b"v"].headers) == [("h", None)]


def test_the_option_beats_the_column(kafka_broker: BrokerThread, write: Write) -> None:
    write({"topic": pa.array(["other"]), "value": pa.array(["v"])}, topic="t")
    assert len(records(kafka_broker)) == 1
    write({"topic": pa.array(["a", "t", "a"]), "value": pa.array(["1", "2", "3"])})
    assert [record.value for record in records(kafka_broker, "a")] == [b"1", b"3"]


def test_keys_choose_partitions_and_keep_their_order(
    kafka_broker: BrokerThread, write: Write
) -> None:
    keys = [b"key-%d" % (number % 50) for number in range(2000)]
    values = [b"%06d" % number for number in range(2000)]
    write({"key": pa.array(keys), "value": pa.array(values)}, topic="t", kafka__batch__size="2000")
    by_key: dict[Any, list[Any]] = {}
    for record in records(kafka_broker):
        assert record.partition == partition_for(record.key or b"", 3)
        by_key.setdefault(record.key, []).append(record.value)
    assert all(found == sorted(found) and len(found) == 40 for found in by_key.values())


def test_rows_without_keys_fill_batches_of_all_partitions(
    kafka_broker: BrokerThread, write: Write
) -> None:
    write({"value": pa.array([bytes(90)] * 900)}, topic="t", kafka__batch__size="10000")
    counts = Counter(record.partition for record in records(kafka_broker))
    assert sum(counts.values()) == 900
    assert min(counts.values()) > 250


@pytest.mark.parametrize("codec", Compression)
def test_all_codecs_are_written(
    kafka_broker: BrokerThread, write: Write, codec: Compression
) -> None:
    rows = {"value": pa.array([b"%d" % number for number in range(500)])}
    write(rows, topic="t", kafka__compression__type=codec.name.lower())
    assert sorted(int(record.value or b"") for record in records(kafka_broker)) == list(range(500))


def test_rows_are_counted_across_chunks(
    kafka_broker: BrokerThread, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_writer, "CHUNK_BYTES", 1)
    good, empty = {"value": pa.array(["v"] * 10)}, {"value": pa.array([], pa.string())}
    assert write(good, empty, good, topic="t") == 20
    with pytest.raises(NullTopic, match=r"contains a null topic\..* row 3 of the task"):
        write(
            {"topic": pa.array(["t", "t"]), "value": pa.array(["v", "v"])},
            {"topic": pa.array(["t", None]), "value": pa.array(["v", "v"])},
        )


def test_a_partition_that_is_not_there_names_its_row(write: Write) -> None:
    rows = {"value": pa.array(["v", "v"]), "partition": pa.array([0, 3], pa.int32())}
    with pytest.raises(ValueError, match=r"no partition 3 in topic t, which has 3.* row 1 of the"):
        write(rows, topic="t")


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"v"}])
def test_a_header_without_a_key_names_its_row(write: Write, header: Any) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    named = {"key": "h", "value": None}
    headers = pa.array([None, [], [named], [named, header, header]], kind)
    with pytest.raises(ValueError, match=r"A header has no key\. It is in row 3 of the task"):
        write({"value": pa.array(["v"] * 4), "headers": headers}, topic="t")


def test_a_refused_record_names_its_row(write: Write, cluster: Cluster) -> None:
    create_topic(cluster, "compacted", partitions=1, configs={"cleanup.policy": "compact"})
    rows = {"key": pa.array(["k", None, "k"]), "value": pa.array(["v", "v", "v"])}
    with pytest.raises(Exception, match=r"compacted-0, record 1 \(no key"):
        write(rows, topic="compacted")


REFUSED = [
    ("value string", {}, "topic option required when no 'topic' attribute is present"),
    ("topic string", {}, "Required attribute 'value' not found"),
    (
        "topic string, value integer",
        {},
        "value attribute unsupported type INT. value must be a(n) STRING or BINARY",
    ),
    (
        "topic binary, value string",
        {},
        "topic attribute unsupported type BINARY. topic must be a(n) STRING",
    ),
    (
        "value string, partition long",
        {"topic": "t"},
        "partition attribute unsupported type BIGINT. partition must be a(n) INT",
    ),
    ("value string, headers string", {"topic": "t"}, "headers attribute unsupported type STRING"),
    ("value string", {"kafka.acks": "2"}, "kafka.acks must be one of all, -1, 1, 0"),
    ("value string", {"kafka.compression.type": "rar"}, "must be one of none, gzip, snappy, lz4,"),
    (
        "value string",
        {"kafka.acks": "1", "kafka.enable.idempotence": "true"},
        "Must set acks to all in order to use the idempotent producer",
    ),
    (
        "value string",
        {"kafka.max.in.flight.requests.per.connection": "6"},
        "must be at most 5 to use the idempotent producer",
    ),
    ("value string", {"kafka.key.serializer": "x"}, "'key.serializer' is not supported"),
    ("value string", {"kafka.transactional.id": "x"}, "does not write in transactions yet"),
    (
        "value string",
        {"kafka.bootstrap.servers": ""},
        "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka producer",
    ),
]


@pytest.mark.parametrize(("schema", "options", "words"), REFUSED, ids=[r[2] for r in REFUSED])
def test_what_cannot_be_written_is_refused_with_the_connectors_words(
    schema: str, options: dict[str, str], words: str
) -> None:
    fields = StructType()
    for column in schema.split(", "):
        name, kind = column.split(" ")
        fields = fields.add(name, kind)
    with pytest.raises(ValueError) as caught:  # noqa: PT011, the words are checked below
        TaskWriter(WriteOptions.parse(SERVERS | options), fields)
    assert words in str(caught.value)


def test_names_that_nobody_knows_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_unknown(SERVERS | {"kafka.linger.ms": "5", "kafka.ack": "all", "Topic": "t"})
    assert caplog.messages == [
        "option 'kafka.ack' is not known and has no effect; did you mean 'kafka.acks'?"
    ]
