"""The one list of suites."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from compat_tests.suites.features import (
    AS_SARAMA,
    BLIND,
    FEATURES,
    FRANZ_GO_OWN,
    NEXT_GENERATION,
    SARAMA_OWN,
    USERS,
)
from compat_tests.suites.install import SUITES as PROGRAMS
from compat_tests.suites.install import (
    debian_program,
    go_program,
    go_tests,
    java_classes,
    node_program,
    python_program,
)
from compat_tests.suites.java import tools
from compat_tests.suites.suite import Prepare, Result, Suite
from compat_tests.suites.wire import matrix as wire_matrix

NO_TRANSACTIONS: Final = Result(
    "refused", "this broker has no transactions, and says so with an error that ends the producer"
)
# See `asyncbroker/handlers/find_coordinator.py`.
NO_TRANSACTIONS_KAFKAJS: Final = Result(
    "refused",
    "this broker has no transactions, and ends the producer at once, but kafkajs does not show "
    "why: each error in the answer to FindCoordinator means to it that there is no coordinator; "
    "the error is there all the same, since librdkafka shows the words that are beside it",
)
NO_CALL: Final = "its admin client has no such call"
NO_ADMIN: Final = "it is no admin client"
NO_CODEC: Final = "it has no codec but gzip by itself"
NO_ASSIGNOR: Final = "it has round robin only"
WRONG_NONCE: Final = (
    "before 2.6.1 librdkafka's last message has another nonce than RFC 5802 says, which Kafka "
    "refuses from 3.8.1 on"
)
NOT_NEXT: Final = dict.fromkeys(NEXT_GENERATION, "it speaks the classic protocol of groups only")

JVM: Final = ("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp")


def from_pypi(package: str, *others: str) -> Prepare:
    """A package on PyPI, with others that it makes use of."""
    name = package.replace("-", "_")
    return lambda version, folder: python_program(folder, name, f"{package}=={version}", *others)


def kafkajs(version: str, folder: Path) -> list[str]:
    return node_program(folder, "kafkajs", f"kafkajs@{version}")


def franz_go(version: str, folder: Path) -> list[str]:
    client = "github.com/twmb/franz-go"
    return go_program(folder, "franz_go", f"{client}@v{version}", f"{client}/pkg/kadm@v1.20.0")


def franz_go_own(version: str, folder: Path) -> list[str]:
    tests = go_tests(folder, f"github.com/twmb/franz-go@v{version}", "pkg/kgo")
    return [sys.executable, str(PROGRAMS / "go" / "own.py"), tests]


def sarama_own(version: str, folder: Path) -> list[str]:
    # One program for both suites of it.
    folder = folder.parent / f"sarama-own-{version}"
    stand_in = PROGRAMS / "sarama" / "own" / "functional_test.go"
    tests = go_tests(folder, f"github.com/IBM/sarama@v{version}", ".", stand_in)
    return [sys.executable, str(PROGRAMS / "go" / "own.py"), tests]


def sarama(version: str, folder: Path) -> list[str]:
    # One program for both suites of it.
    shared = folder.parent / f"sarama-{version}"
    scram = "github.com/xdg-go/scram@v1.2.0"
    return go_program(shared, "sarama", f"github.com/IBM/sarama@v{version}", scram)


def kafka_go(version: str, folder: Path) -> list[str]:
    client = "github.com/segmentio/kafka-go"
    return go_program(folder, "kafka_go", f"{client}@v{version}", f"{client}/sasl/scram@v{version}")


def kcat(version: str, folder: Path) -> list[str]:
    debian_program("kcat", version)
    return [sys.executable, str(PROGRAMS / "kcat" / "matrix.py")]


def java_clients(version: str, folder: Path) -> list[str]:
    return [*JVM, java_classes(folder, version), "Matrix"]


def java_tools(version: str, folder: Path) -> list[str]:
    classpath = f"KAFKA_TOOLS_CLASSPATH={java_classes(folder, version)}"
    return ["env", classpath, sys.executable, str(PROGRAMS / "java" / "tools.py")]


def wire(version: str, folder: Path) -> list[str]:
    return [sys.executable, str(PROGRAMS / "wire" / "matrix.py")]


def client(
    name: str,
    *versions: str,
    prepare: Prepare,
    origin: str,
    absent: Mapping[str, str] = MappingProxyType({}),
    more: Mapping[str, str] = MappingProxyType({}),
    transactions: Result = NO_TRANSACTIONS,
) -> Suite:
    """A client that is tried for everything, and for `more`, with checks that we had to write."""
    origin = f"a matrix of our own: {origin}"
    expected = {"transactions": transactions}
    features = {**FEATURES, **more}
    return Suite(name, versions, origin, prepare, features, absent=absent, expected=expected)


SARAMA_LEFT_OUT: Final = {
    "`TestFuncTxn...`, `TestFuncInitProducerId3`, `TestFuncDescribeTransactions` and "
    "`TestFuncListTransactions`": "this broker has no transactions",
    "`TestFuncProducing`, also with `Flushing`, `Gzip`, `Snappy` and `Zstd` behind it": (
        "they measure the delay that a proxy adds"
    ),
    "`TestAsyncProducerRemoteBrokerClosed`, `TestFuncConnectionFailure` and "
    "`TestFuncAdminNetworkErrorClosesControllerConnection`": "a proxy cuts their connections",
    "`TestConsumerFetchFollowerFailover`, `TestFuncAdminAlterPartitionReassignments`, "
    "`TestFuncAdminListConsumerGroupOffsets` and `TestFuncProducingIdempotentWithBrokerFailure`": (
        "they need other brokers, which follow or take over"
    ),
    "`TestFuncIdempotentBufferedSequence`": "it reads the broker's log in a container",
    "`TestFuncJavaInteropCooperativeRebalance` and three that begin with `TestJava`": (
        "they start Java clients in containers"
    ),
    "`TestReadOnlyAndAllCommittedMessages`": "its authors skip it",
}

SUITES: Final[tuple[Suite, ...]] = (
    client(
        "aiokafka",
        "0.14.0",
        prepare=from_pypi("aiokafka", "cramjam>=2.9", "python-snappy", "lz4"),
        origin="its package on PyPI holds no tests",
        absent={
            "cooperative": "it has no cooperative assignor",
            **NOT_NEXT,
            **dict.fromkeys(("logdirs", "leaders"), NO_CALL),
        },
    ),
    client(
        "kafka-python",
        "3.0.12",
        prepare=from_pypi("kafka-python", "crc32c", "lz4", "python-snappy", "zstandard"),
        origin="the integration tests in its source package need a module that is not in it",
        absent=NOT_NEXT,
    ),
    client(
        "confluent-kafka",
        "2.16.1",
        prepare=from_pypi("confluent-kafka"),
        origin="its package on PyPI holds no tests; this is librdkafka",
        absent={
            "sticky": "librdkafka has the cooperative sticky assignor only",
            "logdirs": "librdkafka has no such call",
        },
    ),
    client(
        "java-clients",
        "4.3.1",
        "3.9.1",
        prepare=java_clients,
        origin="Kafka's jars on Maven hold no tests that run against a broker",
    ),
    Suite(
        "java-tools",
        ("4.3.1", "3.9.1"),
        "Kafka's own tools, each asked for what it is there for",
        java_tools,
        features={name: name for name in tools.FEATURES},
        expected={
            "TransactionsCommand": Result("refused", "this broker has no transactions to list")
        },
        older={
            "3.9.1": {
                "ConfigCommand --entity-type groups": Result(
                    "absent", "the tool knows no settings of groups"
                )
            }
        },
    ),
    client(
        "kafkajs",
        "2.2.4",
        prepare=kafkajs,
        origin="its package on npm holds no tests",
        absent={
            **dict.fromkeys(("snappy", "lz4", "zstd"), NO_CODEC),
            **dict.fromkeys(("range", "sticky", "cooperative"), NO_ASSIGNOR),
            **dict.fromkeys(("logdirs", "leaders"), NO_CALL),
            "assign": "its consumers are always in groups",
            "static": "it has no static members",
            **NOT_NEXT,
        },
        transactions=NO_TRANSACTIONS_KAFKAJS,
    ),
    client(
        "franz-go",
        "1.22.3",
        prepare=franz_go,
        origin="the tests in its module have a table of their own",
        more=USERS,
    ),
    Suite(
        "franz-go-own",
        ("1.22.3",),
        "its own: the tests in its module that talk to a broker, with 20,000 records in place of "
        "500,000, and without those of transactions and share groups, which this broker has not",
        franz_go_own,
        features={name: name for name in FRANZ_GO_OWN},
        expected={
            "TestIssueProduceBrokerTooOldFailsRecords": Result(
                "absent", "Kafka 4 tells of Produce 0 to 2 as well, for the sake of librdkafka"
            )
        },
    ),
    client(
        "sarama",
        "1.61.1",
        prepare=sarama,
        origin="the tests in its module have a table of their own",
        more=USERS,
        absent=NOT_NEXT,
    ),
    Suite(
        "sarama-versions",
        ("1.61.1",),
        "our own: records with all codecs, groups and topics, as a client of older Kafkas",
        sarama,
        features=AS_SARAMA,
    ),
    Suite(
        "sarama-own",
        ("1.61.1",),
        "its own: the functional tests in its module that one broker without a proxy can pass",
        sarama_own,
        features={name: name for name in SARAMA_OWN},
        expected={
            "TestFuncAdminQuotas": Result("refused", "this broker has no quotas to set"),
            "TestFuncDescribeProducers": Result(
                "refused", "this broker has no transactions, for whose troubles that is"
            ),
            "TestFuncAdminUpdateFeatures": Result("refused", "its features are what they are"),
        },
        without=SARAMA_LEFT_OUT,
    ),
    Suite(
        "sarama-own-noautocreate",
        ("1.61.1",),
        "its own: the functional test for which the broker must make no topic by itself",
        sarama_own,
        features={"TestFuncClientMetadata": "TestFuncClientMetadata"},
        settings=("auto.create.topics.enable=false",),
    ),
    client(
        "kafka-go",
        "0.4.51",
        prepare=kafka_go,
        origin="the tests in its module know one port only, and are not run here",
        more=USERS,
        absent={
            **dict.fromkeys(("sticky", "cooperative"), "it has range and round robin only"),
            **dict.fromkeys(("delete-records", "logdirs"), NO_CALL),
            "idempotent": "it has no idempotent producer",
            "pause": "its readers are not paused",
            "static": "it has no static members",
            **NOT_NEXT,
        },
    ),
    client(
        "kcat",
        "1.7.1",
        prepare=kcat,
        origin="this is librdkafka 2.0.2, as Debian has it",
        more=BLIND,
        absent={
            **dict.fromkeys(("topics", "partitions", "configs", "delete-records"), NO_ADMIN),
            **dict.fromkeys(("groups", "logdirs", "leaders"), NO_ADMIN),
            "pause": "it reads on until it ends",
            "sticky": "librdkafka has the cooperative sticky assignor only",
            **dict.fromkeys(NEXT_GENERATION, "librdkafka speaks it from 2.4 on"),
            **dict.fromkeys(("scram-256", "scram-512"), WRONG_NONCE),
        },
    ),
    Suite(
        "wire",
        ("1",),
        "our own: what old and odd peers send on a bare socket, and what consoles ask",
        wire,
        features={name: name for name in wire_matrix.FEATURES},
        expected={"a transactional id": NO_TRANSACTIONS},
    ),
)
