"""The Metadata handler: which topics it tells of and creates, and what it says of the cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from asyncbroker.context import Address, RequestContext
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from asyncbroker.tests.data_path_harness import settle, under_test

LATEST = 13
NOT_ASKED = -2147483648


def asking_for(*names: str | None, **fields: Any) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=name) for name in names], **fields)


def asking_for_ids(*ids: bytes) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(topic_id=id, name=None) for id in ids])


def names_in(response: MetadataResponse) -> list[str | None]:
    return [topic.name for topic in response.topics]


def errors_in(response: MetadataResponse) -> list[ErrorCode]:
    return [ErrorCode(topic.error_code) for topic in response.topics]


async def test_in_v0_an_empty_list_means_all_topics() -> None:
    async with under_test() as test:
        await test.topic("a")
        assert names_in(await test.ask(MetadataRequest([]), 0)) == ["a"]


async def test_from_v1_on_null_means_all_and_empty_means_none() -> None:
    async with under_test() as test:
        await test.topic("a")
        await test.topic("b")
        assert names_in(await test.ask(MetadataRequest(None), 1)) == ["a", "b"]
        assert names_in(await test.ask(MetadataRequest([]), 1)) == []


async def test_an_unknown_topic_is_created_and_answered_at_once() -> None:
    async with under_test(num_partitions="3") as test:
        response = await test.ask(asking_for("new"), LATEST)
        (topic,) = response.topics
        assert topic.error_code == 0
        assert [partition.partition_index for partition in topic.partitions] == [0, 1, 2]
        assert topic.topic_id == test.broker.topics.get("new").topic_id  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [({}, False), ({"auto_create_topics_enable": "false"}, True)],
    ids=["the client forbids it", "the broker forbids it"],
)
async def test_no_topic_is_created_unless_both_sides_allow_it(
    settings: dict[str, Any], allowed: bool
) -> None:
    async with under_test(**settings) as test:
        request = asking_for("new", allow_auto_topic_creation=allowed)
        response = await test.ask(request, LATEST)
        assert errors_in(response) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert len(test.broker.topics) == 0


async def test_asking_for_all_topics_creates_none() -> None:
    async with under_test() as test:
        assert names_in(await test.ask(MetadataRequest(None), LATEST)) == []


async def test_a_storm_of_automatic_creations_gives_one_topic() -> None:
    async with under_test() as test:
        answers = await asyncio.gather(*(test.ask(asking_for("new"), LATEST) for _ in range(50)))
        assert len({answer.topics[0].topic_id for answer in answers}) == 1
        assert len(test.broker.topics) == 1


async def test_offsets_asked_for_by_name_are_created_as_groups_need_them() -> None:
    async with under_test(offsets_topic_num_partitions="4", num_partitions="2") as test:
        response = await test.ask(asking_for("__consumer_offsets"), LATEST)
        assert len(response.topics[0].partitions) == 4
        topic = test.broker.topics.get("__consumer_offsets")
        assert topic is not None
        assert topic.config.overrides["cleanup.policy"] == "compact"


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "é", "a" * 250, "a/b"])
@pytest.mark.parametrize("allowed", [True, False])
async def test_a_name_that_no_topic_can_have_is_invalid(name: str, allowed: bool) -> None:
    async with under_test() as test:
        request = asking_for(name, allow_auto_topic_creation=allowed)
        response = await test.ask(request, LATEST)
        assert errors_in(response) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert len(test.broker.topics) == 0


async def test_one_bad_name_does_not_fail_the_others() -> None:
    async with under_test() as test:
        await test.topic("old")
        response = await test.ask(asking_for("bad name", "old", "new"), LATEST)
        assert names_in(response) == ["bad name", "old", "new"]
        assert errors_in(response) == [
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.NONE,
            ErrorCode.NONE,
        ]


async def test_a_name_that_collides_with_a_topic_is_not_created() -> None:
    async with under_test() as test:
        await test.topic("a.b")
        response = await test.ask(asking_for("a_b"), LATEST)
        assert errors_in(response) == [ErrorCode.INVALID_TOPIC_EXCEPTION]


@pytest.mark.parametrize("version", [10, 11])
async def test_ids_are_an_invalid_request_before_v12(version: int) -> None:
    async with under_test() as test:
        topic = await test.topic("a")
        with pytest.raises(KafkaError) as caught:
            await test.ask(asking_for_ids(topic.topic_id), version)
        assert caught.value.code is ErrorCode.INVALID_REQUEST


async def test_a_topic_without_name_and_id_is_an_invalid_request() -> None:
    async with under_test() as test:
        with pytest.raises(KafkaError) as caught:
            await test.ask(asking_for(None), LATEST)
        assert caught.value.code is ErrorCode.INVALID_REQUEST


async def test_topics_are_found_by_id_and_unknown_ids_have_no_name() -> None:
    async with under_test() as test:
        topic = await test.topic("a")
        unknown = b"x" * 16
        response = await test.ask(asking_for_ids(topic.topic_id, unknown), LATEST)
        assert names_in(response) == ["a", None]
        assert errors_in(response) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]
        assert response.topics[1].topic_id == unknown


async def test_a_topic_asked_for_twice_is_answered_once() -> None:
    async with under_test() as test:
        topic = await test.topic("a")
        assert names_in(await test.ask(asking_for("a", "a", "b", "b"), LATEST)) == ["a", "b"]
        ids = asking_for_ids(topic.topic_id, topic.topic_id)
        assert names_in(await test.ask(ids, LATEST)) == ["a"]


async def test_the_cluster_and_its_only_broker_are_told() -> None:
    async with under_test(broker_rack="r1", node_id="5") as test:
        await test.topic("a", partitions=2)
        response = await test.ask(MetadataRequest(None), LATEST)
        assert len(response.cluster_id) == 22
        assert response.controller_id == 5
        (broker,) = response.brokers
        assert (broker.node_id, broker.rack) == (5, "r1")
        for partition in response.topics[0].partitions:
            assert partition.leader_id == 5
            assert partition.replica_nodes == partition.isr_nodes == [5]
            assert partition.offline_replicas == []


async def test_internal_topics_are_marked() -> None:
    async with under_test() as test:
        response = await test.ask(asking_for("__consumer_offsets", "mine"), LATEST)
        assert [topic.is_internal for topic in response.topics] == [True, False]


async def test_the_address_is_that_of_the_listener_that_was_used() -> None:
    async with under_test() as test:
        context = RequestContext(listener=Address("broker.example", 19092))
        response = await test.ask(MetadataRequest([]), LATEST, context)
        assert (response.brokers[0].host, response.brokers[0].port) == ("broker.example", 19092)


async def test_operations_are_told_when_asked_for() -> None:
    async with under_test() as test:
        await test.topic("a")
        silent = await test.ask(asking_for("a"), 10)
        assert silent.cluster_authorized_operations == NOT_ASKED
        assert silent.topics[0].topic_authorized_operations == NOT_ASKED
        request = asking_for(
            "a",
            "bad name",
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        told = await test.ask(request, 10)
        # The numbers that Apache Kafka 4.3 answers without an authorizer.
        assert told.cluster_authorized_operations == 8096
        assert told.topics[0].topic_authorized_operations == 3576
        assert told.topics[1].topic_authorized_operations == NOT_ASKED


async def test_a_topic_created_anew_has_another_id() -> None:
    async with under_test() as test:
        old = await test.topic("a")
        await test.broker.topics.delete(old)
        response = await test.ask(asking_for("a"), LATEST)
        assert response.topics[0].topic_id not in (old.topic_id, bytes(16))


async def test_there_is_always_a_broker_with_a_valid_id() -> None:
    async with under_test() as test:
        for version in range(LATEST + 1):
            response = await test.ask(MetadataRequest([]), version)
            assert [broker.node_id for broker in response.brokers] == [1]


async def test_an_answer_that_needs_no_creation_needs_no_wait() -> None:
    async with under_test() as test:
        await test.topic("a")
        assert isinstance(test.begin(asking_for("a", "bad name"), LATEST), MetadataResponse)
        assert isinstance(test.begin(MetadataRequest(None), LATEST), MetadataResponse)


async def test_a_creation_goes_on_when_the_client_that_asked_is_gone() -> None:
    async with under_test() as test:
        waiting = test.begin(asking_for("new"), LATEST)
        await asyncio.sleep(0)
        waiting.cancel()
        await settle()
        assert test.broker.topics.get("new") is not None
