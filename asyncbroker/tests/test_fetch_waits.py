"""Fetches that wait: for whom, how long, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from asyncbroker.context import RequestContext
from asyncbroker.partition import Partition
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.fetch import FetchResponse
from asyncbroker.tests.data_path_harness import (
    UnderTest,
    answer_of,
    answers_of,
    batch_of,
    errors_of,
    fetch_request,
    offsets_of,
    produce_request,
    settle,
    under_test,
)


async def waiting(test: UnderTest, offset: int = 0, **fields: int) -> asyncio.Future[FetchResponse]:
    """A fetch that waits, up to a second unless told otherwise."""
    request = fetch_request({("flights", 0): offset}, **{"max_wait_ms": 1000, **fields})
    answer = test.begin(request, 12)
    assert isinstance(answer, asyncio.Future)
    await settle()
    assert not answer.done()
    return answer


async def test_an_append_wakes_a_waiting_fetch_at_once() -> None:
    """Not max_wait decides, but the produce."""
    async with under_test() as test:
        await test.topic()
        answer = await waiting(test)
        await test.produce(batch_of())
        await settle()
        assert answer.done()
        assert offsets_of(answer_of(answer.result())) == [0]


async def test_an_append_in_a_worker_wakes_a_waiting_fetch_too() -> None:
    async with under_test(asyncbroker_append_inline_max_bytes="100") as test:
        await test.topic()
        answer = await waiting(test)
        await test.produce(batch_of(value=bytes(1000)))
        assert offsets_of(answer_of(await answer)) == [0]


async def test_a_produce_to_any_partition_of_a_session_wakes_its_fetch() -> None:
    async with under_test() as test:
        await test.topic(partitions=5)
        request = fetch_request({("flights", index): 0 for index in range(5)}, session_epoch=0)
        opened = await test.ask(request, 12)
        answer = test.begin(
            fetch_request({}, session_id=opened.session_id, session_epoch=1, max_wait_ms=9000), 12
        )
        await settle()
        assert not answer.done()
        await test.produce(batch_of(), index=3)
        woken = await answer
        assert [data.partition_index for data in answers_of(woken)] == [3]


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The indexes of partitions whose logs were asked for records, in order."""
    indexes: list[int] = []
    locate = Partition.locate

    def counted(self: Partition, *args: Any, **kwargs: Any) -> Any:
        indexes.append(self.index)
        return locate(self, *args, **kwargs)

    monkeypatch.setattr(Partition, "locate", counted)
    return indexes


async def test_a_large_session_costs_a_look_only_where_something_happened(
    looked_at: list[int],
) -> None:
    async with under_test() as test:
        await test.topic(partitions=5)
        request = fetch_request({("flights", index): 0 for index in range(5)}, session_epoch=0)
        opened = await test.ask(request, 12)
        looked_at.clear()
        waiting = test.begin(
            fetch_request({}, session_id=opened.session_id, session_epoch=1, max_wait_ms=9000), 12
        )
        await settle()
        assert looked_at == []
        await test.produce(batch_of(), index=3)
        assert [data.partition_index for data in answers_of(await waiting)] == [3]
        assert looked_at == [3]
        # The reader has not moved on: the records are still news, of this partition alone.
        looked_at.clear()
        again = fetch_request({}, session_id=opened.session_id, session_epoch=2)
        answers = answers_of(await test.ask(again, 12))
        assert [data.partition_index for data in answers] == [3]
        assert looked_at == [3]


async def test_a_woken_fetch_keeps_what_it_found_before(looked_at: list[int]) -> None:
    async with under_test() as test:
        await test.topic(partitions=3)
        await test.produce(batch_of(), index=0)
        size = len(batch_of())
        request = fetch_request(
            {("flights", index): 0 for index in range(3)}, max_wait_ms=1000, min_bytes=2 * size
        )
        answer = test.begin(request, 12)
        await settle()
        assert looked_at == [0, 1, 2]
        await test.produce(batch_of(), index=2)
        found = answers_of(await answer)
        assert [offsets_of(data) for data in found] == [[0], [], [0]]
        assert looked_at == [0, 1, 2, 2]


async def test_a_fetch_waits_for_min_bytes_over_all_its_partitions() -> None:
    async with under_test() as test:
        await test.topic(partitions=2)
        size = len(batch_of())
        request = fetch_request(
            {("flights", 0): 0, ("flights", 1): 0}, max_wait_ms=1000, min_bytes=3 * size
        )
        answer = test.begin(request, 12)
        for index in (0, 1):
            await test.produce(batch_of(), index=index)
            await settle()
            assert not answer.done()
        await test.produce(batch_of(), index=1)
        await settle()
        assert answer.done()
        assert [len(offsets_of(data)) for data in answers_of(answer.result())] == [1, 2]


