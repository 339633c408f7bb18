"""What one request does to a group: records, each taken in by the group as soon as it is made.

The functions that serve requests check all that may fail first, and then make changes: a change is
never taken back. When the request is served, the records go into one append.
"""

from __future__ import annotations

from asyncbroker.coordinator.consumer.group import ConsumerGroup
from asyncbroker.coordinator.consumer.member import ConsumerMember, Target, target_value
from asyncbroker.coordinator.consumer.records import (
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerRecord,
    GroupKey,
    GroupMemberKey,
    RecordKind,
    RegularExpressionKey,
    encode,
)
from asyncbroker.coordinator.effects import Record


class Changes:
    """The changes of one group in one call, as records."""

    __slots__ = ("group", "records")

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[Record] = []

    def put_member(self, member: ConsumerMember) -> None:
        """Who a member is and what it wants."""
        self._put_of(member.member_id, RecordKind.MEMBER_METADATA, member.metadata())

    def put_current(self, member: ConsumerMember) -> None:
        """What a member has."""
        current = member.current_assignment()
        self._put_of(member.member_id, RecordKind.CURRENT_MEMBER_ASSIGNMENT, current)

    def put_target(self, member_id: str, target: Target) -> None:
        """What a member is to have."""
        self._put_of(member_id, RecordKind.TARGET_ASSIGNMENT_MEMBER, target_value(target))

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        """The number of the group's last change."""
        self._put(RecordKind.GROUP_METADATA, ConsumerGroupMetadataValue(epoch, metadata_hash))

    def put_assignment_epoch(self, epoch: int, timestamp_ms: int) -> None:
        """The group epoch that was assigned for."""
        value = ConsumerGroupTargetAssignmentMetadataValue(epoch, timestamp_ms)
        self._put(RecordKind.TARGET_ASSIGNMENT_METADATA, value)

    def put_regex(
        self, regex: str, topics: frozenset[str], version: int, timestamp_ms: int
    ) -> None:
        """The topics that match a regular expression."""
        value = ConsumerGroupRegularExpressionValue(sorted(topics), version, timestamp_ms)
        key = RegularExpressionKey(self.group.group_id, regex)
        self._write(ConsumerRecord(RecordKind.REGULAR_EXPRESSION, key, value))

    def remove_regex(self, regex: str) -> None:
        """Nobody reads by this regular expression any more."""
        key = RegularExpressionKey(self.group.group_id, regex)
        self._write(ConsumerRecord(RecordKind.REGULAR_EXPRESSION, key, None))

    def remove_partition_metadata(self) -> None:
        """Takes a record out of the log that only an older Kafka wrote."""
        self._put(RecordKind.PARTITION_METADATA, None)

    def remove_member(self, member_id: str) -> None:
        """A member is gone, with all that it had."""
        self._put_of(member_id, RecordKind.CURRENT_MEMBER_ASSIGNMENT, None)
        self._put_of(member_id, RecordKind.TARGET_ASSIGNMENT_MEMBER, None)
        self._put_of(member_id, RecordKind.MEMBER_METADATA, None)

    def replace_member(self, old: ConsumerMember, new: ConsumerMember) -> None:
        """A static member has a new process: the new one gets all that the old one had."""
        target = self.group.target_of(old.member_id)
        self.remove_member(old.member_id)
        self.put_member(new)
        self.put_target(new.member_id, target)
        self.put_current(new)

    def remove_all(self) -> None:
        """The group is gone, in the order in which Kafka writes it."""
        group = self.group
        member_ids = list(group.members)
        for member_id in member_ids:
            self._put_of(member_id, RecordKind.CURRENT_MEMBER_ASSIGNMENT, None)
        for member_id in member_ids:
            self._put_of(member_id, RecordKind.TARGET_ASSIGNMENT_MEMBER, None)
        self._put(RecordKind.TARGET_ASSIGNMENT_METADATA, None)
        for member_id in member_ids:
            self._put_of(member_id, RecordKind.MEMBER_METADATA, None)
        for regex in list(group.regexes):
            self.remove_regex(regex)
        if group.has_partition_metadata:
            self.remove_partition_metadata()
        self._put(RecordKind.GROUP_METADATA, None)

    def _put(self, kind: RecordKind, value: object) -> None:
        self._write(ConsumerRecord(kind, GroupKey(self.group.group_id), value))

    def _put_of(self, member_id: str, kind: RecordKind, value: object) -> None:
        key = GroupMemberKey(self.group.group_id, member_id)
        self._write(ConsumerRecord(kind, key, value))

    def _write(self, record: ConsumerRecord) -> None:
        self.group.apply(record)
        self.records.append(encode(record))
