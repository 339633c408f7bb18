"""What no client of today sends, said on a bare socket: the program of checks of old and odd peers,
and of the requests that consoles make; see `checks.py`."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any
from zlib import crc32

from asyncbroker.protocol.messages import (
    api_versions,
    delete_groups,
    describe_cluster,
    describe_groups,
    find_coordinator,
    heartbeat,
    init_producer_id,
    leave_group,
    list_groups,
    metadata,
)
from compat_tests.suites.checks import (
    T0,
    WAIT_SECONDS,
    Refused,
    expect,
    fresh,
    run,
    wait_until,
)
from compat_tests.suites.wire.consoles import console
from compat_tests.suites.wire.wire import (
    NONE,
    Wire,
    assigned,
    batch_of,
    commit,
    committed,
    create,
    fetched,
    join_request,
    joined,
    joining,
    offset_at,
    produce_request,
    send,
    wire_to,
)

PRODUCE, METADATA, API_VERSIONS = 0, 3, 18
REBALANCE_IN_PROGRESS, UNSUPPORTED_VERSION = 27, 35
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND, INVALID_RECORD = 53, 69, 87
# Coordinators that load, are not there yet or are another.
COORDINATOR_LATER = (14, 15, 16)
PIPELINED = 1000


# ---- old


def lowest_versions(servers: str) -> None:
    """What kafka-go's connections and older clients do: they never ask, and send old versions."""
    group = fresh("group")
    with wire_to(servers) as wire:
        topic = create(wire)
        found = wire.ask(
            "Metadata", 0, metadata.MetadataRequest([metadata.MetadataRequestTopic(name=topic)])
        )
        expect([topic], [each.name for each in found.topics])
        expect(0, send(wire, topic, b"a", b"b"))
        expect([b"a", b"b"], fetched(wire, 4, topic))
        expect(2, offset_at(wire, 1, topic, -1))
        found = wire.ask("FindCoordinator", 0, find_coordinator.FindCoordinatorRequest(group))
        expect(NONE, found.error_code)
        member = joined(wire, group, version=0)
        of_member = {
            "generation_id_or_member_epoch": member.generation_id,
            "member_id": member.member_id,
        }
        commit(wire, 2, group, topic, 1, **of_member)
        expect(1, committed(wire, 1, group, topic))
        beat = heartbeat.HeartbeatRequest(group, member.generation_id, member.member_id)
        expect(NONE, wire.ask("Heartbeat", 0, beat).error_code)
        described = wire.ask("DescribeGroups", 0, describe_groups.DescribeGroupsRequest([group]))
        expect("Stable", described.groups[0].group_state)
        leave = leave_group.LeaveGroupRequest(group, member.member_id)
        expect(NONE, wire.ask("LeaveGroup", 0, leave).error_code)
        listed = wire.ask("ListGroups", 0, list_groups.ListGroupsRequest())
        assert group in {each.group_id for each in listed.groups}
        deleted = wire.ask("DeleteGroups", 0, delete_groups.DeleteGroupsRequest([group]))
        expect(NONE, deleted.results[0].error_code)


def message_set(magic: int) -> bytes:
    """A message set of the formats before record batches: one message, "old"."""
    timestamp = struct.pack(">q", T0) if magic else b""
    rest = struct.pack(">bb", magic, 0) + timestamp + struct.pack(">ii", -1, 3) + b"old"
    message = struct.pack(">I", crc32(rest)) + rest
    return struct.pack(">qi", 0, len(message)) + message


def old_formats(servers: str) -> None:
    """Old messages in a Produce of today are an error of their partition."""
    with wire_to(servers) as wire:
        topic = create(wire)
        for version in (3, 9, 11):
            for magic in (0, 1):
                answer = wire.ask("Produce", version, produce_request(topic, message_set(magic)))
                expect(INVALID_RECORD, answer.responses[0].partition_responses[0].error_code)
        expect(0, send(wire, topic, b"new"))


