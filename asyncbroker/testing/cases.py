"""Test cases of `unittest` that have a broker of their own in each test.

    class OrdersTest(KafkaBrokerTestCase):
        kafka_settings = {"num.partitions": 3}

        def test_orders(self):
            topic = self.kafka_topic()
            self.kafka_broker.topic(topic).append("one")

`KafkaBrokerAsyncTestCase` is the same over IsolatedAsyncioTestCase, and `KafkaBrokerMixin` goes in
front of any other TestCase. The broker runs in a thread, for tests of either kind. A failed test
has the last requests and the state of its groups at the end of its traceback.

Inheritance is how `unittest` is extended; nothing else here uses it.
"""

from __future__ import annotations

import re
import time
import unittest
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from asyncbroker.testing.profile import SettingValue
from asyncbroker.testing.report import SECTION, describe_broker
from asyncbroker.testing.thread import BrokerThread

if TYPE_CHECKING:
    _TestCase = unittest.TestCase
else:
    _TestCase = object


class KafkaBrokerMixin(_TestCase):
    """Gives each test `self.kafka_broker`. In front of a TestCase, which must call `setUp` of its
    bases if it has one of its own."""

    kafka_settings: ClassVar[Mapping[str, SettingValue]] = {}
    """Settings of the broker by Kafka's names."""

    kafka_options: ClassVar[Mapping[str, Any]] = {}
    """What else `BrokerThread` takes: `nodes`, `directory`, `kafka_version`, `clock`."""

    kafka_broker: BrokerThread
    """The broker of this test."""

    kafka_seen: str = ""
    """What the broker has seen, once the test is over."""

    def setUp(self) -> None:
        """Starts the broker; it is stopped after everything that the test cleans up."""
        super().setUp()
        self.kafka_broker = BrokerThread(self.kafka_settings, **self.kafka_options)
        self.kafka_broker.start()
        began = time.time()

        def end() -> None:
            self.kafka_seen = describe_broker(self.kafka_broker, began)
            self.kafka_broker.stop()

        self.addCleanup(end)

    def kafka_topic(
        self,
        partitions: int | None = None,
        settings: Mapping[str, SettingValue] | None = None,
    ) -> str:
        """Makes a topic for this test; returns its name, which is the test's."""
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", self.id().rpartition(".")[2])[:200]
        topic = f"{name}-{len(self.kafka_broker.topics) + 1}"
        self.kafka_broker.topic(topic).create(partitions, settings)
        return topic

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        """Runs the test; a failure gets what the broker has seen."""
        outcome = super().run(result)
        seen = f"\n{SECTION}:\n{self.kafka_seen}\n"
        # Other runners' results need not have these lists.
        for kind in ("failures", "errors"):
            entries: list[tuple[Any, str]] = getattr(outcome, kind, [])
            for index, (test, text) in enumerate(entries):
                if test is self or getattr(test, "test_case", None) is self:
                    entries[index] = test, text + seen
        return outcome


class KafkaBrokerTestCase(KafkaBrokerMixin, unittest.TestCase):
    """A TestCase with a broker for each test."""


class KafkaBrokerAsyncTestCase(KafkaBrokerMixin, unittest.IsolatedAsyncioTestCase):
    """An IsolatedAsyncioTestCase with a broker for each test."""
