"""Keys and values of `__consumer_offsets` as Kafka writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncbroker.coordinator.config import GroupConfig
from asyncbroker.coordinator.coordinator import GroupCoordinator
from asyncbroker.coordinator.effects import Instant
from asyncbroker.coordinator.records import (
    GroupMetadataKey,
    GroupMetadataRecord,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitRecord,
    OffsetCommitValue,
    decode_record,
    group_metadata_record,
    group_tombstone,
    offset_commit_record,
    offset_tombstone,
)
from asyncbroker.coordinator.tests.fake_topics import FakeTopics
from asyncbroker.coordinator.tests.group_scenario import stable_group
from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.messages.offset_fetch import OffsetFetchRequestGroup

# From the byte layout in Kafka's OffsetCommitKey.json and OffsetCommitValue.json.
KEY_1 = bytes.fromhex("0001 0001 67 0001 74 00000003")
VALUE_3 = bytes.fromhex("0003 0000000000000007 00000002 0002 6869 0000018bcfe56800")
VALUE_1 = bytes.fromhex("0001 0000000000000007 0002 6869 0000018bcfe56800 0000018bcfe56bE8")
VALUE_0 = bytes.fromhex("0000 0000000000000007 0002 6869 0000018bcfe56800")
VALUE_4 = bytes.fromhex(
    "0004 0000000000000007 00000002 03 6869 0000018bcfe56800"
    # A tagged topic id, as later versions of Kafka add.
    "01 00 10 000102030405060708090a0b0c0d0e0f"
)
COMMITTED = OffsetCommitValue(7, 2, "hi", 1_700_000_000_000)


def test_an_offset_is_written_with_key_1_and_value_3() -> None:
    assert offset_commit_record("g", "t", 3, COMMITTED) == (KEY_1, VALUE_3)


def test_an_offset_with_its_own_retention_is_written_with_value_1() -> None:
    value = OffsetCommitValue(7, 2, "hi", 1_700_000_000_000, 1_700_000_001_000)
    assert offset_commit_record("g", "t", 3, value) == (KEY_1, VALUE_1)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (VALUE_0, OffsetCommitValue(7, -1, "hi", 1_700_000_000_000)),
        (VALUE_1, OffsetCommitValue(7, -1, "hi", 1_700_000_000_000, 1_700_000_001_000)),
        (b"\x00\x02" + VALUE_0[2:], OffsetCommitValue(7, -1, "hi", 1_700_000_000_000)),
        (VALUE_3, COMMITTED),
        (VALUE_4, COMMITTED),
        (b"\x00\x09" + VALUE_4[2:], COMMITTED),
        (None, None),
    ],
)
def test_every_version_of_an_offset_is_read(
    value: bytes | None, expected: OffsetCommitValue | None
) -> None:
    for key in (KEY_1, b"\x00\x00" + KEY_1[2:]):
        assert decode_record(key, value) == OffsetCommitRecord(
            OffsetCommitKey("g", "t", 3), expected
        )


def test_tombstones() -> None:
    assert offset_tombstone("g", "t", 3) == (KEY_1, None)
    assert group_tombstone("g") == (bytes.fromhex("0002 0001 67"), None)


GROUP_KEY = bytes.fromhex("0002 0001 67")
MEMBER_3 = bytes.fromhex(
    "0001 6d 0002 6969 0001 63 0002 2f68 0000ea60 00002710 00000001 aa 00000002 bbcc"
)
GROUP_3 = (
    bytes.fromhex("0003 0008") + b"consumer" + bytes.fromhex("00000005 0005") + b"range"
    + bytes.fromhex("0001 6d 0000018bcfe56800 00000001") + MEMBER_3
)  # fmt: skip
GROUP_0 = (
    bytes.fromhex("0000 0008") + b"consumer" + bytes.fromhex("00000005 0005") + b"range"
    + bytes.fromhex("0001 6d 00000001 0001 6d 0001 63 0002 2f68 00002710")
    + bytes.fromhex("00000001 aa 00000002 bbcc")
)  # fmt: skip
GROUP_4 = (
    bytes.fromhex("0004 09") + b"consumer" + bytes.fromhex("00000005 06") + b"range"
    + bytes.fromhex("02 6d 0000018bcfe56800 02")
    + bytes.fromhex("02 6d 03 6969 02 63 03 2f68 0000ea60 00002710 02 aa 03 bbcc 00 00")
)  # fmt: skip


def group_value(instance: str | None, rebalance: int, timestamp: int) -> GroupMetadataValue:
    member = MemberMetadata("m", instance, "c", "/h", rebalance, 10_000, b"\xaa", b"\xbb\xcc")
    return GroupMetadataValue("consumer", 5, "range", "m", timestamp, [member])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (GROUP_0, group_value(None, -1, -1)),
        (GROUP_3, group_value("ii", 60_000, 1_700_000_000_000)),
        (GROUP_4, group_value("ii", 60_000, 1_700_000_000_000)),
        (None, None),
    ],
)
def test_every_version_of_a_group_is_read(
    value: bytes | None, expected: GroupMetadataValue | None
) -> None:
    assert decode_record(GROUP_KEY, value) == GroupMetadataRecord(GroupMetadataKey("g"), expected)


def test_a_group_is_written_with_key_2_and_value_3() -> None:
    s = stable_group("a")
    key, value = s.log[-1]
    assert key == GROUP_KEY
    assert value is not None
    assert value[:2] == b"\x00\x03"
    record = decode_record(key, value)
    assert isinstance(record, GroupMetadataRecord)
    assert record.value is not None
    assert record.value.protocol_type == "consumer"
    assert record.value.current_state_timestamp == s.now.wall_ms
    (member,) = record.value.members
    assert (member.client_id, member.client_host) == ("a", "/127.0.0.1")
    assert (member.session_timeout, member.rebalance_timeout) == (10_000, 60_000)
    assert member.assignment == b"a"


def test_a_group_that_an_old_kafka_wrote_goes_on() -> None:
    coordinator = GroupCoordinator(GroupConfig(), FakeTopics())
    coordinator.replay(GROUP_KEY, GROUP_0)
    coordinator.finish_loading(Instant(0.0, 0))
    described = coordinator.describe("g")
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert [m.member_assignment for m in described.members] == [b"\xbb\xcc"]


@pytest.mark.parametrize("version", [9, 10, 15, 17, 21, 400])
def test_records_about_other_kinds_of_groups_are_passed_over(version: int) -> None:
    key = version.to_bytes(2, "big") + b"\x05group"
    assert decode_record(key, b"whatever") is None
    coordinator = GroupCoordinator(GroupConfig(), FakeTopics())
    coordinator.replay(key, b"\xff\xff\xff")
    coordinator.replay(key, None)
    assert coordinator.list_groups() == []


@given(st.sampled_from([(KEY_1, VALUE_3), (KEY_1, VALUE_4), (GROUP_KEY, GROUP_3)]), st.data())
def test_records_that_end_early_are_protocol_errors(
    record: tuple[bytes, bytes], data: st.DataObject
) -> None:
    key, value = record
    with pytest.raises(ProtocolError):
        decode_record(key, value[: data.draw(st.integers(0, len(value) - 1))])
    with pytest.raises(ProtocolError):
        decode_record(key[: data.draw(st.integers(0, len(key) - 1))], value)


@given(st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_any_bytes_are_a_record_or_a_protocol_error(key: bytes, value: bytes | None) -> None:
    coordinator = GroupCoordinator(GroupConfig(), FakeTopics())
    try:
        coordinator.replay(key, value)
    except ProtocolError:
        return
    coordinator.finish_loading(Instant(0.0, 0))


def test_leader_epochs_and_metadata_survive_the_log() -> None:
    coordinator = GroupCoordinator(GroupConfig(), FakeTopics())
    coordinator.replay(*offset_commit_record("g", "t", 3, COMMITTED))
    effects = coordinator.fetch_offsets(
        OffsetFetchRequestGroup("g", topics=None), "token", Instant(0.0, 0), require_stable=False
    )
    (partition,) = effects[0].response.topics[0].partitions  # type: ignore[union-attr]
    assert (partition.committed_offset, partition.committed_leader_epoch) == (7, 2)
    assert partition.metadata == "hi"


# Written by Apache Kafka 4.3.1 (its offsets have a topic id as a tagged field).
KAFKA_OFFSET = (
    bytes.fromhex("0001 0003 6f6e65 0002 6474 00000000"),
    bytes.fromhex(
        "0004 0000000000000005 ffffffff 01 000001a21fd37e5a"
        "01 00 10 b15b84126b0c4f72a913842a28567703"
    ),
)
KAFKA_GROUP = (
    bytes.fromhex("0002 0002 7374"),
    bytes.fromhex(
        "0003 0008636f6e73756d6572 00000002 000572616e6765"
        "002769612d64653433386338642d326230372d343036332d383163622d653033623032393361333739"
        "000001a21fd3876c 00000002"
        "002769612d64653433386338642d326230372d343036332d383163622d653033623032393361333739"
        "00026961 0003617070 000a2f3132372e302e302e31 00007530 00002710"
        "00000018 00030000000100026474ffffffff00000000ffffffffffff 00000002 5341"
        "002769622d36336464313630632d333436652d343337332d626633652d363532616338633166383665"
        "00026962 0003617070 000a2f3132372e302e302e31 00007530 00002710"
        "00000018 00030000000100026474ffffffff00000000ffffffffffff 00000002 5342"
    ),
)


def test_records_that_kafka_wrote_are_read() -> None:
    coordinator = GroupCoordinator(GroupConfig(), FakeTopics())
    coordinator.replay(*KAFKA_OFFSET)
    coordinator.replay(*KAFKA_GROUP)
    coordinator.finish_loading(Instant(0.0, 0))
    assert coordinator.committed_topics() == {"dt"}
    described = coordinator.describe("st")
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert [(m.group_instance_id, m.member_assignment) for m in described.members] == [
        ("ia", b"SA"),
        ("ib", b"SB"),
    ]


def test_a_group_is_written_as_kafka_writes_it() -> None:
    coordinator = GroupCoordinator(GroupConfig(), FakeTopics())
    coordinator.replay(*KAFKA_GROUP)
    assert group_metadata_record(coordinator._groups["st"]) == KAFKA_GROUP
