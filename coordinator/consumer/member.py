"""One member of a consumer group: what it wants, what it has, and where it is on the way.

Members are values: a change makes a new one (`dataclasses.replace`), which is written to the log if
it differs from the old. `epoch` is the group epoch up to which the member has followed the target
assignment; the member sends it with each heartbeat, and is fenced if it is not what the coordinator
knows. `previous_epoch` is the one before: the answer that brought the new one may have been lost.

A member that speaks the classic protocol has `classic`; to it the epoch is a generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from asyncbroker.coordinator.consumer.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
    CurrentPartitions,
    TargetPartitions,
)
from asyncbroker.coordinator.consumer.topics import TopicPartition

Owned = Mapping[TopicPartition, int]
"""Partitions, each with the epoch in which the member got it."""

Target = frozenset[TopicPartition]
"""The partitions that a member is to have."""

NOTHING: Final[Owned] = {}


class MemberState(IntEnum):
    """Where a member is on its way to its target, by the numbers in Kafka's records."""

    STABLE = 0
    """It has what it was to have in its epoch."""

    UNREVOKED_PARTITIONS = 1
    """It has been told to give partitions up, and has not said yet that it did. It stays in its
    epoch, and is fenced if it takes longer than its rebalance timeout."""

    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given up yet."""

    UNKNOWN = 127
    """A later Kafka wrote the record: the member has to begin anew."""


@dataclass(frozen=True, slots=True)
class ClassicPart:
    """What a member has that speaks the classic protocol: names and metadata, preferred first."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member. `assigned` and `pending_revocation` are disjoint, and both are owned by it."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    pending_revocation: Owned = field(default_factory=dict)

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicPart | None = None

    @property
    def subscription(self) -> tuple[frozenset[str], str]:
        """What it reads, in a form that differs when it reads something else: no expression is an
        empty one or none, as it came."""
        return self.topic_names, self.topic_regex or ""

    def owns(self) -> Iterable[TopicPartition]:
        """All partitions that nobody else may have."""
        return (*self.assigned, *self.pending_revocation)

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has all that it is to have by this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def metadata(self) -> ConsumerGroupMemberMetadataValue:
        """Who it is and what it wants, as a record."""
        classic = None
        if self.classic is not None:
            protocols = [ClassicProtocol(*protocol) for protocol in self.classic.protocols]
            classic = ClassicMemberMetadata(self.classic.session_timeout_ms, protocols)
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topic_names),
            subscribed_topic_regex=self.topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic_member_metadata=classic,
        )

    def current_assignment(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """What it has, as a record."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_current_partitions(self.assigned),
            partitions_pending_revocation=_current_partitions(self.pending_revocation),
        )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[bytes, list[int]]:
    """Partition indexes by topic id, all in order."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, []).append(index)
    return topics


def target_value(target: Target) -> ConsumerGroupTargetAssignmentMemberValue:
    """What a member is to have, as a record."""
    return ConsumerGroupTargetAssignmentMemberValue(
        [TargetPartitions(*topic) for topic in by_topic(target).items()]
    )


def target_of(value: ConsumerGroupTargetAssignmentMemberValue) -> Target:
    """What a record says that a member is to have."""
    return frozenset(
        (topic.topic_id, index) for topic in value.topic_partitions for index in topic.partitions
    )


def owned_of(topics: Iterable[CurrentPartitions], member_epoch: int) -> Owned:
    """What a record says that a member has. Kafka before 4.3 did not write the epochs: then it is
    as if all had been assigned now, so that only commits with the member's epoch count."""
    owned: dict[TopicPartition, int] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        for index, epoch in zip(topic.partitions, epochs, strict=True):
            owned[topic.topic_id, index] = epoch
    return owned


def classic_part_of(metadata: ClassicMemberMetadata | None) -> ClassicPart | None:
    """The part of a record that only members of the classic protocol have."""
    if metadata is None:
        return None
    protocols = tuple((p.name, p.metadata) for p in metadata.supported_protocols)
    return ClassicPart(metadata.session_timeout_ms, protocols)


def _current_partitions(owned: Owned) -> list[CurrentPartitions]:
    return [
        CurrentPartitions(topic_id, indexes, [owned[topic_id, index] for index in indexes])
        for topic_id, indexes in by_topic(owned).items()
    ]
