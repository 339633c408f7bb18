"""Runs the Java program with a broker of its own, as its build would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CLASSPATH = "ASYNCBROKER_KAFKA_CLASSPATH"


@pytest.mark.timeout(120)
@pytest.mark.skipif(CLASSPATH not in os.environ, reason="needs Kafka's jars: run scripts/test")
def test_a_java_program_with_a_broker_of_its_own() -> None:
    classpath = Path(os.environ[CLASSPATH]).read_text().strip()
    program = Path(__file__).with_name("RoundTrip.java")
    broker = [sys.executable, "-m", "asyncbroker", "test-broker", "--set", "message.max.bytes=1000"]
    command = [*broker, "--", "java", "-cp", classpath, str(program)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "read: small" in result.stdout
