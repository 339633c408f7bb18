"""The own suites of the clients in Python: aiokafka, kafka-python and confluent-kafka."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Final

from compat_tests.suites.install import kafka_version
from compat_tests.suites.own.brokers import MECHANISMS, Servers, User
from compat_tests.suites.own.suite import (
    NO_ACCESS_LISTS,
    NO_SHARE_GROUPS,
    NO_TRANSACTIONS,
    OWN,
    QUICK_GROUPS,
    Command,
    OwnSuite,
    kafka_tools,
    pytest_command,
    python,
)

TEST_PACKAGES: Final = ("pytest", "pytest-timeout", "pytest-asyncio", "pytest-mock")

LOG_IN: Final = (
    "{'bootstrap.servers': os.environ['SASL_BROKERS'], 'security.protocol': 'SASL_PLAINTEXT', "
    "'sasl.mechanism': 'PLAIN', 'sasl.username': 'sasl_user', 'sasl.password': 'sasl_user'}"
)


def aiokafka(checkout: Path, servers: Servers, results: Path, tests: tuple[str, ...]) -> Command:
    codecs = ("cramjam>=2.9", "python-snappy", "lz4")
    interpreter = python(
        checkout.with_suffix(".venv"), f"aiokafka=={AIOKAFKA.version}", *codecs, *TEST_PACKAGES
    )
    # Or the tests would import it from the checkout, where it is not compiled.
    shutil.rmtree(checkout / "aiokafka", ignore_errors=True)
    shutil.copy(OWN / "aiokafka_conftest.py", checkout / "tests" / "conftest.py")
    environment = {
        "BROKER": servers.plaintext,
        "BROKER_SSL_PORT": servers.port("SSL"),
        "BROKER_SASL_PLAINTEXT_PORT": servers.port("SASL_PLAINTEXT"),
        "BROKER_SASL_SSL_PORT": servers.port("SASL_SSL"),
        "AUTHORITY": servers.files.authority,
        "CLIENT": servers.files.client,
        "KAFKA_VERSION": kafka_version(),
    }
    return pytest_command(interpreter, checkout, results, *tests), environment


def confluent_kafka(
    checkout: Path, servers: Servers, results: Path, tests: tuple[str, ...]
) -> Command:
    others = ("trivup", "requests", "avro", "fastavro", "httpx", "attrs", "cachetools", "authlib")
    more = ("jsonschema", "protobuf", "googleapis-common-protos", "pyrsistent")
    packages = (f"confluent-kafka=={CONFLUENT_KAFKA.version}", *others, *more, *TEST_PACKAGES)
    interpreter = python(checkout.with_suffix(".venv"), *packages)
    # For tests that log in, it starts a cluster of its own.
    conftest = checkout / "tests" / "integration" / "conftest.py"
    starts = "create_sasl_cluster(trivup_cluster_conf)"
    conftest.write_text(conftest.read_text().replace(starts, f"create_byo_cluster({LOG_IN})"))
    environment = {
        "BROKERS": servers.plaintext,
        "SASL_BROKERS": servers.addresses["SASL_PLAINTEXT"],
        "PYTHONPATH": str(checkout),
    }
    return pytest_command(interpreter, checkout, results, *tests), environment


def confluent_kafka_848(
    checkout: Path, servers: Servers, results: Path, tests: tuple[str, ...]
) -> Command:
    command, environment = confluent_kafka(checkout, servers, results, tests)
    return command, {**environment, "TEST_CONSUMER_GROUP_PROTOCOL": "consumer"}


def kafka_python(
    checkout: Path, servers: Servers, results: Path, tests: tuple[str, ...]
) -> Command:
    codecs = ("crc32c", "lz4", "python-snappy", "zstandard")
    interpreter = python(
        checkout.with_suffix(".venv"),
        f"kafka-python=={KAFKA_PYTHON.version}",
        *codecs,
        *TEST_PACKAGES,
    )
    shutil.rmtree(checkout / "kafka", ignore_errors=True)
    version = kafka_version()
    kafka_tools(checkout / "servers" / version / "kafka-bin" / "bin")
    shutil.copy(OWN / "kafka_python_plugin.py", checkout)
    environment = {
        **{f"BROKER_{name}": address for name, address in servers.addresses.items()},
        "AUTHORITY": servers.files.authority,
        "KAFKA_VERSION": version,
        "PYTHONPATH": str(checkout),
    }
    command = pytest_command(interpreter, checkout, results, "-p", "kafka_python_plugin", *tests)
    return command, environment


AIOKAFKA: Final = OwnSuite(
    "aiokafka",
    "0.14.0",
    "v0.14.0",
    "all of `tests`",
    aiokafka,
    ("tests",),
    settings=(QUICK_GROUPS, "num.partitions=2", "node.id=0"),
    users=(
        User("test", "PLAIN", "test"),
        User("test", "SCRAM-SHA-256", "test"),
        User("test", "SCRAM-SHA-512", "test"),
    ),
    known=(
        (r"test_transactional_", NO_TRANSACTIONS),
        (r"maybe_wait_for_pid_on_failure", NO_TRANSACTIONS),
    ),
    skips=(
        (r"it sets access lists", NO_ACCESS_LISTS),
        (r"it needs Kerberos", "it needs Kerberos (GSSAPI), which this broker does not have"),
        (r"unsupported kafka version$", "it is for Kafka 0.11 and older alone"),
        (
            r"test_request_type_conformance\[NOTSET-",
            "it goes through the abstract properties of the client's requests, which have none",
        ),
    ),
)

KAFKA_PYTHON: Final = OwnSuite(
    "kafka-python",
    "3.0.11",
    "3.0.11",
    "`test/integration`",
    kafka_python,
    ("test/integration",),
    settings=(QUICK_GROUPS, "num.partitions=4", "node.id=0", "group.min.session.timeout.ms=1000"),
    users=tuple(User("alice", mechanism, "alice-secret") for mechanism in MECHANISMS),
    known=(
        (r"(?i)acls", NO_ACCESS_LISTS),
        (r"test_transactional", NO_TRANSACTIONS),
        (
            r"test_describe_metadata_quorum",
            "it asks after the quorum of Kafka's controllers (KRaft), which this broker has not",
        ),
        (
            r"version_infer",
            "it knows a Kafka 4.3 by APIs that this broker does not have, as those of share groups",
        ),
    ),
    skips=((r"Requires KAFKA_VERSION < 0.10.1$", "it is for Kafka 0.10.0 and older alone"),),
)

CONFLUENT_PARTS: Final = ("admin", "consumer", "producer", "serialization")
ACCESS_LISTS_LAST: Final = (
    "it sets access lists (ACLs), which this broker does not have, after all else that it does, "
    "with topics, partitions, groups, offsets and configs, has passed"
)
CONFLUENT_KAFKA: Final = OwnSuite(
    "confluent-kafka",
    "2.15.0",
    "v2.15.0",
    "`tests/integration`: `admin`, `consumer`, `producer` and `serialization`",
    confluent_kafka,
    tuple(f"tests/integration/{part}" for part in CONFLUENT_PARTS),
    # The last is what Kafka's controller sets for all brokers when a cluster is made.
    settings=(QUICK_GROUPS, "min.insync.replicas=1"),
    users=(User("sasl_user", "PLAIN", "sasl_user"),),
    known=(
        (r"test_transactions ", NO_TRANSACTIONS),
        (r"test_basic_operations", ACCESS_LISTS_LAST),
        (r"test_describe_operations", NO_ACCESS_LISTS),
    ),
    # As it is said by the client, which looks for the API.
    says=(
        (NO_TRANSACTIONS, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        (ACCESS_LISTS_LAST, "ACLs Admin API"),
        (NO_ACCESS_LISTS, "ACLs Admin API"),
    ),
    skips=((r"test_consumer_upgrade_downgrade", "it is run with the consumer protocol"),),
    without=(
        (
            "The program `integration_test`",
            "it ends before its first test, where it prints the version of the client of today",
        ),
        ("`schema_registry`", "it tests clients of a schema registry, which is another server"),
        ("What begins with `share_consumer`", NO_SHARE_GROUPS),
    ),
)

CONFLUENT_KAFKA_848: Final = replace(
    CONFLUENT_KAFKA,
    client="confluent-kafka-consumer",
    part="the same with `TEST_CONSUMER_GROUP_PROTOCOL=consumer` (KIP-848)",
    prepare=confluent_kafka_848,
    skips=(
        (
            r"session.timeout.ms is not supported on client side",
            "it sets session.timeout.ms, which clients of the consumer protocol do not have",
        ),
    ),
    without=(),
    shared=CONFLUENT_KAFKA.client,
)
