"""A consumer group: its members, what they are to have, who owns what, and its state.

A group changes by records alone. Requests make records (`changes.py`), `apply` takes each of them
in, and the same `apply` reads them back from the log: so what a restart finds is what was there.

    group epoch       goes up with every change of the members or of what they read
    assignment epoch  the group epoch that the target assignment was last computed for
    member epoch      how far a member has followed it

A partition has one owner at most: `owners` knows it, and `reconcile.py` gives nobody a partition
that is in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any, ClassVar, NamedTuple

from asyncbroker.coordinator.consumer.member import (
    ConsumerMember,
    MemberState,
    Target,
    classic_part_of,
    owned_of,
    target_of,
)
from asyncbroker.coordinator.consumer.records import (
    ConsumerRecord,
    GroupKey,
    GroupMemberKey,
    RecordKind,
    RegularExpressionKey,
)
from asyncbroker.coordinator.consumer.topics import TopicPartition
from asyncbroker.protocol.errors import ErrorCode, KafkaError

INITIAL_EPOCH = 1
"""What a group has that has not changed yet; no record says so."""

NO_TARGET: Target = frozenset()


class ConsumerGroupState(Enum):
    """The states by the names that describing and listing show. They follow from the members and
    the epochs; nothing has to move the group from one to another."""

    EMPTY = "Empty"
    """No members: only offsets. It may be deleted, or become a classic group by a JoinGroup."""

    ASSIGNING = "Assigning"
    """It has changed since the target assignment was computed; the next heartbeat computes it."""

    RECONCILING = "Reconciling"
    """Some members do not have what they are to have yet."""

    STABLE = "Stable"
    """Every member has what it is to have."""


class ResolvedRegex(NamedTuple):
    """The topics that matched a regular expression, when they were looked for."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    """One group by its id."""

    __slots__ = (
        "_subscribed",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "epoch",
        "group_id",
        "has_partition_metadata",
        "members",
        "metadata_hash",
        "owners",
        "regexes",
        "static_member_ids",
        "targets",
        "topics_version",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = INITIAL_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Target] = {}
        self.owners: dict[TopicPartition, str] = {}
        self.static_member_ids: dict[str, str] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        # Whether the log has a record of a kind that Kafka no longer writes.
        self.has_partition_metadata = False
        # The version of the topics that were last looked at; None: not since the group was loaded.
        self.topics_version: int | None = None
        self._subscribed: frozenset[str] | None = None

    # ---- questions

    @property
    def state(self) -> ConsumerGroupState:
        """The state that the members and the epochs amount to."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(m.is_reconciled_to(self.assignment_epoch) for m in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def is_unused(self) -> bool:
        """Whether nobody is in the group."""
        return not self.members

    def member(self, member_id: str) -> ConsumerMember:
        """The member of this id; raises UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member that has this instance id."""
        member_id = self.static_member_ids.get(instance_id) if instance_id is not None else None
        return self.members[member_id] if member_id is not None else None

    def known_static_member(self, instance_id: str, member_id: str) -> ConsumerMember:
        """The member with this instance id. Raises UNKNOWN_MEMBER_ID when there is none, and
        FENCED_INSTANCE_ID when it has another member id, but for an empty one."""
        member = self.static_member(instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member_id and member.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{member.member_id}.",
            )
        return member

    def target_of(self, member_id: str) -> Target:
        """What a member is to have."""
        return self.targets.get(member_id, NO_TARGET)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The names of the topics that a member reads, whether they exist or not."""
        if member.topic_regex:
            resolved = self.regexes.get(member.topic_regex)
            return member.topic_names | (resolved.topics if resolved is not None else frozenset())
        return member.topic_names

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The names of the topics that any member reads."""
        if self._subscribed is None:
            topics = (self.topics_of(member) for member in self.members.values())
            self._subscribed = frozenset[str]().union(*topics)
        return self._subscribed

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic."""
        return topic in self.subscribed_topics

    def supports_classic(self, protocol_names: set[str]) -> bool:
        """Whether a protocol of these is one of every member that speaks the classic protocol."""
        parts = [member.classic for member in self.members.values() if member.classic is not None]
        return any(
            all(any(name == known for known, _ in part.protocols) for part in parts)
            for name in protocol_names
        )

    def regex_uses(self, regex: str) -> int:
        """How many members have subscribed to a regular expression."""
        return sum(member.topic_regex == regex for member in self.members.values())

    # ---- records

    def apply(self, record: ConsumerRecord) -> None:
        """Takes one record in, written just now or read from the log."""
        self._APPLY[record.kind](self, record.key, record.value)

    def _apply_metadata(self, _key: GroupKey, value: Any) -> None:
        self.epoch = value.epoch if value is not None else INITIAL_EPOCH
        self.metadata_hash = value.metadata_hash if value is not None else 0

    def _apply_partition_metadata(self, _key: GroupKey, value: Any) -> None:
        self.has_partition_metadata = value is not None

    def _apply_member(self, key: GroupMemberKey, value: Any) -> None:
        if value is None:
            self._remove(key.member_id)
            return
        member = self.members.get(key.member_id) or ConsumerMember(key.member_id)
        self._put(
            replace(
                member,
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                topic_names=frozenset(value.subscribed_topic_names),
                topic_regex=value.subscribed_topic_regex,
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                server_assignor=value.server_assignor,
                classic=classic_part_of(value.classic_member_metadata),
            )
        )

    def _apply_target_metadata(self, _key: GroupKey, value: Any) -> None:
        self.assignment_epoch = value.assignment_epoch if value is not None else 0
        self.assignment_timestamp_ms = value.assignment_timestamp if value is not None else 0

    def _apply_target(self, key: GroupMemberKey, value: Any) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = target_of(value)

    def _apply_current(self, key: GroupMemberKey, value: Any) -> None:
        member = self.members.get(key.member_id)
        if value is None:
            # What a member is without an assignment is what it was before it had any.
            if member is not None:
                fresh = ConsumerMember(key.member_id)
                self._put(
                    replace(
                        member,
                        epoch=fresh.epoch,
                        previous_epoch=fresh.previous_epoch,
                        state=fresh.state,
                        assigned={},
                        pending_revocation={},
                    )
                )
            return
        is_known = value.state in (0, 1, 2)
        self._put(
            replace(
                member or ConsumerMember(key.member_id),
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                state=MemberState(value.state) if is_known else MemberState.UNKNOWN,
                assigned=owned_of(value.assigned_partitions, value.member_epoch),
                pending_revocation=owned_of(
                    value.partitions_pending_revocation, value.member_epoch
                ),
            )
        )

    def _apply_regex(self, key: RegularExpressionKey, value: Any) -> None:
        self._subscribed = None
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
            self.regexes[key.regular_expression] = resolved

    _APPLY: ClassVar[dict[RecordKind, Callable[..., None]]] = {
        RecordKind.GROUP_METADATA: _apply_metadata,
        RecordKind.PARTITION_METADATA: _apply_partition_metadata,
        RecordKind.MEMBER_METADATA: _apply_member,
        RecordKind.TARGET_ASSIGNMENT_METADATA: _apply_target_metadata,
        RecordKind.TARGET_ASSIGNMENT_MEMBER: _apply_target,
        RecordKind.CURRENT_MEMBER_ASSIGNMENT: _apply_current,
        RecordKind.REGULAR_EXPRESSION: _apply_regex,
    }

    def _put(self, member: ConsumerMember) -> None:
        """Puts a member in the place of what it was. In a log that was compacted, what somebody
        else got from it may stand before what it gave up: the last record counts."""
        before = self.members.get(member.member_id)
        if before is not None:
            self._release(before)
        self.members[member.member_id] = member
        for partition in member.owns():
            self.owners[partition] = member.member_id
        if member.instance_id is not None:
            self.static_member_ids[member.instance_id] = member.member_id
        if before is None or before.subscription != member.subscription:
            self._subscribed = None

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._release(member)
        self._subscribed = None
        if member.instance_id is not None and (
            self.static_member_ids.get(member.instance_id) == member_id
        ):
            del self.static_member_ids[member.instance_id]

    def _release(self, member: ConsumerMember) -> None:
        for partition in member.owns():
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]
