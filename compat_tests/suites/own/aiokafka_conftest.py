"""Takes the place of `tests/conftest.py` in a checkout of aiokafka: there its tests start a broker
in a container, here they meet one that runs.

The broker's address is in BROKER. What needs more than an open listener (TLS, Kerberos, access
lists, settings by a tool inside the container) is skipped by the fixtures that it asks for.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest

HOST, PORT = os.environ["BROKER"].rsplit(":", 1)

# Tests ask for features of Kafka by its version.
KAFKA_VERSION = "4.3.1"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Tests look at the name of the container's image for Kafka's version."""
    parser.addoption("--docker-image", default=f"kafka:2.13_{KAFKA_VERSION}")


class Absent:
    """What only the container has: a test that touches it is skipped."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> Any:
        pytest.skip(f"it needs {self._what} of a broker in a container")

    def __truediv__(self, name: str) -> Any:
        return getattr(self, name)

    def cleanup(self) -> None:
        """Called after each test."""


@pytest.fixture(scope="session")
def ssl_folder() -> Absent:
    return Absent("the certificates")


@pytest.fixture(scope="class")
def acl_manager() -> Absent:
    return Absent("the access lists")


@pytest.fixture(scope="class")
def kafka_config() -> Absent:
    return Absent("the tool for settings")


@pytest.fixture(scope="class")
def kerberos_utils() -> Absent:
    return Absent("Kerberos")


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
    ssl_folder: Absent,
    acl_manager: Absent,
    kerberos_utils: Absent,
    kafka_config: Absent,
) -> None:
    cls = request.cls
    cls.loop = loop
    cls.kafka_host, cls.kafka_port = HOST, int(PORT)
    cls.hosts = [f"{HOST}:{PORT}"]
    cls.kafka_version = KAFKA_VERSION
    cls.ssl_folder, cls.acl_manager = ssl_folder, acl_manager
    cls.kerberos_utils, cls.kafka_config = kerberos_utils, kafka_config