def old_produce(servers: str) -> None:
    """Produce 0 to 2, which are told of and not served, end the connection and no other one."""
    with wire_to(servers) as bystander:
        topic = create(bystander)
        for version in range(3):
            with wire_to(servers) as wire:
                name, records = topic.encode(), message_set(0)
                body = struct.pack(">hhih", PRODUCE, version, 1, -1) + struct.pack(">hi", -1, 1000)
                body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">ii", 1, 0)
                body += struct.pack(">i", len(records)) + records
                wire.socket.sendall(struct.pack(">i", len(body)) + body)
                expect_closed(wire)
        expect(0, send(bystander, topic, b"new"))


def expect_closed(wire: Wire) -> None:
    try:
        wire.receive_frame()
    except (EOFError, ConnectionError):
        return
    raise AssertionError("the broker answered")


# ---- negotiation


def unknown_versions(servers: str) -> None:
    """An ApiVersions of the future is told of today's; anything else ends the connection."""
    with wire_to(servers) as wire:
        wire.socket.sendall(struct.pack(">ihhih", 14, API_VERSIONS, 99, 7, -1) + b"\0\1\1\0")
        frame = wire.receive_frame()
        correlation_id, error_code, count, key, lowest, highest = struct.unpack(
            ">ihihhh", frame[:16]
        )
        expect((7, UNSUPPORTED_VERSION, 1, API_VERSIONS), (correlation_id, error_code, count, key))
        answer = wire.ask("ApiVersions", highest, api_versions.ApiVersionsRequest("wire", "1"))
        expect((NONE, 0), (answer.error_code, lowest))
    for api_key, version in ((METADATA, 99), (999, 0)):
        with wire_to(servers) as wire:
            wire.socket.sendall(struct.pack(">ihhih", 14, api_key, version, 7, -1) + bytes(4))
            expect_closed(wire)


def newest_versions(servers: str) -> None:
    """The newest versions that clients send: topic ids, special timestamps."""
    with wire_to(servers) as wire:
        topic = create(wire)
        for version in (9, 10, 11):
            send(wire, topic, b"value", version=version)
        name = metadata.MetadataRequestTopic(name=topic)
        by_name = wire.ask("Metadata", 13, metadata.MetadataRequest([name]))
        topic_id = by_name.topics[0].topic_id
        by_id = metadata.MetadataRequestTopic(topic_id, None)
        answer = wire.ask("Metadata", 13, metadata.MetadataRequest([by_id]))
        expect((NONE, topic), (answer.error_code, answer.topics[0].name))
        for version in range(13, 18):
            expect([b"value"], fetched(wire, version, topic_id=topic_id)[:1])
        for timestamp, offset in ((-1, 3), (-2, 0), (-3, 0), (-4, 0), (-5, -1)):
            expect((timestamp, offset), (timestamp, offset_at(wire, 10, topic, timestamp)))
        nobody = fresh("nobody")
        described = wire.ask("DescribeGroups", 6, describe_groups.DescribeGroupsRequest([nobody]))
        (group,) = described.groups
        expect(
            (GROUP_ID_NOT_FOUND, "Dead", f"Group {nobody} not found."),
            (group.error_code, group.group_state, group.error_message),
        )
        found = wire.ask("DescribeCluster", 2, describe_cluster.DescribeClusterRequest())
        expect([False], [each.is_fenced for each in found.brokers])


# ---- odd


def pipelined(servers: str) -> None:
    """A thousand requests before the first answer is read; answers come in order."""
    with wire_to(servers) as wire:
        topic = create(wire)
        request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=topic)])
        wire.socket.sendall(b"".join(wire.frame("Metadata", 5, request) for _ in range(PIPELINED)))
        first = wire.sent_count - PIPELINED + 1
        for number in range(first, first + PIPELINED):
            expect([topic], [each.name for each in wire.receive("Metadata", 5).topics])
            expect(number, wire.correlation_id)
        frame = [
            wire.frame("Produce", 7, produce_request(topic, batch_of(b"v")))
            for _ in range(PIPELINED)
        ]
        wire.socket.sendall(b"".join(frame))
        for offset in range(PIPELINED):
            answer = wire.receive("Produce", 7)
            expect(offset, answer.responses[0].partition_responses[0].base_offset)


