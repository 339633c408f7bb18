"""The CreateTopics handler: answers are those of Apache Kafka 4.3."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from asyncbroker.tests.data_path_harness import UnderTest, under_test

LATEST = 7


def topic_of(
    name: str = "t",
    partitions: int = 1,
    replicas: int = 1,
    *,
    assigned: Sequence[tuple[int, list[int]]] = (),
    configs: Sequence[tuple[str, str | None]] = (),
) -> CreatableTopic:
    return CreatableTopic(
        name,
        partitions,
        replicas,
        [CreatableReplicaAssignment(index, brokers) for index, brokers in assigned],
        [CreatableTopicConfig(name, value) for name, value in configs],
    )


async def create(test: UnderTest, *topics: CreatableTopic, **fields: Any) -> CreateTopicsResponse:
    version = fields.pop("version", LATEST)
    response: CreateTopicsResponse = await test.ask(
        CreateTopicsRequest(list(topics), **fields), version
    )
    return response


async def create_one(test: UnderTest, topic: CreatableTopic, **fields: Any) -> CreatableTopicResult:
    (result,) = (await create(test, topic, **fields)).topics
    return result


async def test_a_topic_is_there_when_the_answer_comes() -> None:
    async with under_test() as test:
        result = await create_one(test, topic_of("t", 4))
        assert (result.error_code, result.error_message) == (0, None)
        assert (result.num_partitions, result.replication_factor) == (4, 1)
        topic = test.broker.topics.get("t")
        assert topic is not None
        assert result.topic_id == topic.topic_id
        assert len(topic.partitions) == 4


@pytest.mark.parametrize("version", range(LATEST + 1))
async def test_minus_one_means_the_brokers_default_in_every_version(version: int) -> None:
    async with under_test(num_partitions="5") as test:
        result = await create_one(test, topic_of("t", -1, -1), version=version)
        assert (result.error_code, result.num_partitions) == (0, 5)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (topic_of(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (topic_of(partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (topic_of(replicas=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic_of(replicas=-2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic_of(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic_of("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic_of("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic_of("a" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic_of("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (topic_of(configs=[("nope", "1")]), ErrorCode.INVALID_CONFIG),
        (topic_of(configs=[("segment.bytes", "1")]), ErrorCode.INVALID_CONFIG),
        (topic_of(configs=[("segment.bytes", None)]), ErrorCode.INVALID_CONFIG),
        (topic_of(partitions=2, assigned=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (topic_of("t", -1, 1, assigned=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (topic_of("t", -1, -1, assigned=[(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            topic_of("t", -1, -1, assigned=[(0, [1]), (0, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (topic_of("t", -1, -1, assigned=[(0, [2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic_of("t", -1, -1, assigned=[(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic_of("t", -1, -1, assigned=[(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
async def test_what_cannot_be_created_gets_kafkas_error_and_a_reason(
    topic: CreatableTopic, code: ErrorCode, validate_only: bool
) -> None:
    async with under_test() as test:
        result = await create_one(test, topic, validate_only=validate_only)
        assert ErrorCode(result.error_code) is code
        assert result.error_message
        assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, [])
        assert result.topic_id == bytes(16)
        assert len(test.broker.topics) == 0


async def test_a_topic_that_exists_is_refused() -> None:
    async with under_test() as test:
        await test.topic("t")
        result = await create_one(test, topic_of("t"))
        assert ErrorCode(result.error_code) is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_names_that_differ_in_dots_and_underscores_collide() -> None:
    async with under_test() as test:
        response = await create(test, topic_of("a.b"), topic_of("a_b"))
        assert [ErrorCode(topic.error_code) for topic in response.topics] == [
            ErrorCode.NONE,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        assert "a.b" in (response.topics[1].error_message or "")


async def test_validate_only_answers_fully_and_changes_nothing() -> None:
    async with under_test() as test:
        result = await create_one(
            test, topic_of("t", 3, configs=[("segment.ms", "5")]), validate_only=True
        )
        assert (result.error_code, result.num_partitions) == (0, 3)
        assert len(result.configs or ()) == 33
        assert len(test.broker.topics) == 0
        assert test.broker.topics.partition_count == 0


async def test_the_answer_has_the_settings_in_force_and_where_they_come_from() -> None:
    async with under_test(log_roll_ms="7") as test:
        result = await create_one(test, topic_of("t", configs=[("cleanup.policy", "compact")]))
        configs = {config.name: config for config in result.configs or ()}
        assert (configs["cleanup.policy"].value, configs["cleanup.policy"].config_source) == (
            "compact",
            1,
        )
        assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("7", 4)
        assert (configs["retention.bytes"].value, configs["retention.bytes"].config_source) == (
            "-1",
            5,
        )
        assert not configs["cleanup.policy"].read_only


async def test_more_replicas_than_brokers_are_refused() -> None:
    async with under_test() as test:
        result = await create_one(test, topic_of(replicas=3))
        assert ErrorCode(result.error_code) is ErrorCode.INVALID_REPLICATION_FACTOR
        assert "there is one broker" in (result.error_message or "")


async def test_the_cap_makes_one_replica_of_any_number() -> None:
    async with under_test(asyncbroker_replication_factor_cap="true") as test:
        result = await create_one(test, topic_of(replicas=3))
        assert (result.error_code, result.replication_factor) == (0, 1)


async def test_a_manual_assignment_to_this_broker_is_taken() -> None:
    async with under_test() as test:
        result = await create_one(test, topic_of("t", -1, -1, assigned=[(1, [1]), (0, [1])]))
        assert (result.error_code, result.num_partitions) == (0, 2)


async def test_a_name_that_comes_twice_has_one_outcome() -> None:
    async with under_test() as test:
        response = await create(test, topic_of("t"), topic_of("t"), topic_of("u"))
        assert [(topic.name, ErrorCode(topic.error_code)) for topic in response.topics] == [
            ("t", ErrorCode.INVALID_REQUEST),
            ("u", ErrorCode.NONE),
        ]


async def test_one_refused_topic_does_not_fail_the_others() -> None:
    async with under_test() as test:
        response = await create(test, topic_of("good"), topic_of("bad name"))
        assert [topic.error_code == 0 for topic in response.topics] == [True, False]
        assert test.broker.topics.get("good") is not None


async def test_of_two_creations_at_the_same_time_one_is_told_that_the_topic_exists() -> None:
    async with under_test() as test:
        results = await asyncio.gather(*(create_one(test, topic_of("t")) for _ in range(10)))
        codes = sorted(ErrorCode(result.error_code) for result in results)
        assert codes == [ErrorCode.NONE] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 9


async def test_the_number_of_partitions_is_limited() -> None:
    async with under_test(asyncbroker_max_partitions="5") as test:
        response = await create(test, topic_of("a", 3), topic_of("b", 3), topic_of("c", 2))
        assert [ErrorCode(topic.error_code) for topic in response.topics] == [
            ErrorCode.NONE,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.NONE,
        ]
        await test.broker.topics.delete(test.broker.topics.get("a"))  # type: ignore[arg-type]
        assert (await create_one(test, topic_of("b", 3))).error_code == 0


async def test_an_empty_request_has_an_empty_answer() -> None:
    async with under_test() as test:
        assert (await create(test)).topics == []
