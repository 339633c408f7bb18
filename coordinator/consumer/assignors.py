"""Who is to have which partitions: the assignors "uniform" and "range", as functions.

Both give each partition of every topic that somebody reads to exactly one of its readers.

uniform   first balance: where all read the same topics, no two members differ by more than one
          partition; where they do not, by no more than what moving single partitions can mend. Then
          stickiness: as much as possible stays where it was to be before
range     topic by topic, consecutive partitions to the members in order, so that members get the
          same partitions of topics that belong together; static members by their instance ids
          first. Not sticky

Members come in the order in which they joined. What comes out depends on nothing but the arguments.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from asyncbroker.coordinator.consumer.member import Target
from asyncbroker.coordinator.consumer.topics import TopicPartition

# Rounds of moving partitions from fuller to emptier members, where the members read different
# topics; each about halves the differences.
BALANCING_ROUNDS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Reader:
    """A member as an assignor sees it: the ids of the topics that it reads, all of which exist, and
    what it was to have so far."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[bytes]
    target: Target


Assignment = dict[str, Target]
Assignor = Callable[[list[Reader], Mapping[bytes, int]], Assignment]
"""Readers and the number of partitions of each topic that any of them reads, to targets."""


def assign_range(readers: list[Reader], partition_counts: Mapping[bytes, int]) -> Assignment:
    """Consecutive partitions of each topic to its readers in order."""
    ordered = sorted(
        readers,
        key=lambda reader: (reader.instance_id is None, reader.instance_id or reader.member_id),
    )
    targets: dict[str, set[TopicPartition]] = {reader.member_id: set() for reader in readers}
    for topic_id, partition_count in partition_counts.items():
        members = [reader.member_id for reader in ordered if topic_id in reader.topic_ids]
        quota, extra = divmod(partition_count, len(members))
        start = 0
        for position, member_id in enumerate(members):
            end = start + quota + (position < extra)
            targets[member_id].update((topic_id, index) for index in range(start, end))
            start = end
    return {member_id: frozenset(target) for member_id, target in targets.items()}


def assign_uniform(readers: list[Reader], partition_counts: Mapping[bytes, int]) -> Assignment:
    """The same number of partitions to each, and what was to be somewhere stays if it can."""
    if len({reader.topic_ids for reader in readers}) == 1:
        return _assign_alike(readers, partition_counts)
    return _assign_different(readers, partition_counts)


def _assign_alike(readers: list[Reader], partition_counts: Mapping[bytes, int]) -> Assignment:
    """All read the same topics: everybody keeps up to its share, and what is left fills up. Who has
    more than the smaller share already is first to get the one more that some must have."""
    partitions = _all_partitions(partition_counts)
    quota, extra = divmod(len(partitions), len(readers))
    had = _still_there(readers, partition_counts)
    targets: dict[str, set[TopicPartition]] = {}
    for reader in sorted(readers, key=lambda reader: len(had[reader.member_id]) <= quota):
        share = quota + (extra > 0)
        extra -= extra > 0
        targets[reader.member_id] = set(sorted(had[reader.member_id])[:share])
    kept = set[TopicPartition]().union(*targets.values())
    free = iter([partition for partition in partitions if partition not in kept])
    extra = len(partitions) - quota * len(readers)
    extra -= sum(len(target) > quota for target in targets.values())
    for reader in readers:
        target = targets[reader.member_id]
        while len(target) < quota:
            target.add(next(free))
        if extra > 0 and len(target) == quota:
            target.add(next(free))
            extra -= 1
    return {member_id: frozenset(target) for member_id, target in targets.items()}


def _assign_different(readers: list[Reader], partition_counts: Mapping[bytes, int]) -> Assignment:
    """The members read different topics: everybody keeps what it had, the rest goes to the emptiest
    reader each time, topics with the fewest readers first; then single partitions move from fuller
    to emptier members until that mends nothing any more."""
    targets = _still_there(readers, partition_counts)
    subscribers = {
        topic_id: [reader.member_id for reader in readers if topic_id in reader.topic_ids]
        for topic_id in partition_counts
    }
    order = {reader.member_id: position for position, reader in enumerate(readers)}

    def fullness(member_id: str) -> tuple[int, int]:
        return len(targets[member_id]), order[member_id]

    taken = set[TopicPartition]().union(*targets.values())
    topic_ids = sorted(partition_counts, key=lambda topic: (len(subscribers[topic]), topic))
    for topic_id in topic_ids:
        emptiest = [(*fullness(member_id), member_id) for member_id in subscribers[topic_id]]
        heapq.heapify(emptiest)
        for index in range(partition_counts[topic_id]):
            if (topic_id, index) not in taken:
                _, _, member_id = emptiest[0]
                targets[member_id].add((topic_id, index))
                heapq.heapreplace(emptiest, (*fullness(member_id), member_id))
    for _ in range(BALANCING_ROUNDS_MAX):
        moved = [_level(topic, subscribers[topic], targets, fullness) for topic in topic_ids]
        if not any(moved):
            break
    return {member_id: frozenset(target) for member_id, target in targets.items()}


def _level(
    topic_id: bytes,
    subscribers: list[str],
    targets: dict[str, set[TopicPartition]],
    fullness: Callable[[str], tuple[int, int]],
) -> bool:
    """Moves partitions of one topic from its fullest reader to its emptiest, one at a time, as long
    as that makes them more alike; whether any were moved."""
    held = {
        member: sorted(p for p in targets[member] if p[0] == topic_id) for member in subscribers
    }
    has_moved = False
    while holders := [member for member in subscribers if held[member]]:
        fullest, emptiest = max(holders, key=fullness), min(subscribers, key=fullness)
        if len(targets[fullest]) - len(targets[emptiest]) <= 1:
            break
        partition = held[fullest].pop()
        targets[fullest].remove(partition)
        targets[emptiest].add(partition)
        held[emptiest].append(partition)
        has_moved = True
    return has_moved


def _all_partitions(partition_counts: Mapping[bytes, int]) -> list[TopicPartition]:
    return [
        (topic_id, index)
        for topic_id in sorted(partition_counts)
        for index in range(partition_counts[topic_id])
    ]


def _still_there(
    readers: list[Reader], partition_counts: Mapping[bytes, int]
) -> dict[str, set[TopicPartition]]:
    """What each was to have so far, of what it still reads; each partition once."""
    seen: set[TopicPartition] = set()
    kept: dict[str, set[TopicPartition]] = {}
    for reader in readers:
        kept[reader.member_id] = {
            (topic_id, index)
            for topic_id, index in reader.target
            if topic_id in reader.topic_ids
            and index < partition_counts[topic_id]
            and (topic_id, index) not in seen
        }
        seen |= kept[reader.member_id]
    return kept


ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""By the names that `group.consumer.assignors` and members use."""
