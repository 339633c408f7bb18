"""The two producer processes, and what the broker has acknowledged to them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

from asyncbroker.demo.processes import DemoError, end

PRODUCER = Path(__file__).with_name("producer.py")
CLIENTS = ("aiokafka", "confluent")


class Sending:
    """Two clients send a half each; a thread for each follows what it reports."""

    def __init__(
        self, servers: str, topic: str, rows: Path, rows_per_s: float, folder: Path
    ) -> None:
        self._lock = threading.Lock()
        self._acknowledged: list[int] = []
        self._children: list[subprocess.Popen[str]] = []
        self._threads: list[threading.Thread] = []
        for half, client in enumerate(CLIENTS):
            command = [sys.executable, str(PRODUCER), client, "--servers", servers]
            command += ["--topic", topic, "--rows", str(rows), "--half", str(half)]
            command += ["--rows-per-s", str(rows_per_s / len(CLIENTS))]
            with (folder / f"producer-{client}.log").open("w") as log:
                child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
            thread = threading.Thread(target=self._follow, args=(child,), name=client, daemon=True)
            thread.start()
            self._children.append(child)
            self._threads.append(thread)

    def acknowledged(self) -> list[int]:
        """The row numbers that the broker has acknowledged up to now."""
        with self._lock:
            return list(self._acknowledged)

    def acknowledged_count(self) -> int:
        with self._lock:
            return len(self._acknowledged)

    def check_alive(self) -> None:
        """Raises when a producer gave up."""
        for child, client in zip(self._children, CLIENTS, strict=True):
            if child.poll():
                raise DemoError(f"the {client} producer failed with status {child.returncode}")

    def close(self) -> None:
        for child, thread in zip(self._children, self._threads, strict=True):
            if child.poll() is None:
                end(child)
            thread.join()

    def _follow(self, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        with child.stdout as lines:
            for line in lines:
                rows = json.loads(line)
                with self._lock:
                    self._acknowledged += rows
