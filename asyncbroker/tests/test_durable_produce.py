"""acks=all from socket to disk and back: the order of answers on a connection, and what becomes of
those who wait when the disk, the peer or the broker goes away. The disk stands still until the test
lets it go on."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from asyncbroker.dispatch import Dispatcher
from asyncbroker.handlers import HANDLERS
from asyncbroker.log.journal import JOURNAL
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.metrics_requests import RequestMetrics
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from asyncbroker.tests.data_path_harness import (
    UnderTest,
    batch_of,
    idempotent,
    outcome_of,
    produce_request,
    settle,
    under_test,
)
from asyncbroker.tests.edge_harness import Edge, Peer, edge, request_frame, stand_ins, until
from asyncbroker.tests.held_workers import StuckWorkers
from asyncbroker.tracing.observer import Observer

VERSION = 9
PARTITIONS = 3
ALL, LEADER, NONE = -1, 1, 0


class Disk(MemoryFiles):
    """Files whose journal can be made to fail."""

    def __init__(self) -> None:
        self.is_broken = False
        super().__init__(self._called)

    def _called(self, operation: str, path: str) -> None:
        if self.is_broken and operation == "datasync" and path.endswith(JOURNAL):
            raise OSError(errno.EIO, "made up")


@dataclass
class Durable:
    """A broker on a socket, with a journal, whose disk is stuck."""

    test: UnderTest
    edge: Edge
    workers: StuckWorkers
    disk: Disk

    async def until_waiting(self, requests: int) -> None:
        """Until so many requests have been begun, of which the last ones wait for the disk."""
        counts = self.edge.dispatcher.request_counts
        await until(lambda: sum(counts().values()) == requests)
        await until(lambda: bool(self.workers.stuck))

    def end_offset(self, index: int = 0) -> int:
        topic = self.test.broker.topics.get("flights")
        assert topic is not None
        return topic.partitions[index].high_watermark


@asynccontextmanager
async def durable(handlers: Mapping[int, Any] = HANDLERS) -> AsyncIterator[Durable]:
    workers, disk = StuckWorkers(), Disk()
    async with under_test(files=disk, workers=workers, log_journal_bytes=str(1 << 20)) as test:
        await test.topic(partitions=PARTITIONS)
        for index in range(PARTITIONS):
            # The first round makes the journal, and every file gets a durable name.
            await test.produce(batch_of(), index=index, acks=ALL)
        async with edge(handlers, broker=test.broker) as running:
            workers.is_stuck = True
            try:
                yield Durable(test, running, workers, disk)
            finally:
                workers.go_on()


def produce(
    correlation_id: int,
    acks: int,
    *,
    index: int = 0,
    timeout_ms: int = 30_000,
    batch: bytearray | None = None,
) -> bytes:
    request = produce_request(batch or batch_of(), index=index, acks=acks, timeout_ms=timeout_ms)
    return request_frame("Produce", VERSION, request, correlation_id)


async def answer_of(peer: Peer) -> tuple[int, int, int]:
    """Correlation id, error code and base offset of the next answer."""
    correlation_id, response = await peer.receive_response("Produce", VERSION)
    outcome = outcome_of(response)
    return correlation_id, outcome.error_code, outcome.base_offset


async def test_answers_keep_their_order_whatever_the_acks() -> None:
    async with durable() as made:
        peer = await made.edge.connect()
        acks = [LEADER, ALL, LEADER, NONE, ALL, NONE, LEADER, ALL]
        peer.send(b"".join(produce(number, each) for number, each in enumerate(acks)))
        assert await answer_of(peer) == (0, 0, 1)
        await made.until_waiting(2)
        # What comes behind one that waits has not begun.
        assert made.end_offset() == 3
        made.workers.go_on()
        for number, each in enumerate(acks[1:], 1):
            if each != NONE:
                assert await answer_of(peer) == (number, 0, number + 1)
        assert made.end_offset() == 1 + len(acks)


async def test_one_round_answers_all_connections() -> None:
    async with durable() as made:
        peers = [await made.edge.connect() for _ in range(10)]
        # A round is counted when it begins.
        waiters = made.test.broker.storage.metrics.round_waiters
        rounds = sum(waiters.counts)
        for number, peer in enumerate(peers):
            peer.send(produce(number, ALL, index=number % PARTITIONS))
        await made.until_waiting(len(peers))
        made.workers.go_on()
        for number, peer in enumerate(peers):
            assert (await answer_of(peer))[:2] == (number, 0)
        assert 1 <= sum(waiters.counts) - rounds <= 2


async def test_no_task_and_no_timer_is_made_for_a_request_that_waits() -> None:
    async with durable() as made:
        peers = [await made.edge.connect() for _ in range(10)]
        await settle()
        timers = made.test.clock._timers
        before, timers_before = len(asyncio.all_tasks()), timers._count
        for number, peer in enumerate(peers):
            peer.send(produce(number, ALL, index=number % PARTITIONS))
        await made.until_waiting(len(peers))
        assert len(asyncio.all_tasks()) == before
        # One for all of them.
        assert timers._count <= timers_before + 1
        made.workers.go_on()
        for peer in peers:
            await answer_of(peer)


async def test_a_round_that_fails_answers_every_request_of_it() -> None:
    async with durable() as made:
        peers = [await made.edge.connect() for _ in range(6)]
        for number, peer in enumerate(peers):
            peer.send(produce(number, ALL, index=number % PARTITIONS))
            peer.send(produce(100 + number, LEADER, index=number % PARTITIONS))
        await made.until_waiting(len(peers))
        made.disk.is_broken = True
        made.workers.go_on()
        for number, peer in enumerate(peers):
            assert await answer_of(peer) == (number, ErrorCode.KAFKA_STORAGE_ERROR, -1)
            # The directory is offline by now.
            assert await answer_of(peer) == (100 + number, ErrorCode.KAFKA_STORAGE_ERROR, -1)


async def test_timeout_ms_is_each_requests_own_and_later_ones_go_on() -> None:
    async with durable() as made:
        patient, hasty = await made.edge.connect(), await made.edge.connect()
        patient.send(produce(1, ALL, timeout_ms=20_000))
        hasty.send(produce(2, ALL, index=1, timeout_ms=1_000) + produce(3, LEADER, index=1))
        await made.until_waiting(2)
        made.test.clock.advance(0.9)
        await settle()
        assert made.end_offset(1) == 2
        made.test.clock.advance(0.2)
        assert await answer_of(hasty) == (2, ErrorCode.REQUEST_TIMED_OUT, -1)
        assert await answer_of(hasty) == (3, 0, 2)
        made.workers.go_on()
        assert await answer_of(patient) == (1, 0, 1)
        # What came too late is there all the same, and nobody is told twice.
        hasty.send(produce(4, ALL, index=1))
        assert await answer_of(hasty) == (4, 0, 3)


async def test_who_is_told_that_time_is_over_is_in_the_log_before_what_comes_next() -> None:
    """Although the round that was to append it has not begun."""
    async with durable() as made:
        other, hasty = await made.edge.connect(), await made.edge.connect()
        other.send(produce(1, ALL))
        await made.until_waiting(1)
        hasty.send(produce(2, ALL, index=1, timeout_ms=1_000, batch=idempotent(0)))
        hasty.send(produce(3, LEADER, index=1, batch=idempotent(1)))
        await made.until_waiting(2)
        assert made.end_offset(1) == 1
        made.test.clock.advance(1.1)
        assert await answer_of(hasty) == (2, ErrorCode.REQUEST_TIMED_OUT, -1)
        assert await answer_of(hasty) == (3, 0, 2)
        hasty.send(produce(4, ALL, index=1, batch=idempotent(0)))
        await until(lambda: sum(made.edge.dispatcher.request_counts().values()) == 4)
        made.workers.go_on()
        assert await answer_of(other) == (1, 0, 1)
        assert await answer_of(hasty) == (4, 0, 1)
        assert made.end_offset(1) == 3


async def test_a_request_to_many_partitions_waits_for_all_of_them() -> None:
    async with durable() as made:
        peer = await made.edge.connect()
        large = batch_of(value=bytes(200_000))
        batches = [batch_of(), large, batch_of(), batch_of()]
        request = ProduceRequest(
            acks=ALL,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(
                    "flights",
                    [PartitionProduceData(*each) for each in enumerate(batches)],
                )
            ],
        )
        peer.send(request_frame("Produce", VERSION, request, 1))
        await made.until_waiting(1)
        while made.workers.stuck:
            work, *made.workers.stuck = made.workers.stuck
            work()
            await settle()
        _, response = await peer.receive_response("Produce", VERSION)
        (topic,) = response.responses
        outcomes = [(each.error_code, each.base_offset) for each in topic.partition_responses]
        unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert outcomes == [(0, 1), (0, 1), (0, 1), unknown]


async def test_a_peer_that_leaves_meanwhile_takes_nothing_with_it() -> None:
    async with durable() as made:
        leaving, staying = await made.edge.connect(), await made.edge.connect()
        leaving.send(produce(1, ALL))
        staying.send(produce(3, ALL, index=1))
        await made.until_waiting(2)
        leaving.reset()
        await until(lambda: len(made.edge.connections) == 1)
        made.workers.go_on()
        assert await answer_of(staying) == (3, 0, 1)
        assert made.end_offset() == 2
        assert made.edge.metrics.internal_errors == 0


async def test_stopping_answers_who_waits_and_nobody_behind_him() -> None:
    async with durable() as made:
        peer = await made.edge.connect()
        peer.send(produce(1, ALL) + produce(2, ALL))
        await made.until_waiting(1)
        made.edge.server.begin_stop()
        await settle()
        made.workers.go_on()
        assert await answer_of(peer) == (1, 0, 1)
        assert await peer.is_closed()
        assert made.end_offset() == 2


async def test_after_the_stop_no_timer_is_left() -> None:
    async with durable() as made:
        peer = await made.edge.connect()
        peer.send(produce(1, ALL))
        await made.until_waiting(1)
        made.workers.go_on()
        await answer_of(peer)
    assert made.test.clock.next_deadline() is None


async def test_who_stands_before_the_handler_may_await_its_answer() -> None:
    """As faults do, which a test sets."""
    inner = HANDLERS[0].load()
    seen: list[Any] = []

    async def wait(response: Any) -> Any:
        seen.append(await response)
        return seen[-1]

    def handle(broker: Any, context: Any, request: Any) -> Any:
        return wait(inner(broker, context, request))

    async with durable(stand_ins(Produce=handle)) as made:
        peer = await made.edge.connect()
        peer.send(produce(1, ALL) + produce(2, ALL))
        await made.until_waiting(1)
        made.workers.go_on()
        assert await answer_of(peer) == (1, 0, 1)
        assert await answer_of(peer) == (2, 0, 2)
        assert [outcome_of(each).base_offset for each in seen] == [1, 2]


async def test_who_stands_before_the_dispatcher_sees_what_was_waited_for() -> None:
    """A trace, and the metrics of requests."""
    exchanges: list[Any] = []
    observer, metrics = Observer(sink=exchanges.append, is_full=True), RequestMetrics()
    async with durable() as made:
        table = observer.handlers(metrics.handlers(HANDLERS))
        serving = observer.dispatcher(
            metrics.dispatcher(
                Dispatcher(
                    made.test.broker, made.edge.metrics, frame_bytes_max=1 << 20, handlers=table
                )
            )
        )
        made.edge.connections.dispatcher = serving
        peer = await made.edge.connect()
        peer.send(produce(1, ALL))
        await until(lambda: bool(made.workers.stuck))
        assert exchanges == []
        made.workers.go_on()
        assert await answer_of(peer) == (1, 0, 1)
        (exchange,) = exchanges
        assert exchange.api == "Produce"
        ((name, measured),) = metrics.items()
        assert name == "Produce"
        assert sum(measured.seconds.counts) == 1
