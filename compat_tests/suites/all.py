"""The one list of suites."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from compat_tests.suites.install import SUITES as PROGRAMS
from compat_tests.suites.install import go_program, java_classes, node_program, python_program
from compat_tests.suites.java import tools
from compat_tests.suites.suite import Result, Suite
from compat_tests.suites.wire import matrix as wire_matrix

NO_TRANSACTIONS: Final = Result(
    "refused", "this broker has no transactions, and says so with an error that ends the producer"
)


def aiokafka(version: str, folder: Path) -> list[str]:
    return python_program(
        "aiokafka", folder, f"aiokafka=={version}", "cramjam>=2.9", "python-snappy", "lz4"
    )


def kafka_python(version: str, folder: Path) -> list[str]:
    codecs = ("crc32c", "lz4", "python-snappy", "zstandard")
    return python_program("kafka_python", folder, f"kafka-python=={version}", *codecs)


def confluent_kafka(version: str, folder: Path) -> list[str]:
    return python_program("confluent_kafka", folder, f"confluent-kafka=={version}")


JVM: Final = ("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp")


def java_clients(version: str, folder: Path) -> list[str]:
    return [*JVM, java_classes(folder, version), "Matrix"]


def java_tools(version: str, folder: Path) -> list[str]:
    classpath = f"KAFKA_TOOLS_CLASSPATH={java_classes(folder, version)}"
    return ["env", classpath, sys.executable, str(PROGRAMS / "java" / "tools.py")]


def kafkajs(version: str, folder: Path) -> list[str]:
    return node_program("kafkajs", folder, f"kafkajs@{version}")


def franz_go(version: str, folder: Path) -> list[str]:
    client = f"github.com/twmb/franz-go@v{version}"
    return go_program("franz_go", folder, client, "github.com/twmb/franz-go/pkg/kadm@v1.20.0")


def wire(version: str, folder: Path) -> list[str]:
    return [sys.executable, str(PROGRAMS / "wire" / "matrix.py")]


NO_CODEC: Final = "it has no codec but gzip by itself"
NO_ASSIGNOR: Final = "it has round robin only"

SUITES: Final[tuple[Suite, ...]] = (
    Suite(
        name="aiokafka",
        versions=("0.14.0",),
        origin="a matrix of our own: its package on PyPI holds no tests",
        prepare=aiokafka,
        absent={
            "cooperative": "it has no cooperative assignor",
            "logdirs": "its admin client has no such call",
            "leaders": "its admin client has no such call",
        },
        expected={"transactions": NO_TRANSACTIONS},
    ),
    Suite(
        name="kafka-python",
        versions=("3.0.12",),
        origin=(
            "a matrix of our own: the integration tests in its source package need a module that is"
            " not in it"
        ),
        prepare=kafka_python,
        expected={"transactions": NO_TRANSACTIONS},
    ),
    Suite(
        name="confluent-kafka",
        versions=("2.16.1",),
        origin="a matrix of our own: its package on PyPI holds no tests; this is librdkafka",
        prepare=confluent_kafka,
        absent={
            "sticky": "librdkafka has the cooperative sticky assignor only",
            "logdirs": "librdkafka has no such call",
        },
        expected={"transactions": NO_TRANSACTIONS},
    ),
    Suite(
        name="java-clients",
        versions=("4.3.1", "3.9.1"),
        origin="a matrix of our own: Kafka's jars on Maven hold no tests that run against a broker",
        prepare=java_clients,
        expected={"transactions": NO_TRANSACTIONS},
    ),
    Suite(
        name="java-tools",
        versions=("4.3.1", "3.9.1"),
        origin="Kafka's own tools, each asked for what it is there for",
        prepare=java_tools,
        features={name: name for name in tools.FEATURES},
        expected={
            "TransactionsCommand": Result("refused", "this broker has no transactions to list")
        },
    ),
    Suite(
        name="kafkajs",
        versions=("2.2.4",),
        origin="a matrix of our own: its package on npm holds no tests",
        prepare=kafkajs,
        absent={
            **dict.fromkeys(("snappy", "lz4", "zstd"), NO_CODEC),
            **dict.fromkeys(("range", "sticky", "cooperative"), NO_ASSIGNOR),
            "assign": "its consumers are always in groups",
            "static": "it has no static members",
            "logdirs": "its admin client has no such call",
            "leaders": "its admin client has no such call",
        },
        expected={"transactions": NO_TRANSACTIONS},
    ),
    Suite(
        name="franz-go",
        versions=("1.22.3",),
        origin="a matrix of our own",
        prepare=franz_go,
        expected={"transactions": NO_TRANSACTIONS},
    ),
    Suite(
        name="wire",
        versions=("1",),
        origin="our own: what old and odd peers send on a bare socket, and what consoles ask",
        prepare=wire,
        features={name: name for name in wire_matrix.FEATURES},
        expected={"a transactional id": NO_TRANSACTIONS},
    ),
)
