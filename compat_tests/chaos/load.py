"""Clients under load that write down what they asked for and what they were answered.

Every value is one of a kind: `producer:number`. A producer keeps some records in flight and goes on
through any fault, as its library does it; a reader follows all partitions from the beginning; a
committer commits growing offsets for a group. All run in threads, since librdkafka blocks.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from asyncbroker.tests.history.checker import check
from asyncbroker.tests.history.history import (
    ALL,
    Commit,
    Committed,
    FinalRead,
    History,
    Outcome,
    Poll,
    Seen,
    Send,
)
from compat_tests.chaos.nemesis import wait_until

# Through a broker that is gone for a moment: ask again soon.
QUICK = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "log_level": 0,
}
# About 2,000 records a second and producer: what counts is what happens to them.
IN_FLIGHT_MAX = 200
SENDS_A_TURN = 10
TURN_SECONDS = 0.005
FLUSH_SECONDS_MAX = 90.0


class AnswerCounter:
    """How often a client was told yes; counted in its thread, waited for in the test's."""

    def __init__(self) -> None:
        self.acknowledged_count = 0

    def wait_for_more(self, count: int = 1) -> None:
        """Waits for answers from now on."""
        wanted = self.acknowledged_count + count
        wait_until(lambda: self.acknowledged_count >= wanted, f"{count} acknowledgements")


class ProducerLoad:
    """One producer: numbers its values, spreads them over the partitions, never stops by itself."""

    def __init__(
        self,
        servers: str,
        topic: str,
        name: str,
        history: History,
        *,
        partitions: int,
        value_bytes: int = 0,
        **config: Any,
    ) -> None:
        self.name = name
        self._value_bytes = value_bytes
        self.answers = AnswerCounter()
        self.refused_count = 0
        self._topic = topic
        self._history = history
        self._partitions = partitions
        self._is_idempotent = bool(config.get("enable.idempotence"))
        self._acks = ALL if str(config.get("acks", "all")) == "all" else 1
        self._next = 0
        self._in_flight: dict[bytes, Send] = {}
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "linger.ms": 1,
                "message.timeout.ms": int(FLUSH_SECONDS_MAX * 1000),
                **QUICK,
                **config,
            }
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Stops sending and waits until every record has an outcome."""
        self._stopping.set()
        self._thread.join()
        assert not self._in_flight, f"{len(self._in_flight)} of {self.name} have no outcome"

    def _run(self) -> None:
        while not self._stopping.is_set():
            for _ in range(min(SENDS_A_TURN, IN_FLIGHT_MAX - len(self._in_flight))):
                self._send()
            self._producer.poll(0)
            self._stopping.wait(TURN_SECONDS)
        self._producer.flush(FLUSH_SECONDS_MAX)

    def _send(self) -> None:
        partition = self._next % self._partitions
        send = Send(
            process=self.name,
            place=place_of(self._topic, partition),
            value=f"{self.name}:{self._next}".encode().ljust(self._value_bytes, b"."),
            key=None,
            acks=self._acks,
            number=self._next,
            is_idempotent=self._is_idempotent,
            is_ordered=self._is_idempotent,
            started=time.monotonic(),
            # The library tries again as often as it likes.
            attempts=1 if self._is_idempotent else sys.maxsize,
        )
        self._next += 1
        self._in_flight[send.value] = send
        self._history.add(send)
        self._producer.produce(
            self._topic, send.value, partition=partition, on_delivery=self._delivered
        )

    def _delivered(self, error: Any, message: Any) -> None:
        send = self._in_flight.pop(message.value())
        send.ended = time.monotonic()
        if error is None:
            send.outcome = Outcome.OK
            send.offset = message.offset()
            self.answers.acknowledged_count += 1
        else:
            # Perhaps an attempt of it came through.
            send.error = str(error)
            self.refused_count += 1


class ReaderLoad:
    """Follows all partitions from the beginning and notes every record that it is given."""

    def __init__(
        self, servers: str, topic: str, name: str, history: History, *, partitions: int
    ) -> None:
        self.record_count = 0
        self._name = name
        self._topic = topic
        self._history = history
        self._positions = [0] * partitions
        self._stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": name,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                **QUICK,
            }
        )
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            started = time.monotonic()
            found: dict[int, list[Seen]] = defaultdict(list)
            message: Any
            for message in self._consumer.consume(500, timeout=0.1):
                if message.error() is None:
                    found[message.partition()].append(Seen(message.offset(), message.value()))
            for partition, records in found.items():
                self._note(partition, records, started)

    def _note(self, partition: int, records: list[Seen], started: float) -> None:
        place = place_of(self._topic, partition)
        position = self._positions[partition]
        poll = Poll(self._name, place, position, started, time.monotonic(), records)
        self._history.add(poll)
        self._positions[partition] = records[-1].offset + 1
        self.record_count += len(records)


class CommitterLoad:
    """Commits 1, 2, 3, ... for partition 0, each when the one before has an answer."""

    def __init__(self, servers: str, topic: str, group: str, history: History) -> None:
        self._servers = servers
        self._topic = topic
        self._group = group
        self._history = history
        self.answers = AnswerCounter()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=group, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Stops, and asks what is committed now."""
        self._stopping.set()
        self._thread.join()
        consumer = self._new_consumer()
        started = time.monotonic()
        (answer,) = consumer.committed([TopicPartition(self._topic, 0)], timeout=30)
        consumer.close()
        place = place_of(self._topic, 0)
        # The library says "none" by a number of its own.
        offset = max(answer.offset, -1)
        self._history.add(
            Committed("reader", self._group, place, offset, started, time.monotonic())
        )

    def _new_consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": self._group,
                "enable.auto.commit": False,
                **QUICK,
            }
        )

    def _run(self) -> None:
        consumer = self._new_consumer()
        number = 0
        while not self._stopping.is_set():
            number += 1
            place = place_of(self._topic, 0)
            commit = Commit("committer", self._group, place, number, time.monotonic())
            self._history.add(commit)
            wanted = TopicPartition(self._topic, 0, number)
            try:
                (answer,) = consumer.commit(offsets=[wanted], asynchronous=False)
            except KafkaException as error:
                commit.error = str(error)
                self._stopping.wait(0.05)
                continue
            if answer.error is None:
                commit.outcome = Outcome.OK
                commit.ended = time.monotonic()
                self.answers.acknowledged_count += 1
        consumer.close()