def byte_by_byte(servers: str) -> None:
    """A sender that needs a packet for each byte."""
    with wire_to(servers) as wire:
        wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        topic = create(wire)
        for byte in wire.frame("Produce", 9, produce_request(topic, batch_of(b"value"))):
            wire.socket.sendall(bytes([byte]))
        answer = wire.receive("Produce", 9)
        expect(NONE, answer.responses[0].partition_responses[0].error_code)


def vanishes_before_sync(servers: str) -> None:
    """A leader that joins and is never heard of again holds the others up for its session only."""
    group = fresh("group")
    with wire_to(servers) as lost:
        joining(lost, group)
    started = time.monotonic()
    with wire_to(servers) as wire:
        joined(wire, group)
    assert time.monotonic() - started < 15, "the session of the one that is gone goes on"


def vanishes_in_join(servers: str) -> None:
    """A member whose connection ends while its join waits does not stay in the group."""
    group = fresh("group")
    with wire_to(servers) as wire:
        leader = joined(wire, group)
        with wire_to(servers) as lost:
            answer = lost.ask("JoinGroup", 5, join_request(group))
            lost.socket.sendall(lost.frame("JoinGroup", 5, join_request(group, answer.member_id)))
            wait_for_rebalance(wire, group, leader)
        started = time.monotonic()
        while len(leader.members) != 1 or leader.generation_id == 1:
            assert time.monotonic() - started < 30, "the one that is gone stays in the group"
            leader = wire.ask("JoinGroup", 5, join_request(group, leader.member_id))
            expect(NONE, leader.error_code)
            if len(leader.members) != 1:
                # The one that is gone is in it still; its session will end.
                assigned(wire, group, leader)
                wait_for_rebalance(wire, group, leader)


def wait_for_rebalance(wire: Wire, group: str, member: Any) -> None:
    """Sends heartbeats until one is told to join again."""
    beat = heartbeat.HeartbeatRequest(group, member.generation_id, member.member_id)
    wait_until(
        lambda: wire.ask("Heartbeat", 0, beat).error_code == REBALANCE_IN_PROGRESS,
        "the group rebalances",
    )


def expired_offsets(servers: str) -> None:
    """An offset that is committed for a time, as OffsetCommit 2 to 4 can, is gone after it."""
    group = fresh("group")
    with wire_to(servers) as wire:
        topic = create(wire)
        wire.ask("FindCoordinator", 0, find_coordinator.FindCoordinatorRequest(group))
        commit(wire, 2, group, topic, 1, retention_time_ms=1)
        wait_until(lambda: committed(wire, 1, group, topic) == -1, "the offset is gone")


def transactions(servers: str) -> None:
    """A transactional id."""
    with wire_to(servers) as wire:
        name = fresh("tx")
        request = init_producer_id.InitProducerIdRequest(name, 60_000)
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            wire.ask("FindCoordinator", 1, find_coordinator.FindCoordinatorRequest(name, 1))
            code = wire.ask("InitProducerId", 0, request).error_code
            # The coordinator may have to be made first.
            if code not in COORDINATOR_LATER or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        if code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise Refused(f"InitProducerId: error {code}")
        expect(NONE, code)


FEATURES = {
    "never asks for versions, sends the lowest of each API": lowest_versions,
    "messages of format 0 and 1 in a Produce of today": old_formats,
    "Produce 0 to 2 ends the connection": old_produce,
    "versions and APIs that nobody knows": unknown_versions,
    "the newest versions": newest_versions,
    "1,000 requests before the first answer is read": pipelined,
    "a byte at a time": byte_by_byte,
    "a member that vanishes between JoinGroup and SyncGroup": vanishes_before_sync,
    "a member that vanishes while its JoinGroup waits": vanishes_in_join,
    "offsets that expire": expired_offsets,
    "a console: sizes, configs with synonyms, groups with lag": console,
    "a transactional id": transactions,
}

if __name__ == "__main__":
    run(FEATURES)
