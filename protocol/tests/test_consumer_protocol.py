"""The blobs of the consumer protocol: against kafka-python's, kio's schema, and newer versions."""

from __future__ import annotations

import pytest

from asyncbroker.protocol.consumer_protocol import (
    VERSION_NEWEST,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from asyncbroker.protocol.errors import ProtocolError

SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=["flights", "wetter-ü"],
    user_data=b"\x00own",
    owned_partitions=[ConsumerProtocolTopicPartition("flights", [0, 3])],
    generation_id=7,
    rack_id="rack-a",
)
ASSIGNMENT = ConsumerProtocolAssignment(
    assigned_partitions=[ConsumerProtocolTopicPartition("flights", [2, 1])], user_data=None
)


@pytest.mark.parametrize("version", range(VERSION_NEWEST + 1))
def test_a_subscription_keeps_what_its_version_has(version: int) -> None:
    read = decode_subscription(encode_subscription(SUBSCRIPTION, version))
    assert (read.topics, read.user_data) == (SUBSCRIPTION.topics, SUBSCRIPTION.user_data)
    assert read.owned_partitions == (SUBSCRIPTION.owned_partitions if version >= 1 else [])
    assert read.generation_id == (7 if version >= 2 else -1)
    assert read.rack_id == ("rack-a" if version >= 3 else None)


@pytest.mark.parametrize("version", range(VERSION_NEWEST + 1))
def test_an_assignment_survives_in_every_version(version: int) -> None:
    assert decode_assignment(encode_assignment(ASSIGNMENT, version)) == ASSIGNMENT


def test_bytes_of_an_assignment_are_as_documented() -> None:
    assert encode_assignment(ASSIGNMENT, 1).hex(" ") == (
        "00 01 00 00 00 01 00 07 66 6c 69 67 68 74 73 "
        "00 00 00 02 00 00 00 02 00 00 00 01 ff ff ff ff"
    )


def test_kio_reads_the_subscription() -> None:
    pytest.importorskip("kio", reason="kio needs Python 3.11")
    from kio.schema.consumer_protocol_subscription.v3.data import (
        ConsumerProtocolSubscription as KioSubscription,
    )
    from kio.serial import entity_reader

    blob = encode_subscription(SUBSCRIPTION)
    theirs = entity_reader(KioSubscription)(blob, 2)
    message = theirs[0] if isinstance(theirs, tuple) else theirs
    assert message.topics == ("flights", "wetter-ü")
    assert message.owned_partitions[0].partitions == (0, 3)
    assert (message.generation_id, message.rack_id) == (7, "rack-a")


def test_a_newer_version_is_read_as_the_newest_known_one() -> None:
    blob = (99).to_bytes(2, "big") + encode_subscription(SUBSCRIPTION)[2:] + b"what is to come"
    assert decode_subscription(blob) == SUBSCRIPTION


def test_an_empty_assignment_is_nothing_to_read() -> None:
    assert decode_assignment(b"") == ConsumerProtocolAssignment()


def test_every_truncation_is_a_protocol_error() -> None:
    blob = encode_subscription(SUBSCRIPTION)
    for length in range(len(blob)):
        with pytest.raises(ProtocolError):
            decode_subscription(blob[:length])


def test_a_negative_version_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="version -1"):
        decode_assignment(b"\xff\xff" + encode_assignment(ASSIGNMENT)[2:])
