"""Committed offsets: where each group is in each partition.

Plain commits count at once. Commits of a transaction stay aside, by producer id, until the marker
that ends the transaction, and then count if no later commit has overtaken them. Only replay brings
such commits as yet (of a directory that Kafka wrote), so that a group keeps its place.

An offset expires, by Kafka's rules (KIP-211, KIP-496), `offsets.retention.minutes` after

- the last commit, for groups that never had members;
- the group became empty, or the last commit if that was later, for groups without members;
- the last commit, for topics that the members of a stable group of consumers no longer read;

never otherwise, and never with a transaction's commit pending. A commit that brought its own
retention (OffsetCommit v2 to v4) expires by that instead. Where Kafka counts from the time when the
group became empty alone, we count from a later commit: an operator who sets the offsets of a group
that was idle for a week would otherwise see them deleted within minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from asyncbroker.coordinator.consumer.group import ConsumerGroup
from asyncbroker.coordinator.group import Group, GroupState
from asyncbroker.coordinator.records import NO_EXPIRY, OffsetCommitValue


class CommittedOffset(NamedTuple):
    """What a group committed, exactly: clients hold the leader epoch against what they know, so
    "none" (-1) must not come back as 0. `order` says which of two commits was later."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    order: int


TopicOffsets = dict[int, CommittedOffset]
GroupOffsets = dict[str, TopicOffsets]


class Offsets:
    """The committed offsets of all groups of one coordinator."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupOffsets] = {}
        self._pending: dict[int, dict[str, GroupOffsets]] = {}
        self._commits_made = 0

    def of(self, group_id: str) -> GroupOffsets:
        """All offsets of a group, by topic and partition; to be read only."""
        return self._groups.get(group_id, {})

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """One offset."""
        return self._groups.get(group_id, {}).get(topic, {}).get(partition)

    def put(
        self,
        group_id: str,
        topic: str,
        partition: int,
        value: OffsetCommitValue,
        producer_id: int | None = None,
    ) -> None:
        """Stores a commit; with a producer id it is part of a transaction and waits for its end."""
        self._commits_made += 1
        committed = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            None if value.expire_timestamp == NO_EXPIRY else value.expire_timestamp,
            self._commits_made,
        )
        groups = self._groups if producer_id is None else self._pending.setdefault(producer_id, {})
        groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Forgets an offset, and commits to it that are pending."""
        for groups in (self._groups, *self._pending.values()):
            _remove(groups, group_id, topic, partition)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """A transaction marker: what was pending counts now, or never."""
        pending = self._pending.pop(producer_id, {})
        if not is_commit:
            return
        for group_id, topic, partition, committed in _all(pending):
            current = self.get(group_id, topic, partition)
            if current is None or current.order < committed.order:
                group = self._groups.setdefault(group_id, {})
                group.setdefault(topic, {})[partition] = committed

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction that is not over has committed this partition's offset."""
        return any(
            partition in groups.get(group_id, {}).get(topic, {})
            for groups in self._pending.values()
        )

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether there is anything to forget about a partition, pending commits too."""
        return self.get(group_id, topic, partition) is not None or self.is_pending(
            group_id, topic, partition
        )

    def has_pending(self, group_id: str) -> bool:
        """Whether any transaction that is not over has committed for this group."""
        return any(groups.get(group_id) for groups in self._pending.values())

    def topics(self) -> set[str]:
        """The topics in which any group has an offset, pending ones too."""
        return {
            topic
            for groups in (self._groups, *self._pending.values())
            for topics in groups.values()
            for topic in topics
        }

    def of_topics(self, topics: frozenset[str]) -> list[tuple[str, str, int]]:
        """Group, topic and partition of every offset in these topics, pending ones too."""
        found = {
            (group_id, topic, partition)
            for groups in (self._groups, *self._pending.values())
            for group_id, topic, partition, _ in _all(groups)
            if topic in topics
        }
        return sorted(found)

    def expired(
        self, group: Group | ConsumerGroup, now_ms: int, retention_ms: int
    ) -> list[tuple[str, int]]:
        """Topic and partition of the offsets of a group whose time is over."""
        counted_from = _expiry_counted_from(group)
        if counted_from is None:
            return []
        return [
            (topic, partition)
            for topic, partitions in self.of(group.group_id).items()
            if not _is_read(group, topic)
            for partition, committed in partitions.items()
            if _is_expired(committed, counted_from(committed), now_ms, retention_ms)
            and not self.is_pending(group.group_id, topic, partition)
        ]


def _is_read(group: Group | ConsumerGroup, topic: str) -> bool:
    """Whether a member may be reading the topic; an empty group has none."""
    return bool(group.members) and group.is_subscribed_to(topic)


def _expiry_counted_from(
    group: Group | ConsumerGroup,
) -> Callable[[CommittedOffset], int] | None:
    """From when the retention of a group's offsets runs; None while it does not."""
    if isinstance(group, ConsumerGroup):
        # What its members read is always known, and since when it is empty is not kept.
        return _commit_time
    if group.protocol_type is None:
        return _commit_time
    if group.state is GroupState.EMPTY:
        empty_since_ms = group.state_since_ms
        if empty_since_ms is None:
            return _commit_time
        return lambda committed: max(empty_since_ms, committed.commit_timestamp_ms)
    if group.state is GroupState.STABLE and group.subscribed_topics is not None:
        return _commit_time
    return None


def _commit_time(committed: CommittedOffset) -> int:
    return committed.commit_timestamp_ms


def _is_expired(
    committed: CommittedOffset, counted_from_ms: int, now_ms: int, retention_ms: int
) -> bool:
    if committed.expire_timestamp_ms is not None:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - counted_from_ms >= retention_ms


def _all(groups: dict[str, GroupOffsets]) -> Iterator[tuple[str, str, int, CommittedOffset]]:
    for group_id, topics in groups.items():
        for topic, partitions in topics.items():
            for partition, committed in partitions.items():
                yield group_id, topic, partition, committed


def _remove(groups: dict[str, GroupOffsets], group_id: str, topic: str, partition: int) -> None:
    """Takes one offset out, and the tables that it leaves empty."""
    topics = groups.get(group_id)
    partitions = topics.get(topic) if topics is not None else None
    if topics is None or partitions is None or partitions.pop(partition, None) is None:
        return
    if not partitions:
        del topics[topic]
    if not topics:
        del groups[group_id]
