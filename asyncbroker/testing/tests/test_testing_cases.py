"""unittest's test cases with a broker, run by unittest itself and by pytest."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from asyncbroker.testing.tests.testing_harness import run_pytest

CASES = """
    import unittest

    from aiokafka import AIOKafkaProducer
    from confluent_kafka import Producer
    from asyncbroker.testing import (
        ErrorCode, KafkaBrokerAsyncTestCase, KafkaBrokerMixin, KafkaBrokerTestCase,
    )


    class Plain(KafkaBrokerTestCase):
        kafka_settings = {"num.partitions": 2}
        kafka_options = {"nodes": 2}

        def test_a_topic(self):
            topic = self.kafka_topic()
            self.assertEqual(len(self.kafka_broker.nodes), 2)
            self.kafka_broker.topic(topic).append("last", partition=1)
            self.assertNotEqual(self.kafka_topic(partitions=1), topic)

        def test_each_has_its_own(self):
            self.assertEqual(self.kafka_broker.topics, [])


    class Coroutines(KafkaBrokerAsyncTestCase):
        async def asyncSetUp(self):
            self.topic = self.kafka_topic()

        async def test_aiokafka(self):
            servers = self.kafka_broker.bootstrap_servers
            async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
                await producer.send_and_wait(self.topic, b"x")
            await self.kafka_broker.wait_for_async(records=1, topic=self.topic)


    class Base(unittest.TestCase):
        def setUp(self):
            self.is_set_up = True


    class Mixed(KafkaBrokerMixin, Base):
        def test_failing(self):
            self.assertTrue(self.is_set_up)
            producer = Producer({"bootstrap.servers": self.kafka_broker.bootstrap_servers})
            producer.produce("t", b"x")
            producer.flush(10)
            self.fail("on purpose")


    if __name__ == "__main__":
        unittest.main()
"""


def test_cases_run_with_unittest_and_a_failure_shows_the_requests(tmp_path: Path) -> None:
    path = tmp_path / "cases.py"
    path.write_text(textwrap.dedent(CASES))
    result = subprocess.run(
        [sys.executable, "-W", "error", str(path)], capture_output=True, text=True, check=False
    )
    assert "Ran 4 tests" in result.stderr, result.stderr
    assert "FAILED (failures=1)" in result.stderr
    _, _, failure = result.stderr.partition("AssertionError: on purpose")
    assert "requests of the Kafka broker:" in failure
    assert "Produce v" in failure


def test_cases_run_with_pytest_too(tmp_path: Path) -> None:
    result = run_pytest(tmp_path, CASES)
    assert "1 failed, 3 passed" in result.stdout, result.stdout
    _, _, section = result.stdout.partition("requests of the Kafka broker")
    assert "Produce v" in section
