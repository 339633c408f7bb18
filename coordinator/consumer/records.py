"""Keys and values of `__consumer_offsets` for groups of the consumer protocol, in Kafka's format.

The version of a key says what its record is about; all values have version 0:

    key 3    ConsumerGroupMetadata: {group} -> its epoch, and a hash of the topics it reads
    key 4    ConsumerGroupPartitionMetadata: {group} -> those topics; Kafka wrote it until 4.0. It
             is read as a sign that it has to be deleted, and never written
    key 5    ConsumerGroupMemberMetadata: {group, member} -> who a member is and what it wants
    key 6    ConsumerGroupTargetAssignmentMetadata: {group} -> the epoch that was assigned for
    key 7    ConsumerGroupTargetAssignmentMember: {group, member} -> what a member is to have
    key 8    ConsumerGroupCurrentMemberAssignment: {group, member} -> what it has, and its epoch
    key 16   ConsumerGroupRegularExpression: {group, expression} -> the topics that match it

A null value deletes its key. Keys are never flexible, values always are (KIP-915).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from asyncbroker.coordinator.effects import Record
from asyncbroker.protocol.codec import Codec, codec_for
from asyncbroker.protocol.schema import BYTES, INT8, INT32, INT64, STRING, UUID, array, wire

_VERSION: Final = struct.Struct(">h")
_VALUE_VERSION: Final = 0


class RecordKind(IntEnum):
    """What a record is about, by the version of its key."""

    GROUP_METADATA = 3
    PARTITION_METADATA = 4
    MEMBER_METADATA = 5
    TARGET_ASSIGNMENT_METADATA = 6
    TARGET_ASSIGNMENT_MEMBER = 7
    CURRENT_MEMBER_ASSIGNMENT = 8
    REGULAR_EXPRESSION = 16


@dataclass(slots=True)
class GroupKey:
    """A group."""

    group_id: str = wire(STRING)


@dataclass(slots=True)
class GroupMemberKey:
    """A member of a group."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@dataclass(slots=True)
class RegularExpressionKey:
    """A regular expression that members of a group subscribed to."""

    group_id: str = wire(STRING)
    regular_expression: str = wire(STRING)


@dataclass(slots=True)
class ConsumerGroupMetadataValue:
    """The number of the group's last change; the hash tells topics that have changed (KIP-1101)."""

    epoch: int = wire(INT32)
    metadata_hash: int = wire(INT64, tag=0)


@dataclass(slots=True)
class PartitionMetadata:
    """The racks of a partition; not used by any Kafka that was released."""

    partition: int = wire(INT32)
    racks: list[str] = wire(array(STRING))


@dataclass(slots=True)
class TopicMetadata:
    """A topic that the group reads."""

    topic_id: bytes = wire(UUID)
    topic_name: str = wire(STRING)
    num_partitions: int = wire(INT32)
    partition_metadata: list[PartitionMetadata] = wire(array(PartitionMetadata))


@dataclass(slots=True)
class ConsumerGroupPartitionMetadataValue:
    """The topics that the group reads."""

    topics: list[TopicMetadata] = wire(array(TopicMetadata))


@dataclass(slots=True)
class ClassicProtocol:
    """A protocol of a member that speaks the classic protocol."""

    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


@dataclass(slots=True)
class ClassicMemberMetadata:
    """What a member that speaks the classic protocol has besides."""

    session_timeout_ms: int = wire(INT32)
    supported_protocols: list[ClassicProtocol] = wire(array(ClassicProtocol))


@dataclass(slots=True)
class ConsumerGroupMemberMetadataValue:
    """Who a member is and what it wants."""

    instance_id: str | None = wire(STRING, nullable="0+", default=None)
    rack_id: str | None = wire(STRING, nullable="0+", default=None)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: list[str] = wire(array(STRING))
    subscribed_topic_regex: str | None = wire(STRING, nullable="0+", default=None)
    rebalance_timeout_ms: int = wire(INT32, default=-1)
    server_assignor: str | None = wire(STRING, nullable="0+", default=None)
    classic_member_metadata: ClassicMemberMetadata | None = wire(
        ClassicMemberMetadata, nullable="0+", default=None, tag=0
    )


