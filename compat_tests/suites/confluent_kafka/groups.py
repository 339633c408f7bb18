"""confluent-kafka's checks of groups of the newer protocol (KIP-848)."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from compat_tests.suites.checks import expect, fresh
from compat_tests.suites.confluent_kafka.fleet import Fleet, send

Check = Callable[[str], None]
Create = Callable[[str, int], str]
"""Makes a topic of so many partitions at a broker."""


class Changing:
    """A group to which members come and from which they go while records are sent."""

    def __init__(self, servers: str, create: Create) -> None:
        self.fleet = Fleet(servers, fresh("group"), create(servers, 4))
        self._started = 0
        self._sent: set[bytes] = set()

    def start(self, **config: str) -> str:
        self._started += 1
        name = f"member {self._started}"
        self.fleet.start(name, **config)
        return name

    def send(self) -> None:
        values = [b"%d" % (len(self._sent) + n) for n in range(20)]
        self._sent |= send(self.fleet.servers, self.fleet.topic, values, 4)

    def settle(self) -> None:
        self.fleet.until_shared(4)

    def kind(self) -> str:
        admin = AdminClient({"bootstrap.servers": self.fleet.servers})
        listed = admin.list_consumer_groups().result(30)
        kind: str
        (kind,) = (each.type.name for each in listed.valid if each.group_id == self.fleet.group)
        return kind

    def end(self) -> None:
        """By then each record has been read, and once."""
        self.fleet.until_read(self._sent)
        self.fleet.stop_all()
        expect(sorted(self._sent), sorted(self.fleet.values))


def members(assignor: str, create: Create) -> Check:
    """Has members come and go."""

    def check(servers: str) -> None:
        group, chance = Changing(servers, create), random.Random(848)
        config = {"group.protocol": "consumer", "group.remote.assignor": assignor}
        group.start(**config)
        group.settle()
        expect("CONSUMER", group.kind())
        for _ in range(8):
            group.send()
            members = list(group.fleet.members)
            if len(members) == 1 or (len(members) < 4 and chance.random() < 0.5):
                group.start(**config)
            else:
                group.fleet.stop(chance.choice(members))
            group.send()
            # Sometimes the next change comes before the group has got over this one.
            if chance.random() < 0.67:
                group.settle()
        group.settle()
        group.end()

    return check


def change(create: Create) -> Check:
    """As in rolling upgrades: one member after the other is replaced."""

    def check(servers: str) -> None:
        group = Changing(servers, create)
        classic = {"group.protocol": "classic", "partition.assignment.strategy": "range"}
        one, two = group.start(**classic), group.start(**classic)
        group.settle()
        group.send()
        expect("CLASSIC", group.kind())
        three = group.start()
        group.settle()
        expect("CONSUMER", group.kind())
        for name in (one, two):
            group.send()
            group.fleet.stop(name)
            group.settle()
        group.start(**classic)
        group.settle()
        group.fleet.stop(three)
        group.settle()
        expect("CLASSIC", group.kind())
        group.send()
        group.end()

    return check


def stay(servers: str) -> None:
    """Is a member of the group of which the environment tells until its input ends, and tells what
    happens to it, as `compat_tests/test_mixed_groups.py` says."""
    name, group, topic = (os.environ[f"MEMBER_{what}"] for what in ("NAME", "GROUP", "TOPIC"))

    def tell(what: str, about: object) -> None:
        # In one write, since others write to the same pipe.
        os.write(sys.stdout.fileno(), f"@{name} {what} {about}\n".encode())

    def told(what: str) -> Callable[[Any, list[TopicPartition]], None]:
        def tell_each(_consumer: Any, places: list[TopicPartition]) -> None:
            for place in places:
                tell(what, place.partition)

        return tell_each

    def wait_for_the_end() -> None:
        sys.stdin.read()
        has_ended.set()

    has_ended = threading.Event()
    threading.Thread(target=wait_for_the_end, daemon=True).start()
    consumer: Any = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic], on_assign=told("gains"), on_revoke=told("loses"))
    while not has_ended.is_set():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            tell("reads", message.value().decode())
            consumer.commit(message, asynchronous=False)
    consumer.close()
