"""Takes the place of `tests/conftest.py` in a checkout of aiokafka: there its tests start a broker
in a container, here they meet one that runs.

The broker's address is in BROKER, its other listeners' ports and the files of its TLS are in names
of that kind, and the version of Kafka that it is to pass for is in KAFKA_VERSION. What needs more
(Kerberos, access lists) is skipped where a test asks for it.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HOST, PORT = os.environ["BROKER"].rsplit(":", 1)

# Tests ask for features of Kafka by its version.
KAFKA_VERSION = os.environ["KAFKA_VERSION"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Tests look at the name of the container's image for Kafka's version."""
    parser.addoption("--docker-image", default=f"kafka:2.13_{KAFKA_VERSION}")


class AccessLists:
    """There are none to set; every test looks at them, and cleans up behind itself."""

    def list_acl(self) -> None:
        """Called before each test of logins."""

    def cleanup(self) -> None:
        """Called after each of these tests."""

    def add_acl(self, **what: Any) -> None:
        pytest.skip("it sets access lists")


class Kerberos:
    """Kerberos is in the container alone."""

    def kinit(self, principal: str) -> None:
        pytest.skip("it needs Kerberos")

    def kdestroy(self) -> None:
        """Called after each of these tests."""


class Users:
    """Those that tests add are there from the start."""

    def add_scram_user(self, name: str, password: str) -> None:
        assert (name, password) == ("test", "test")


@pytest.fixture(scope="session")
def ssl_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    client = Path(os.environ["CLIENT"]).read_text()
    at = client.index("-----BEGIN CERTIFICATE")
    (folder / "ca.crt").write_text(Path(os.environ["AUTHORITY"]).read_text())
    (folder / "client.key").write_text(client[:at])
    (folder / "client.crt").write_text(client[at:])
    return folder


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    loop.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(
    request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop
) -> None:
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(
    request: pytest.FixtureRequest,
    loop: asyncio.AbstractEventLoop,
    ssl_folder: Path,
) -> None:
    cls = request.cls
    cls.loop = loop
    cls.kafka_host, cls.kafka_port = HOST, int(PORT)
    cls.hosts = [f"{HOST}:{PORT}"]
    cls.kafka_version = KAFKA_VERSION
    cls.kafka_ssl_port = int(os.environ["BROKER_SSL_PORT"])
    cls.kafka_sasl_plain_port = int(os.environ["BROKER_SASL_PLAINTEXT_PORT"])
    cls.kafka_sasl_ssl_port = int(os.environ["BROKER_SASL_SSL_PORT"])
    cls.ssl_folder, cls.acl_manager = ssl_folder, AccessLists()
    cls.kerberos_utils, cls.kafka_config = Kerberos(), Users()
