"""Members leave or are thrown out: what they had is free, and the group has changed."""

from __future__ import annotations

from collections.abc import Iterable

from asyncbroker.coordinator.consumer.assignment import hash_of
from asyncbroker.coordinator.consumer.changes import Changes
from asyncbroker.coordinator.consumer.member import ConsumerMember
from asyncbroker.coordinator.consumer.topics import TopicView
from asyncbroker.coordinator.turn import Turn


def remove_members(
    changes: Changes,
    members: Iterable[ConsumerMember],
    reason: str,
    turn: Turn,
) -> None:
    """Takes members out."""
    group = changes.group
    for member in members:
        turn.note(group, f"member {member.member_id} is removed: {reason}")
        turn.cancel_member_deadlines(group.group_id, member.member_id)
        changes.remove_member(member.member_id)
        if member.topic_regex in group.regexes and not group.regex_uses(member.topic_regex):
            changes.remove_regex(member.topic_regex)


def close_ranks(changes: Changes, topics: TopicView) -> None:
    """The group goes on without those who are gone; nobody is told before its next heartbeat."""
    group = changes.group
    changes.put_epoch(group.epoch + 1, hash_of(group.subscribed_topics, topics))
