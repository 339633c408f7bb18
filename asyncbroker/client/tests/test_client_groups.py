"""Committing offsets: topics go by their ids (KIP-848) where both sides can."""

from __future__ import annotations

from typing import Any

import pytest

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.errors import BrokerError
from asyncbroker.client.groups import CommittedOffset, commit_offsets
from asyncbroker.client.tests.scripted_broker import (
    TOPIC_ID,
    ScriptedBroker,
    coordinated_by,
    metadata_of,
)
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from asyncbroker.protocol.schema import ZERO_UUID

OFFSETS = {TopicPartition("flights", 1): CommittedOffset(42)}


@pytest.fixture
def coordinator(broker: ScriptedBroker) -> ScriptedBroker:
    """One that coordinates all groups, and has a topic of two partitions."""
    broker.answers["Metadata"] = metadata_of([broker], {"flights": [1, 1]})
    broker.answers["FindCoordinator"] = coordinated_by(broker)
    broker.answers["OffsetCommit"] = commits(ErrorCode.NONE)
    return broker


def commits(*codes: ErrorCode) -> list[Any]:
    """Answers OffsetCommit: each request with the next code, for all its partitions."""

    def answer(code: ErrorCode, request: Any) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    topic.name,
                    topic.topic_id,
                    [
                        OffsetCommitResponsePartition(row.partition_index, code)
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return [lambda request, _version, code=code: answer(code, request) for code in codes]


def commit(broker: ScriptedBroker) -> tuple[int, str, bytes]:
    """Commits; the version in which that was asked last, and the name and id of the topic."""
    with Cluster(broker.address, timeout_ms=5000, retry_backoff_ms=0) as cluster:
        commit_offsets(cluster, "g", OFFSETS)
    (topic,) = broker.requests_of("OffsetCommit")[-1].topics
    rows = [(row.partition_index, row.committed_offset) for row in topic.partitions]
    assert rows == [(1, 42)]
    return broker.versions_of("OffsetCommit")[-1], topic.name, topic.topic_id


def test_topics_go_by_their_ids(coordinator: ScriptedBroker) -> None:
    assert commit(coordinator) == (10, "", TOPIC_ID)


def test_topics_go_by_their_names_to_a_coordinator_that_knows_no_more(
    coordinator: ScriptedBroker,
) -> None:
    coordinator.limit("OffsetCommit", "2-9")
    assert commit(coordinator) == (9, "flights", ZERO_UUID)
    coordinator.limit("OffsetCommit", "2-3")
    assert commit(coordinator) == (3, "flights", ZERO_UUID)


def test_topics_without_ids_go_by_their_names(coordinator: ScriptedBroker) -> None:
    coordinator.answers["Metadata"] = metadata_of([coordinator], {"flights": [1, 1]}, ZERO_UUID)
    assert commit(coordinator) == (9, "flights", ZERO_UUID)


def test_a_topic_that_is_not_there_is_named_and_the_coordinator_says_so(
    coordinator: ScriptedBroker,
) -> None:
    coordinator.answers["Metadata"] = metadata_of([coordinator], {})
    coordinator.answers["OffsetCommit"] = commits(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerError, match="'g', flights-1") as caught:
        commit(coordinator)
    assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert coordinator.versions_of("OffsetCommit") == [9]


def test_an_error_has_the_name_of_a_topic_that_went_by_its_id(coordinator: ScriptedBroker) -> None:
    coordinator.answers["OffsetCommit"] = commits(ErrorCode.OFFSET_METADATA_TOO_LARGE)
    with pytest.raises(BrokerError, match="'g', flights-1"):
        commit(coordinator)


def test_offsets_of_a_topic_are_not_committed_to_another_of_its_name(
    coordinator: ScriptedBroker,
) -> None:
    coordinator.answers["OffsetCommit"] = commits(ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE)
    with pytest.raises(BrokerError) as caught:
        commit(coordinator)
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_ID
    assert coordinator.versions_of("OffsetCommit") == [10]
