"""The own suite of librdkafka, which is built from its source with a compiler for C and C++."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from compat_tests.suites.install import call, kafka_classpath, kafka_version, need
from compat_tests.suites.own.brokers import Servers
from compat_tests.suites.own.suite import (
    KAFKA_VERSION,
    NO_ACCESS_LISTS,
    NO_SHARE_GROUPS,
    NO_TRANSACTIONS,
    OWN,
    THREE_BROKERS,
    Command,
    OwnSuite,
)

# On a busy machine a test may take longer than its authors thought.
SLOWER: Final = 2


def librdkafka(checkout: Path, servers: Servers, results: Path, tests: tuple[str, ...]) -> Command:
    return in_scenario("default", checkout, servers, results, tests)


def librdkafka_noautocreate(
    checkout: Path, servers: Servers, results: Path, tests: tuple[str, ...]
) -> Command:
    return in_scenario("noautocreate", checkout, servers, results, tests)


def librdkafka_848(
    checkout: Path, servers: Servers, results: Path, tests: tuple[str, ...]
) -> Command:
    command, environment = in_scenario("default", checkout, servers, results, tests)
    return command, {**environment, "TEST_CONSUMER_GROUP_PROTOCOL": "consumer"}


def in_scenario(
    scenario: str, checkout: Path, servers: Servers, results: Path, tests: tuple[str, ...]
) -> Command:
    """The tests for one way to set up a broker."""
    folder = checkout / "tests"
    if not (folder / "test-runner").exists():
        need("g++")
        call(["./configure", "--disable-curl", "--disable-gssapi"], checkout)
        call([need("make"), "-j2", "libs"], checkout)
        call([need("make"), "-C", "tests", "build"], checkout)
    tools(folder / "kafka" / "bin")
    configuration = folder / "own.conf"
    configuration.write_text(
        f"bootstrap.servers={servers.plaintext}\ntest.timeout.multiplier={SLOWER}\n"
    )
    environment = {
        "TEST_KAFKA_VERSION": KAFKA_VERSION,
        "RDKAFKA_TEST_CONF": str(configuration),
        "KAFKA_PATH": str(folder / "kafka"),
        "BROKERS": servers.plaintext,
    }
    program = str(OWN / "librdkafka_tests.py")
    return [sys.executable, program, str(folder), str(results), scenario, *tests], environment


def tools(folder: Path) -> None:
    """Those of Kafka that tests start."""
    classpath = kafka_classpath(kafka_version())
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "kafka-topics.sh"
    script.write_text(
        f'#!/bin/sh\nexec java -cp "$(cat {classpath})" org.apache.kafka.tools.TopicCommand "$@"\n'
    )
    script.chmod(0o755)


WITHOUT: Final = (
    ("Tests that are `LOCAL` there", "they need no broker"),
    ("0170 to 0185", NO_SHARE_GROUPS),
)

LIBRDKAFKA: Final = OwnSuite(
    "librdkafka",
    "2.15.0",
    "v2.15.0",
    "`tests` that want a broker",
    librdkafka,
    (),
    settings=("num.partitions=4",),
    known=(
        (r"^0081_admin do_test_(Create|Describe|Delete)Acls$", NO_ACCESS_LISTS),
        (r"^(0109_auto_create_topics|0115_producer_auth|0119_consumer_auth)", NO_ACCESS_LISTS),
        (r"^(0103_transactions|0129_fetch_aborted_msgs|0098_consumer_txn)", NO_TRANSACTIONS),
    ),
    skips=((r"^0101_fetch_from_follower", THREE_BROKERS),),
    without=WITHOUT,
)

LIBRDKAFKA_NOAUTOCREATE: Final = OwnSuite(
    "librdkafka-noautocreate",
    "2.15.0",
    "v2.15.0",
    "the same of its scenario `noautocreate`",
    librdkafka_noautocreate,
    (),
    settings=("num.partitions=4", "auto.create.topics.enable=false"),
    shared="librdkafka",
)

LIBRDKAFKA_848: Final = OwnSuite(
    "librdkafka-consumer",
    "2.15.0",
    "v2.15.0",
    "the same with `TEST_CONSUMER_GROUP_PROTOCOL=consumer` (KIP-848)",
    librdkafka_848,
    (),
    settings=("num.partitions=4",),
    shared="librdkafka",
)
