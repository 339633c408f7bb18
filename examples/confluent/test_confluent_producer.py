"""confluent-kafka: a record that is too large for the broker is reported, and nothing is lost."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Message, Producer

from asyncbroker.testing import BrokerThread, assert_records


@pytest.mark.kafka(message_max_bytes=1000)
def test_a_record_that_is_too_large_is_reported(
    kafka_broker: BrokerThread, kafka_topic: str
) -> None:
    failed: list[int] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error.code())

    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers, "linger.ms": 0})
    producer.produce(kafka_topic, b"x" * 2000, on_delivery=on_delivery)
    producer.flush()
    producer.produce(kafka_topic, b"small", on_delivery=on_delivery)
    producer.flush()
    assert failed == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert_records(kafka_broker.topic(kafka_topic), ["small"])
