"""The one list of suites."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from compat_tests.suites.install import SUITES as PROGRAMS
from compat_tests.suites.install import java_classes, python_program
from compat_tests.suites.java import tools
from compat_tests.suites.suite import Result, Suite

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
        origin="a matrix of our own, beside the integration tests in its source package",
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
)
