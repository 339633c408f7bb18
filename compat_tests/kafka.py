"""Apache Kafka itself, as a process: to move data directories, and to compare with."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient

from compat_tests.conftest import free_ports
from compat_tests.java import java

KAFKA_SECONDS_MAX = 90


@dataclass
class Kafka:
    """One node of Apache Kafka on a data directory."""

    data: Path
    settings: tuple[str, ...] = ()
    servers: str = ""
    # What clients are told that it is called.
    host: str = "127.0.0.1"
    # Beside that in plaintext: what is spoken at each, by name.
    listeners: Mapping[str, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        port, controller, *others = free_ports(2 + len(self.listeners))
        self.addresses = {
            name: f"localhost:{other}" for name, other in zip(self.listeners, others, strict=True)
        }
        beside = "".join(f",{name}://{address}" for name, address in self.addresses.items())
        spoken = "".join(f",{name}:{protocol}" for name, protocol in self.listeners.items())
        properties = self.data.with_suffix(".properties")
        names = (setting.partition("=") for setting in self.settings)
        node = next((value for name, _, value in names if name == "node.id"), "1")
        lines = (
            "process.roles=broker,controller",
            f"node.id={node}",
            f"controller.quorum.voters={node}@127.0.0.1:{controller}",
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{beside}",
            f"advertised.listeners=PLAINTEXT://{self.host}:{port}{beside}",
            f"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{spoken}",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={self.data}",
            "offsets.topic.replication.factor=1",
            "offsets.topic.num.partitions=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.num.partitions=1",
            "transaction.state.log.min.isr=1",
            "group.initial.rebalance.delay.ms=0",
            *self.settings,
        )
        properties.write_text("\n".join(lines) + "\n")
        if not (self.data / "meta.properties").exists():
            arguments = ("format", "-t", "abcdefghijklmnopqrstuv", "-c", str(properties))
            subprocess.run(
                java("kafka.tools.StorageTool", *arguments), check=True, stdout=subprocess.DEVNULL
            )
        self._process = subprocess.Popen(
            java("kafka.Kafka", str(properties)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.servers = f"{self.host}:{port}"
        try:
            self._wait_until_it_answers(self._process)
        except BaseException:
            self.end(signal.SIGKILL)
            raise

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + KAFKA_SECONDS_MAX
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        while True:
            try:
                if admin.list_topics(timeout=2).brokers:
                    return
            except Exception:
                assert process.poll() is None, "Kafka ended"
                assert time.monotonic() < deadline, "Kafka did not start"

    def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(KAFKA_SECONDS_MAX)
            self._process = None
