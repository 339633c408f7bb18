"""One connection: order, waiting requests, back-pressure, deadlines, its end."""

from __future__ import annotations

import asyncio
import logging
from struct import pack
from typing import Any, cast

import pytest

from asyncbroker.connection import AHEAD_BYTES_MAX, TURN_REQUESTS_MAX
from asyncbroker.peer_watch import ConnectionLimits, TooSlow
from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from asyncbroker.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from asyncbroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from asyncbroker.tests.edge_harness import (
    edge,
    on_both_loops,
    patiently,
    request_frame,
    stand_ins,
    until,
)

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def heartbeat(correlation_id: int, version: int = 0) -> bytes:
    return request_frame("Heartbeat", version, HEARTBEAT, correlation_id)


def produce(size: int, correlation_id: int = 1, acks: int = 1) -> bytes:
    data = PartitionProduceData(0, bytes(size))
    request = ProduceRequest(acks=acks, topic_data=[TopicProduceData("t", [data])])
    return request_frame("Produce", 7, request, correlation_id)


def answer_heartbeat(broker: Any, context: Any, request: Any) -> HeartbeatResponse:
    return HeartbeatResponse()


def no_answer(broker: Any, context: Any, request: Any) -> None:
    return None


class Gate:
    """A handler whose requests wait until the test answers them."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[Any]] = []
        self.contexts: list[Any] = []
        self.lost = 0

    def __call__(self, broker: Any, context: Any, request: Any) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        self.contexts.append(context)
        context.call_when_lost(self.count_lost)
        return future

    def count_lost(self) -> None:
        self.lost += 1

    async def until_waiting(self, count: int) -> None:
        await until(lambda: len(self.waiting) == count)


# ---- order


@on_both_loops
async def test_requests_sent_together_are_answered_in_order() -> None:
    async with edge(stand_ins(Heartbeat=answer_heartbeat)) as running:
        peer = await running.connect()
        peer.send(b"".join(heartbeat(number) for number in range(50)))
        for number in range(50):
            assert await peer.receive_response("Heartbeat", 0) == (number, HeartbeatResponse())


@on_both_loops
async def test_a_request_may_come_byte_by_byte() -> None:
    async with edge(stand_ins(Heartbeat=answer_heartbeat)) as running:
        peer = await running.connect()
        for byte in heartbeat(7, 4):
            peer.send(bytes([byte]))
            await asyncio.sleep(0)
        assert await peer.receive_response("Heartbeat", 4) == (7, HeartbeatResponse())


@on_both_loops
async def test_a_waiting_request_holds_back_those_behind_it() -> None:
    gate = Gate()
    async with edge(stand_ins(Heartbeat=answer_heartbeat, Produce=gate)) as running:
        peer = await running.connect()
        peer.send(produce(10, 1) + heartbeat(2) + produce(10, 3) + heartbeat(4))
        await gate.until_waiting(1)
        gate.waiting[0].set_result(ProduceResponse())
        assert await peer.receive_response("Produce", 7) == (1, ProduceResponse())
        assert await peer.receive_response("Heartbeat", 0) == (2, HeartbeatResponse())
        await gate.until_waiting(2)
        gate.waiting[1].set_result(ProduceResponse())
        assert await peer.receive_response("Produce", 7) == (3, ProduceResponse())
        assert await peer.receive_response("Heartbeat", 0) == (4, HeartbeatResponse())


@on_both_loops
async def test_a_waiting_request_does_not_hold_back_other_connections() -> None:
    gate = Gate()
    async with edge(stand_ins(Heartbeat=answer_heartbeat, Produce=gate)) as running:
        waiter, other = await running.connect(), await running.connect()
        waiter.send(produce(10))
        await gate.until_waiting(1)
        other.send(heartbeat(5))
        assert (await other.receive_response("Heartbeat", 0))[0] == 5


@on_both_loops
async def test_a_handler_may_be_a_coroutine() -> None:
    async def handle(broker: Any, context: Any, request: Any) -> HeartbeatResponse:
        await asyncio.sleep(0)
        return HeartbeatResponse(error_code=27)

    async with edge(stand_ins(Heartbeat=handle)) as running:
        peer = await running.connect()
        peer.send(heartbeat(1) + heartbeat(2))
        assert await peer.receive_response("Heartbeat", 0) == (1, HeartbeatResponse(error_code=27))
        assert await peer.receive_response("Heartbeat", 0) == (2, HeartbeatResponse(error_code=27))


@on_both_loops
async def test_a_thousand_requests_without_an_answer_and_one_with_one_give_one_answer() -> None:
    handlers = stand_ins(Produce=no_answer, Heartbeat=answer_heartbeat)
    async with edge(handlers) as running:
        peer = await running.connect()
        peer.send(produce(10, acks=0) * 1000 + heartbeat(9))
        assert (await peer.receive_response("Heartbeat", 0))[0] == 9
        assert running.dispatcher.request_counts() == {"Produce v7": 1000, "Heartbeat v0": 1}


@on_both_loops
async def test_a_waiting_request_may_end_without_an_answer() -> None:
    gate = Gate()
    async with edge(stand_ins(Heartbeat=answer_heartbeat, Produce=gate)) as running:
        peer = await running.connect()
        peer.send(produce(10, acks=0) + heartbeat(2))
        await gate.until_waiting(1)
        gate.waiting[0].set_result(None)
        assert (await peer.receive_response("Heartbeat", 0))[0] == 2


@on_both_loops
async def test_many_requests_at_once_leave_turns_to_others() -> None:
    turns: list[str] = []

    def handle(broker: Any, context: Any, request: Any) -> None:
        turns.append(context.client_id)

    async with edge(stand_ins(Produce=handle)) as running:
        flood, other = await running.connect(), await running.connect()
        data = PartitionProduceData(0, b"")
        request = ProduceRequest(acks=0, topic_data=[TopicProduceData("t", [data])])
        one = request_frame("Produce", 7, request, client_id="flood")
        flood.send(one * (TURN_REQUESTS_MAX * 4))
        other.send(request_frame("Produce", 7, request, client_id="other"))
        await until(lambda: len(turns) == TURN_REQUESTS_MAX * 4 + 1)
        assert turns.index("other") < TURN_REQUESTS_MAX * 4


# ---- the end of a connection


@on_both_loops
async def test_those_who_wait_hear_that_the_peer_is_gone() -> None:
    gate = Gate()
    async with edge(stand_ins(Produce=gate)) as running:
        peer = await running.connect()
        peer.send(produce(10))
        await gate.until_waiting(1)
        assert not gate.contexts[0].is_closing()
        peer.close()
        await until(lambda: gate.lost == 1)
        assert gate.contexts[0].is_closing()
        gate.waiting[0].set_result(ProduceResponse())
        await until(lambda: len(running.connections) == 0)


@on_both_loops
async def test_after_the_answer_nobody_hears_of_the_end() -> None:
    gate = Gate()
    async with edge(stand_ins(Produce=gate)) as running:
        peer = await running.connect()
        peer.send(produce(10))
        await gate.until_waiting(1)
        gate.waiting[0].set_result(ProduceResponse())
        await peer.receive()
        peer.close()
        await until(lambda: len(running.connections) == 0)
        assert gate.lost == 0


@on_both_loops
async def test_requests_before_the_peers_end_are_served() -> None:
    gate = Gate()
    seen: list[int] = []

    def handle(broker: Any, context: Any, request: Any) -> None:
        seen.append(request.acks)

    async with edge(stand_ins(Heartbeat=gate, Produce=handle)) as running:
        peer = await running.connect()
        peer.send(heartbeat(1) + produce(10, acks=0) * 3)
        peer.writer.write_eof()
        await gate.until_waiting(1)
        # The end is seen, and the requests behind the waiting one are still to come.
        for _ in range(10):
            await asyncio.sleep(0)
        gate.waiting[0].set_result(HeartbeatResponse())
        await until(lambda: seen == [0, 0, 0])
        assert (await peer.receive_response("Heartbeat", 0))[0] == 1
        assert await peer.is_closed()


@on_both_loops
async def test_a_request_given_up_closes_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    async with edge(stand_ins(Heartbeat=gate)) as running:
        peer = await running.connect()
        peer.send(heartbeat(1))
        await gate.until_waiting(1)
        gate.waiting[0].cancel()
        assert await peer.is_closed()
    assert "Heartbeat v0: given up" in caplog.text


@on_both_loops
async def test_a_bad_frame_closes_with_one_line_after_what_came_before_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with edge(stand_ins(Heartbeat=answer_heartbeat)) as running:
        peer, other = await running.connect(), await running.connect()
        peer.send(heartbeat(1) + pack(">i", -5))
        assert (await peer.receive_response("Heartbeat", 0))[0] == 1
        assert await peer.is_closed()
        other.send(heartbeat(2))
        assert (await other.receive_response("Heartbeat", 0))[0] == 2
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "closed 127.0.0.1:" in record.message
    assert "-5 bytes" in record.message
    assert record.exc_info is None


@on_both_loops
async def test_a_protocol_error_of_a_waiting_request_closes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = Gate()
    async with edge(stand_ins(Produce=gate)) as running:
        peer = await running.connect()
        peer.send(produce(10, acks=0))
        await gate.until_waiting(1)
        gate.waiting[0].set_exception(ProtocolError("acks=0 failed"))
        assert await peer.is_closed()
    assert "Produce v7: acks=0 failed" in caplog.text


@on_both_loops
async def test_stopping_answers_what_waits_and_begins_nothing() -> None:
    gate = Gate()
    async with edge(stand_ins(Produce=gate, Heartbeat=answer_heartbeat)) as running:
        waiter, idle = await running.connect(), await running.connect()
        waiter.send(produce(10, 1) + heartbeat(2))
        await gate.until_waiting(1)
        running.server.begin_stop()
        assert await idle.is_closed()
        gate.waiting[0].set_result(ProduceResponse())
        assert (await waiter.receive_response("Produce", 7))[0] == 1
        assert await waiter.is_closed()
        with pytest.raises(ConnectionError):
            await running.connect()


@on_both_loops
async def test_stopping_drops_who_does_not_end_in_time() -> None:
    gate = Gate()
    async with edge(stand_ins(Produce=gate)) as running:
        peer = await running.connect()
        peer.send(produce(10))
        await gate.until_waiting(1)
        running.server.begin_stop()
        stopping = asyncio.ensure_future(running.server.finish_stop(5.0))
        await until(lambda: running.connections._all_gone is not None)
        running.advance(5.0)
        await patiently(stopping)
        assert await peer.is_closed()
        assert gate.lost == 1


@on_both_loops
async def test_a_peer_that_takes_nothing_does_not_hold_up_a_stop() -> None:
    handlers = stand_ins(ListGroups=large_answer)
    async with edge(handlers, send_buffer_bytes=65536) as running:
        peer = await running.connect(4096)
        cast(asyncio.Transport, peer.writer.transport).pause_reading()
        peer.send(request_frame("ListGroups", 0, ListGroupsRequest()) * 5)
        await until(lambda: any(one._output.is_full for one in running.connections._open))
        running.server.begin_stop()
        stopping = asyncio.ensure_future(running.server.finish_stop(15.0))
        await until(lambda: running.connections._all_gone is not None)
        running.advance(5.0)
        await patiently(stopping)


# ---- back-pressure


@on_both_loops
async def test_a_busy_connection_is_read_only_a_little_ahead() -> None:
    gate = Gate()
    async with edge(stand_ins(Produce=gate)) as running:
        peer = await running.connect()
        for number in range(100):
            peer.send(produce(100_000, number))
        await gate.until_waiting(1)
        (connection,) = running.connections._open
        await until(lambda: connection._is_reading_paused)
        assert connection._queued_bytes <= AHEAD_BYTES_MAX + 200_000
        for number in range(100):
            await gate.until_waiting(number + 1)
            gate.waiting[number].set_result(ProduceResponse())
            assert (await peer.receive_response("Produce", 7))[0] == number


def large_answer(broker: Any, context: Any, request: Any) -> ListGroupsResponse:
    groups = [ListedGroup(group_id="g" * 1000, protocol_type="consumer") for _ in range(1000)]
    return ListGroupsResponse(groups=groups)


@on_both_loops
async def test_a_peer_that_does_not_read_is_not_served_further_and_then_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits = ConnectionLimits(slow_reader_seconds_max=30)
    handlers = stand_ins(ListGroups=large_answer, Heartbeat=answer_heartbeat)
    async with edge(handlers, limits=limits, send_buffer_bytes=65536) as running:
        peer, other = await running.connect(4096), await running.connect()
        cast(asyncio.Transport, peer.writer.transport).pause_reading()
        for number in range(100):
            peer.send(request_frame("ListGroups", 0, ListGroupsRequest(), number))
        await until(lambda: any(one._output.is_full for one in running.connections._open))
        (connection,) = [one for one in running.connections._open if one._output.is_full]
        unsent = connection._transport.get_write_buffer_size()
        assert unsent < limits.output_bytes_max + 1_200_000
        served = running.dispatcher.request_counts()["ListGroups v0"]
        assert served < 10
        running.advance(29)
        other.send(heartbeat(1))
        assert (await other.receive_response("Heartbeat", 0))[0] == 1
        assert running.dispatcher.request_counts()["ListGroups v0"] == served
        running.advance(3)
        await until(lambda: len(running.connections) == 1)
        assert running.metrics.connections_closed == {TooSlow.SLOW_READER: 1}
    assert "does not read its responses" in caplog.text


@on_both_loops
async def test_a_peer_that_reads_slowly_gets_everything() -> None:
    async with edge(stand_ins(ListGroups=large_answer), send_buffer_bytes=65536) as running:
        peer = await running.connect(4096)
        peer.send(
            b"".join(request_frame("ListGroups", 0, ListGroupsRequest(), n) for n in range(5))
        )
        for number in range(5):
            running.advance(20)
            correlation_id, response = await peer.receive_response("ListGroups", 0)
            assert correlation_id == number
            assert len(response.groups) == 1000


@on_both_loops
async def test_bytes_in_flight_are_limited_over_all_connections_and_all_get_through() -> None:
    handlers = stand_ins(Produce=lambda broker, context, request: ProduceResponse())
    async with edge(handlers, bytes_in_flight_max=1_000_000) as running:
        peers = [await running.connect() for _ in range(8)]
        frame = produce(600_000)
        for peer in peers:
            peer.send(frame[:500_000])
        await until(lambda: running.metrics.bytes_in_flight_waits > 0)
        assert running.connections.budget.held_bytes <= 4_000_000
        for peer in peers:
            peer.send(frame[500_000:])
        for peer in peers:
            assert (await peer.receive_response("Produce", 7))[0] == 1
        assert running.metrics.bytes_in_flight == 0


# ---- deadlines


@on_both_loops
async def test_an_idle_connection_is_closed_and_a_waiting_one_is_not() -> None:
    gate = Gate()
    limits = ConnectionLimits(idle_seconds_max=600)
    async with edge(stand_ins(Produce=gate, Heartbeat=answer_heartbeat), limits=limits) as running:
        idle, waiter, active = [await running.connect() for _ in range(3)]
        waiter.send(produce(10))
        await gate.until_waiting(1)
        for number in range(3):
            running.advance(250)
            active.send(heartbeat(number))
            await active.receive()
        assert await idle.is_closed()
        assert running.metrics.connections_closed == {TooSlow.IDLE: 1}
        gate.waiting[0].set_result(ProduceResponse())
        assert (await waiter.receive_response("Produce", 7))[0] == 1


@pytest.mark.parametrize("start", [b"\0", pack(">i", 1000) + b"abc"])
@on_both_loops
async def test_a_request_that_is_never_finished_closes_its_connection(
    start: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    limits = ConnectionLimits(unfinished_seconds_max=30)
    async with edge(stand_ins(Heartbeat=answer_heartbeat), limits=limits) as running:
        peer = await running.connect()
        peer.send(heartbeat(1) + start)
        await peer.receive()
        running.advance(20)
        assert len(running.connections) == 1
        running.advance(15)
        assert await peer.is_closed()
        assert running.metrics.connections_closed == {TooSlow.UNFINISHED: 1}
    assert "unfinished after" in caplog.text


@on_both_loops
async def test_a_slow_but_honest_link_may_take_longer() -> None:
    limits = ConnectionLimits(unfinished_seconds_max=30, unfinished_bytes_per_second_min=16_384)
    handlers = stand_ins(Produce=lambda broker, context, request: ProduceResponse())
    async with edge(handlers, limits=limits) as running:
        peer = await running.connect()
        frame = produce(2_000_000)
        (connection,) = await _opened(running)
        for position in range(0, len(frame) - 1, 200_000):
            part = frame[position : position + 200_000][: len(frame) - 1 - position]
            peer.send(part)
            sent = position + len(part)
            await until(lambda: connection._reader.unfinished_bytes == sent - 4)  # noqa: B023
            running.advance(10)
        peer.send(frame[-1:])
        assert (await peer.receive_response("Produce", 7))[0] == 1


async def _opened(running: Any) -> list[Any]:
    await until(lambda: len(running.connections) > 0)
    return list(running.connections._open)


@on_both_loops
@pytest.mark.parametrize("more_bytes", [100, AHEAD_BYTES_MAX + 1000])
async def test_a_peer_that_leaves_requests_behind_is_let_go_of(more_bytes: int) -> None:
    """Also when so much is read ahead that the end of the stream is not seen."""
    gate = Gate()
    limits = ConnectionLimits(leaving_seconds_max=10)
    async with edge(stand_ins(Produce=gate), limits=limits) as running:
        peer = await running.connect()
        peer.send(produce(10) + produce(more_bytes) + produce(10))
        await gate.until_waiting(1)
        (connection,) = await _opened(running)
        await until(lambda: len(connection._queue) > 0)
        peer.close()
        await peer.writer.wait_closed()
        running.advance(1)
        for _ in range(10):
            await asyncio.sleep(0)
        assert gate.lost == 0
        running.advance(12)
        await until(lambda: len(running.connections) == 0)
        assert gate.lost == 1
        assert running.metrics.connections_closed == {TooSlow.LEFT: 1}
