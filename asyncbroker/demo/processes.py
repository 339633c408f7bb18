"""The processes of the demo: a broker that can be killed and started again, and group members."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

STOP_SECONDS_MAX = 20.0


class DemoError(Exception):
    """Something that the demo needs did not work; the text is for the user."""


class BrokerProcess:
    """`asyncbroker serve` as a child, on one address for all its lives."""

    def __init__(self, data: Path | None, settings: tuple[str, ...], log: Path) -> None:
        self._where = ["--data", str(data)] if data else ["--memory"]
        self._settings = settings
        self._log = log
        self._child: subprocess.Popen[str] | None = None
        self.address = "127.0.0.1:0"

    def start(self) -> None:
        """Starts it and waits for its ready line."""
        command = [sys.executable, "-m", "asyncbroker", "serve", "--listen", self.address]
        command += self._where
        for setting in self._settings:
            command += ["--set", setting]
        with self._log.open("a") as log:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert child.stdout is not None
        with child.stdout as lines:
            ready = lines.readline().split()
        if ready[:2] != ["asyncbroker", "ready"]:
            child.kill()
            child.wait()
            raise DemoError(f"the broker did not start; its log is {self._log}")
        self._child = child
        self.address = ready[2]

    def kill(self) -> None:
        """`kill -9`: the process gets no chance to write or close anything."""
        assert self._child is not None
        self._child.kill()
        self._child.wait()
        self._child = None

    def stop(self) -> None:
        if self._child is not None:
            end(self._child)
            self._child = None


class MemberProcess:
    """One member of the group, see `member.py`."""

    def __init__(
        self, name: str, servers: str, group: str, topic: str, field: str, store: Path, log: Path
    ) -> None:
        self.name = name
        command = [sys.executable, "-m", "asyncbroker.demo.member", "--name", name]
        command += ["--servers", servers, "--group", group, "--topic", topic, "--field", field]
        command += ["--store", str(store)]
        with log.open("a") as output:
            self._child = subprocess.Popen(command, stdout=output, stderr=output)

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()

    def ask_to_stop(self) -> None:
        """Lets it leave the group."""
        self._child.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Lets it leave the group, and waits until it has."""
        end(self._child)


def stop_all(members: list[MemberProcess]) -> None:
    """Lets all of them leave at once, and waits until they have."""
    for member in members:
        member.ask_to_stop()
    for member in members:
        member.stop()


def end(child: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """SIGTERM, and SIGKILL when that takes too long."""
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
