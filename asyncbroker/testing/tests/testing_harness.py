"""What these tests share: runs of pytest in a process of their own, requests made up."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from asyncbroker.testing import BrokerThread, Request

# How members tell their coordinator that they are there, in either protocol.
BEATS = ("Heartbeat", "ConsumerGroupHeartbeat")


def run_pytest(directory: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_it.py").write_text(textwrap.dedent(text))
    ini = directory / "pytest.ini"
    if not ini.exists():
        ini.write_text(
            "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"
        )
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        env={key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"},
    )


def make_request(**fields: object) -> Request:
    values: dict[str, object] = {
        "at": 0.0,
        "api": "Produce",
        "version": 9,
        "client_id": "c",
        "partitions": (("t", 0),),
        "groups": (),
    }
    return Request(**{**values, **fields})  # type: ignore[arg-type]


def wait_for_coordinator(broker: BrokerThread, group: str) -> None:
    """Returns when a member has reached the group's coordinator of now with a heartbeat. Until then
    a commit may go to the last one, and librdkafka, told so by a commit, drops its connection and
    now and then makes no other for a whole session."""

    def is_reached() -> bool:
        beats = [request for request in broker.requests if request.api in BEATS]
        last = beats[-1] if beats else None
        return last is not None and not last.errors and last.node == broker.coordinator_of(group)

    broker.wait_for(until=is_reached, timeout=20)
