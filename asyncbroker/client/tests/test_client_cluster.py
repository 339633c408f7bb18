"""Finding brokers, leaders and coordinators, and trying again."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import pytest

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.connection import Address, Deadline
from asyncbroker.client.errors import (
    BrokerError,
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
)
from asyncbroker.client.groups import CommittedOffset, committed_offsets, describe_group
from asyncbroker.client.partitions import LATEST, latest_offsets, list_offsets, produce
from asyncbroker.client.tests.scripted_broker import (
    CLOSE,
    SILENCE,
    ScriptedBroker,
    coordinated_by,
    metadata_of,
)
from asyncbroker.client.topics import create_topic, delete_topic
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from asyncbroker.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from asyncbroker.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from asyncbroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from asyncbroker.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from asyncbroker.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

FLIGHTS = TopicPartition("flights", 0)


def offsets_of(*codes: int) -> list[Any]:
    """Answers ListOffsets: each request with the next code, for all its partitions; offset 42."""

    def answer(code: int, request: Any) -> ListOffsetsResponse:
        topics = [
            ListOffsetsTopicResponse(
                topic.name,
                [
                    ListOffsetsPartitionResponse(row.partition_index, code, offset=42)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    return [lambda request, version, code=code: answer(code, request) for code in codes]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; all are held at once, so that no two are the same."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


def test_the_second_bootstrap_server_does_when_the_first_is_down(broker: ScriptedBroker) -> None:
    broker.answers["Metadata"] = metadata_of([broker], {"flights": [1]})
    (port,) = free_ports(1)
    with Cluster(f"127.0.0.1:{port},{broker.address}", timeout_ms=5000) as cluster:
        assert [topic.name for topic in cluster.topics()] == ["flights"]


def test_with_nobody_there_every_address_is_named_at_once() -> None:
    ports = free_ports(2)
    cluster = Cluster([f"127.0.0.1:{port}" for port in ports], timeout_ms=60_000)
    with pytest.raises(BrokerUnreachable, match=f":{ports[0]}: .*; .*:{ports[1]}: "):
        cluster.topics()


def test_a_broker_that_is_away_is_waited_for(broker: ScriptedBroker) -> None:
    refusals = iter([ConnectionRefusedError, ConnectionRefusedError])

    def connect(address: Address, timeout_s: float) -> socket.socket:
        for refusal in refusals:
            raise refusal
        return socket.create_connection((address.host, address.port), timeout_s)

    broker.answers["Metadata"] = metadata_of([broker], {"flights": [1]})
    with Cluster(broker.address, connect=connect, retry_backoff_ms=0) as cluster:
        cluster.wait_for_broker(cluster.deadline())
        assert next(refusals, None) is None
        assert [topic.name for topic in cluster.topics()] == ["flights"]


def test_a_broker_that_stays_away_is_waited_for_until_the_deadline() -> None:
    (port,) = free_ports(1)
    with Cluster(f"127.0.0.1:{port}", retry_backoff_ms=1) as cluster:
        deadline = Deadline(0.05)
        with pytest.raises(BrokerUnreachable, match=f":{port}: "):
            cluster.wait_for_broker(deadline)
        assert deadline.has_passed


def test_no_bootstrap_server_is_an_error() -> None:
    with pytest.raises(ClientError, match="no bootstrap server"):
        Cluster(" , ")


def test_an_advertised_address_that_cannot_be_reached_is_explained(
    broker: ScriptedBroker, second_broker: ScriptedBroker
) -> None:
    broker.answers["Metadata"] = metadata_of([broker, second_broker], {"flights": [2]})
    port = second_broker.port
    second_broker.close()
    with (
        Cluster(broker.address, connect_timeout_ms=300, retry_backoff_ms=0) as cluster,
        pytest.raises(BrokerUnreachable, match=rf":{port}: .*advertises this address for broker 2"),
    ):
        latest_offsets(cluster, [FLIGHTS])


def test_all_topics_are_asked_for_by_an_empty_list_in_version_0(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.limit("Metadata", "0")
    broker.answers["Metadata"] = lambda request, version: metadata_of([broker], {"flights": [1]})(
        type(request)(topics=None), version
    )
    assert [topic.name for topic in cluster.topics()] == ["flights"]
    assert broker.requests_of("Metadata")[0].topics == []


def test_an_unknown_topic_is_told_at_once(broker: ScriptedBroker, cluster: Cluster) -> None:
    broker.answers["Metadata"] = metadata_of([broker], {})
    with pytest.raises(BrokerError, match="topic 'flights' failed: UNKNOWN_TOPIC_OR_PARTITION"):
        cluster.partitions_of("flights")
    assert len(broker.requests_of("Metadata")) == 1
    assert not broker.requests_of("Metadata")[0].allow_auto_topic_creation


def test_an_unknown_partition_is_told_at_once(broker: ScriptedBroker, cluster: Cluster) -> None:
    broker.answers["Metadata"] = metadata_of([broker], {"flights": [1]})
    with pytest.raises(BrokerError, match=r"flights-7 failed: .* the topic has no such partition"):
        latest_offsets(cluster, [TopicPartition("flights", 7)])


def test_each_leader_is_asked_once_for_all_its_partitions(
    broker: ScriptedBroker, second_broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.answers["Metadata"] = metadata_of([broker, second_broker], {"flights": [1, 2, 1]})
    for either in (broker, second_broker):
        either.answers["ListOffsets"] = offsets_of(0)
    partitions = cluster.partitions_of("flights")
    assert latest_offsets(cluster, partitions) == dict.fromkeys(partitions, 42)
    asked = [
        [row.partition_index for row in either.requests_of("ListOffsets")[0].topics[0].partitions]
        for either in (broker, second_broker)
    ]
    assert asked == [[0, 2], [1]]


def test_a_leader_that_has_moved_is_found_with_fresh_metadata(
    broker: ScriptedBroker, second_broker: ScriptedBroker, cluster: Cluster
) -> None:
    both = [broker, second_broker]
    broker.answers["Metadata"] = [
        metadata_of(both, {"flights": [1]}),
        metadata_of(both, {"flights": [2]}),
    ]
    broker.answers["ListOffsets"] = offsets_of(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    second_broker.answers["ListOffsets"] = offsets_of(0)
    assert latest_offsets(cluster, [FLIGHTS]) == {FLIGHTS: 42}


def test_only_partitions_that_failed_are_asked_for_again(
    broker: ScriptedBroker, second_broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.answers["Metadata"] = metadata_of([broker, second_broker], {"flights": [1, 2]})
    broker.answers["ListOffsets"] = offsets_of(0)
    second_broker.answers["ListOffsets"] = offsets_of(ErrorCode.LEADER_NOT_AVAILABLE, 0)
    latest_offsets(cluster, [FLIGHTS, TopicPartition("flights", 1)])
    assert len(broker.requests_of("ListOffsets")) == 1
    assert len(second_broker.requests_of("ListOffsets")) == 2


def test_an_error_for_good_names_api_partition_and_broker(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.answers["Metadata"] = metadata_of([broker], {"flights": [1]})
    broker.answers["ListOffsets"] = offsets_of(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(
        BrokerError,
        match=rf"ListOffsets for flights-0 failed at broker 127\.0\.0\.1:{broker.port}: "
        "TOPIC_AUTHORIZATION_FAILED",
    ):
        latest_offsets(cluster, [FLIGHTS])
    assert len(broker.requests_of("ListOffsets")) == 1


def test_a_code_that_is_newer_than_this_client_is_an_unknown_server_error(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.answers["Metadata"] = metadata_of([broker], {"flights": [1]})
    broker.answers["ListOffsets"] = offsets_of(9999)
    with pytest.raises(BrokerError) as caught:
        latest_offsets(cluster, [FLIGHTS])
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_lost_connection_is_made_again(broker: ScriptedBroker, cluster: Cluster) -> None:
    broker.answers["Metadata"] = metadata_of([broker], {"flights": [1]})
    broker.answers["ListOffsets"] = [CLOSE, *offsets_of(0)]
    assert latest_offsets(cluster, [FLIGHTS]) == {FLIGHTS: 42}
    assert broker.connection_count == 2


def test_errors_that_do_not_pass_in_time_are_raised(broker: ScriptedBroker) -> None:
    broker.answers["Metadata"] = metadata_of([broker], {"flights": [1]})
    broker.answers["ListOffsets"] = offsets_of(ErrorCode.KAFKA_STORAGE_ERROR)
    with (
        Cluster(broker.address, timeout_ms=300, retry_backoff_ms=1) as cluster,
        pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR"),
    ):
        latest_offsets(cluster, [FLIGHTS])


def test_lost_connections_that_do_not_heal_in_time_are_raised(broker: ScriptedBroker) -> None:
    broker.answers["Metadata"] = metadata_of([broker], {"flights": [1]})
    broker.answers["ListOffsets"] = CLOSE
    with (
        Cluster(broker.address, timeout_ms=300, retry_backoff_ms=1) as cluster,
        pytest.raises(ConnectionLost),
    ):
        latest_offsets(cluster, [FLIGHTS])


def test_after_an_interruption_the_old_answer_is_not_taken_for_the_new(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.answers["Metadata"] = metadata_of([broker], {"flights": [1]})
    broker.answers["ListOffsets"] = [SILENCE, *offsets_of(0)]
    cluster.partitions_of("flights")
    deadline = Deadline(5)
    connection = cluster.connection(1, deadline)
    # As ctrl-C leaves it, between a request and its response.
    connection.send(ListOffsetsRequest(), deadline)
    broker.await_request("ListOffsets")
    assert latest_offsets(cluster, [FLIGHTS]) == {FLIGHTS: 42}
    assert broker.connection_count == 2


def test_old_brokers_are_not_asked_with_fields_they_lack(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.limit("Metadata", "0-1")
    broker.limit("ListOffsets", "1")
    broker.answers["Metadata"] = metadata_of([broker], {"flights": [1]})
    broker.answers["ListOffsets"] = offsets_of(0)
    found = list_offsets(cluster, {FLIGHTS: LATEST}, isolation_level=1)
    assert found[FLIGHTS].offset == 42
    assert broker.requests_of("ListOffsets")[0].replica_id == -1


def test_a_produce_without_acks_waits_for_nothing(broker: ScriptedBroker, cluster: Cluster) -> None:
    broker.answers["Metadata"] = metadata_of([broker], {"flights": [1]})
    broker.answers["Produce"] = SILENCE
    assert produce(cluster, {FLIGHTS: b"a batch"}, acks=0) == {}
    # The connection is in order: it answers the next request.
    assert cluster.topics()[0].name == "flights"
    assert broker.connection_count == 1
    assert bytes(broker.requests_of("Produce")[0].topic_data[0].partition_data[0].records) == (
        b"a batch"
    )


def test_creating_a_topic_follows_the_controller_and_waits_for_leaders(
    broker: ScriptedBroker, second_broker: ScriptedBroker, cluster: Cluster
) -> None:
    both = [broker, second_broker]
    broker.answers["Metadata"] = [
        metadata_of(both, {}),
        metadata_of(both[::-1], {}),
        metadata_of(both, {}),
        metadata_of(both, {"flights": [-1]}),
        metadata_of(both, {"flights": [1]}),
    ]
    for either, code in ((broker, ErrorCode.NOT_CONTROLLER), (second_broker, ErrorCode.NONE)):
        result = CreatableTopicResult(name="flights", error_code=code)
        either.answers["CreateTopics"] = CreateTopicsResponse(topics=[result])
    create_topic(cluster, "flights", partitions=1)
    assert len(broker.requests_of("Metadata")) == 5
    assert cluster.partitions_of("flights") == [FLIGHTS]


def test_defaults_are_spelled_out_to_a_broker_that_has_none(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.limit("CreateTopics", "0-3")
    broker.answers["Metadata"] = metadata_of([broker], {"flights": [1]})
    broker.answers["CreateTopics"] = CreateTopicsResponse(
        topics=[CreatableTopicResult(name="flights")]
    )
    create_topic(cluster, "flights", configs={"retention.ms": "1"})
    request: CreateTopicsRequest = broker.requests_of("CreateTopics")[0]
    assert (request.topics[0].num_partitions, request.topics[0].replication_factor) == (1, 1)
    assert request.topics[0].configs[0].value == "1"


@pytest.mark.parametrize("versions", ["0-5", "6"])
def test_topics_are_deleted_by_name_in_every_version(
    broker: ScriptedBroker, cluster: Cluster, versions: str
) -> None:
    broker.limit("DeleteTopics", versions)
    broker.answers["Metadata"] = metadata_of([broker], {})
    broker.answers["DeleteTopics"] = DeleteTopicsResponse(responses=[DeletableTopicResult("old")])
    delete_topic(cluster, "old")
    request = broker.requests_of("DeleteTopics")[0]
    assert "old" in request.topic_names or request.topics[0].name == "old"


def test_a_coordinator_that_has_moved_is_looked_up_again(
    broker: ScriptedBroker, second_broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.answers["FindCoordinator"] = [coordinated_by(broker), coordinated_by(second_broker)]
    for either, code in ((broker, ErrorCode.NOT_COORDINATOR), (second_broker, ErrorCode.NONE)):
        either.answers["DescribeGroups"] = DescribeGroupsResponse(
            groups=[DescribedGroup(code, None, "counters", "Empty")]
        )
    assert describe_group(cluster, "counters").group_state == "Empty"


@pytest.mark.parametrize("version", [3, 4])
def test_a_coordinator_that_is_not_there_yet_is_waited_for(
    broker: ScriptedBroker, cluster: Cluster, version: int
) -> None:
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if version == 3:
        absent = FindCoordinatorResponse(error_code=code, node_id=-1, port=-1)
    else:
        absent = FindCoordinatorResponse(coordinators=[Coordinator("g", -1, "", -1, code)])
    broker.limit("FindCoordinator", f"0-{version}")
    broker.answers["FindCoordinator"] = [absent, coordinated_by(broker)]
    broker.answers["DescribeGroups"] = DescribeGroupsResponse(groups=[DescribedGroup(group_id="g")])
    assert describe_group(cluster, "g").group_id == "g"


@pytest.mark.parametrize("version", [1, 7, 8, 9])
def test_committed_offsets_are_read_in_every_shape(
    broker: ScriptedBroker, cluster: Cluster, version: int
) -> None:
    broker.limit("OffsetFetch", f"1-{version}")
    broker.answers["FindCoordinator"] = coordinated_by(broker)
    if version < 8:
        rows = [
            OffsetFetchResponsePartition(0, 5, metadata="here"),
            OffsetFetchResponsePartition(1, -1),
        ]
        response = OffsetFetchResponse(topics=[OffsetFetchResponseTopic("flights", rows)])
    else:
        both = [
            OffsetFetchResponsePartitions(0, 5, metadata="here"),
            OffsetFetchResponsePartitions(1, -1),
        ]
        topics = [OffsetFetchResponseTopics("flights", partitions=both)]
        response = OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", topics)])
    broker.answers["OffsetFetch"] = response
    partitions = [FLIGHTS, TopicPartition("flights", 1)]
    assert committed_offsets(cluster, "g", partitions) == {
        FLIGHTS: CommittedOffset(5, metadata="here")
    }
    request = broker.requests_of("OffsetFetch")[0]
    topics_asked = request.topics if version < 8 else request.groups[0].topics
    assert topics_asked[0].partition_indexes == [0, 1]
