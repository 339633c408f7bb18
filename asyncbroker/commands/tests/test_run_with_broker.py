"""`asyncbroker test-broker`: the command's environment, exit status, signals, and what is shown."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS_MAX = 30

PRODUCE = """
import os
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
assert os.environ["BOOTSTRAP_SERVERS"] == os.environ["KAFKA_BOOTSTRAP_SERVERS"]
assert len(producer.list_topics("orders", 10).topics["orders"].partitions) == 3
producer.produce("orders", b"x", partition=2)
assert producer.flush(10) == 0
"""

HANG = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(41))
print("ready", flush=True)
time.sleep(60)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "asyncbroker", "test-broker", *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "asyncbroker", "test-broker", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_command_finds_the_broker_and_its_topics() -> None:
    result = run(
        "--topic", "orders:3", "--trace", "api=Produce", "--", sys.executable, "-c", PRODUCE
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    assert "Produce v" in result.stderr
    assert "orders-2 (1 record" in result.stderr
    assert "Metadata" not in result.stderr


def test_a_failure_shows_the_last_requests_where_that_was_asked_for() -> None:
    failing = PRODUCE + "raise SystemExit(3)"
    result = run("--topic", "orders:3", "--trace-on-failure", "--", sys.executable, "-c", failing)
    assert result.returncode == 3
    assert "Produce v" in result.stderr
    result = run("--topic", "orders:3", "--", sys.executable, "-c", failing)
    assert (result.returncode, "Produce v" in result.stderr) == (3, False)


def test_a_directory_keeps_what_was_produced(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"), "--topic", "orders:3")
    for _ in range(2):
        result = run(*data, "--", sys.executable, "-c", PRODUCE)
        assert result.returncode == 0, result.stderr
    assert (tmp_path / "data" / "orders-2").is_dir()


def test_an_old_broker_serves_what_that_release_had() -> None:
    result = run(
        "--old-broker",
        "2.8",
        "--topic",
        "orders:3",
        "--trace",
        "api=Produce",
        "--",
        sys.executable,
        "-c",
        PRODUCE,
    )
    assert result.returncode == 0, result.stderr
    assert "Produce v9 " in result.stderr


def test_options_of_the_command_are_its_own() -> None:
    result = run("--", sys.executable, "-c", "import sys; print(sys.argv)", "--trace", "--", "x")
    assert result.stdout.strip() == "['-c', '--trace', '--', 'x']"


@pytest.mark.parametrize(("command", "status"), [(("/no/such/command",), 127), ((os.curdir,), 126)])
def test_a_command_that_cannot_run_ends_as_in_a_shell(
    command: tuple[str, ...], status: int
) -> None:
    assert run("--", *command).returncode == status


def test_a_signal_reaches_the_command_and_its_status_comes_back() -> None:
    process = start("--", sys.executable, "-c", HANG)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 41


def test_a_command_that_a_signal_ends_gives_128_and_its_number() -> None:
    process = start("--", sys.executable, "-c", HANG.replace("signal.SIGTERM,", "signal.SIGUSR1,"))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 128 + signal.SIGTERM


def test_without_a_command_it_says_where_it_is_and_stays() -> None:
    process = start("--topic", "orders")
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("asyncbroker ready 127.0.0.1:")
    listed = subprocess.run(
        [sys.executable, "-m", "asyncbroker", "topics", "list", "-b", line.split()[2]],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    assert "orders" in listed.stdout
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [("--old-broker", "9x"), ("--topic", "t:x"), ("--set", "no.such.setting=1"), ("--set", "x")],
)
def test_what_cannot_be_is_said(arguments: tuple[str, ...]) -> None:
    result = run(*arguments, "--", "true")
    assert result.returncode in (1, 2)
    assert "Error" in result.stderr
