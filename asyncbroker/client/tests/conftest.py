"""Brokers for the client's tests, and the client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.tests.scripted_broker import ScriptedBroker


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """Node 1."""
    broker = ScriptedBroker(1)
    yield broker
    broker.close()


@pytest.fixture
def second_broker() -> Iterator[ScriptedBroker]:
    """Node 2."""
    broker = ScriptedBroker(2)
    yield broker
    broker.close()


@pytest.fixture
def cluster(broker: ScriptedBroker) -> Iterator[Cluster]:
    """The client under test: it tries again at once, and not for long."""
    with Cluster(broker.address, timeout_ms=5000, retry_backoff_ms=0) as cluster:
        yield cluster
