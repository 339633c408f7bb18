"""Kafka's own classes, each in a JVM of its own: its tools, and Kafka itself.

`scripts/test` resolves the jars from Maven and names the classpath file; without it the tests that
are marked `needs_jars` are skipped, which `scripts/test` never lets happen.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

TOOL_SECONDS_MAX = 120
TOOLS = "org.apache.kafka.tools"

needs_jars = pytest.mark.skipif(
    "ASYNCBROKER_KAFKA_CLASSPATH" not in os.environ, reason="needs Kafka's jars: run scripts/test"
)


def java(name: str, *arguments: str) -> list[str]:
    """The command that runs a class; its options make a JVM start soon."""
    classpath = Path(os.environ["ASYNCBROKER_KAFKA_CLASSPATH"]).read_text().strip()
    options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["java", *options, "-cp", classpath, name, *arguments]


def run_java(name: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a class to its end, whatever that is."""
    return subprocess.run(
        java(name, *arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS_MAX,
    )


def run_tool(name: str, *arguments: str, stdin: str = "") -> str:
    """Runs one of Kafka's tools to its end, which must be a good one; its standard output."""
    result = run_java(f"{TOOLS}.{name}", *arguments, stdin=stdin)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def dump_log_segments(files: Iterable[Path], *options: str) -> str:
    """What Kafka's tool prints of segments, indexes and snapshots in which it finds no fault."""
    names = ",".join(str(path) for path in files)
    dumped = run_java(f"{TOOLS}.DumpLogSegments", *options, "--files", names)
    assert dumped.returncode == 0, dumped.stderr
    for complaint in ("isvalid: false", "ismatch", "out of order", "should be"):
        assert complaint not in dumped.stdout + dumped.stderr, complaint
    return dumped.stdout
