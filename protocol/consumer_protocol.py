"""What consumers put into the opaque bytes of a group: subscriptions and assignments, v0 to v3.

Kafka's consumers, and nearly all others, agree on this for the protocol type "consumer". The broker
passes the bytes through; the command line decodes them to show who reads what.

Each blob is an int16 version and then the message, never flexible. A newer version is read as the
newest we know, and what follows it is left unread: new versions may only append (KAFKA-2274).

v1  the partitions that the member owns, for cooperative assignors (KIP-429)
v2  the generation in which it came to own them (KIP-792)
v3  the member's rack (KIP-881)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

from asyncbroker.protocol.codec import Codec, codec_for
from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.schema import BYTES, INT32, STRING, Buffer, array, wire

PROTOCOL_TYPE: Final = "consumer"
VERSION_NEWEST: Final = 3

_VERSION_BYTES: Final = 2

Blob = TypeVar("Blob")


@dataclass(slots=True)
class ConsumerProtocolTopicPartition:
    """Some partitions of one topic."""

    topic: str = wire(STRING)
    partitions: list[int] = wire(array(INT32))


@dataclass(slots=True)
class ConsumerProtocolSubscription:
    """What a member wants to read, and what it has."""

    topics: list[str] = wire(array(STRING))
    user_data: bytes | None = wire(BYTES, nullable="0+", default=None)
    owned_partitions: list[ConsumerProtocolTopicPartition] = wire(
        array(ConsumerProtocolTopicPartition), "1+", ignorable=True
    )
    generation_id: int = wire(INT32, "2+", default=-1, ignorable=True)
    rack_id: str | None = wire(STRING, "3+", nullable="0+", default=None, ignorable=True)


@dataclass(slots=True)
class ConsumerProtocolAssignment:
    """What a member is to read."""

    assigned_partitions: list[ConsumerProtocolTopicPartition] = wire(
        array(ConsumerProtocolTopicPartition)
    )
    user_data: bytes | None = wire(BYTES, nullable="0+", default=None)


def encode_subscription(
    subscription: ConsumerProtocolSubscription, version: int = VERSION_NEWEST
) -> bytes:
    """The metadata that a consumer joins with."""
    return _encode(subscription, version)


def decode_subscription(blob: Buffer) -> ConsumerProtocolSubscription:
    """Reads what a consumer joined with; raises `ProtocolError`."""
    return _decode(ConsumerProtocolSubscription, blob)


def subscription_version(blob: Buffer) -> int:
    """The version that a consumer joined with, of those we know."""
    if len(blob) < _VERSION_BYTES:
        return 0
    version = int.from_bytes(blob[:_VERSION_BYTES], "big", signed=True)
    return min(max(version, 0), VERSION_NEWEST)


def encode_assignment(
    assignment: ConsumerProtocolAssignment, version: int = VERSION_NEWEST
) -> bytes:
    """The assignment that a leader hands in for a member."""
    return _encode(assignment, version)


def decode_assignment(blob: Buffer) -> ConsumerProtocolAssignment:
    """Reads a member's assignment; an empty blob, which members get that were left out, is an
    empty assignment. Raises `ProtocolError`."""
    if not len(blob):
        return ConsumerProtocolAssignment()
    return _decode(ConsumerProtocolAssignment, blob)


def _encode(message: object, version: int) -> bytes:
    prefix = version.to_bytes(_VERSION_BYTES, "big", signed=True)
    return prefix + codec_for(type(message), version, False).encode(message)


def _decode(message: type[Blob], blob: Buffer) -> Blob:
    if len(blob) < _VERSION_BYTES:
        raise ProtocolError(f"{message.__name__}: {len(blob)} bytes are too few for a version")
    version = int.from_bytes(blob[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise ProtocolError(f"{message.__name__}: version {version}")
    codec: Codec[Blob] = codec_for(message, min(version, VERSION_NEWEST), False)
    decoded, _ = codec.decode_prefix(blob, _VERSION_BYTES)
    return decoded
