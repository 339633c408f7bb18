"""A broker in a process of its own, as users run it, for tests of the process itself."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from struct import unpack
from types import TracebackType
from typing import Any

from asyncbroker.protocol.api import API_BY_NAME
from asyncbroker.tests.edge_harness import decode_response, request_frame

PATIENCE_SECONDS = 20.0


class BrokerProcess:
    """`python -m asyncbroker serve ...`, started on entering and gone on leaving. What it writes to
    standard error is read all the time and kept in `errors`."""

    def __init__(self, *options: str, environment: dict[str, str] | None = None) -> None:
        self._options = options
        self._environment = {**os.environ, **(environment or {})}
        self.errors: list[str] = []
        self._line_came = threading.Condition()
        self.ready_seconds = 0.0
        self.address = ("", 0)

    def __enter__(self) -> BrokerProcess:
        self.start()
        self.wait_until_ready()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.wait()

    def start(self) -> None:
        """Starts the process, and does not wait for it to answer."""
        self._started_at = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "asyncbroker", "serve", *self._options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )
        self._error_reader = threading.Thread(target=self._read_errors, daemon=True)
        self._error_reader.start()

    def wait_until_ready(self) -> None:
        """Reads the line that says where the broker answers."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.ready_seconds = time.monotonic() - self._started_at
        assert line.startswith("asyncbroker ready "), f"{line!r}, and {self.errors}"
        host, _, port = line.split()[2].rpartition(":")
        self.address = (host, int(port))

    def wait_for_line(self, part: str) -> str:
        """The first line of standard error that contains `part`."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            with self._line_came:
                for line in self.errors:
                    if part in line:
                        return line
                self._line_came.wait(PATIENCE_SECONDS)
        raise AssertionError(f"no line with {part!r} in {self.errors}")

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """The exit status, when the process has ended."""
        status = self.process.wait(PATIENCE_SECONDS)
        self._error_reader.join(PATIENCE_SECONDS)
        assert self.process.stdout is not None
        self.rest_of_output = "" if self.process.stdout.closed else self.process.stdout.read()
        self.process.stdout.close()
        return status

    def resident_bytes(self) -> int:
        """Memory in use, on Linux."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def socket_count(self) -> int:
        """Open sockets, on Linux."""
        count = 0
        for descriptor in Path(f"/proc/{self.process.pid}/fd").iterdir():
            # It may be closed while we look.
            with suppress(FileNotFoundError):
                count += os.readlink(descriptor).startswith("socket:")
        return count

    def connect(self) -> BlockingPeer:
        return BlockingPeer(socket.create_connection(self.address, PATIENCE_SECONDS))

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr:
            for line in self.process.stderr:
                with self._line_came:
                    self.errors.append(line.rstrip("\n"))
                    self._line_came.notify_all()


class BlockingPeer:
    """A client on a blocking socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._correlation_id = 0

    def __enter__(self) -> BlockingPeer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.socket.close()

    def ask(self, name: str, version: int, **fields: Any) -> Any:
        """Sends a request made of `fields`; returns its response."""
        self._correlation_id += 1
        request = API_BY_NAME[name].request(**fields)
        self.socket.sendall(request_frame(name, version, request, self._correlation_id))
        correlation_id, response = decode_response(name, version, self.receive())
        assert correlation_id == self._correlation_id
        return response

    def receive(self) -> bytes:
        """The next response, without its size."""
        (size,) = unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def is_closed(self) -> bool:
        """Waits for the broker to close, and says whether nothing came before that."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                raise ConnectionError("closed by the broker")
            data += chunk
        return bytes(data)