def place_of(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def create_topic(
    servers: str, topic: str, partitions: int, config: dict[str, str] | None = None
) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    new = NewTopic(topic, partitions, 1, config=config or {})
    admin.create_topics([new])[topic].result(30)


def read_all(servers: str, topic: str, partitions: int) -> list[FinalRead]:
    """Everything that is in the topic now."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "read-all",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            **QUICK,
        }
    )
    found: list[FinalRead] = []
    for index in range(partitions):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=30)
        found.append(FinalRead(place_of(topic, index), low, high, []))
    consumer.assign([TopicPartition(topic, at, read.log_start) for at, read in enumerate(found)])

    def is_at_end() -> bool:
        message: Any
        for message in consumer.consume(1000, timeout=0.2):
            assert message.error() is None, message.error()
            read = found[message.partition()]
            if message.offset() < read.end_offset:
                read.records.append(Seen(message.offset(), message.value()))
        return all(
            not read.end_offset or (read.records and read.records[-1].offset == read.end_offset - 1)
            for read in found
        )

    wait_until(is_at_end, f"all records of {topic}")
    consumer.close()
    return found


def assert_kept(history: History, final: list[FinalRead]) -> None:
    """Holds what is in the log in the end against all that happened."""
    history.final.update({read.place: read for read in final})
    anomalies = check(history)
    assert not anomalies, "\n".join(str(anomaly)[:300] for anomaly in anomalies[:20])
