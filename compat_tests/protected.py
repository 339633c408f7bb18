"""A broker where users log in, with and without TLS, and what each client is told for it."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asyncbroker.tests.tls_files import TlsFiles, make_tls_files
from compat_tests.conftest import free_ports
from compat_tests.kafka import Kafka

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
ALL_PROTOCOLS = ("PLAINTEXT", "SSL", *PROTOCOLS)
USER, PASSWORD = "alice", "pen,cil=1"


@dataclass(frozen=True)
class Protected:
    """A broker with a listener for each protocol, and alice as its user."""

    servers: dict[str, str]
    files: TlsFiles
    directory: Path

    def properties(self, protocol: str, mechanism: str, password: str = PASSWORD) -> str:
        """A client's properties, in a file."""
        module = {"PLAIN": "plain.PlainLoginModule"}.get(mechanism, "scram.ScramLoginModule")
        path = self.directory / f"{protocol}-{mechanism}-{len(password)}.properties"
        path.write_text(
            f"security.protocol={protocol}\n"
            f"sasl.mechanism={mechanism}\n"
            f"sasl.jaas.config=org.apache.kafka.common.security.{module} required "
            f'username="{USER}" password="{password}";\n'
            f"ssl.truststore.type=PEM\nssl.truststore.location={self.files.authority}\n"
        )
        return str(path)

    def environment(self) -> dict[str, str]:
        """What the clients' programs of checks are told."""
        addresses = {f"LOGIN_{protocol}": at for protocol, at in self.servers.items()}
        return {
            **addresses,
            "LOGIN_CA": self.files.authority,
            "LOGIN_USER": USER,
            "LOGIN_PASSWORD": PASSWORD,
        }

    def confluent(self, protocol: str, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.servers[protocol],
            "security.protocol": protocol,
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": password,
            "ssl.ca.location": self.files.authority,
        }

    def python(self, protocol: str, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        """For aiokafka and kafka-python."""
        context = ssl.create_default_context(cafile=self.files.authority)
        return {
            "bootstrap_servers": self.servers[protocol],
            "security_protocol": protocol,
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": password,
            "ssl_context": context if protocol.endswith("SSL") else None,
        }


def asyncbroker(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "asyncbroker", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


def kafka_settings(files: TlsFiles) -> tuple[str, ...]:
    """Of Apache Kafka: its users of PLAIN are in its settings, those of SCRAM are not."""
    lines = [
        f"sasl.enabled.mechanisms={','.join(MECHANISMS)}",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={files.server}",
    ]
    for protocol in PROTOCOLS:
        for mechanism in MECHANISMS:
            module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
            users = f' user_{USER}="{PASSWORD}"' if mechanism == "PLAIN" else ""
            name = f"listener.name.{protocol.lower()}.{mechanism.lower()}.sasl.jaas.config"
            lines.append(
                f"{name}=org.apache.kafka.common.security.{module}LoginModule required{users};"
            )
    return tuple(lines)


@contextmanager
def protected_kafka(directory: Path, *settings: str) -> Iterator[Protected]:
    """The same of Apache Kafka."""
    files = make_tls_files(directory)
    listeners = {protocol: protocol for protocol in ALL_PROTOCOLS if protocol != "PLAINTEXT"}
    kafka = Kafka(directory / "data", (*kafka_settings(files), *settings), listeners=listeners)
    kafka.start()
    try:
        added = asyncbroker("users", "add", USER, "-b", kafka.servers, stdin=PASSWORD + "\n")
        assert added.returncode == 0, added.stderr
        yield Protected({"PLAINTEXT": kafka.servers, **kafka.addresses}, files, directory)
    finally:
        kafka.end(signal.SIGTERM)


@contextmanager
def protected_broker(directory: Path, *settings: str) -> Iterator[Protected]:
    """Runs it, and looks into its log for the password when it has ended."""
    files, data = make_tls_files(directory), str(directory / "data")
    ports = free_ports(len(ALL_PROTOCOLS))
    servers = {name: f"localhost:{port}" for name, port in zip(ALL_PROTOCOLS, ports, strict=True)}
    listeners = ",".join(f"{protocol}://{address}" for protocol, address in servers.items())
    config = directory / "server.properties"
    config.write_text(
        f"listeners={listeners}\n"
        f"sasl.enabled.mechanisms={','.join(MECHANISMS)}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={files.server}\n"
        "group.initial.rebalance.delay.ms=0\n" + "".join(f"{each}\n" for each in settings)
    )
    added = asyncbroker("users", "add", USER, "--data", data, stdin=PASSWORD + "\n")
    assert added.returncode == 0, added.stderr
    log_file = (directory / "log").open("w")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "asyncbroker", "serve"),
            *("--config", str(config), "--data", data, "--log-level", "debug"),
        ],
        stdout=subprocess.PIPE,
        stderr=log_file,
        text=True,
    )
    log_file.close()
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("asyncbroker ready"), (directory / "log").read_text()
        yield Protected(servers, files, directory)
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    log = (directory / "log").read_text()
    assert PASSWORD not in log
    assert "Traceback" not in log
