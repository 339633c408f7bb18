"""Spark's own connector and ours at Apache Kafka, with what only that broker has so far.

Transactions that were committed, aborted or are open; compacted topics; and all ways to log in.
Both read the same topics with the same options, and have to give the same rows.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.errors import AuthenticationFailed, ClientError
from asyncbroker.client.partitions import latest_offsets
from asyncbroker.client.topics import create_topic
from asyncbroker.spark.columns import full_schema
from asyncbroker.spark.options import ReadOptions
from asyncbroker.spark.reader import BatchReader
from asyncbroker.spark.tests.parity.batches import rows_here, rows_of_connector
from asyncbroker.spark.tests.parity.report import Record, tell
from asyncbroker.spark.tests.parity.streams import Streamed, stream
from asyncbroker.spark.tests.session import start_session
from asyncbroker.spark.write_options import WriteOptions
from asyncbroker.spark.writer import TaskWriter
from asyncbroker.tests.tls_files import TlsFiles, make_tls_files
from compat_tests.java import needs_jars
from compat_tests.kafka import Kafka

pytestmark = [
    pytest.mark.timeout(600),
    needs_jars,
    pytest.mark.skipif(
        "ASYNCBROKER_CONNECTOR_CLASSPATH" not in os.environ, reason="needs Spark's Kafka connector"
    ),
]

USER, PASSWORD = "alice", "pen,cil=1"
WRONG = "cray,on=2"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MODULES = "org.apache.kafka.common.security"
CLEANED_SECONDS_MAX = 90
KEYS = 20


@dataclass(frozen=True)
class Protected:
    """A Kafka with a listener for each protocol, one of which wants to see a certificate."""

    kafka: Kafka
    files: TlsFiles

    def options(self, listener: str, mechanism: str = "", password: str = PASSWORD) -> Any:
        """Those of a query, which are the same for both connectors."""
        protocol = LISTENERS[listener]
        given = {
            "kafka.bootstrap.servers": self.kafka.addresses[listener],
            "kafka.security.protocol": protocol,
        }
        if protocol.endswith("SSL"):
            given |= {
                "kafka.ssl.truststore.type": "PEM",
                "kafka.ssl.truststore.location": self.files.authority,
            }
        if listener == "MUTUAL":
            given |= {
                "kafka.ssl.keystore.type": "PEM",
                "kafka.ssl.keystore.location": self.files.client,
            }
        if mechanism:
            module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
            given |= {
                "kafka.sasl.mechanism": mechanism,
                "kafka.sasl.jaas.config": f"{MODULES}.{module}LoginModule required "
                f'username="{USER}" password="{password}";',
            }
        return given

    def texts(self) -> dict[str, str]:
        """What is in the files, in place of the files."""
        key, begin, chain = Path(self.files.client).read_text().partition("-----BEGIN CERTIFICATE")
        return {
            "kafka.ssl.truststore.certificates": Path(self.files.authority).read_text(),
            "kafka.ssl.keystore.key": key,
            "kafka.ssl.keystore.certificate.chain": begin + chain,
        }


LISTENERS = {
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
}


def settings(files: TlsFiles) -> tuple[str, ...]:
    lines = [
        f"sasl.enabled.mechanisms={','.join(MECHANISMS)}",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={files.server}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={files.authority}",
        "listener.name.mutual.ssl.client.auth=required",
        "log.cleaner.backoff.ms=100",
        "log.retention.ms=-1",
    ]
    for listener in ("sasl_plaintext", "sasl_ssl"):
        for mechanism in MECHANISMS:
            module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
            users = f' user_{USER}="{PASSWORD}"' if mechanism == "PLAIN" else ""
            name = f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"
            lines.append(f"{name}={MODULES}.{module}LoginModule required{users};")
    return tuple(lines)


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Protected]:
    directory = tmp_path_factory.mktemp("kafka")
    files = make_tls_files(directory)
    kafka = Kafka(directory / "data", settings(files), listeners=LISTENERS)
    kafka.start()
    try:
        added = subprocess.run(
            [sys.executable, "-m", "asyncbroker", "users", "add", USER, "-b", kafka.servers],
            input=PASSWORD + "\n",
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert added.returncode == 0, added.stderr
        yield Protected(kafka, files)
    finally:
        kafka.end(signal.SIGTERM)


@pytest.fixture(scope="module")
def kafka(protected: Protected) -> Kafka:
    return protected.kafka


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start_session(tmp_path_factory.mktemp("warehouse"))
    yield session
    session.stop()


# ---- transactions

DECIDED = ("committed", "aborted", "aborted", "committed", "aborted")


@pytest.fixture(scope="module")
def transactions(kafka: Kafka) -> Iterator[str]:
    """Ten records of each fate, of two producers in turn, behind five without a transaction; the
    last transaction is open. Each batch and each marker takes the offsets behind the last."""
    with Cluster(kafka.servers) as cluster:
        create_topic(cluster, "transactions", partitions=1)
    plain = Producer({"bootstrap.servers": kafka.servers})
    for number in range(5):
        plain.produce("transactions", f"plain-{number}")
    assert plain.flush(30) == 0
    producers = [
        Producer(
            {
                "bootstrap.servers": kafka.servers,
                "transactional.id": name,
                "compression.type": kind,
                # Kafka would abort one that is open for longer.
                "transaction.timeout.ms": 600_000,
            }
        )
        for name, kind in (("first", "none"), ("second", "zstd"))
    ]
    for producer in producers:
        producer.init_transactions(30)
    for turn, fate in enumerate((*DECIDED, "undecided")):
        producer = producers[turn % 2]
        producer.begin_transaction()
        for number in range(10):
            producer.produce("transactions", f"{fate}-{turn}-{number}")
        assert producer.flush(30) == 0
        if fate == "committed":
            producer.commit_transaction(30)
        elif fate == "aborted":
            producer.abort_transaction(30)
    yield "transactions"
    producer.abort_transaction(30)


def between(topic: str, start: int, end: int) -> dict[str, str]:
    return {
        "startingOffsets": json.dumps({topic: {"0": start}}),
        "endingOffsets": json.dumps({topic: {"0": end}}),
    }


TRANSACTION_READS: dict[str, dict[str, str]] = {
    "everything": {},
    "committed": {"kafka.isolation.level": "read_committed"},
    "uncommitted": {"kafka.isolation.level": "read_uncommitted"},
    # 0 to 4 are plain, 5 to 14 committed, 15 is a marker, 16 to 25 aborted, 26 is a marker.
    "a part of what was committed, to the middle of what was aborted": {
        **between("transactions", 10, 20),
        "kafka.isolation.level": "read_committed",
    },
    "from the middle of what was aborted": {
        **between("transactions", 20, 45),
        "kafka.isolation.level": "read_committed",
    },
    "only what was aborted": {
        **between("transactions", 16, 27),
        "kafka.isolation.level": "read_committed",
    },
    "from one marker to before the next": between("transactions", 15, 26),
    "in pieces": {"minPartitions": "9", "kafka.isolation.level": "read_committed"},
    "uncommitted in pieces": {"minPartitions": "9"},
}


@pytest.mark.parametrize("name", TRANSACTION_READS)
def test_the_same_rows_of_transactions(
    name: str, kafka: Kafka, transactions: str, spark: SparkSession, record_property: Record
) -> None:
    base = {"kafka.bootstrap.servers": kafka.servers, "subscribe": transactions}
    options = base | TRANSACTION_READS[name]
    theirs = rows_of_connector(spark, options)
    assert isinstance(theirs, list), theirs
    area = "At Apache Kafka: transactions"
    tell(record_property, area, name, TRANSACTION_READS[name], len(theirs))
    assert rows_here(options) == theirs


def test_what_is_counted_without_its_records_hides_what_was_aborted(
    kafka: Kafka, transactions: str
) -> None:
    options = {"kafka.bootstrap.servers": kafka.servers, "subscribe": transactions}
    for level, count in (("read_committed", 25), ("read_uncommitted", 65)):
        given = ReadOptions.parse(options | {"kafka.isolation.level": level, "columns": "offset"})
        schema = full_schema(include_headers=False)
        only_offset: Any = type(schema)([schema["offset"]])
        reader = BatchReader(given, only_offset)
        batches: Any = [batch for part in reader.partitions() for batch in reader.read(part)]
        assert sum(batch.num_rows for batch in batches) == count


# ---- compaction


@pytest.fixture(scope="module")
def compacted(kafka: Kafka) -> str:
    """A few keys in many records, of which the cleaner has left the last ones."""
    topic = "compacted"
    configs = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
    }
    partition = TopicPartition(topic, 0)
    with Cluster(kafka.servers) as cluster:
        create_topic(cluster, topic, partitions=1, configs=configs)
        for number, codec in enumerate(("none", "gzip", "lz4", "zstd", "none", "none")):
            producer = Producer({"bootstrap.servers": kafka.servers, "compression.type": codec})
            for at in range(KEYS * 3):
                value = None if at % 7 == 0 else f"{number}-{at}"
                producer.produce(topic, key=f"key-{number % 2}-{at % KEYS}", value=value)
            assert producer.flush(30) == 0
            time.sleep(0.2)
        everything = latest_offsets(cluster, [partition])[partition]
    options = {"kafka.bootstrap.servers": kafka.servers, "subscribe": topic}
    deadline = time.monotonic() + CLEANED_SECONDS_MAX
    while len(rows_here(options)) > everything / 2:
        assert time.monotonic() < deadline, "Kafka's cleaner has not run"
        time.sleep(0.2)
    return topic


COMPACTED_READS: dict[str, dict[str, str]] = {
    "everything": {},
    "committed": {"kafka.isolation.level": "read_committed"},
    "from one gap to the next": between("compacted", 25, 205),
    "nothing but a gap": between("compacted", 3, 30),
    "in pieces": {"minPartitions": "11"},
    "in pieces of a gap each": {**between("compacted", 0, 300), "maxRecordsPerPartition": "17"},
}


@pytest.mark.parametrize("name", COMPACTED_READS)
def test_the_same_rows_of_a_compacted_topic(
    name: str, kafka: Kafka, compacted: str, spark: SparkSession, record_property: Record
) -> None:
    base = {"kafka.bootstrap.servers": kafka.servers, "subscribe": compacted}
    options = base | COMPACTED_READS[name]
    theirs = rows_of_connector(spark, options)
    assert isinstance(theirs, list), theirs
    # How many the cleaner has left is another number each time.
    area = "At Apache Kafka: compaction"
    tell(record_property, area, name, COMPACTED_READS[name], "the same rows")
    assert rows_here(options) == theirs


# ---- streams


STREAMS: dict[str, dict[str, str]] = {
    "committed": {"subscribe": "transactions", "kafka.isolation.level": "read_committed"},
    "uncommitted, by portions": {"subscribe": "transactions", "maxOffsetsPerTrigger": "30"},
    "compacted, by portions": {"subscribe": "compacted", "maxOffsetsPerTrigger": "100"},
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_give_the_same_rows_in_the_same_portions(
    name: str,
    kafka: Kafka,
    transactions: str,
    compacted: str,
    spark: SparkSession,
    tmp_path: Path,
    record_property: Record,
) -> None:
    tell(record_property, "At Apache Kafka: streams", name, STREAMS[name], "the same batches")
    options = {"kafka.bootstrap.servers": kafka.servers, "startingOffsets": "earliest"}
    options |= STREAMS[name]
    theirs, here = (
        stream(spark, form, options, tmp_path / form) for form in ("kafka", "asyncbroker")
    )
    assert isinstance(theirs, Streamed), theirs
    assert here == theirs


# ---- logins

WAYS = [
    ("SSL", ""),
    ("MUTUAL", ""),
    *[(listener, name) for listener in ("SASL_PLAINTEXT", "SASL_SSL") for name in MECHANISMS],
]


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_both_read_what_ours_has_written_in_every_way_to_log_in(
    protected: Protected,
    spark: SparkSession,
    listener: str,
    mechanism: str,
    record_property: Record,
) -> None:
    area, what = "At Apache Kafka: logins", f"{listener} {mechanism}".strip()
    tell(record_property, area, what, "written by ours", "100 rows")
    options = protected.options(listener, mechanism)
    check_that_both_read_what_ours_writes(spark, f"login-{listener}-{mechanism}", options)


def test_both_take_certificates_and_key_as_texts(
    protected: Protected, spark: SparkSession, record_property: Record
) -> None:
    tell(record_property, "At Apache Kafka: logins", "MUTUAL, texts", "written by ours", "100 rows")
    options = protected.options("MUTUAL") | protected.texts()
    del options["kafka.ssl.truststore.location"], options["kafka.ssl.keystore.location"]
    check_that_both_read_what_ours_writes(spark, "login-texts", options)


def check_that_both_read_what_ours_writes(
    spark: SparkSession, topic: str, options: dict[str, str]
) -> None:
    options = options | {"subscribe": topic}
    schema = full_schema(include_headers=False)
    values = pyarrow.array([b"%d" % number for number in range(100)])
    rows = pyarrow.RecordBatch.from_pydict({"value": values})
    TaskWriter(WriteOptions.parse(options | {"topic": topic}), schema).write(iter([rows]))
    here = rows_here(options)
    assert len(here) == 100
    assert here == rows_of_connector(spark, options)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused_and_told_to_nobody(
    protected: Protected, mechanism: str
) -> None:
    options = protected.options("SASL_SSL", mechanism, WRONG) | {"subscribe": "any"}
    with pytest.raises(AuthenticationFailed, match=USER) as caught:
        BatchReader(ReadOptions.parse(options), full_schema(include_headers=False)).partitions()
    assert WRONG not in str(caught.value)


def test_a_strangers_certificate_is_refused(protected: Protected) -> None:
    options = protected.options("MUTUAL") | {
        "kafka.ssl.keystore.location": protected.files.stranger,
        "kafka.socket.connection.setup.timeout.ms": "2000",
        "kafka.request.timeout.ms": "2000",
        "subscribe": "any",
    }
    assert isinstance(rows_here(options), str)
    options = protected.options("SSL") | {
        "kafka.ssl.truststore.location": protected.files.strangers_authority,
        "subscribe": "any",
    }
    reader = BatchReader(ReadOptions.parse(options), full_schema(include_headers=False))
    with pytest.raises(ClientError, match="certificate verify failed"):
        reader.partitions()


def test_spark_tells_no_secret_in_plans_progress_logs_events_and_errors(
    protected: Protected, tmp_path: Path
) -> None:
    listener, mechanism = "SASL_SSL", "SCRAM-SHA-512"
    key_password = "hay,wire=3"
    texts = protected.texts() | {"kafka.ssl.key.password": key_password}
    del texts["kafka.ssl.truststore.certificates"]
    options = protected.options(listener, mechanism) | texts
    topic = "secrets"
    rows = pyarrow.RecordBatch.from_pydict({"value": pyarrow.array([b"value"])})
    schema = full_schema(include_headers=False)
    TaskWriter(WriteOptions.parse(options | {"topic": topic}), schema).write(iter([rows]))
    given = {
        "good": options,
        "wrong": options | protected.options(listener, mechanism, WRONG),
        "topic": topic,
        "folder": str(tmp_path / "told"),
    }
    (tmp_path / "told").mkdir()
    arguments = tmp_path / "arguments.json"
    arguments.write_text(json.dumps(given))
    ran = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "spark_secrets_driver.py"), str(arguments)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        timeout=300,
    )
    told = ran.stdout + ran.stderr
    assert ran.returncode == 0, told.decode()[-3000:]
    assert told.count(b"refused:") == 2
    files = [path for path in (tmp_path / "told").rglob("*") if path.is_file()]
    assert any(path.parent.name == "events" or "events" in path.parts for path in files)
    told += b"".join(path.read_bytes() for path in files)
    key_lines = texts["kafka.ssl.keystore.key"].splitlines()[1:-1]
    for secret in (PASSWORD, WRONG, key_password, *key_lines):
        assert secret.encode() not in told
