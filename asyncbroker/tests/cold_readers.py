"""A topic that is not in memory, many who read it at once, and one who notices if that disturbs.

`fill` writes the topic and `evict` takes its files out of the page cache. `python -m` this module
reads it to the end with several consumers, in a process of its own, so that they disturb the broker
and not the clock of `Probe`: a member of a group and a producer who time each of their requests.
Works on any broker.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.connection import Address, Connection, Deadline
from asyncbroker.client.topics import create_topic
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from asyncbroker.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from asyncbroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from asyncbroker.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from asyncbroker.protocol.records import Record, batches, build_batch

COLD_TOPIC, LIVE_TOPIC = "cold", "live"
GROUP = "watchful"
BATCH_BYTES = 64 << 10
FETCH_BYTES = 1 << 20
PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.005
# A group's coordinator may still be on its way; a new member is given an id first.
PASSING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.MEMBER_ID_REQUIRED,
)


def fill(address: str, size: int) -> None:
    """Makes the two topics, and writes `size` bytes to the one that is to be read."""
    with Cluster(address) as cluster:
        for topic in (COLD_TOPIC, LIVE_TOPIC):
            create_topic(cluster, topic, partitions=1, replication_factor=1)
    connection = opened(address)
    value = os.urandom(BATCH_BYTES)
    for _ in range(0, size, BATCH_BYTES):
        produce(connection, COLD_TOPIC, value, acks=1)
    connection.close()


def evict(directory: Path) -> None:
    """Takes the logs below a directory out of the page cache."""
    for path in directory.rglob("*.log"):
        descriptor = os.open(path, os.O_RDWR)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read_at_once(address: str, count: int, size: int) -> float:
    """Lets `count` consumers read `size` bytes each, from the beginning; MB/s of them together."""
    command = [sys.executable, "-m", "asyncbroker.tests.cold_readers", address]
    done = subprocess.run(
        [*command, str(count), str(size)], check=True, stdout=subprocess.PIPE, text=True
    )
    return float(done.stdout)


@dataclass
class Probe:
    """A member that sends heartbeats, and a producer, until told to stop. Seconds of each request,
    and the errors that were answered."""

    address: str
    acks: int = 1
    heartbeats: list[float] = field(default_factory=list)
    produces: list[float] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)

    def __enter__(self) -> Probe:
        self._is_over = False
        self._threads = [
            threading.Thread(target=self._send_heartbeats),
            threading.Thread(target=self._produce),
        ]
        self._joined = threading.Event()
        for thread in self._threads:
            thread.start()
        if not self._joined.wait(PATIENCE_SECONDS):
            self._is_over = True
            raise TimeoutError("no generation of the group")
        return self

    def __exit__(self, *_exception: object) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join()

    def take(self) -> tuple[list[float], list[float]]:
        """The times since the last call, of heartbeats and of produces, in order of length."""
        taken = sorted(self.heartbeats), sorted(self.produces)
        self.heartbeats, self.produces = [], []
        return taken

    def _send_heartbeats(self) -> None:
        with Cluster(self.address) as cluster:
            # Apache Kafka makes its topic of groups when somebody looks for a coordinator.
            cluster.retrying(lambda deadline: cluster.coordinator(GROUP, deadline))
        connection = opened(self.address)
        request = _join(connection)
        self._joined.set()
        while not self._is_over:
            began = time.perf_counter()
            answer = connection.request(request, HeartbeatResponse, Deadline(PATIENCE_SECONDS))
            self.heartbeats.append(time.perf_counter() - began)
            if answer.error_code:
                self.errors.append(answer.error_code)
            time.sleep(PAUSE_SECONDS)
        connection.close()

    def _produce(self) -> None:
        connection = opened(self.address)
        while not self._is_over:
            began = time.perf_counter()
            code = produce(connection, LIVE_TOPIC, b"value", acks=self.acks)
            self.produces.append(time.perf_counter() - began)
            if code:
                self.errors.append(code)
            time.sleep(PAUSE_SECONDS)
        connection.close()


def opened(address: str) -> Connection:
    return Connection.open(
        Address.parse(address), client_id="cold readers", timeout_s=PATIENCE_SECONDS
    )


def produce(connection: Connection, topic: str, value: bytes, *, acks: int) -> int:
    """Writes one record; the error code."""
    batch = build_batch([Record(0, time.time_ns() // 1_000_000, None, value)])
    request = ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(topic, [PartitionProduceData(0, batch)])],
    )
    response = connection.request(request, ProduceResponse, Deadline(PATIENCE_SECONDS))
    code: int = response.responses[0].partition_responses[0].error_code
    return code


def _join(connection: Connection) -> HeartbeatRequest:
    """Becomes the only member of the group; the heartbeat to send from here on."""
    member_id = ""
    deadline = Deadline(PATIENCE_SECONDS)
    while True:
        join = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=6_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", b"")],
        )
        joined = connection.request(join, JoinGroupResponse, deadline)
        if joined.error_code == ErrorCode.NONE:
            break
        if joined.error_code not in PASSING or deadline.has_passed:
            raise RuntimeError(f"JoinGroup was answered with error {joined.error_code}")
        member_id = joined.member_id
        time.sleep(0.1)
    sync = SyncGroupRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(joined.member_id, b"")],
    )
    synced = connection.request(sync, SyncGroupResponse, deadline)
    if synced.error_code:
        raise RuntimeError(f"SyncGroup was answered with error {synced.error_code}")
    return HeartbeatRequest(GROUP, joined.generation_id, joined.member_id)


# ---- the process of the consumers


def _read(connection: Connection, topic_id: bytes, size: int) -> None:
    offset, left = 0, size
    while left > 0:
        wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=0,
            session_id=0,
            topics=[FetchTopic(topic=COLD_TOPIC, topic_id=topic_id, partitions=[wanted])],
            forgotten_topics_data=[],
            rack_id="",
        )
        response = connection.request(request, FetchResponse, Deadline(PATIENCE_SECONDS))
        (answer,) = response.responses[0].partitions
        records = answer.records
        if answer.error_code or not isinstance(records, (bytes, bytearray, memoryview)):
            raise RuntimeError(f"error {answer.error_code} at offset {offset}")
        for header, _ in batches(records):
            if header.base_offset != offset:
                raise RuntimeError(f"offset {header.base_offset}, not {offset}")
            offset = header.next_offset
            left -= header.size


def main() -> None:
    """Reads, and prints MB/s."""
    address, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with Cluster(address) as cluster:
        topic_id = cluster.topic_id(COLD_TOPIC, Deadline(PATIENCE_SECONDS))
    failures: list[BaseException] = []

    def consume() -> None:
        try:
            connection = opened(address)
            _read(connection, topic_id, size)
            connection.close()
        except BaseException as failure:
            failures.append(failure)
            raise

    threads = [threading.Thread(target=consume) for _ in range(count)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        sys.exit(1)
    print(count * size / 1e6 / (time.perf_counter() - began))


if __name__ == "__main__":
    main()
