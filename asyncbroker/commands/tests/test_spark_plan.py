"""`asyncbroker spark plan` against a broker in the process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from asyncbroker.__main__ import cli
from asyncbroker.testing import BrokerThread


def plan(broker: BrokerThread, *arguments: str) -> tuple[int, str]:
    command = ["spark", "plan", *arguments, "-b", broker.bootstrap_servers]
    result = CliRunner().invoke(cli, command)
    return result.exit_code, result.output


def test_the_ranges_of_a_query_are_printed(kafka_broker: BrokerThread) -> None:
    for number in range(10):
        kafka_broker.topic("flights").append(f"{number}")
    status, output = plan(kafka_broker, "flights", "-o", "minPartitions=2")
    assert status == 0
    assert [line.split() for line in output.splitlines()] == [
        ["TOPIC", "PARTITION", "START", "END", "OFFSETS"],
        ["flights", "0", "0", "5", "5"],
        ["flights", "0", "5", "10", "5"],
        ["2", "tasks,", "10", "offsets"],
    ]
    status, output = plan(
        kafka_broker, "flights", "--json", "-o", 'startingOffsets={"flights":{"0":7}}'
    )
    assert json.loads(output) == [{"topic": "flights", "partition": 0, "start": 7, "end": 10}]


def test_options_that_nobody_knows_are_warned_of(
    kafka_broker: BrokerThread, caplog: pytest.LogCaptureFixture
) -> None:
    kafka_broker.topic("flights").append("one")
    status, _ = plan(kafka_broker, "flights", "-o", "startingTimestmp=5")
    assert status == 0
    assert "did you mean 'startingTimestamp'?" in caplog.text


def test_it_connects_as_a_query_would(kafka_broker: BrokerThread, tmp_path: Path) -> None:
    kafka_broker.topic("flights").append("one")
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SSL\nacks=all\n")
    for arguments in (["-o", "kafka.security.protocol=SSL"], ["--command-config", str(config)]):
        status, output = plan(kafka_broker, "flights", *arguments)
        assert status == 1
        assert f"cannot connect to {kafka_broker.bootstrap_servers}" in output


def test_planning_needs_no_pyspark(kafka_broker: BrokerThread) -> None:
    kafka_broker.topic("flights").append("one")
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from asyncbroker.__main__ import cli; cli(prog_name='asyncbroker')"
    )
    command = [sys.executable, "-c", code, "spark", "plan", "flights", "--json"]
    output = subprocess.check_output([*command, "-b", kafka_broker.bootstrap_servers])
    assert json.loads(output) == [{"topic": "flights", "partition": 0, "start": 0, "end": 1}]


def test_what_a_query_would_be_refused_is_refused(kafka_broker: BrokerThread) -> None:
    kafka_broker.topic("flights").append("one")
    status, output = plan(kafka_broker, "flights", "-o", "startingOffsets=latest")
    assert status == 1
    assert "starting offset can't be latest for batch queries" in output
    status, output = plan(kafka_broker, "flights", "-o", 'endingOffsets={"flights":{"0":50}}')
    assert status == 1
    assert "Some data may have been lost" in output
    status, output = plan(kafka_broker, "nothing")
    assert status == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in output
