"""Watches a group's rebalances where the broker itself records them: in `__consumer_offsets`.

Whenever a generation of a group is complete, the coordinator writes a record with its number, its
members and what each was assigned. A watcher follows that topic in a thread, so it sees each
generation of any client exactly once, and goes on after the broker was restarted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from asyncbroker.coordinator.records import GroupMetadataRecord, GroupMetadataValue, decode_record
from asyncbroker.protocol.consumer_protocol import decode_assignment

OFFSETS_TOPIC = "__consumer_offsets"
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Generation:
    """One generation of a group: who owns which partitions from `at` (monotonic seconds) on."""

    number: int
    at: float
    owners: dict[str, list[int]]


class GenerationWatcher:
    """Collects the generations of one group until it is closed."""

    def __init__(
        self, servers: str, group: str, on_generation: Callable[[Generation], None] | None = None
    ) -> None:
        self._group = group
        self._on_generation = on_generation
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._generations: list[Generation] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"{group}-watcher",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 500,
                # A broker that is being restarted is part of the show.
                "log_level": 2,
            }
        )
        self._thread = threading.Thread(target=self._follow, name="generations", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends the watching; what was seen stays. Closing twice is fine."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._thread.join()
            self._consumer.close()

    @property
    def generations(self) -> list[Generation]:
        """What was seen so far, in order."""
        with self._lock:
            return list(self._generations)

    def latest(self) -> Generation | None:
        with self._lock:
            return self._generations[-1] if self._generations else None

    def _follow(self) -> None:
        assigned: set[int] = set()
        while not self._stopping.is_set():
            if not assigned:
                assigned = self._assign_all()
            message = self._consumer.poll(POLL_SECONDS)
            if message is not None and not message.error():
                self._take(message)

    def _assign_all(self) -> set[int]:
        """The topic is made when the first group appears; until then there is nothing to follow."""
        topics = self._consumer.list_topics(timeout=10).topics
        partitions = set(topics[OFFSETS_TOPIC].partitions) if OFFSETS_TOPIC in topics else set()
        if partitions:
            self._consumer.assign([TopicPartition(OFFSETS_TOPIC, p, 0) for p in partitions])
        else:
            self._stopping.wait(POLL_SECONDS)
        return partitions

    def _take(self, message: Any) -> None:
        if message.key() is None:
            return
        record = decode_record(message.key(), message.value())
        if (
            isinstance(record, GroupMetadataRecord)
            and record.key.group == self._group
            and record.value is not None
        ):
            generation = Generation(
                record.value.generation, time.monotonic(), owners_of(record.value)
            )
            with self._lock:
                self._generations.append(generation)
            if self._on_generation:
                self._on_generation(generation)


def owners_of(group: GroupMetadataValue) -> dict[str, list[int]]:
    """The partitions by the members' client ids, both in order."""
    owners = {}
    for member in sorted(group.members, key=lambda member: member.client_id):
        assignment = decode_assignment(member.assignment)
        owners[member.client_id] = sorted(
            partition for topic in assignment.assigned_partitions for partition in topic.partitions
        )
    return owners
