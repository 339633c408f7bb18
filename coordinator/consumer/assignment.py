"""Keeps a group's epoch and its target assignment up with its members and their topics.

    something changed          -> the group epoch goes up                    (`update_epoch`)
    the group epoch is ahead   -> the target assignment is computed anew     (`update_target`)

`group.consumer.assignment.interval.ms` holds the second step back for a while after it was last
done, so that members that come together cost one assignment and not one each (KIP-1263). Whoever
sends a heartbeat then makes up for it.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from asyncbroker.coordinator.config import GroupConfig
from asyncbroker.coordinator.consumer.assignors import ASSIGNORS, Reader
from asyncbroker.coordinator.consumer.changes import Changes
from asyncbroker.coordinator.consumer.group import ConsumerGroup
from asyncbroker.coordinator.consumer.regex import matching
from asyncbroker.coordinator.consumer.topics import TopicView
from asyncbroker.coordinator.turn import Turn
from asyncbroker.protocol.errors import KafkaError


def update_epoch(
    changes: Changes, topics: TopicView, turn: Turn, *, has_changed: bool, reason: str
) -> None:
    """Raises the group epoch if the members have changed, or the topics that they read."""
    group = changes.group
    if has_changed or group.topics_version != topics.version:
        _resolve_regexes(changes, topics, turn)
        group.topics_version = topics.version
        metadata_hash = hash_of(group.subscribed_topics, topics)
        if has_changed or metadata_hash != group.metadata_hash:
            if not has_changed:
                reason = "topics that it reads have changed"
            changes.put_epoch(group.epoch + 1, metadata_hash)
            turn.note(group, f"epoch {group.epoch}: {reason}")
            if group.has_partition_metadata:
                changes.remove_partition_metadata()


def update_target(changes: Changes, topics: TopicView, turn: Turn) -> None:
    """Computes the target assignment anew if the group has changed since, and it is time to."""
    group = changes.group
    if group.assignment_epoch >= group.epoch or not group.members:
        return
    interval_ms = turn.config.of(group.group_id).consumer_assignment_interval_ms
    last_ms = group.assignment_timestamp_ms
    # A clock that was set back must not hold it up.
    if last_ms and interval_ms and 0 <= turn.now.wall_ms - last_ms < interval_ms:
        return
    infos = {
        info.topic_id: info
        for name in group.subscribed_topics
        if (info := topics.find(name)) is not None
    }
    topic_ids = {info.name: topic_id for topic_id, info in infos.items()}
    readers = [
        Reader(
            member.member_id,
            member.instance_id,
            frozenset(topic_ids[name] for name in group.topics_of(member) if name in topic_ids),
            group.target_of(member.member_id),
        )
        for member in group.members.values()
    ]
    name = assignor_name(group, turn.config)
    assigned = ASSIGNORS[name](
        readers, {topic_id: info.partition_count for topic_id, info in infos.items()}
    )
    for member_id, target in assigned.items():
        if target != group.targets.get(member_id):
            changes.put_target(member_id, target)
    changes.put_assignment_epoch(group.epoch, turn.now.wall_ms)


def assignor_name(group: ConsumerGroup, config: GroupConfig) -> str:
    """The assignor that most members prefer; the first of the setting without any."""
    preferred = Counter(
        member.server_assignor
        for member in group.members.values()
        if member.server_assignor in config.consumer_assignors
    )
    if not preferred:
        return config.consumer_assignors[0]
    most = max(preferred.values())
    return next(name for name in config.consumer_assignors if preferred.get(name) == most)


def hash_of(names: frozenset[str], topics: TopicView) -> int:
    """64 bits that differ when other topics are there, or have other numbers of partitions; 0 for
    no topics. Only ever compared with what this function gave before."""
    found = sorted(info for name in names if (info := topics.find(name)) is not None)
    if not found:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for topic_id, name, partition_count in found:
        digest.update(topic_id + partition_count.to_bytes(4, "big") + name.encode() + b"\0")
    return int.from_bytes(digest.digest(), "big", signed=True)


def _resolve_regexes(changes: Changes, topics: TopicView, turn: Turn) -> None:
    """Looks for the topics that match, when there are other topics or other expressions."""
    group = changes.group
    wanted = {member.topic_regex for member in group.members.values() if member.topic_regex}
    for regex in sorted(group.regexes.keys() - wanted):
        changes.remove_regex(regex)
    is_new_world = group.topics_version != topics.version
    for regex in sorted(wanted):
        known = group.regexes.get(regex)
        if known is not None and not is_new_world:
            continue
        try:
            found = matching(regex, topics.names())
        except KafkaError as error:
            # One from the log: another broker could read it, and whoever asks now need not be the
            # member that brought it. What it matched then stays.
            turn.note(group, str(error))
            continue
        if known is None or known.topics != found:
            changes.put_regex(regex, found, topics.version, turn.now.wall_ms)
