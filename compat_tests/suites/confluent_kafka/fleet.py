"""librdkafka in groups of the newer protocol (KIP-848), in which the broker assigns.

It speaks it with `group.protocol=consumer`. A `Fleet` polls its members in turn and looks after
every poll at what each of them has: no partition may have two owners, and none may be without one
for long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer

SECONDS_MAX = 30.0


class Fleet:
    """Members of one group that read one topic, or those that match an expression."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        self.servers = servers
        self.group = group
        self.topic = topic
        self.members: dict[str, Any] = {}
        self.values: list[bytes] = []

    def start(self, name: str, **config: Any) -> None:
        """One more member, by the consumer protocol unless told otherwise."""
        if config.get("group.protocol") != "classic":
            config = {"group.protocol": "consumer", **config}
        else:
            config = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200, **config}
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": self.group,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
                **config,
            }
        )
        consumer.subscribe([self.topic])
        self.members[name] = consumer

    def stop(self, name: str) -> None:
        """The member leaves."""
        self.members.pop(name).close()

    def stop_all(self) -> None:
        for name in list(self.members):
            self.stop(name)

    def partitions(self) -> dict[str, list[int]]:
        """What each member has, by what it says itself."""
        return {
            name: sorted(place.partition for place in member.assignment())
            for name, member in self.members.items()
        }

    def committed(self) -> int:
        """How many records the group is past, by what is committed."""
        places = [
            place
            for member in self.members.values()
            for place in member.committed(member.assignment(), timeout=10)
        ]
        return sum(max(place.offset, 0) for place in places)

    def poll(self) -> None:
        """Lets each member do something."""
        for member in list(self.members.values()):
            message = member.poll(0.02)
            if message is not None and not message.error():
                self.values.append(message.value())
                member.commit(message, asynchronous=True)
            elif message is not None:
                code = message.error().code()
                assert message.error().retriable() or code in (
                    KafkaError._ALL_BROKERS_DOWN,
                    KafkaError._TRANSPORT,
                    KafkaError.UNKNOWN_TOPIC_OR_PART,
                ), message.error()
            self.check()

    def check(self) -> None:
        """No partition has two owners."""
        owned = [
            (place.topic, place.partition)
            for member in self.members.values()
            for place in member.assignment()
        ]
        assert len(owned) == len(set(owned)), owned

    def until(self, holds: Callable[[dict[str, list[int]]], bool]) -> None:
        """Polls until the partitions are as wished."""
        deadline = time.monotonic() + SECONDS_MAX
        while not holds(self.partitions()):
            assert time.monotonic() < deadline, self.partitions()
            self.poll()

    def until_shared(self, partition_count: int) -> None:
        """Polls until all partitions are had, and by each member as many as by the others."""

        def is_shared(parts: dict[str, list[int]]) -> bool:
            sizes = [len(indexes) for indexes in parts.values()]
            return sum(sizes) == partition_count and max(sizes) - min(sizes) <= 1

        self.until(is_shared)

    def until_read(self, values: set[bytes]) -> None:
        """Polls until all of these have been read."""
        self.until(lambda _parts: values <= set(self.values))


def send(servers: str, topic: str, values: list[bytes], partition_count: int) -> set[bytes]:
    """Sends records to all partitions in turn."""
    producer = Producer({"bootstrap.servers": servers})
    for position, value in enumerate(values):
        producer.produce(topic, value, partition=position % partition_count)
    assert producer.flush(30) == 0
    return set(values)
