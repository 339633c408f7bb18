"""A connection that sends what it is told to, and the requests that most checks need."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from asyncbroker.protocol.api import API_BY_NAME
from asyncbroker.protocol.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from asyncbroker.protocol.messages import (
    create_topics,
    fetch,
    join_group,
    list_offsets,
    offset_commit,
    offset_fetch,
    produce,
    sync_group,
)
from asyncbroker.protocol.records import Record, build_batch, records_of
from asyncbroker.protocol.schema import ZERO_UUID
from compat_tests.suites.checks import T0, WAIT_SECONDS, expect, fresh

NONE, NOT_LEADER, MEMBER_ID_REQUIRED = 0, 6, 79
# Of version 0, to no topic, without data of the user: Kafka looks into it.
SUBSCRIPTION = struct.pack(">hii", 0, 0, -1)


class Wire:
    """A connection that sends what it is told to, without asking for versions first."""

    def __init__(self, servers: str) -> None:
        host, _, port = servers.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), WAIT_SECONDS)
        self._file = self.socket.makefile("rb")
        self.sent_count = 0

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def frame(self, name: str, version: int, message: Any) -> bytes:
        """A request with its size before it."""
        api = API_BY_NAME[name]
        self.sent_count += 1
        header = RequestHeader(api.key, version, self.sent_count, "wire")
        body = encode_request_header(header) + bytes(api.request_codec(version).encode(message))
        return struct.pack(">i", len(body)) + body

    def receive(self, name: str, version: int) -> Any:
        """The next response."""
        frame = self.receive_frame()
        api = API_BY_NAME[name]
        self.correlation_id, start = decode_response_header(api.key, version, frame)
        return api.response_codec(version).decode(frame[start:])

    def receive_frame(self) -> bytes:
        """The bytes of the next response; EOFError when the broker closes."""
        size = self._file.read(4)
        if len(size) < 4:
            raise EOFError("the broker has closed the connection")
        return self._file.read(struct.unpack(">i", size)[0])

    def ask(self, name: str, version: int, message: Any) -> Any:
        """A request and its response."""
        self.socket.sendall(self.frame(name, version, message))
        return self.receive(name, version)


@contextmanager
def wire_to(servers: str) -> Iterator[Wire]:
    wire = Wire(servers)
    try:
        yield wire
    finally:
        wire.close()


def create(wire: Wire, partitions: int = 1) -> str:
    topic = fresh("wire")
    wanted = create_topics.CreatableTopic(topic, partitions, 1)
    answer = wire.ask("CreateTopics", 2, create_topics.CreateTopicsRequest([wanted], 30_000))
    expect([NONE], [each.error_code for each in answer.topics])
    return topic


def batch_of(*values: bytes) -> bytes:
    return bytes(build_batch([Record(n, T0 + n, None, value) for n, value in enumerate(values)]))


def produce_request(topic: str, batch: bytes) -> produce.ProduceRequest:
    partition = produce.PartitionProduceData(0, batch)
    return produce.ProduceRequest(None, -1, 30_000, [produce.TopicProduceData(topic, [partition])])


def send(wire: Wire, topic: str, *values: bytes, version: int = 3) -> int:
    """Produces one batch, and returns its offset."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        answer = wire.ask("Produce", version, produce_request(topic, batch_of(*values)))
        (partition,) = answer.responses[0].partition_responses
        # Kafka answers the creation of a topic before it leads it.
        if partition.error_code != NOT_LEADER or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    expect(NONE, partition.error_code)
    offset: int = partition.base_offset
    return offset


def fetched(
    wire: Wire, version: int, name: str = "", topic_id: bytes = ZERO_UUID
) -> list[bytes | None]:
    """The values of what a Fetch finds from the beginning of a topic."""
    partition = fetch.FetchPartition(0, partition_max_bytes=1000)
    wanted = fetch.FetchTopic(name, topic_id, [partition])
    request = fetch.FetchRequest(max_wait_ms=1000, min_bytes=1, topics=[wanted])
    answer = wire.ask("Fetch", version, request)
    partition = answer.responses[0].partitions[0]
    expect(NONE, partition.error_code)
    return [record.value for record in records_of(bytes(partition.records))]


def offset_at(wire: Wire, version: int, topic: str, timestamp: int) -> int:
    """The offset that ListOffsets tells for a timestamp."""
    asked = list_offsets.ListOffsetsPartition(0, timestamp=timestamp)
    topics = [list_offsets.ListOffsetsTopic(topic, [asked])]
    request = list_offsets.ListOffsetsRequest(-1, topics=topics, timeout_ms=1000)
    found = wire.ask("ListOffsets", version, request).topics[0].partitions[0]
    expect((timestamp, NONE), (timestamp, found.error_code))
    offset: int = found.offset
    return offset


def commit(wire: Wire, version: int, group: str, topic: str, offset: int, **more: Any) -> None:
    partitions = [offset_commit.OffsetCommitRequestPartition(0, offset)]
    topics = [offset_commit.OffsetCommitRequestTopic(topic, partitions=partitions)]
    request = offset_commit.OffsetCommitRequest(group, topics=topics, **more)
    answer = wire.ask("OffsetCommit", version, request)
    expect(NONE, answer.topics[0].partitions[0].error_code)


def committed(wire: Wire, version: int, group: str, topic: str) -> int:
    asked = offset_fetch.OffsetFetchRequest(
        group, [offset_fetch.OffsetFetchRequestTopic(topic, [0])]
    )
    offset: int = wire.ask("OffsetFetch", version, asked).topics[0].partitions[0].committed_offset
    return offset


def join_request(group: str, member_id: str = "") -> join_group.JoinGroupRequest:
    protocol = join_group.JoinGroupRequestProtocol("range", SUBSCRIPTION)
    return join_group.JoinGroupRequest(group, 6000, 6000, member_id, None, "consumer", [protocol])


def joined(wire: Wire, group: str, version: int = 5) -> Any:
    """Joins as the only member and leader, and gives itself an assignment."""
    member = joining(wire, group, version)
    assigned(wire, group, member, min(version, 3))
    return member


def assigned(wire: Wire, group: str, leader: Any, version: int = 3) -> None:
    """Has the leader give itself everything."""
    assignment = sync_group.SyncGroupRequestAssignment(leader.member_id, b"all")
    request = sync_group.SyncGroupRequest(
        group, leader.generation_id, leader.member_id, assignments=[assignment]
    )
    expect(b"all", bytes(wire.ask("SyncGroup", version, request).assignment))


def joining(wire: Wire, group: str, version: int = 5) -> Any:
    """The answer to a join, with the member id that new versions must bring."""
    answer = wire.ask("JoinGroup", version, join_request(group))
    if answer.error_code == MEMBER_ID_REQUIRED:
        answer = wire.ask("JoinGroup", version, join_request(group, answer.member_id))
    expect(NONE, answer.error_code)
    return answer
