"""What one request does to a group: records, each taken in by the group as soon as it is made.

The functions that serve requests check all that may fail first, and then make changes: a change is
never taken back. When the request is served, the records go into one append.
"""

from __future__ import annotations

from asyncbroker.coordinator.consumer.group import ConsumerGroup
from asyncbroker.coordinator.consumer.member import ConsumerMember, Target, target_value
from asyncbroker.coordinator.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerRecord,
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
        key = ConsumerGroupMemberMetadataKey(self.group.group_id, member.member_id)
        self._put(key, member.metadata())

    def put_current(self, member: ConsumerMember) -> None:
        """What a member has."""
        key = ConsumerGroupCurrentMemberAssignmentKey(self.group.group_id, member.member_id)
        self._put(key, member.current_assignment())

    def put_target(self, member_id: str, target: Target) -> None:
        """What a member is to have."""
        key = ConsumerGroupTargetAssignmentMemberKey(self.group.group_id, member_id)
        self._put(key, target_value(target))

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        """The number of the group's last change."""
        key = ConsumerGroupMetadataKey(self.group.group_id)
        self._put(key, ConsumerGroupMetadataValue(epoch, metadata_hash))

    def put_assignment_epoch(self, epoch: int, timestamp_ms: int) -> None:
        """The group epoch that was assigned for."""
        key = ConsumerGroupTargetAssignmentMetadataKey(self.group.group_id)
        self._put(key, ConsumerGroupTargetAssignmentMetadataValue(epoch, timestamp_ms))

    def put_regex(
        self, regex: str, topics: frozenset[str], version: int, timestamp_ms: int
    ) -> None:
        """The topics that match a regular expression."""
        key = ConsumerGroupRegularExpressionKey(self.group.group_id, regex)
        value = ConsumerGroupRegularExpressionValue(sorted(topics), version, timestamp_ms)
        self._put(key, value)

    def remove_regex(self, regex: str) -> None:
        """Nobody reads by this regular expression any more."""
        self._put(ConsumerGroupRegularExpressionKey(self.group.group_id, regex), None)

    def remove_partition_metadata(self) -> None:
        """Takes a record out of the log that only an older Kafka wrote."""
        self._put(ConsumerGroupPartitionMetadataKey(self.group.group_id), None)

    def remove_member(self, member_id: str) -> None:
        """A member is gone, with all that it had."""
        group_id = self.group.group_id
        self._put(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None)
        self._put(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None)
        self._put(ConsumerGroupMemberMetadataKey(group_id, member_id), None)

    def replace_member(self, old: ConsumerMember, new: ConsumerMember) -> None:
        """A static member has a new process: the new one gets all that the old one had."""
        target = self.group.target_of(old.member_id)
        self.remove_member(old.member_id)
        self.put_member(new)
        self.put_target(new.member_id, target)
        self.put_current(new)

    def remove_all(self) -> None:
        """The group is gone, in the order in which Kafka writes it."""
        group, group_id = self.group, self.group.group_id
        member_ids = list(group.members)
        for member_id in member_ids:
            self._put(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None)
        for member_id in member_ids:
            self._put(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None)
        self._put(ConsumerGroupTargetAssignmentMetadataKey(group_id), None)
        for member_id in member_ids:
            self._put(ConsumerGroupMemberMetadataKey(group_id, member_id), None)
        for regex in list(group.regexes):
            self.remove_regex(regex)
        if group.has_partition_metadata:
            self.remove_partition_metadata()
        self._put(ConsumerGroupMetadataKey(group_id), None)

    def _put(self, key: object, value: object) -> None:
        record = ConsumerRecord(key, value)
        self.group.apply(record)
        self.records.append(encode(record))
