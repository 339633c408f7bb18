"""Logins that hold for two seconds (KIP-368): clients that log in again in time go on as if nothing
were, on the connections that they have; one that does not is cut off."""

from __future__ import annotations

import asyncio
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer

from compat_tests.java import TOOLS, java, needs_jars
from compat_tests.protected import Protected, protected_broker

pytestmark = pytest.mark.timeout(120)

SECONDS = 10
PER_SECOND = 50


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Protected]:
    directory = tmp_path_factory.mktemp("protected")
    with protected_broker(directory, "connections.max.reauth.ms=2000") as broker:
        yield broker


def log_of(protected: Protected) -> str:
    return (protected.directory / "log").read_text()


def logins_of_one_connection(protected: Protected, mechanism: str) -> int:
    """How often the connection with the most logins has logged in, by what the log says of it; of
    many lines in a second it leaves some out."""
    found = re.findall(rf"(\S+) logged in as 'alice' by {mechanism}$", log_of(protected), re.M)
    return max(Counter(found).values())


def steadily() -> Iterator[None]:
    """A while of ticks."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        yield
        time.sleep(1 / PER_SECOND)


def with_librdkafka(protected: Protected, errors: list[KafkaError]) -> None:
    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            errors.append(error)

    settings = protected.confluent("SASL_PLAINTEXT", "SCRAM-SHA-256")
    producer = Producer({**settings, "error_cb": errors.append, "linger.ms": 0})
    for _ in steadily():
        producer.produce("librdkafka", b"value", on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(20) == 0


def with_kafka_python(protected: Protected) -> None:
    settings = protected.python("SASL_SSL", "PLAIN")
    producer = KafkaProducer(**settings, retries=0)
    for _ in steadily():
        producer.send("kafka-python", b"value").get(20)
    producer.close()


@needs_jars
def test_producers_that_log_in_again_in_time_go_on(protected: Protected) -> None:
    errors: list[KafkaError] = []
    count = SECONDS * PER_SECOND
    config = protected.properties("SASL_PLAINTEXT", "SCRAM-SHA-512")
    in_java = subprocess.Popen(
        java(
            f"{TOOLS}.VerifiableProducer",
            *("--bootstrap-server", protected.servers["SASL_PLAINTEXT"], "--topic", "java"),
            *("--throughput", str(PER_SECOND), "--max-messages", str(count), "--acks", "-1"),
            *("--command-config", config),
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    beside = threading.Thread(target=with_librdkafka, args=(protected, errors))
    beside.start()
    try:
        with_kafka_python(protected)
    finally:
        beside.join()
        said = in_java.communicate(timeout=60)[0]
    assert errors == []
    assert said.count("producer_send_success") == count, said
    assert "producer_send_error" not in said
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"):
        assert logins_of_one_connection(protected, mechanism) >= 3, mechanism
    assert "the login has expired" not in log_of(protected)


def test_a_client_that_does_not_log_in_again_is_cut_off(protected: Protected) -> None:
    """As aiokafka does not: it connects anew, and sends again what got no answer."""

    async def send() -> None:
        settings = protected.python("SASL_PLAINTEXT", "SCRAM-SHA-512")
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait("aiokafka", b"one")
            await asyncio.sleep(2.1)
            await producer.send_and_wait("aiokafka", b"two")

    cut = log_of(protected).count("the login has expired")
    asyncio.run(send())
    assert log_of(protected).count("the login has expired") > cut
