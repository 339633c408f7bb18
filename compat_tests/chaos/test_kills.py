"""`kill -9` and SIGSTOP under load: nothing that was acknowledged is lost, doubled or moved."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from asyncbroker.tests.history.history import End, Ended, History
from compat_tests.chaos.load import (
    QUICK,
    CommitterLoad,
    ProducerLoad,
    ReaderLoad,
    assert_kept,
    create_topic,
    read_all,
)
from compat_tests.chaos.nemesis import CHAOS_SETTINGS, ChaosBroker, running, wait_until

PARTITIONS = 3
KILLS = 50
STARTS_KILLED_EACH = 5
# What a start takes, about.
START_SECONDS = 0.5
SESSION_TIMEOUT_MS = 1000
IDEMPOTENT: dict[str, Any] = {"enable.idempotence": True, "acks": "all"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ChaosBroker]:
    settings = (*CHAOS_SETTINGS, "group.min.session.timeout.ms=500")
    with running(tmp_path / "data", settings) as broker:
        yield broker


@pytest.mark.timeout(600)
def test_fifty_kills_under_load_lose_nothing_and_double_nothing(broker: ChaosBroker) -> None:
    chance = random.Random(9)
    servers = broker.bootstrap_servers
    create_topic(servers, "kept", PARTITIONS)
    history = History()
    producers = [
        ProducerLoad(servers, "kept", "first", history, partitions=PARTITIONS, **IDEMPOTENT),
        ProducerLoad(servers, "kept", "second", history, partitions=PARTITIONS, **IDEMPOTENT),
        # The page cache outlives a process: acks=1 loses nothing to a kill, but may double.
        ProducerLoad(servers, "kept", "plain", history, partitions=PARTITIONS, acks="1"),
    ]
    reader = ReaderLoad(servers, "kept", "reader", history, partitions=PARTITIONS)
    committer = CommitterLoad(servers, "kept", "committer", history)

    answers = [*(producer.answers for producer in producers), committer.answers]
    for number in range(KILLS):
        for one in answers:
            one.wait_for_more()
        time.sleep(chance.random() * 0.3)
        # Now and then two starts as well, somewhere in their recovery.
        count = 2 if number % STARTS_KILLED_EACH == 0 else 0
        broker.restart([chance.random() * START_SECONDS for _ in range(count)])
        history.add(Ended(End.KILL, time.monotonic()))

    for producer in producers:
        producer.finish()
    committer.finish()
    final = read_all(servers, "kept", PARTITIONS)
    total = sum(len(read.records) for read in final)
    wait_until(lambda: reader.record_count >= total, "the reader is at the end")
    reader.finish()
    assert_kept(history, final)


@pytest.mark.timeout(300)
def test_a_stop_longer_than_the_session_expires_no_one_who_is_still_there(
    broker: ChaosBroker,
) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, "paused", PARTITIONS)
    history = History()
    producer = ProducerLoad(servers, "paused", "p", history, partitions=PARTITIONS, **IDEMPOTENT)
    group = Member(servers, "paused")
    try:
        for _ in range(3):
            group.poll_until_assigned(PARTITIONS)
            producer.answers.wait_for_more()
            broker.pause()
            time.sleep(2.5 * SESSION_TIMEOUT_MS / 1000)
            broker.resume()
    finally:
        producer.finish()
    group.poll_until_assigned(PARTITIONS)
    group.close()
    assert_kept(history, read_all(servers, "paused", PARTITIONS))


def test_sigterm_under_load_ends_in_time_and_keeps_everything(broker: ChaosBroker) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, "ended", PARTITIONS)
    history = History()
    producer = ProducerLoad(servers, "ended", "p", history, partitions=PARTITIONS, **IDEMPOTENT)
    for _ in range(5):
        producer.answers.wait_for_more()
        assert broker.stop() == 0
        broker.start()
    producer.finish()
    assert_kept(history, read_all(servers, "ended", PARTITIONS))


class Member:
    """The only member of a group: whoever comes back must get all partitions."""

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "paused-group",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 200,
                **QUICK,
            }
        )
        self._consumer.subscribe([topic])

    def poll_until_assigned(self, count: int) -> None:
        def assigned() -> bool:
            message = self._consumer.poll(0.1)
            is_record = message is not None and message.error() is None
            return is_record and len(self._consumer.assignment()) == count

        wait_until(assigned, f"{count} partitions and a record from them")

    def close(self) -> None:
        self._consumer.close()
