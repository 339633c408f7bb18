"""A real broker process for real clients.

By default each test session starts `asyncbroker serve` on a data directory and on a free port.
`BOOTSTRAP_SERVERS=host:port` runs the same tests against any other broker, such as Apache Kafka;
tests that restart the broker are then skipped, since that one is not theirs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import pytest

READY_SECONDS_MAX = 60
STOP_SECONDS_MAX = 20

# Group tests need not wait for members that will never come.
SETTINGS = ("group.initial.rebalance.delay.ms=0", "log.segment.bytes=1048576")


AnyBroker = TypeVar("AnyBroker", bound="BrokerProcess")


class BrokerProcess:
    """One broker process on a data directory: started, killed and started again on one port."""

    program: tuple[str, ...] = ("-m", "asyncbroker")
    # None: that of the tests.
    environment: Mapping[str, str] | None = None

    def __init__(self, data: Path, settings: tuple[str, ...] = SETTINGS) -> None:
        self._data = data
        self.settings = settings
        self._process: subprocess.Popen[str] | None = None
        self.bootstrap_servers = "127.0.0.1:0"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts the process and waits for the line that says that it answers."""
        self.begin_start()
        assert self._process is not None
        assert self._process.stdout is not None
        late = threading.Timer(READY_SECONDS_MAX, self._process.kill)
        late.start()
        line = self._process.stdout.readline().split()
        late.cancel()
        if line[:2] != ["asyncbroker", "ready"]:
            self.kill()
            raise AssertionError(f"not ready: {line}")
        self.bootstrap_servers = line[2]

    def begin_start(self) -> None:
        """Starts the process, and does not wait for it."""
        command = [sys.executable, *self.program, "serve", "--data", str(self._data)]
        command += ["--listen", self.bootstrap_servers]
        for setting in self.settings:
            command += ["--set", setting]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=self.environment
        )

    def kill(self) -> None:
        """`kill -9`: the process gets no chance to write or close anything."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._close()

    def stop(self) -> int:
        """Asks the process to end and returns its exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_SECONDS_MAX)
        finally:
            self.kill()

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _close(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextlib.contextmanager
def running(broker: AnyBroker) -> Iterator[AnyBroker]:
    """Starts a broker that has ended on leaving: in order, and quickly, if nothing failed."""
    broker.start()
    try:
        yield broker
        if broker.is_running():
            assert broker.stop() == 0
    finally:
        broker.kill()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; all are held at once, so that no two are the same."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The broker that the whole session shares; topics and groups have names of their own."""
    if other := os.environ.get("BOOTSTRAP_SERVERS"):
        yield other
        return
    with running(BrokerProcess(tmp_path_factory.mktemp("shared-broker"))) as broker:
        yield broker.bootstrap_servers
        assert broker.is_running(), "the shared broker died during the tests"


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of the test's own, to kill and restart."""
    if os.environ.get("BOOTSTRAP_SERVERS"):
        pytest.skip("restarts the broker: only for one that the test started")
    with running(BrokerProcess(tmp_path / "data")) as broker:
        yield broker


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """Makes names that no other test uses: `fresh("topic")`."""
    return lambda kind: f"{kind}-{uuid.uuid4().hex[:12]}"
