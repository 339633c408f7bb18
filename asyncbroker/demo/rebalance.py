"""`asyncbroker demo rebalance`: a group whose members come, go and are killed, shown live."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from asyncbroker.demo.generations import Generation, GenerationWatcher
from asyncbroker.demo.processes import BrokerProcess, DemoError, MemberProcess
from asyncbroker.demo.show import Show
from asyncbroker.demo.store import CountStore

TOPIC = "demo"
GROUP = "demo-group"
PARTITIONS = 6
COLOURS = ("red", "green", "blue", "yellow")
WAIT_SECONDS_MAX = 60.0
RECORDS_PER_S = 500

SETTINGS = ("group.initial.rebalance.delay.ms=500",)


def run_rebalance_demo(show: Show) -> None:
    """Three members share a topic; a fourth joins, one leaves, one is killed; nothing is lost."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="asyncbroker-demo-")))
        broker = BrokerProcess(None, SETTINGS, folder / "broker.log")
        broker.start()
        stack.callback(broker.stop)
        show.headline(f"a broker in memory at {broker.address}, a topic of {PARTITIONS} partitions")
        create_topic(broker.address, TOPIC, PARTITIONS)
        feed = Feed(broker.address)
        stack.callback(feed.stop)
        feed.start()
        watcher = GenerationWatcher(broker.address, GROUP, show.generation)
        watcher.start()
        stack.callback(watcher.close)
        store = CountStore(folder / "counts.sqlite")
        stack.callback(store.close)

        members: dict[str, MemberProcess] = {}

        def join(name: str) -> None:
            members[name] = MemberProcess(
                name,
                broker.address,
                GROUP,
                TOPIC,
                "colour",
                folder / "counts.sqlite",
                folder / f"{name}.log",
            )
            stack.callback(members[name].stop)

        show.headline("three members join")
        for name in ("member-1", "member-2", "member-3"):
            join(name)
        wait_for_members(watcher, 3)
        show.headline("a fourth joins: everybody stops, and the partitions are dealt anew")
        join("member-4")
        wait_for_members(watcher, 4)
        show.headline("member-2 leaves, and says so: the others take over at once")
        members["member-2"].stop()
        wait_for_members(watcher, 3)
        show.headline("member-3 is killed: its session must time out first (6 s)")
        members["member-3"].kill()
        wait_for_members(watcher, 2)

        sent = feed.stop()
        show.headline(
            f"{sum(sent.values())} records were sent meanwhile; every one is counted once"
        )
        wait_until(lambda: store.record_count() >= sum(sent.values()), "all records are counted")
        counted = dict(store.totals())
        show.check("the group's counts equal what was sent", counted == sent, str(counted))


class Feed:
    """A thread that produces a steady trickle of small JSON records."""

    def __init__(self, servers: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5}
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._acknowledged: dict[str, int] = dict.fromkeys(COLOURS, 0)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> dict[str, int]:
        """Ends it; returns how many records of each colour were acknowledged."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
            self._producer.flush()
        return dict(self._acknowledged)

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(0.1):
            for _ in range(RECORDS_PER_S // 10):
                number += 1
                colour = COLOURS[number % len(COLOURS)]
                value = json.dumps({"number": number, "colour": colour})
                self._producer.produce(
                    TOPIC, value, str(number), on_delivery=self._delivered(colour)
                )
            self._producer.poll(0)

    def _delivered(self, colour: str) -> Callable[[Any, Any], None]:
        def delivered(error: Any, _: Any) -> None:
            if error is None:
                self._acknowledged[colour] += 1

        return delivered


def create_topic(servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def wait_for_members(watcher: GenerationWatcher, count: int) -> Generation:
    """Waits for a generation of so many members that owns every partition."""

    def is_there() -> bool:
        latest = watcher.latest()
        return latest is not None and len(latest.owners) == count

    wait_until(is_there, f"the group has {count} members")
    latest = watcher.latest()
    assert latest is not None
    return latest


def wait_until(condition: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS_MAX) -> None:
    """Polls; raises DemoError when it takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise DemoError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(0.05)
