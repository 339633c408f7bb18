"""A broker for the tests of the consumer protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compat_tests.conftest import BrokerProcess, running

# Members are heard of soon, and are missed soon.
SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.min.heartbeat.interval.ms=100",
    "group.consumer.heartbeat.interval.ms=200",
    "group.consumer.min.session.timeout.ms=1000",
    "group.consumer.session.timeout.ms=6000",
    "group.consumer.assignment.interval.ms=0",
)


@contextmanager
def broker_of(data: Path, *settings: str) -> Iterator[BrokerProcess]:
    """A broker for groups whose members are quick."""
    with running(BrokerProcess(data, (*SETTINGS, *settings))) as broker:
        yield broker
