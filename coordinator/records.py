"""Keys and values of `__consumer_offsets`, in Kafka's own format, so that Kafka's tools read ours.

Each key and value is an int16 version and then the message. The key's version says what the record
is about:

    key 0, 1   OffsetCommit: {group, topic, partition} -> where the group is in a partition
    key 2      GroupMetadata: {group} -> the members of a classic group and their assignments
    key 3-8    groups of the consumer protocol (KIP-848), and key 16: `consumer/records.py`
    others     share and streams groups: not ours, passed over

A null value deletes its key. Written are key 1 with value 3 (value 1 when the client set its own
retention, which no later version can hold), and key 2 with value 3, as Kafka does unless told
otherwise; read are all versions. Values from 4 on are flexible, and later ones may only add tagged
fields (KIP-915), so a version above those we know reads as the highest one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from asyncbroker.coordinator.consumer.records import KEYS_AND_VALUES as CONSUMER_KINDS
from asyncbroker.coordinator.consumer.records import ConsumerRecord, RecordKind
from asyncbroker.coordinator.consumer.records import decode as decode_consumer_record
from asyncbroker.coordinator.effects import Record
from asyncbroker.protocol.codec import codec_for
from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.schema import BYTES, INT32, INT64, STRING, array, wire

if TYPE_CHECKING:
    from asyncbroker.coordinator.group import Group

Message = TypeVar("Message")

_VERSION: Final = struct.Struct(">h")

OFFSET_COMMIT_KEYS: Final = (0, 1)
GROUP_METADATA_KEYS: Final = (2,)
OFFSET_COMMIT_KEY_VERSION: Final = 1
GROUP_METADATA_KEY_VERSION: Final = 2

VALUE_VERSION: Final = 3
VALUE_VERSION_WITH_EXPIRY: Final = 1
VALUE_VERSION_MAX: Final = 4
VALUES_FLEXIBLE_FROM: Final = 4

NO_EXPIRY: Final = -1
NO_LEADER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1


@dataclass(slots=True)
class OffsetCommitKey:
    """A partition as read by a group."""

    group: str = wire(STRING)
    topic: str = wire(STRING)
    partition: int = wire(INT32)


@dataclass(slots=True)
class OffsetCommitValue:
    """The next offset to read; times are in ms since the epoch."""

    offset: int = wire(INT64)
    leader_epoch: int = wire(INT32, "3+", default=NO_LEADER_EPOCH, ignorable=True)
    metadata: str = wire(STRING)
    commit_timestamp: int = wire(INT64)
    expire_timestamp: int = wire(INT64, "1", default=NO_EXPIRY, ignorable=True)


@dataclass(slots=True)
class GroupMetadataKey:
    """A classic group."""

    group: str = wire(STRING)


@dataclass(slots=True)
class MemberMetadata:
    """A member; its subscription is the metadata for the protocol that was chosen."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None, ignorable=True)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    rebalance_timeout: int = wire(INT32, "1+", default=-1, ignorable=True)
    session_timeout: int = wire(INT32)
    subscription: bytes = wire(BYTES)
    assignment: bytes = wire(BYTES)


@dataclass(slots=True)
class GroupMetadataValue:
    """The last generation of a group that was stable, or empty."""

    protocol_type: str = wire(STRING)
    generation: int = wire(INT32)
    protocol: str | None = wire(STRING, nullable="0+", default=None)
    leader: str | None = wire(STRING, nullable="0+", default=None)
    current_state_timestamp: int = wire(INT64, "2+", default=NO_TIMESTAMP, ignorable=True)
    members: list[MemberMetadata] = wire(array(MemberMetadata))


@dataclass(frozen=True, slots=True)
class OffsetCommitRecord:
    """A decoded record; without a value it deletes the offset."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None


@dataclass(frozen=True, slots=True)
class GroupMetadataRecord:
    """A decoded record; without a value it deletes the group."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None


def offset_commit_record(
    group_id: str, topic: str, partition: int, value: OffsetCommitValue
) -> Record:
    """The record that stores an offset."""
    has_expiry = value.expire_timestamp != NO_EXPIRY
    version = VALUE_VERSION_WITH_EXPIRY if has_expiry else VALUE_VERSION
    return _offset_commit_key(group_id, topic, partition), _encode(value, version)


def offset_tombstone(group_id: str, topic: str, partition: int) -> Record:
    """The record that deletes an offset."""
    return _offset_commit_key(group_id, topic, partition), None


def group_metadata_record(group: Group) -> Record:
    """The record that stores a group: stable, or empty."""
    assert group.protocol_name is not None or not group.members
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=(
            NO_TIMESTAMP if group.state_since_ms is None else group.state_since_ms
        ),
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.protocols[group.protocol_name or ""],
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
    return _group_metadata_key(group.group_id), _encode(value, VALUE_VERSION)


def group_tombstone(group_id: str) -> Record:
    """The record that deletes a group."""
    return _group_metadata_key(group_id), None


def decode_record(
    key: bytes, value: bytes | None
) -> OffsetCommitRecord | GroupMetadataRecord | ConsumerRecord | None:
    """What a record says; None when it is about something that is not ours.

    Raises ProtocolError for bytes that do not fit their version.
    """
    version = _version_of(key)
    if version in OFFSET_COMMIT_KEYS:
        offset_key = codec_for(OffsetCommitKey, version, False).decode(key, _VERSION.size)
        return OffsetCommitRecord(offset_key, _decode_value(OffsetCommitValue, value))
    if version in GROUP_METADATA_KEYS:
        group_key = codec_for(GroupMetadataKey, version, False).decode(key, _VERSION.size)
        return GroupMetadataRecord(group_key, _decode_value(GroupMetadataValue, value))
    if version in CONSUMER_KINDS:
        return decode_consumer_record(RecordKind(version), key, value)
    return None


def _offset_commit_key(group_id: str, topic: str, partition: int) -> bytes:
    return _encode(OffsetCommitKey(group_id, topic, partition), OFFSET_COMMIT_KEY_VERSION)


def _group_metadata_key(group_id: str) -> bytes:
    return _encode(GroupMetadataKey(group_id), GROUP_METADATA_KEY_VERSION)


def _encode(message: object, version: int) -> bytes:
    """What we write is never flexible: version 3 is the newest that every Kafka can read."""
    return _VERSION.pack(version) + codec_for(type(message), version, False).encode(message)


def _decode_value(message_class: type[Message], value: bytes | None) -> Message | None:
    if value is None:
        return None
    version = min(_version_of(value), VALUE_VERSION_MAX)
    codec = codec_for(message_class, version, version >= VALUES_FLEXIBLE_FROM)
    return codec.decode(value, _VERSION.size)


def _version_of(blob: bytes) -> int:
    if len(blob) < _VERSION.size:
        raise ProtocolError(f"a record of {len(blob)} bytes has no version")
    version: int = _VERSION.unpack_from(blob)[0]
    if version < 0:
        raise ProtocolError(f"a record of version {version}")
    return version
