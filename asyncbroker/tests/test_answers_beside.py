"""Answers that lie ready and are sent by the writer's thread when its round is durable: each leaves
once and in its turn, whatever the thread, the deadline and the peer do meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from asyncbroker.broker import Broker
from asyncbroker.commits import ANSWERS_BESIDE_MIN
from asyncbroker.config import BrokerConfig
from asyncbroker.handlers import HANDLERS
from asyncbroker.later import Later
from asyncbroker.log.files import RealFiles
from asyncbroker.log.native import Answer, make_writer
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from asyncbroker.protocol.messages.produce import ProduceResponse
from asyncbroker.synced_writer import SyncedWriter
from asyncbroker.tests.data_path_harness import batch_of, outcome_of, produce_request
from asyncbroker.tests.edge_harness import (
    Edge,
    Peer,
    edge,
    on_both_loops,
    patiently,
    request_frame,
    stand_ins,
    until,
)

pytestmark = pytest.mark.skipif(make_writer() is None, reason="there is no compiled writer")


def answer_heartbeat(broker: Any, context: Any, request: Any) -> HeartbeatResponse:
    return HeartbeatResponse()


def request(name: str, correlation_id: int) -> bytes:
    if name == "Heartbeat":
        return request_frame(name, 0, HeartbeatRequest("g", 1, "m"), correlation_id)
    return request_frame(name, 7, produce_request(batch_of()), correlation_id)


def ready(data: bytes) -> bytes:
    return pack(">i", len(data)) + data


class Rounds:
    """A handler whose answers lie ready, and a disk to wait for."""

    def __init__(self, directory: Path, answer: bytes) -> None:
        writer = make_writer()
        assert writer is not None
        self.make_answer = writer.make_answer
        self.waiting: list[Later[Any]] = []
        self._writer = SyncedWriter(writer)
        self._answer = answer
        self._file = RealFiles().open(str(directory / "file"), create=True)

    def __call__(self, broker: Any, context: Any, request: Any) -> Later[Any]:
        later: Later[Any] = Later(self._answer)
        self.waiting.append(later)
        return later

    async def until_waiting(self, count: int) -> None:
        await until(lambda: len(self.waiting) == count)

    async def write(self, answers: list[Answer]) -> None:
        """Returns when a round is durable; nobody else has been told."""
        done: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        assert self._writer.is_ready()
        self._writer.write(
            self._file, b"data", 0, answers, lambda error, seconds: done.set_result(error)
        )
        assert await patiently(done) is None

    def beside(self) -> list[Answer]:
        return [answer for later in self.waiting if (answer := later.leave_beside()) is not None]

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def rounds(path: Path, answer: bytes = b"made up") -> AsyncIterator[tuple[Rounds, Edge]]:
    made = Rounds(path, ready(answer))
    handlers = stand_ins(Heartbeat=answer_heartbeat, Produce=made)
    try:
        async with edge(handlers, make_answer=made.make_answer) as running:
            yield made, running
    finally:
        made.close()


async def waiting_peer(made: Rounds, running: Edge, **options: int) -> Peer:
    """It has sent what waits for a round, and behind it what is answered at once."""
    peer = await running.connect(**options)
    peer.send(request("Produce", 1) + request("Heartbeat", 2))
    await made.until_waiting(1)
    return peer


@on_both_loops
async def test_an_answer_leaves_before_its_wait_is_over_and_only_once(tmp_path: Path) -> None:
    async with rounds(tmp_path) as (made, running):
        peer = await waiting_peer(made, running)
        await made.write(made.beside())
        assert await peer.receive() == b"made up"
        made.waiting[0].settle(made.waiting[0].ready)
        assert await peer.receive_response("Heartbeat", 0) == (2, HeartbeatResponse())


@on_both_loops
async def test_what_has_left_counts_whatever_is_settled_later(tmp_path: Path) -> None:
    async with rounds(tmp_path) as (made, running):
        peer = await waiting_peer(made, running)
        await made.write(made.beside())
        made.waiting[0].settle(ProduceResponse())
        assert await peer.receive() == b"made up"
        assert await peer.receive_response("Heartbeat", 0) == (2, HeartbeatResponse())


@on_both_loops
async def test_what_was_settled_before_is_not_sent_again(tmp_path: Path) -> None:
    async with rounds(tmp_path) as (made, running):
        peer = await waiting_peer(made, running)
        answers = made.beside()
        made.waiting[0].settle(ProduceResponse())
        await made.write(answers)
        assert await peer.receive_response("Produce", 7) == (1, ProduceResponse())
        assert await peer.receive_response("Heartbeat", 0) == (2, HeartbeatResponse())
        assert [answer.end() for answer in answers] == [0]


@on_both_loops
async def test_the_rest_of_what_the_socket_did_not_take_follows(tmp_path: Path) -> None:
    large = bytes(range(256)) * (1 << 15)
    async with rounds(tmp_path, large) as (made, running):
        peer = await waiting_peer(made, running, receive_buffer_bytes=1 << 14)
        await made.write(made.beside())
        made.waiting[0].settle(made.waiting[0].ready)
        assert await peer.receive() == large
        assert await peer.receive_response("Heartbeat", 0) == (2, HeartbeatResponse())


@on_both_loops
async def test_an_answer_waits_for_those_before_it(tmp_path: Path) -> None:
    """With something of the connection still to be sent, another thread must not send."""
    async with rounds(tmp_path) as (made, running):
        peer = await running.connect()
        peer.send(b"".join(request("Heartbeat", number) for number in range(5)))
        peer.send(request("Produce", 5))
        await made.until_waiting(1)
        await made.write(made.beside())
        made.waiting[0].settle(made.waiting[0].ready)
        for number in range(5):
            assert await peer.receive_response("Heartbeat", 0) == (number, HeartbeatResponse())
        assert await peer.receive() == b"made up"


@on_both_loops
async def test_nothing_is_sent_to_the_number_of_a_socket_that_is_gone(tmp_path: Path) -> None:
    async with rounds(tmp_path) as (made, running):
        peer = await running.connect()
        peer.send(request("Produce", 1))
        await made.until_waiting(1)
        answers = made.beside()
        assert len(answers) == 1
        peer.reset()
        await until(lambda: not len(running.connections))
        # These may have the number now.
        others = [await running.connect() for _ in range(3)]
        await made.write(answers)
        assert answers[0].end() == 0
        made.waiting[0].settle(made.waiting[0].ready)
        for other in others:
            other.send(request("Heartbeat", 7))
            assert await other.receive_response("Heartbeat", 0) == (7, HeartbeatResponse())


async def produced(peer: Peer, correlation_id: int) -> int:
    batch = batch_of(value=b"x")
    peer.send(request_frame("Produce", 9, produce_request(batch, acks=-1), correlation_id))
    answered, response = await peer.receive_response("Produce", 9)
    assert answered == correlation_id
    assert outcome_of(response).error_code == 0
    return outcome_of(response).base_offset


async def test_a_broker_on_a_disk_answers_from_the_writers_thread(tmp_path: Path) -> None:
    settings = {"log.dirs": str(tmp_path / "data"), "log.journal.bytes": "1048576"}
    files = RealFiles(portable=False)
    broker = Broker(BrokerConfig.from_settings(settings), files=files)
    await broker.start()
    try:
        topic = await broker.topics.create("flights", 1, {})
        make_answer = broker.commits.make_answer
        assert make_answer is not None
        made: list[Answer] = []

        def noted(descriptor: int, data: bytes) -> Answer:
            made.append(make_answer(descriptor, data))
            return made[-1]

        async with edge(HANDLERS, broker=broker, make_answer=noted) as running:
            peers = [await running.connect() for _ in range(3 * ANSWERS_BESIDE_MIN)]
            offsets: list[int] = []
            # The first ones find no journal yet, and few in their round.
            while not made or not made[-1].end():
                offsets += await asyncio.gather(*(produced(peer, len(offsets)) for peer in peers))
            assert sorted(offsets) == list(range(len(offsets)))
            # None is made for a round that leaves its answers to the loop.
            assert ANSWERS_BESIDE_MIN <= len(made) <= len(offsets)
            # Who is answered may know it a moment before the loop does.
            log = topic.partitions[0].log
            await until(lambda: log.durable_end_offset == len(offsets))
    finally:
        await broker.stop()