async def test_what_comes_between_the_look_and_the_wait_is_not_missed() -> None:
    """A fetch that has to wait goes on in a task, which starts later than others may append."""
    async with under_test() as test:
        topic = await test.topic()
        request = fetch_request({("flights", 0): 0}, max_wait_ms=1000)
        answer = test.begin(request, 12)
        test.begin(produce_request(batch_of()), 9)
        await settle()
        assert answer.done()
        assert offsets_of(answer_of(answer.result())) == [0]
        at_the_end = fetch_request({("flights", 0): 1}, max_wait_ms=1000)
        answer = test.begin(at_the_end, 12)
        topic.partitions[0].refuse(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await settle()
        assert answer.done()


async def test_at_the_deadline_a_fetch_returns_what_there_is() -> None:
    async with under_test() as test:
        await test.topic()
        answer = await waiting(test, min_bytes=10_000)
        await test.produce(batch_of())
        test.clock.advance(0.999)
        await settle()
        assert not answer.done()
        test.clock.advance(0.001)
        assert offsets_of(answer_of(await answer)) == [0]


async def test_without_a_wait_a_fetch_is_answered_at_once() -> None:
    async with under_test() as test:
        await test.topic()
        response = test.begin(fetch_request({("flights", 0): 0}, max_wait_ms=0), 12)
        assert isinstance(response, FetchResponse)


async def test_an_error_in_one_partition_ends_the_wait_of_all() -> None:
    async with under_test() as test:
        await test.topic()
        request = fetch_request({("flights", 0): 0, ("nowhere", 0): 0}, max_wait_ms=1000)
        response = test.begin(request, 12)
        assert isinstance(response, FetchResponse)
        assert errors_of(answers_of(response)) == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]


async def test_a_fetch_of_nothing_does_not_wait() -> None:
    """There are no partitions to wait for."""
    async with under_test() as test:
        assert isinstance(test.begin(fetch_request({}, max_wait_ms=1000), 12), FetchResponse)


async def test_the_end_of_a_segment_does_not_make_a_reader_wait_for_what_is_there() -> None:
    """A range ends with its segment, and may be smaller than min_bytes."""
    async with under_test() as test:
        await test.topic(segment_bytes="1048576")
        for _ in range(3):
            await test.produce(batch_of(value=bytes(600_000)))
        request = fetch_request({("flights", 0): 0}, max_wait_ms=1000, min_bytes=1_000_000)
        response = test.begin(request, 12)
        assert isinstance(response, FetchResponse)
        assert offsets_of(answer_of(response)) == [0]


async def test_a_batch_that_does_not_fit_any_more_counts_as_bytes_that_are_there() -> None:
    """Readers whose limit is their minimum, and larger batches than divide it evenly."""
    async with under_test() as test:
        await test.topic(partitions=2)
        for index in (0, 0, 1):
            await test.produce(batch_of(value=bytes(600_000)), index=index)
        request = fetch_request(
            {("flights", 0): 0},
            max_wait_ms=1000,
            min_bytes=1_000_000,
            partition_max_bytes=1_000_000,
        )
        response = test.begin(request, 12)
        assert isinstance(response, FetchResponse)
        assert offsets_of(answer_of(response)) == [0]
        request = fetch_request(
            {("flights", 0): 1, ("flights", 1): 0},
            max_wait_ms=1000,
            min_bytes=1_000_000,
            max_bytes=1_000_000,
        )
        response = test.begin(request, 12)
        assert isinstance(response, FetchResponse)
        assert [offsets_of(answer) for answer in answers_of(response)] == [[1], []]


async def test_deleting_a_topic_ends_the_wait_of_its_fetches() -> None:
    async with under_test() as test:
        topic = await test.topic()
        by_name = await waiting(test)
        by_id = test.begin(fetch_request({(topic.topic_id, 0): 0}, max_wait_ms=1000), 13)
        await settle()
        await test.broker.topics.delete(topic)
        assert answer_of(await by_name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answer_of(await by_id).error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_stopping_the_broker_ends_the_wait() -> None:
    async with under_test() as test:
        await test.topic()
        answer = await waiting(test)
        await test.broker.stop()
        assert answer_of(await answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_lost_connection_ends_the_wait() -> None:
    class Life:
        lost = False
        callback: Callable[[], object]

        def is_closing(self) -> bool:
            return self.lost

        def call_when_lost(self, callback: Callable[[], object]) -> None:
            self.callback = callback

    async with under_test() as test:
        topic = await test.topic()
        life = Life()
        request = fetch_request({("flights", 0): 0}, max_wait_ms=1000)
        answer = test.begin(request, 12, RequestContext(connection=life))
        await settle()
        assert len(topic.partitions[0].waiters) == 1
        life.lost = True
        life.callback()
        await answer
        assert not topic.partitions[0].waiters


async def test_nothing_is_left_of_a_wait_that_is_over() -> None:
    async with under_test() as test:
        topic = await test.topic()
        for _ in range(3):
            answer = await waiting(test, topic.partitions[0].high_watermark)
            await test.produce(batch_of())
            await answer
        assert not topic.partitions[0].waiters
        assert test.broker.fetch_waits.count == 0


async def test_one_fetch_too_many_is_answered_without_waiting() -> None:
    async with under_test(asyncbroker_max_waiting_fetches="1") as test:
        await test.topic()
        first = await waiting(test)
        second = await test.ask(fetch_request({("flights", 0): 0}, max_wait_ms=1000), 12)
        assert answer_of(second).records == b""
        await test.produce(batch_of())
        await first
