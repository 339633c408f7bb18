"""The brokers that are compared: how each is started, measured and ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

READY_SECONDS_MAX = 60
KAFKA_CLUSTER_ID = "abcdefghijklmnopqrstuv"


@dataclass(frozen=True)
class Target:
    """A broker that answers at host:port; `pid` is 0 when its process is not ours to measure."""

    name: str
    host: str
    port: int
    pid: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def memory_mb(self) -> float:
        """Resident memory in MB (10^6 bytes), or 0 when the process is not known."""
        return memory_mb(self.pid) if self.pid else 0.0

    @classmethod
    def parse(cls, text: str) -> Target:
        """Reads NAME=HOST:PORT:PID."""
        name, _, address = text.partition("=")
        host, port, pid = address.split(":")
        return cls(name, host, int(port), int(pid))


def memory_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; all are held at once, so that no two are the same."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


@contextlib.contextmanager
def process(command: list[str], **options: object) -> Iterator[subprocess.Popen[str]]:
    """A child that is ended and waited for when the block ends."""
    child = subprocess.Popen(command, text=True, **options)  # type: ignore[call-overload]
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextlib.contextmanager
def asyncbroker(directory: Path) -> Iterator[Target]:
    """Our broker on a data directory, with its defaults."""
    command = [sys.executable, "-m", "asyncbroker", "serve", "--listen", "127.0.0.1:0"]
    command += ["--data", str(directory)]
    with process(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        ready = child.stdout.readline().split()
        if ready[:2] != ["asyncbroker", "ready"]:
            raise RuntimeError(f"asyncbroker did not start: {ready}")
        host, _, port = ready[2].rpartition(":")
        yield Target("asyncbroker", host, int(port), child.pid)


def prepare_kafka(
    directory: Path, classpath: str, settings: tuple[str, ...]
) -> tuple[int, list[str]]:
    """Formats the storage of Apache Kafka, one node, KRaft; returns the port that it will listen
    on, and what follows `java` and its options in the command that starts it."""
    port, controller = free_ports(2)
    properties = directory.with_suffix(".properties")
    lines = (
        "process.roles=broker,controller",
        "node.id=1",
        f"controller.quorum.voters=1@127.0.0.1:{controller}",
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names=CONTROLLER",
        f"log.dirs={directory}",
        "offsets.topic.replication.factor=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
        "log.segment.delete.delay.ms=1000",
        *settings,
    )
    properties.write_text("\n".join(lines) + "\n")
    format_storage = ["format", "-t", KAFKA_CLUSTER_ID, "-c", str(properties)]
    subprocess.run(
        ["java", "-Xmx256m", "-cp", classpath, "kafka.tools.StorageTool", *format_storage],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return port, ["-cp", classpath, "kafka.Kafka", str(properties)]


@contextlib.contextmanager
def apache_kafka(
    directory: Path, classpath: str, settings: tuple[str, ...], log_path: Path | None = None
) -> Iterator[Target]:
    """Apache Kafka with its default flush policy: it never waits for the disk. What it logs goes to
    `log_path`."""
    port, run = prepare_kafka(directory, classpath, settings)
    heap = ["-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
    with (
        open(log_path or os.devnull, "wb") as log,
        process(["java", *heap, *run], stdout=log, stderr=subprocess.STDOUT) as child,
    ):
        wait_for_port(port, child)
        yield Target("Apache Kafka", "127.0.0.1", port, child.pid)


def wait_for_port(port: int, child: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise RuntimeError(f"the process ended with status {child.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    raise RuntimeError(f"nothing answered on port {port} in {READY_SECONDS_MAX} s")


def slow_down_disk(fsync_ms: float) -> None:
    """Has each fsync of all processes that are started from here on take so much longer."""
    os.environ["LD_PRELOAD"] = os.environ["ASYNCBROKER_SLOW_FSYNC"]
    os.environ["FSYNC_EXTRA_MS"] = str(fsync_ms)


@contextlib.contextmanager
def busy_disk(directory: Path) -> Iterator[None]:
    """Another process that writes and syncs 8 MB at a time into one file of 1 GB."""
    source = (
        "import os, sys\n"
        "fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)\n"
        "block = os.urandom(8 << 20)\n"
        "while True:\n"
        "    for place in range(128):\n"
        "        os.pwrite(fd, block, place * len(block))\n"
        "        os.fdatasync(fd)\n"
    )
    with process([sys.executable, "-c", source, str(directory / "busy")]):
        yield


def free_disk_gb(directory: Path) -> float:
    return shutil.disk_usage(directory).free / 1e9