@dataclass(slots=True)
class ConsumerGroupTargetAssignmentMetadataValue:
    """The group epoch that was last assigned for, and when (KIP-1263)."""

    assignment_epoch: int = wire(INT32)
    assignment_timestamp: int = wire(INT64, tag=0)


@dataclass(slots=True)
class TargetPartitions:
    """Some partitions of one topic."""

    topic_id: bytes = wire(UUID)
    partitions: list[int] = wire(array(INT32))


@dataclass(slots=True)
class ConsumerGroupTargetAssignmentMemberValue:
    """What a member is to have."""

    topic_partitions: list[TargetPartitions] = wire(array(TargetPartitions))


@dataclass(slots=True)
class CurrentPartitions:
    """Some partitions of one topic, with the epochs in which the member got each (KIP-1251)."""

    topic_id: bytes = wire(UUID)
    partitions: list[int] = wire(array(INT32))
    assignment_epochs: list[int] | None = wire(array(INT32), nullable="0+", default=None, tag=0)


@dataclass(slots=True)
class ConsumerGroupCurrentMemberAssignmentValue:
    """What a member has, and what of it it has to give up."""

    member_epoch: int = wire(INT32)
    previous_member_epoch: int = wire(INT32)
    state: int = wire(INT8)
    assigned_partitions: list[CurrentPartitions] = wire(array(CurrentPartitions))
    partitions_pending_revocation: list[CurrentPartitions] = wire(array(CurrentPartitions))


@dataclass(slots=True)
class ConsumerGroupRegularExpressionValue:
    """The topics that matched, when they were looked for."""

    topics: list[str] = wire(array(STRING))
    version: int = wire(INT64)
    timestamp: int = wire(INT64)


class ConsumerRecord(NamedTuple):
    """A record by its decoded key and value; without a value it deletes the key."""

    kind: RecordKind
    key: Any
    value: Any


KEYS_AND_VALUES: Final[dict[RecordKind, tuple[type, type]]] = {
    RecordKind.GROUP_METADATA: (GroupKey, ConsumerGroupMetadataValue),
    RecordKind.PARTITION_METADATA: (GroupKey, ConsumerGroupPartitionMetadataValue),
    RecordKind.MEMBER_METADATA: (GroupMemberKey, ConsumerGroupMemberMetadataValue),
    RecordKind.TARGET_ASSIGNMENT_METADATA: (GroupKey, ConsumerGroupTargetAssignmentMetadataValue),
    RecordKind.TARGET_ASSIGNMENT_MEMBER: (
        GroupMemberKey,
        ConsumerGroupTargetAssignmentMemberValue,
    ),
    RecordKind.CURRENT_MEMBER_ASSIGNMENT: (
        GroupMemberKey,
        ConsumerGroupCurrentMemberAssignmentValue,
    ),
    RecordKind.REGULAR_EXPRESSION: (RegularExpressionKey, ConsumerGroupRegularExpressionValue),
}


def encode(record: ConsumerRecord) -> Record:
    """The bytes of a record."""
    key_class, value_class = KEYS_AND_VALUES[record.kind]
    codec: Codec[Any] = codec_for(key_class, record.kind, False)
    key = _VERSION.pack(record.kind) + codec.encode(record.key)
    if record.value is None:
        return key, None
    codec = codec_for(value_class, _VALUE_VERSION, True)
    return key, _VERSION.pack(_VALUE_VERSION) + codec.encode(record.value)


def decode(kind: RecordKind, key: bytes, value: bytes | None) -> ConsumerRecord:
    """Reads a record of this kind.

    Raises ProtocolError for bytes that do not fit. Later versions of values may only add tagged
    fields, so they read as version 0 does.
    """
    key_class, value_class = KEYS_AND_VALUES[kind]
    decoded_key: Any = codec_for(key_class, kind, False).decode(key, _VERSION.size)
    if value is None:
        return ConsumerRecord(kind, decoded_key, None)
    codec: Codec[Any] = codec_for(value_class, _VALUE_VERSION, True)
    return ConsumerRecord(kind, decoded_key, codec.decode(value, _VERSION.size))
