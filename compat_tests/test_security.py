"""Real clients log in, with and without TLS, by every mechanism; and are kept out."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.admin import ScramMechanism as ConfluentMechanism
from kafka import KafkaConsumer, KafkaProducer

from asyncbroker.client.errors import AuthenticationFailed
from asyncbroker.spark.columns import full_schema
from asyncbroker.spark.options import ReadOptions
from asyncbroker.spark.reader import BatchReader
from asyncbroker.spark.write_options import WriteOptions
from asyncbroker.spark.writer import TaskWriter
from asyncbroker.tests.long import IS_LONG
from compat_tests.java import needs_jars, run_java
from compat_tests.protected import (
    MECHANISMS,
    PASSWORD,
    PROTOCOLS,
    Protected,
    asyncbroker,
    protected_broker,
)
from compat_tests.suites.all import SUITES
from compat_tests.suites.features import LOGINS
from compat_tests.suites.run import run_features
from compat_tests.suites.suite import Result
from compat_tests.test_suites import IN_PYTHON, PROGRAM_SECONDS_MAX, program_of_client

pytestmark = pytest.mark.timeout(120)
every_way = pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [(protocol, mechanism) for protocol in PROTOCOLS for mechanism in MECHANISMS],
)
# Where each try takes several processes.
two_ways = pytest.mark.parametrize(
    ("protocol", "mechanism"), [("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512")]
)
# Those in Go have their own tests.
CLIENTS = (*IN_PYTHON, "kafkajs", "kcat", "java-clients")


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Protected]:
    with protected_broker(tmp_path_factory.mktemp("protected")) as broker:
        yield broker


@every_way
def test_aiokafka(protected: Protected, protocol: str, mechanism: str) -> None:
    topic = f"aiokafka-{protocol}-{mechanism}"

    async def run(settings: dict[str, Any]) -> bytes:
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"value")
        async with AIOKafkaConsumer(
            topic, group_id=topic, auto_offset_reset="earliest", **settings
        ) as consumer:
            value: bytes = (await consumer.getone()).value
            return value

    assert asyncio.run(run(protected.python(protocol, mechanism))) == b"value"


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
async def test_aiokafka_with_a_wrong_password(protected: Protected) -> None:
    producer = AIOKafkaProducer(**protected.python("SASL_SSL", "SCRAM-SHA-512", "wrong"))
    with pytest.raises(AiokafkaError):
        await producer.start()
    await producer.stop()
    # The socket of a login that is refused is left to the garbage collector.
    del producer
    gc.collect()


@every_way
def test_confluent_kafka(protected: Protected, protocol: str, mechanism: str) -> None:
    topic = f"confluent-{protocol}-{mechanism}"
    settings = protected.confluent(protocol, mechanism)
    producer = Producer(settings)
    # More than goes in one piece, both ways.
    values = [bytes([number]) * 100_000 for number in range(50)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    got: list[bytes | None] = []
    while len(got) < len(values):
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        got.append(message.value())
    consumer.close()
    assert got == values


def test_confluent_kafka_with_a_wrong_password(protected: Protected) -> None:
    admin = AdminClient(protected.confluent("SASL_PLAINTEXT", "SCRAM-SHA-256", "wrong"))
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)


@every_way
def test_kafka_python(protected: Protected, protocol: str, mechanism: str) -> None:
    topic = f"kafka-python-{protocol}-{mechanism}"
    settings = protected.python(protocol, mechanism)
    producer = KafkaProducer(**settings)
    producer.send(topic, b"value").get(30)
    producer.close()
    consumer = KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **settings
    )
    assert next(consumer).value == b"value"
    consumer.close()


@two_ways
def test_our_own_commands(protected: Protected, protocol: str, mechanism: str) -> None:
    config = protected.properties(protocol, mechanism)
    topic = f"ours-{protocol}-{mechanism}"
    at = ("-b", protected.servers[protocol], "--command-config", config)
    created = asyncbroker("topics", "create", topic, *at)
    assert created.returncode == 0, created.stderr
    assert asyncbroker("produce", topic, *at, stdin="one\ntwo\n").returncode == 0
    consumed = asyncbroker("consume", topic, "-n", "2", "--from", "earliest", *at)
    assert consumed.stdout.split() == ["one", "two"], consumed.stderr
    command = [sys.executable, "-m", "asyncbroker", "watch", "group", "nobody", *at]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert "group nobody  Dead" in watching.stdout.readline()
        watching.terminate()
    wrong = protected.properties(protocol, mechanism, "wrong")
    refused = asyncbroker(
        "topics", "list", "-b", protected.servers[protocol], "--command-config", wrong
    )
    assert refused.returncode == 1
    assert "login at broker" in refused.stderr
    assert "'alice'" in refused.stderr
    assert "wrong" not in refused.stderr


def test_our_own_command_does_not_trust_a_stranger(protected: Protected) -> None:
    path = protected.directory / "stranger.properties"
    path.write_text(
        f"security.protocol=SSL\nssl.truststore.location={protected.files.strangers_authority}\n"
    )
    at = ("-b", protected.servers["SSL"], "--command-config", str(path))
    refused = asyncbroker("topics", "list", *at)
    assert refused.returncode == 1
    assert "certificate verify failed" in refused.stderr


def test_users_are_managed_while_the_broker_runs(protected: Protected) -> None:
    admin = ("-b", protected.servers["PLAINTEXT"])
    added = asyncbroker("users", "add", "bob", *admin, stdin="secret\n")
    assert added.returncode == 0, added.stderr
    listed = asyncbroker("users", "list", *admin).stdout
    assert listed.count("alice") == listed.count("bob") == 2
    settings = protected.confluent("SASL_SSL", "SCRAM-SHA-512", "secret")
    settings["sasl.username"] = "bob"
    assert AdminClient(settings).list_topics(timeout=20).brokers
    deleted = asyncbroker("users", "delete", "bob", *admin, "--yes")
    assert deleted.returncode == 0, deleted.stderr
    assert "bob" not in asyncbroker("users", "list", *admin).stdout
    assert asyncbroker("users", "delete", "bob", *admin, "--yes").returncode == 1
    with pytest.raises(KafkaException):
        AdminClient(settings).list_topics(timeout=3)
    busy = asyncbroker("users", "list", "--data", str(protected.directory / "data"))
    assert "is in use by a broker" in busy.stderr


def test_confluent_kafka_manages_users(protected: Protected) -> None:
    admin = AdminClient(protected.confluent("SASL_SSL", "SCRAM-SHA-256"))
    info = ScramCredentialInfo(ConfluentMechanism.SCRAM_SHA_256, 10_000)
    # A salt as short as this is what librdkafka's own tests use.
    upsertion = UserScramCredentialUpsertion("carol", info, b"password", b"salt")
    for future in admin.alter_user_scram_credentials([upsertion]).values():
        future.result(20)
    described = describe_carol(admin)
    assert described.scram_credential_infos[0].iterations == 10_000
    settings = protected.confluent("SASL_PLAINTEXT", "SCRAM-SHA-256", "password")
    settings["sasl.username"] = "carol"
    assert AdminClient(settings).list_topics(timeout=20).brokers
    deletion = UserScramCredentialDeletion("carol", ConfluentMechanism.SCRAM_SHA_256)
    for future in admin.alter_user_scram_credentials([deletion]).values():
        future.result(20)
    with pytest.raises(KafkaException):
        describe_carol(admin)


def describe_carol(admin: AdminClient) -> Any:
    futures = admin.describe_user_scram_credentials(["carol"])
    assert isinstance(futures, dict)
    return futures["carol"].result(20)


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_logs_in_and_is_refused_with_a_wrong_password(
    protected: Protected, client: str
) -> None:
    (suite,) = (suite for suite in SUITES if suite.name == client)
    there = [feature for feature in LOGINS if feature not in suite.absent]
    features = there if IS_LONG else there[-1:]
    results = run_features(
        program_of_client(client), "", features, PROGRAM_SECONDS_MAX, protected.environment()
    )
    assert results == dict.fromkeys(features, Result("passed"))


@needs_jars
@two_ways
def test_java(protected: Protected, protocol: str, mechanism: str) -> None:
    config = protected.properties(protocol, mechanism)
    at = ("--bootstrap-server", protected.servers[protocol], "--command-config", config)
    created = run_java("org.apache.kafka.tools.TopicCommand", *at, "--create", "--topic", mechanism)
    assert created.returncode == 0, created.stdout + created.stderr
    user = ("--alter", "--entity-type", "users", "--entity-name", f"java-{protocol}-{mechanism}")
    altered = run_java(
        "kafka.admin.ConfigCommand",
        *(*at, *user, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]"),
    )
    assert altered.returncode == 0, altered.stdout + altered.stderr
    listed = asyncbroker("users", "list", "-b", protected.servers["PLAINTEXT"])
    assert f"java-{protocol}-{mechanism}" in listed.stdout


@needs_jars
def test_java_with_a_wrong_password(protected: Protected) -> None:
    config = protected.properties("SASL_PLAINTEXT", "SCRAM-SHA-256", "wrong")
    at = ("--bootstrap-server", protected.servers["SASL_PLAINTEXT"], "--command-config", config)
    refused = run_java("org.apache.kafka.tools.TopicCommand", *at, "--list")
    assert refused.returncode != 0
    assert "SaslAuthenticationException" in refused.stdout + refused.stderr


@every_way
def test_what_spark_reads_and_writes(protected: Protected, protocol: str, mechanism: str) -> None:
    """What its driver and executors do; Spark itself would only call it."""
    topic = f"spark-{protocol}-{mechanism}"

    def options(password: str = PASSWORD) -> dict[str, str]:
        path = Path(protected.properties(protocol, mechanism, password))
        lines = [line.partition("=") for line in path.read_text().splitlines()]
        return {
            "kafka.bootstrap.servers": protected.servers[protocol],
            "subscribe": topic,
            "topic": topic,
            **{f"kafka.{name}": value for name, _, value in lines},
        }

    schema = full_schema(include_headers=False)
    rows = pyarrow.RecordBatch.from_pydict({"value": pyarrow.array([b"value"])})
    TaskWriter(WriteOptions.parse(options()), schema).write(iter([rows]))
    reader = BatchReader(ReadOptions.parse(options()), schema)
    (partition,) = reader.partitions()
    (found,) = reader.read(partition)
    assert found.column("value").to_pylist() == [b"value"]
    wrong = BatchReader(ReadOptions.parse(options("wr,ong=1")), schema)
    with pytest.raises(AuthenticationFailed) as caught:
        wrong.partitions()
    assert "wr,ong=1" not in str(caught.value)
    assert "wr,ong=1" not in repr(ReadOptions.parse(options("wr,ong=1")))
