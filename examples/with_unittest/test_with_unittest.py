"""unittest: an answer is lost, and an idempotent producer writes its record once all the same."""

from __future__ import annotations

from confluent_kafka import Producer

from asyncbroker.testing import KafkaBrokerTestCase, assert_records


class LostAnswerTest(KafkaBrokerTestCase):
    """Each test has `self.kafka_broker`."""

    def test_a_lost_answer_makes_no_duplicate(self) -> None:
        topic = self.kafka_topic()
        lost = self.kafka_broker.faults.on(api="Produce", times=1).drop_connection(before=False)
        servers = self.kafka_broker.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        producer.produce(topic, b"once")
        producer.flush()
        assert lost.fired == 1
        assert_records(self.kafka_broker.topic(topic), ["once"])
