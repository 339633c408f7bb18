"""The shortcut for one batch to one partition answers with the bytes of the handler, in every case,
and leaves the same logs. Two brokers get the same frames, one of them without it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from asyncbroker.context import RequestContext
from asyncbroker.dispatch import Close, Dispatcher, Serving, Waiting
from asyncbroker.handlers import HANDLERS, Handler, produce_single
from asyncbroker.handlers.produce import ADMIN_CLIENT_ID
from asyncbroker.later import Later
from asyncbroker.metrics import Metrics
from asyncbroker.metrics_requests import RequestMetrics
from asyncbroker.protocol.records import Compression
from asyncbroker.testing.handler_table import wrapped
from asyncbroker.tests.data_path_harness import (
    NOW_MS,
    UnderTest,
    batch_of,
    idempotent,
    log_bytes,
    produce_request,
    under_test,
)
from asyncbroker.tests.edge_harness import request_frame

FRAME_BYTES_MAX = 1 << 24
ALL, LEADER = -1, 1


WITHOUT = wrapped(HANDLERS, lambda _, handle: handle)


class Side:
    """A broker, with or without the shortcut."""

    def __init__(self, test: UnderTest, handlers: Mapping[int, Handler]) -> None:
        self.test = test
        self.serve_with(handlers)

    def serve_with(
        self,
        handlers: Mapping[int, Handler],
        in_front: Callable[[Serving], Serving] = lambda dispatcher: dispatcher,
    ) -> None:
        self.dispatcher = in_front(
            Dispatcher(
                self.test.broker, Metrics(), frame_bytes_max=FRAME_BYTES_MAX, handlers=handlers
            )
        )

    async def serve(self, framed: bytes) -> list[bytes] | str | None:
        """What the peer gets: bytes, or why its connection is closed."""
        output: list[bytes] = []
        context = RequestContext()
        outcome = self.dispatcher.serve(bytearray(framed[4:]), context, output)
        if isinstance(outcome, Waiting):
            try:
                response: Any = await outcome.awaitable
            except Exception as error:
                response = error
            outcome = self.dispatcher.finish(outcome, response, context, output)
        return outcome.reason if isinstance(outcome, Close) else output


@asynccontextmanager
async def both() -> AsyncIterator[tuple[Side, Side]]:
    async with under_test() as one, under_test() as other:
        for test in (one, other):
            await test.topic(partitions=2)
            await test.topic("log-time", message_timestamp_type="LogAppendTime")
            await test.topic("compacted", cleanup_policy="compact")
            await test.topic("zstd", compression_type="zstd")
            await test.topic("small", max_message_bytes="100")
            await test.topic("two-copies", min_insync_replicas="2")
            await test.topic("no-past", message_timestamp_before_max_ms="1000")
            await test.topic("__consumer_offsets")
        yield Side(one, HANDLERS), Side(other, WITHOUT)


def damaged(batch: bytearray, at: int) -> bytearray:
    batch[at] ^= 0xFF
    return batch


CASES: list[dict[str, Any]] = [
    {"batch": batch_of()},
    {"batch": batch_of(3), "index": 1},
    {"batch": batch_of(), "topic": "log-time"},
    {"batch": batch_of(), "index": 2},
    {"batch": batch_of(), "index": -1},
    {"batch": batch_of(), "topic": "nobody-made-it"},
    {"batch": batch_of(), "topic": "__consumer_offsets"},
    {"batch": batch_of(), "topic": "__consumer_offsets", "client_id": ADMIN_CLIENT_ID},
    {"batch": batch_of(), "topic": "two-copies"},
    {"batch": batch_of(), "acks": 2},
    {"batch": None},
    {"batch": b""},
    {"batch": bytes(30)},
    {"batch": batch_of() + batch_of()},
    {"batch": damaged(batch_of(), 70)},
    {"batch": damaged(batch_of(), 16)},
    {"batch": damaged(batch_of(), 60)},
    {"batch": batch_of(is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)},
    {"batch": batch_of(value=bytes(300)), "topic": "small"},
    {"batch": batch_of(key=None), "topic": "compacted"},
    {"batch": batch_of(), "topic": "compacted"},
    {"batch": batch_of(), "topic": "zstd"},
    {"batch": batch_of(compression=Compression.ZSTD), "topic": "zstd"},
    {"batch": batch_of(compression=Compression.ZSTD)},
    {"batch": batch_of(compression=Compression.GZIP)},
    {"batch": batch_of(timestamp=NOW_MS + 10**10)},
    {"batch": batch_of(timestamp=1), "topic": "no-past"},
    {"batch": batch_of(), "topic": "no-past"},
    {"batch": idempotent(0)},
    {"batch": idempotent(0)},
    {"batch": idempotent(1, 3)},
    {"batch": idempotent(9)},
    {"batch": idempotent(4, epoch=1)},
    {"batch": idempotent(4, epoch=0)},
    {"batch": batch_of(value=bytes(400_000))},
]


@pytest.mark.parametrize("version", [3, 4, 6, 7, 8, 9, 11])
@pytest.mark.parametrize("acks", [LEADER, ALL, 0])
async def test_each_request_is_answered_as_without_it(
    version: int, acks: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with both() as (one, other):
        for number, case in enumerate(CASES):
            fields = {"acks": acks, **case}
            client_id = fields.pop("client_id", "test")
            request = produce_request(fields.pop("batch"), **fields)
            framed = request_frame("Produce", version, request, number, client_id)
            answer = await one.serve(framed)
            assert answer == await other.serve(framed), case
            # Nobody throttles, and an answer is one frame.
            assert answer is not None
        for topic in one.test.broker.topics:
            twin = other.test.broker.topics.get(topic.name)
            assert twin is not None
            for partition, its_twin in zip(topic.partitions, twin.partitions, strict=True):
                assert log_bytes(partition) == log_bytes(its_twin)


@pytest.mark.parametrize("acks", [LEADER, ALL])
async def test_errors_are_counted_as_without_it(acks: int) -> None:
    async with both() as sides:
        counts = []
        for side, table in zip(sides, (HANDLERS, WITHOUT), strict=True):
            metrics = RequestMetrics()
            side.serve_with(metrics.handlers(table), metrics.dispatcher)
            for case in CASES:
                fields = {"acks": acks, **case}
                client_id = fields.pop("client_id", "test")
                request = produce_request(fields.pop("batch"), **fields)
                await side.serve(request_frame("Produce", 9, request, 1, client_id))
            [(name, measured)] = metrics.items()
            counts.append((name, measured.errors, sum(measured.seconds.counts)))
        assert counts[0] == counts[1]
        assert counts[0][2] == len(CASES)
        assert len(counts[0][1]) > 5


async def test_one_batch_takes_the_shortcut_and_two_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []

    def watched(*arguments: Any) -> Any:
        answer = produce_single.shortcut(*arguments)
        taken.append(answer is not None)
        return answer

    monkeypatch.setattr(type(HANDLERS[0]), "load_shortcut", lambda _: watched)
    async with both() as (side, _):
        for acks in (ALL, LEADER):
            framed = request_frame("Produce", 9, produce_request(batch_of(), acks=acks))
            assert await side.serve(framed)
        request = produce_request(batch_of())
        request.topic_data *= 2
        assert await side.serve(request_frame("Produce", 9, request))
    assert taken == [True, True, False]


async def test_with_acks_all_there_is_an_answer_at_once_only_if_it_is_durable() -> None:
    async with both() as (side, _):
        dispatcher, broker = side.dispatcher, side.test.broker
        frame = request_frame("Produce", 9, produce_request(batch_of(), acks=ALL))
        output: list[bytes] = []
        outcome = dispatcher.serve(bytearray(frame[4:]), RequestContext(), output)
        assert isinstance(outcome, Waiting)
        assert isinstance(outcome.awaitable, Later)
        topic = broker.topics.get("flights")
        assert topic is not None
        log = topic.partitions[0].log
        assert not output
        assert log.durable_end_offset == 0
        answer = await asyncio.wait_for(outcome.awaitable, 10)
        assert log.durable_end_offset == 1
        assert answer.__class__ is bytes


async def test_in_memory_nobody_waits_for_a_round() -> None:
    async with both() as (side, _):
        side.test.broker.storage.is_volatile = True
        frame = request_frame("Produce", 9, produce_request(batch_of(), acks=ALL))
        output: list[bytes] = []
        outcome = side.dispatcher.serve(bytearray(frame[4:]), RequestContext(), output)
        assert outcome == len(b"".join(output)) > 0
