"""One group of the newer protocol (KIP-848) with members of different clients, in processes of
their own: no partition has two owners, and none is without one for long.

A member tells what happens to it as it happens, in lines like `@java gains 2`, `@java loses 2` and
`@java reads 17`. All of them write to one pipe, so that what one gave up before another got it
comes in that order.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.consumer_groups import broker_of
from compat_tests.java import needs_jars
from compat_tests.suites.checks import wait_until
from compat_tests.suites.confluent_kafka.fleet import send
from compat_tests.suites.install import ROOT
from compat_tests.test_suites import program_of_client

pytestmark = [pytest.mark.timeout(180), needs_jars]

PARTITIONS = 4
ALONE_SECONDS_MAX = 10
EVENT = re.compile(r"@(\S+) (gains|loses|reads) (\d+)$")


class MixedGroup:
    """The members that there are, and what they have told."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.owners: dict[int, str] = {}
        self.read: Counter[int] = Counter()
        self.troubles: list[str] = []
        self.members: dict[str, subprocess.Popen[bytes]] = {}
        self._since: dict[int, float] = {}
        self._told, self._telling = os.pipe()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def start(self, client: str) -> None:
        environment = {"MEMBER_NAME": client, "MEMBER_GROUP": "mixed", "MEMBER_TOPIC": "flights"}
        self.members[client] = subprocess.Popen(
            [*program_of_client(client), self.servers, "member"],
            stdin=subprocess.PIPE,
            stdout=self._telling,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        )

    def stop(self, client: str) -> None:
        """Has a member leave."""
        member = self.members[client]
        assert member.stdin is not None
        member.stdin.close()
        # One that does not end is still a member, to be killed.
        assert member.wait(30) == 0
        del self.members[client]

    def close(self) -> None:
        for member in self.members.values():
            member.kill()
            member.wait()
            assert member.stdin is not None
            member.stdin.close()
        os.close(self._telling)
        self._listener.join()

    def _listen(self) -> None:
        with open(self._told) as lines:
            for line in lines:
                # What a client logs may be in front of it.
                if found := EVENT.search(line.rstrip()):
                    self._note(found[1], found[2], int(found[3]))

    def _note(self, member: str, what: str, number: int) -> None:
        if what == "reads":
            self.read[number] += 1
            return
        owner = self.owners.pop(number, None)
        if what == "gains":
            self.owners[number] = member
            if owner is not None:
                self.troubles.append(f"{member} gains {number}, which {owner} has")
            alone = time.monotonic() - self._since.pop(number, time.monotonic())
            if alone > ALONE_SECONDS_MAX:
                self.troubles.append(f"nobody had {number} for {alone:.1f} s")
        else:
            self._since[number] = time.monotonic()
            if owner != member:
                self.troubles.append(f"{member} loses {number}, which {owner} has")

    def settle(self) -> None:
        """Waits until the members share the partitions."""

        def is_shared() -> bool:
            assert not self.troubles, self.troubles
            shares = Counter(dict(self.owners).values())
            each = {shares[member] for member in self.members}
            return sum(shares.values()) == PARTITIONS and max(each) - min(each) <= 1

        wait_until(is_shared, f"{sorted(self.members)} share the partitions")


@contextlib.contextmanager
def mixed_group(servers: str) -> Iterator[MixedGroup]:
    group = MixedGroup(servers)
    try:
        yield group
    finally:
        group.close()


def test_java_librdkafka_and_franz_go_share_a_group(tmp_path: Path) -> None:
    java, librdkafka, franz_go = "java-clients", "confluent-kafka", "franz-go"
    with broker_of(tmp_path / "data") as broker, mixed_group(broker.bootstrap_servers) as group:
        admin = AdminClient({"bootstrap.servers": group.servers})
        admin.create_topics([NewTopic("flights", PARTITIONS, 1)])["flights"].result(20)
        sent: list[bytes] = []
        for change, client in (
            (group.start, java),
            (group.start, librdkafka),
            (group.start, franz_go),
            (group.stop, java),
            (group.start, java),
            (group.stop, librdkafka),
            (group.stop, franz_go),
            (group.start, librdkafka),
        ):
            change(client)
            values = [b"%d" % number for number in range(len(sent), len(sent) + 20)]
            sent += values
            send(group.servers, "flights", values, PARTITIONS)
            group.settle()
        wait_until(lambda: group.read.total() >= len(sent), "all records are read")
        for client in list(group.members):
            group.stop(client)
        assert group.troubles == []
        assert group.read == Counter(range(len(sent)))
