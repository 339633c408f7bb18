"""The brokers that the clients' own suites meet: with a listener in plaintext, one in TLS, and one
of each for users who log in, as the containers that these suites start for themselves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from asyncbroker.tests.tls_files import TlsFiles, make_tls_files
from compat_tests.conftest import BrokerProcess, free_ports, running
from compat_tests.kafka import Kafka
from compat_tests.suites.install import kafka_classpath, kafka_version
from compat_tests.suites.report import BROKERS

PLAINTEXT: Final = "PLAINTEXT"
PROTECTED: Final = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MODULES: Final = "org.apache.kafka.common.security"
SCRAM: Final = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
# So that it has access lists, and everybody may do all for which there is none.
AUTHORIZER: Final = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found=true",
)
USERS_SECONDS_MAX: Final = 30
ITERATIONS: Final = 4096


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who logs in, by one of the mechanisms."""

    name: str
    mechanism: str
    password: str


@dataclass(frozen=True, slots=True)
class Servers:
    """Where a broker listens, HOST:PORT by protocol, and the files of its TLS."""

    addresses: dict[str, str]
    files: TlsFiles

    @property
    def plaintext(self) -> str:
        return self.addresses[PLAINTEXT]

    def port(self, protocol: str) -> str:
        return self.addresses[protocol].rpartition(":")[2]


Start = Callable[
    [Path, tuple[str, ...], tuple[User, ...]], contextlib.AbstractContextManager[Servers]
]


class WithListeners(BrokerProcess):
    """This broker, with the listeners and all else of a file."""

    def begin_start(self) -> None:
        properties = self._data.with_suffix(".properties")
        properties.write_text("\n".join(self.settings) + "\n")
        command = [sys.executable, *self.program, "serve", "--data", str(self._data)]
        command += ["--config", str(properties)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@contextlib.contextmanager
def ours(folder: Path, settings: tuple[str, ...], users: tuple[User, ...]) -> Iterator[Servers]:
    """This broker, on a data directory."""
    files = make_tls_files(folder)
    protocols = (PLAINTEXT, *PROTECTED)
    ports = free_ports(len(protocols))
    addresses = {name: f"localhost:{port}" for name, port in zip(protocols, ports, strict=True)}
    listeners = ",".join(f"{name}://{address}" for name, address in addresses.items())
    lines = (
        f"listeners={listeners}",
        f"advertised.listeners={listeners}",
        *protection(files),
        *settings,
    )
    with running(WithListeners(folder / "asyncbroker", lines)):
        add_users(addresses[PLAINTEXT], users)
        yield Servers(addresses, files)


@contextlib.contextmanager
def kafka(folder: Path, settings: tuple[str, ...], users: tuple[User, ...]) -> Iterator[Servers]:
    """Apache Kafka, one node."""
    # Where its process looks for the jars.
    os.environ["ASYNCBROKER_KAFKA_CLASSPATH"] = str(kafka_classpath(kafka_version()))
    files = make_tls_files(folder)
    plain = "".join(f' user_{user.name}="{user.password}"' for user in users if of_plain(user))
    logins = (
        f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config="
        + f"{MODULES}.{module(mechanism)}LoginModule required{plain * (mechanism == 'PLAIN')};"
        for listener in PROTECTED
        if listener.startswith("SASL")
        for mechanism in MECHANISMS
    )
    lines = (*protection(files), *logins, *AUTHORIZER, *settings)
    broker = Kafka(
        folder / "kafka", lines, listeners={name: name for name in PROTECTED}, host="localhost"
    )
    broker.start()
    try:
        add_users(broker.servers, tuple(user for user in users if not of_plain(user)))
        yield Servers({PLAINTEXT: broker.servers, **broker.addresses}, files)
    finally:
        broker.end(signal.SIGTERM)


START: Final[dict[str, Start]] = dict(zip(BROKERS, (ours, kafka), strict=True))


def of_plain(user: User) -> bool:
    return user.mechanism == "PLAIN"


def module(mechanism: str) -> str:
    return "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"


def protection(files: TlsFiles) -> tuple[str, ...]:
    return (
        f"sasl.enabled.mechanisms={','.join(MECHANISMS)}",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={files.server}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={files.authority}",
    )


def add_users(servers: str, users: tuple[User, ...]) -> None:
    """Adds them through the broker, one by one: Kafka takes a user once in a request. With ours a
    password for PLAIN is kept as one of SCRAM's."""
    if not users:
        return
    admin = AdminClient({"bootstrap.servers": servers})
    for user in users:
        mechanism = SCRAM.get(user.mechanism, ScramMechanism.SCRAM_SHA_512)
        credential = ScramCredentialInfo(mechanism, ITERATIONS)
        added = UserScramCredentialUpsertion(user.name, credential, user.password.encode())
        for done in admin.alter_user_scram_credentials([added]).values():
            done.result(USERS_SECONDS_MAX)
