"""Which suites of clients are run, how, and which of their tests are known to fail and why.

The tests are in the clients' repositories, not in their packages: the command is given a clone, and
takes the version named here from it. Where a suite starts a broker in a container, it is made to
meet the one that runs; nothing else of it is changed.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from compat_tests.suites.install import call, made_of, need

OWN: Final = Path(__file__).parent
TEST_SECONDS_MAX: Final = 120

# Some suites look at the version of the broker that they start.
KAFKA_VERSION: Final = "4.3.1"

Command = tuple[list[str], dict[str, str]]
"""A program with its arguments, and what is in its environment besides."""

NO_TRANSACTIONS: Final = "it needs transactions, which this broker does not have"
THREE_BROKERS: Final = "it needs a cluster of three brokers"
LOGINS: Final = "it needs the listeners with TLS and logins of the client's own containers"
NO_ACCESS_LISTS: Final = "it sets access lists (ACLs), which this broker does not have"
BROKER_0: Final = "it asks for the broker of the id 0, which that of its container has"
NO_TIME: Final = "its members join with a rebalance timeout of 0 ms, and fail with Kafka 4 as well"
OLD_KAFKA: Final = "it asks for what Kafka 4 has removed, and fails with Kafka 4 as well"


@dataclass(frozen=True, slots=True)
class OwnSuite:
    """A client's own suite: `prepare` makes a checkout ready, and gives the command that runs it
    against HOST:PORT, all of it or some files, and writes its results to a file, in JUnit's format.

    `settings` are those of the broker in the client's own container. `known` has patterns of the
    names of tests that may fail, each with the reason.
    """

    client: str
    version: str
    tag: str
    part: str
    prepare: Callable[[Path, str, Path, tuple[str, ...]], Command]
    tests: tuple[str, ...]
    settings: tuple[str, ...]
    known: tuple[tuple[str, str], ...]

    def reason(self, test: str) -> str | None:
        """Why a test may fail; None if it must not."""
        return next((why for pattern, why in self.known if re.search(pattern, test)), None)


def python(folder: Path, *requirements: str) -> str:
    """An interpreter with some packages beside a checkout."""
    python = str(folder / "bin" / "python")

    def make() -> None:
        call([sys.executable, "-m", "venv", str(folder)])
        call([python, "-m", "pip", "install", "--quiet", *requirements])

    made_of([sys.executable, *requirements], folder, make)
    return python


def pytest_command(python: str, checkout: Path, results: Path, *tests: str) -> list[str]:
    """Runs tests without the settings of the checkout, which turn warnings of today into errors."""
    settings = checkout / "own.ini"
    settings.write_text("[pytest]\n")
    return [
        *(python, "-m", "pytest", "-q", "-c", str(settings), "--rootdir", str(checkout)),
        *("-o", "asyncio_mode=auto", "-p", "no:cacheprovider"),
        *("--timeout", str(TEST_SECONDS_MAX), "--junitxml", str(results)),
        *tests,
    ]


TEST_PACKAGES: Final = ("pytest", "pytest-timeout", "pytest-asyncio", "pytest-mock")


def aiokafka(checkout: Path, servers: str, results: Path, tests: tuple[str, ...]) -> Command:
    codecs = ("cramjam>=2.9", "python-snappy", "lz4")
    interpreter = python(checkout.with_suffix(".venv"), "aiokafka==0.14.0", *codecs, *TEST_PACKAGES)
    # Or the tests would import it from the checkout, where it is not compiled.
    shutil.rmtree(checkout / "aiokafka", ignore_errors=True)
    shutil.copy(OWN / "aiokafka_conftest.py", checkout / "tests" / "conftest.py")
    return pytest_command(interpreter, checkout, results, *tests), {"BROKER": servers}


def confluent_kafka(checkout: Path, servers: str, results: Path, tests: tuple[str, ...]) -> Command:
    others = ("trivup", "requests", "avro", "fastavro", "httpx", "attrs", "cachetools", "authlib")
    more = ("jsonschema", "protobuf", "googleapis-common-protos", "pyrsistent")
    packages = ("confluent-kafka==2.15.0", *others, *more, *TEST_PACKAGES)
    interpreter = python(checkout.with_suffix(".venv"), *packages)
    environment = {"BROKERS": servers, "PYTHONPATH": str(checkout)}
    return pytest_command(interpreter, checkout, results, *tests), environment


def kafka_python(checkout: Path, servers: str, results: Path, tests: tuple[str, ...]) -> Command:
    codecs = ("crc32c", "lz4", "python-snappy", "zstandard")
    interpreter = python(
        checkout.with_suffix(".venv"), "kafka-python==3.0.11", *codecs, *TEST_PACKAGES
    )
    shutil.rmtree(checkout / "kafka", ignore_errors=True)
    # It looks for a Kafka to start, also when it is told of one that runs.
    (checkout / "servers" / KAFKA_VERSION / "kafka-bin").mkdir(parents=True, exist_ok=True)
    environment = {
        "KAFKA_URI": f"kafka://{servers}",
        "KAFKA_VERSION": KAFKA_VERSION,
        "PYTHONPATH": str(checkout),
    }
    return pytest_command(interpreter, checkout, results, *tests), environment


def kafkajs(checkout: Path, servers: str, results: Path, tests: tuple[str, ...]) -> Command:
    npm = need("npm")
    if not (checkout / "node_modules").exists():
        call([npm, "install", "--silent", "--no-audit", "--ignore-scripts"], checkout)
    # Here are the addresses of the client's containers.
    helpers = checkout / "testHelpers" / "index.js"
    host, _, port = servers.rpartition(":")
    text = helpers.read_text()
    text = re.sub(r"const getHost = .*", f"const getHost = () => '{host}'", text)
    text = re.sub(r"const plainTextBrokers = .*", _brokers(port), text)
    # Not those of TLS, 9093 and 9094, which nobody listens on.
    text = re.sub(
        r"(logger: newLogger\(\),\n  host: getHost\(\),\n  port:) \d+", rf"\1 {port}", text
    )
    text = re.sub(r"\$\{getHost\(\)\}:\d+", f"${{getHost()}}:{port}", text)
    helpers.write_text(text)
    jest = str(checkout / "node_modules" / ".bin" / "jest")
    environment = {
        # What the suite is written for; it skips what needs more.
        "KAFKA_VERSION": "2.4",
        "NODE_ENV": "test",
        "KAFKAJS_DEBUG_PROTOCOL_BUFFERS": "1",
        "JEST_JUNIT_OUTPUT_DIR": str(results.parent),
        "JEST_JUNIT_OUTPUT_NAME": results.name,
        "JEST_JUNIT_CLASSNAME": "{filepath}",
        "JEST_JUNIT_TITLE": "{classname} {title}",
        "TEST_RETRIES": "1",
    }
    options = ("--ci", "--maxWorkers=1", "--no-watchman", "--forceExit", "--testTimeout=30000")
    # All of these wait for the listeners with logins, each for a minute.
    left_out = ("/node_modules/", "/connection\\.spec", "/admin/__tests__/[a-z]+Acls\\.spec")
    return [
        need("node"),
        jest,
        *options,
        *(f"--testPathIgnorePatterns={path}" for path in left_out),
        *tests,
    ], environment


def _specs(path: str, tests: str = "") -> str:
    """A pattern of tests of kafkajs: all in some files below `src`, or those with some words."""
    return rf"^src/({path})\.spec\.js .*({tests})"


def _brokers(port: str) -> str:
    return f"const plainTextBrokers = (host = getHost()) => [`${{host}}:{port}`]"


def take(suite: OwnSuite, repository: Path, folder: Path) -> None:
    """Puts the version of a suite from a clone into a folder; one that is there stays."""
    stamp = folder / "own-tag"
    if stamp.exists() and stamp.read_text() == suite.tag:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    archive = folder / "archive.tar"
    git = ["git", "-C", str(repository), "archive", "--format=tar", "-o", str(archive), suite.tag]
    call(git)
    call([need("tar"), "-xf", str(archive), "-C", str(folder)])
    archive.unlink()
    stamp.write_text(suite.tag)


SUITES: Final[tuple[OwnSuite, ...]] = (
    OwnSuite(
        "aiokafka",
        "0.14.0",
        "v0.14.0",
        "all of `tests`, but for access lists, Kerberos and TLS, which want its container",
        aiokafka,
        ("tests",),
        ("num.partitions=2", "node.id=0"),
        (
            (r"test_transactional_", NO_TRANSACTIONS),
            (r"maybe_wait_for_pid_on_failure", NO_TRANSACTIONS),
            (
                r"test_sender__handler_base_do",
                BROKER_0,
            ),
        ),
    ),
    OwnSuite(
        "kafka-python",
        "3.0.11",
        "3.0.11",
        "`test/integration`",
        kafka_python,
        ("test/integration",),
        ("num.partitions=4", "node.id=0", "group.min.session.timeout.ms=1000"),
        (
            (r"(?i)acls", NO_ACCESS_LISTS),
            (r"test_transactional", NO_TRANSACTIONS),
            (
                r"alter_replica_log_dirs|describe_metadata_quorum|alter_partition_reassignments",
                "it moves replicas or asks Kafka's controllers, of which there are none",
            ),
            (r"version_infer", "it guesses the version by the APIs of share groups, among others"),
            (
                r"broker_resource_returns_configs",
                "it looks for settings from the file of the broker that it starts",
            ),
            (r"test_ssl_integration|TestSSL", LOGINS),
            (r"test_create_partitions", BROKER_0),
        ),
    ),
    OwnSuite(
        "kafkajs",
        "2.2.4",
        "v2.2.4",
        "`src/{admin,broker,cluster,consumer,producer}`, but for six files that all log in",
        kafkajs,
        tuple(f"src/{part}/" for part in ("admin", "broker", "cluster", "consumer", "producer")),
        ("num.partitions=2", "node.id=0"),
        (
            (_specs("broker/__tests__/(create|delete|describe)Acls"), NO_ACCESS_LISTS),
            (
                _specs("broker/__tests__/(add(Offsets|Partitions)ToTxn|endTxn|txnOffsetCommit)"),
                NO_TRANSACTIONS,
            ),
            # Also the producer's id without a transactional id: it looks for the coordinator first.
            (_specs("broker/__tests__/initProducerId"), NO_TRANSACTIONS),
            (_specs("broker/__tests__/fetch", "transactional returns"), NO_TRANSACTIONS),
            (
                _specs("cluster/__tests__/findGroupCoordinator", "if transactional$"),
                NO_TRANSACTIONS,
            ),
            (_specs("producer/index", " transactions "), NO_TRANSACTIONS),
            (_specs("producer/__tests__/concurrentTransaction"), NO_TRANSACTIONS),
            (_specs("consumer/__tests__/controlBatches"), NO_TRANSACTIONS),
            (_specs("consumer/__tests__/consumeMessages", " transactions "), NO_TRANSACTIONS),
            (
                _specs("(admin|broker)/__tests__/(alter|list)PartitionReassignments"),
                "it moves partitions between brokers",
            ),
            (
                _specs(
                    "cluster/__tests__/brokerPool",
                    "#removeBroker|#refreshMetadata (cleans up|updates the list)"
                    "|#connect (does not connect to the|select a different) seed"
                    "|#findBroker connects|#hasConnectedBrokers returns true if any",
                ),
                THREE_BROKERS,
            ),
            (
                _specs("cluster/__tests__/findGroupCoordinator", "across all brokers|ECONNREFUSED"),
                THREE_BROKERS,
            ),
            (
                _specs("broker/__tests__/(findGroupCoordinator|metadata)", " request$"),
                THREE_BROKERS,
            ),
            (_specs("broker/__tests__/deleteRecords", "not the partition leader"), THREE_BROKERS),
            (_specs("broker/__tests__/createTopics", "default replication"), THREE_BROKERS),
            (_specs("admin/__tests__/createTopics", "manual replica"), THREE_BROKERS),
            (_specs("admin/__tests__/(alter|describe)Configs", " broker configs$"), THREE_BROKERS),
            (
                _specs(
                    "admin/__tests__/deleteTopicRecords",
                    "all broker errors are retriable|at least 1 broker error|of retriable error",
                ),
                THREE_BROKERS,
            ),
            (_specs("admin/__tests__/describeCluster"), THREE_BROKERS),
            (_specs("producer/__tests__/idempotentProduceMessages", "throws a"), THREE_BROKERS),
            (_specs("broker/__tests__/describeConfigs", "returns all config entries"), OLD_KAFKA),
            (_specs("broker/__tests__/listOffsets", " v0 request$"), OLD_KAFKA),
            (_specs("broker/__tests__/produce", "max timestamp difference"), OLD_KAFKA),
            (_specs("broker/__tests__/(heartbeat|offsetCommit|offsetFetch)", " request"), NO_TIME),
            (
                _specs(
                    "broker/__tests__/(connect|disconnect)", "SASL|PLAIN|mechanism|session life"
                ),
                LOGINS,
            ),
        ),
    ),
    OwnSuite(
        "confluent-kafka",
        "2.15.0",
        "v2.15.0",
        "`tests/integration`: `admin`, `consumer` and `producer`",
        confluent_kafka,
        tuple(f"tests/integration/{part}" for part in ("admin", "consumer", "producer")),
        (),
        (
            (r"test_transactions ", NO_TRANSACTIONS),
            (r"test_basic_operations", NO_ACCESS_LISTS),
            (r"sasl_cluster", LOGINS),
            (
                r"test_incremental_alter_configs",
                "it expects min.insync.replicas to be set for all brokers, as Kafka's controller "
                "does when a cluster is made",
            ),
        ),
    ),
)
