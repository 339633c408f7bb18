"""Fetch responses: ranges of files by sendfile or by reading, to fast peers and slow ones."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from asyncbroker.output import PIECE_BYTES, SENDFILE_BYTES_MIN, Output
from asyncbroker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from asyncbroker.tests.edge_harness import edge, on_both_loops, request_frame, stand_ins, until
from asyncbroker.workers import InlineWorkers

FILE_BYTES = 5 * 1024 * 1024


@dataclass
class FakeFile:
    """A real file that says of itself what the test wants."""

    path: Path
    is_in_memory: bool = True
    has_descriptor: bool = True
    reads: list[str] = field(default_factory=list)
    error: OSError | None = None
    # What is given to `sendfile`, if that is to refuse it.
    other_descriptor: int | None = None

    def __post_init__(self) -> None:
        self.descriptor = os.open(self.path, os.O_RDONLY)

    def pread(self, size: int, position: int) -> bytes:
        self.reads.append("blocking")
        if self.error is not None:
            raise self.error
        return os.pread(self.descriptor, size, position)

    def pread_nowait(self, size: int, position: int) -> bytes | None:
        self.reads.append("nowait")
        if self.error is not None and self.is_in_memory:
            raise self.error
        return os.pread(self.descriptor, size, position) if self.is_in_memory else None

    def is_resident(self, position: int, size: int) -> bool:
        return self.is_in_memory

    def fileno(self) -> int | None:
        if self.other_descriptor is not None:
            return self.other_descriptor
        return self.descriptor if self.has_descriptor else None

    def close(self) -> None:
        os.close(self.descriptor)


@dataclass
class Range:
    """As `asyncbroker.log.partition_log.FileRange`."""

    file: FakeFile
    position: int
    size: int
    errors: list[OSError] = field(default_factory=list)

    def on_error(self, error: OSError) -> None:
        self.errors.append(error)


@pytest.fixture
def content() -> bytes:
    return bytes(range(251)) * (FILE_BYTES // 251) + bytes(FILE_BYTES % 251)


@pytest.fixture
def file(tmp_path: Path, content: bytes) -> Any:
    path = tmp_path / "segment"
    path.write_bytes(content)
    fake = FakeFile(path)
    yield fake
    fake.close()


def fetch_of(*records: Any) -> Callable[[Any, Any, Any], FetchResponse]:
    """A handler that answers each fetch with these, one partition each."""

    def handle(broker: Any, context: Any, request: Any) -> FetchResponse:
        partitions = [
            PartitionData(partition_index=index, records=value)
            for index, value in enumerate(records)
        ]
        return FetchResponse(responses=[FetchableTopicResponse("t", partitions=partitions)])

    return handle


FETCH = request_frame("Fetch", 11, FetchRequest(max_wait_ms=1, min_bytes=1))


async def records_of(peer: Any) -> list[bytes]:
    _, response = await peer.receive_response("Fetch", 11)
    return [bytes(partition.records) for partition in response.responses[0].partitions]


@on_both_loops
async def test_nothing_is_sent_of_a_response_whose_head_comes_too_late(file: FakeFile) -> None:
    """The peer has closed its side in the iteration of the loop in which its fetch was ready."""
    ours, peers = socket.socketpair()
    ours.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
    output = Output(transport, InlineWorkers(), bytes_max=1 << 18, may_sendfile=True)
    transport.close()
    assert output.send([b"head", Range(file, 0, SENDFILE_BYTES_MIN)]) is None
    peers.setblocking(False)
    assert await loop.sock_recv(peers, 100) == b""
    peers.close()


@on_both_loops
@pytest.mark.parametrize("may_sendfile", [True, False])
@pytest.mark.parametrize("has_descriptor", [True, False])
@pytest.mark.parametrize("is_in_memory", [True, False])
async def test_ranges_arrive_whole_whatever_way_they_take(
    file: FakeFile, content: bytes, may_sendfile: bool, has_descriptor: bool, is_in_memory: bool
) -> None:
    file.has_descriptor = has_descriptor
    file.is_in_memory = is_in_memory
    sizes = [10, SENDFILE_BYTES_MIN, PIECE_BYTES + 1, 3 * PIECE_BYTES]
    ranges = [Range(file, 1000 * index, size) for index, size in enumerate(sizes)]
    handlers = stand_ins(Fetch=fetch_of(b"first", *ranges, b""))
    async with edge(handlers, may_sendfile=may_sendfile) as running:
        peer = await running.connect()
        peer.send(FETCH * 3)
        expected = [content[1000 * index :][:size] for index, size in enumerate(sizes)]
        for _ in range(3):
            assert await records_of(peer) == [b"first", *expected, b""]
        assert running.metrics.internal_errors == 0


@on_both_loops
async def test_a_resident_range_is_sent_without_reading_it(file: FakeFile, content: bytes) -> None:
    if not hasattr(os, "sendfile"):
        pytest.skip("there is no sendfile here")
    handlers = stand_ins(Fetch=fetch_of(Range(file, 7, 100_000)))
    async with edge(handlers) as running:
        peer = await running.connect()
        peer.send(FETCH)
        assert await records_of(peer) == [content[7:100_007]]
        assert file.reads == []


@on_both_loops
async def test_a_slow_peer_costs_one_piece_of_memory(file: FakeFile, content: bytes) -> None:
    file.has_descriptor = False
    ranges = [Range(file, 0, FILE_BYTES) for _ in range(4)]
    handlers = stand_ins(Fetch=fetch_of(*ranges))
    async with edge(handlers, send_buffer_bytes=65536) as running:
        peer = await running.connect(32768)
        peer.send(FETCH)
        await until(lambda: any(one._output.is_full for one in running.connections._open))
        (connection,) = running.connections._open
        assert connection._transport.get_write_buffer_size() <= PIECE_BYTES + 4096
        assert await records_of(peer) == [content] * 4


@on_both_loops
async def test_requests_behind_a_response_in_parts_wait_for_it(
    file: FakeFile, content: bytes
) -> None:
    def heartbeat(broker: Any, context: Any, request: Any) -> HeartbeatResponse:
        return HeartbeatResponse()

    handlers = stand_ins(Fetch=fetch_of(Range(file, 0, FILE_BYTES)), Heartbeat=heartbeat)
    async with edge(handlers, send_buffer_bytes=65536) as running:
        peer = await running.connect(32768)
        request = HeartbeatRequest(group_id="g", member_id="m")
        peer.send(FETCH + request_frame("Heartbeat", 0, request, 2) + FETCH)
        assert await records_of(peer) == [content]
        assert await peer.receive_response("Heartbeat", 0) == (2, HeartbeatResponse())
        assert await records_of(peer) == [content]


@on_both_loops
@pytest.mark.parametrize("has_descriptor", [True, False])
@pytest.mark.parametrize("position", [FILE_BYTES - 100, FILE_BYTES - PIECE_BYTES])
async def test_a_file_that_ends_early_closes_the_connection(
    file: FakeFile, has_descriptor: bool, position: int, caplog: pytest.LogCaptureFixture
) -> None:
    file.has_descriptor = has_descriptor
    handlers = stand_ins(Fetch=fetch_of(Range(file, position, 2 * PIECE_BYTES)))
    async with edge(handlers) as running:
        peer = await running.connect()
        peer.send(FETCH)
        await until(lambda: running.metrics.internal_errors == 1)
        await until(lambda: len(running.connections) == 0)
    assert "ends" in caplog.text
    assert "bytes early" in caplog.text


@on_both_loops
@pytest.mark.parametrize("is_in_memory", [True, False])
@pytest.mark.parametrize("size", [100, SENDFILE_BYTES_MIN, 2 * PIECE_BYTES])
async def test_a_disk_that_cannot_be_read_closes_the_connection(
    file: FakeFile, tmp_path: Path, is_in_memory: bool, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever sends a range of a partition tells it, in one line and without a traceback."""
    file.is_in_memory = is_in_memory
    file.error = OSError(errno.EIO, "Input/output error")
    file.other_descriptor = os.open(tmp_path, os.O_RDONLY)
    unreadable = Range(file, 0, size)
    handlers = stand_ins(Fetch=fetch_of(unreadable))
    async with edge(handlers) as running:
        peer = await running.connect()
        peer.send(FETCH)
        await until(lambda: len(running.connections) == 0)
        assert running.metrics.internal_errors == 0
    os.close(file.other_descriptor)
    assert unreadable.errors == [file.error]
    (line,) = caplog.records
    assert "Input/output error" in line.message
    assert line.exc_info is None


@on_both_loops
async def test_what_sendfile_refuses_is_read(
    file: FakeFile, tmp_path: Path, content: bytes
) -> None:
    file.other_descriptor = os.open(tmp_path, os.O_RDONLY)
    async with edge(stand_ins(Fetch=fetch_of(Range(file, 0, FILE_BYTES)))) as running:
        peer = await running.connect()
        peer.send(FETCH)
        assert await records_of(peer) == [content]
    os.close(file.other_descriptor)


@on_both_loops
async def test_a_peer_that_leaves_in_the_middle_is_no_error(
    file: FakeFile, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = stand_ins(Fetch=fetch_of(*[Range(file, 0, FILE_BYTES)] * 20))
    async with edge(handlers, send_buffer_bytes=65536) as running:
        peer = await running.connect(32768)
        peer.send(FETCH * 2)
        await until(lambda: any(one._sending for one in running.connections._open))
        peer.reset()
        await until(lambda: len(running.connections) == 0)
        assert running.metrics.internal_errors == 0
    assert caplog.records == []
