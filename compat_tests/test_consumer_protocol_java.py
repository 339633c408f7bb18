"""Groups of the consumer protocol (KIP-848) with Kafka's own Java client and tools, and what the
broker writes about them as Kafka's tool reads it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from asyncbroker.tests.long import IS_LONG
from compat_tests.consumer_groups import broker_of
from compat_tests.java import TOOLS, dump_log_segments, java, needs_jars, run_tool
from compat_tests.suites.confluent_kafka.fleet import Fleet
from compat_tests.suites.features import NEXT_GENERATION
from compat_tests.suites.run import run_features
from compat_tests.suites.suite import Result
from compat_tests.test_suites import PROGRAM_SECONDS_MAX, program_of_client

pytestmark = [pytest.mark.timeout(300), needs_jars]

PARTITIONS = 4
# What Kafka's tool calls the records of a consumer group, by the versions of their keys.
KINDS = {3, 5, 6, 7, 8}


def test_java_and_librdkafka_share_a_group(tmp_path: Path) -> None:
    with broker_of(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("flights", PARTITIONS, 1)])["flights"].result(20)
        console = subprocess.Popen(
            java(
                f"{TOOLS}.consumer.ConsoleConsumer",
                *("--bootstrap-server", servers, "--topic", "flights", "--group", "both"),
                *("--consumer-property", "group.protocol=consumer"),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            fleet = Fleet(servers, "both", "flights")
            fleet.start("a")
            fleet.until(lambda parts: len(parts["a"]) == PARTITIONS)
            fleet.until(lambda parts: len(parts["a"]) == PARTITIONS // 2)
            shown = described(servers, "--members", "--verbose")
            assert len(re.findall(r"^both .*flights.*$", shown, re.MULTILINE)) == 2, shown
            assert re.search(r"both\s+\S+.*uniform\s+Stable", described(servers, "--state"))
        finally:
            console.terminate()
            output, _ = console.communicate(timeout=30)
        assert b"Exception" not in output, output.decode()
        fleet.until(lambda parts: len(parts["a"]) == PARTITIONS)
        fleet.stop_all()
        assert "both" in run_tool(
            "consumer.group.ConsumerGroupCommand", "--bootstrap-server", servers, "--list"
        )
    segments = sorted((tmp_path / "data" / "__consumer_offsets-0").glob("*.log"))
    dumped = dump_log_segments(segments, "--offsets-decoder")
    keys = [json.loads(text) for text in re.findall(r"key: (\{.*?\}) payload", dumped)]
    about_groups = [key for key in keys if "groupId" in key["data"]]
    assert {int(key["type"]) for key in about_groups} == KINDS, dumped
    assert "assignmentEpochs" in dumped
    assert "unknown" not in dumped.lower()


@pytest.mark.parametrize("feature", NEXT_GENERATION if IS_LONG else NEXT_GENERATION[:1])
def test_members_of_java_come_and_go(tmp_path: Path, feature: str) -> None:
    """At every moment no partition has two owners, and none is without one for long: what is
    checked is in `suites/java/Groups.java`."""
    with broker_of(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        program = program_of_client("java-clients")
        result = run_features(program, servers, [feature], PROGRAM_SECONDS_MAX)[feature]
    assert result == Result("passed")


def described(servers: str, *arguments: str) -> str:
    """What Kafka's tool says of the group."""
    return run_tool(
        "consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", servers, "--describe", "--group", "both", *arguments),
    )
