"""The DeleteTopics handler: answers are those of Apache Kafka 4.3; and what becomes of the data."""

from __future__ import annotations

import asyncio

import pytest

from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from asyncbroker.tests.data_path_harness import (
    UnderTest,
    answer_of,
    batch_of,
    fetch_request,
    settle,
    under_test,
)
from asyncbroker.topic import Topic

LATEST = 6
NO_ID = bytes(16)


async def delete(
    test: UnderTest, *states: tuple[str | None, bytes], version: int = LATEST
) -> list[tuple[str | None, ErrorCode]]:
    request = DeleteTopicsRequest([DeleteTopicState(*state) for state in states])
    if version < LATEST:
        request = DeleteTopicsRequest(topic_names=[name or "" for name, _ in states])
    response: DeleteTopicsResponse = await test.ask(request, version)
    return [(each.name, ErrorCode(each.error_code)) for each in response.responses]


@pytest.mark.parametrize("version", range(LATEST + 1))
async def test_a_topic_is_deleted_by_name(version: int) -> None:
    async with under_test() as test:
        await test.topic("t")
        assert await delete(test, ("t", NO_ID), version=version) == [("t", ErrorCode.NONE)]
        assert test.broker.topics.get("t") is None
        assert test.broker.topics.partition_count == 0


async def test_a_topic_is_deleted_by_id_and_answered_with_its_name() -> None:
    async with under_test() as test:
        topic = await test.topic("t")
        assert await delete(test, (None, topic.topic_id)) == [("t", ErrorCode.NONE)]
        assert test.broker.topics.by_id(topic.topic_id) is None


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (("missing", NO_ID), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("bad name", NO_ID), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((None, b"x" * 16), ErrorCode.UNKNOWN_TOPIC_ID),
        ((None, NO_ID), ErrorCode.INVALID_REQUEST),
        (("t", b"x" * 16), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_is_not_there_gets_kafkas_error(
    state: tuple[str | None, bytes], code: ErrorCode
) -> None:
    async with under_test() as test:
        await test.topic("t")
        assert await delete(test, state) == [(state[0], code)]
        assert test.broker.topics.get("t") is not None


async def test_a_topic_named_twice_has_one_outcome_and_stays() -> None:
    async with under_test() as test:
        await test.topic("t")
        await test.topic("u")
        outcomes = await delete(test, ("t", NO_ID), ("t", NO_ID), ("u", NO_ID))
        assert outcomes == [("t", ErrorCode.INVALID_REQUEST), ("u", ErrorCode.NONE)]
        assert test.broker.topics.get("t") is not None


@pytest.mark.parametrize(
    ("version", "code"),
    [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
)
async def test_deletion_can_be_forbidden(version: int, code: ErrorCode) -> None:
    async with under_test(delete_topic_enable="false") as test:
        await test.topic("t")
        with pytest.raises(KafkaError) as caught:
            await delete(test, ("t", NO_ID), version=version)
        assert caught.value.code is code


async def test_internal_topics_are_not_deleted() -> None:
    async with under_test() as test:
        await test.topic("__consumer_offsets")
        outcomes = await delete(test, ("__consumer_offsets", NO_ID))
        assert outcomes == [("__consumer_offsets", ErrorCode.INVALID_REQUEST)]


async def test_a_topic_created_anew_has_none_of_the_old_records() -> None:
    async with under_test() as test:
        old = await test.topic()
        await test.produce(batch_of(5))
        await delete(test, ("flights", NO_ID))
        new = await test.topic()
        assert new.topic_id != old.topic_id
        answer = await test.fetch(0)
        assert (answer.error_code, answer.high_watermark) == (0, 0)


async def test_waiting_fetches_end_when_their_topic_is_deleted() -> None:
    async with under_test() as test:
        topic = await test.topic()
        by_name = test.begin(fetch_request({("flights", 0): 0}, max_wait_ms=60_000), 12)
        by_id = test.begin(fetch_request({(topic.topic_id, 0): 0}, max_wait_ms=60_000), 13)
        await settle()
        assert not by_name.done()
        await delete(test, ("flights", NO_ID))
        gone = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
        assert answer_of(await by_name).error_code in gone
        assert answer_of(await by_id).error_code in gone


async def test_writes_that_are_on_their_way_are_answered_before_the_log_goes() -> None:
    async with under_test() as test:
        await test.topic()
        writes = [asyncio.ensure_future(test.produce(batch_of(), acks=-1)) for _ in range(3)]
        deletion = asyncio.ensure_future(delete(test, ("flights", NO_ID)))
        outcomes = await asyncio.gather(*writes)
        assert await deletion == [("flights", ErrorCode.NONE)]
        allowed = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert all(outcome.error_code in allowed for outcome in outcomes)
        # The disk is fine, and other topics can be written to.
        await test.topic("other")
        assert (await test.produce(batch_of(), topic="other", acks=-1)).error_code == 0


async def test_of_two_deletions_at_the_same_time_one_finds_nothing() -> None:
    async with under_test() as test:
        await test.topic("t")
        outcomes = await asyncio.gather(*(delete(test, ("t", NO_ID)) for _ in range(3)))
        assert sorted(code for ((_, code),) in outcomes) == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]


async def test_a_creation_during_the_deletion_waits_for_the_name() -> None:
    files = MemoryFiles()
    async with under_test(files=files) as test:
        old = await test.topic("t")
        creations: list[asyncio.Task[Topic]] = []

        def create_while_moving_away(operation: str, path: str) -> None:
            if operation == "rename" and not creations:
                creations.append(asyncio.ensure_future(test.topic("t")))

        files.on_call = create_while_moving_away
        assert await delete(test, ("t", NO_ID)) == [("t", ErrorCode.NONE)]
        new = await creations[0]
        assert test.broker.topics.get("t") is new
        assert new.topic_id != old.topic_id
        assert (await test.produce(batch_of(), topic="t")).error_code == 0
