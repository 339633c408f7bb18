"""Consumer groups: list, describe, delete; read and set their committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.connection import Connection, Deadline
from asyncbroker.client.errors import BrokerError
from asyncbroker.client.partitions import by_topic
from asyncbroker.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
    encode_assignment,
    encode_subscription,
)
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerMember,
)
from asyncbroker.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from asyncbroker.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from asyncbroker.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from asyncbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from asyncbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from asyncbroker.protocol.schema import ZERO_UUID

DEAD: str = "Dead"
"""What DescribeGroups calls the state of a group that does not exist."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """Where a group goes on reading."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def list_groups(cluster: Cluster, *, states: Sequence[str] = ()) -> list[ListedGroup]:
    """The groups of all brokers, by id; with `states` (Kafka 2.6 and later) only those in one."""

    def look(deadline: Deadline) -> list[ListedGroup]:
        groups: dict[str, ListedGroup] = {}
        for node_id in cluster.node_ids(deadline):
            connection = cluster.connection(node_id, deadline)
            request = ListGroupsRequest(states_filter=list(states))
            response = connection.request(request, ListGroupsResponse, deadline)
            _check(response.error_code, "ListGroups", "", connection)
            groups.update((group.group_id, group) for group in response.groups)
        return [groups[group_id] for group_id in sorted(groups)]

    return cluster.retrying(look)


def describe_group(cluster: Cluster, group_id: str) -> DescribedGroup:
    """A group's state and members; the state is `DEAD` when there is no such group. A group of the
    consumer protocol (KIP-848) is shown in the same form."""

    def describe(connection: Connection, deadline: Deadline) -> DescribedGroup:
        request = DescribeGroupsRequest([group_id])
        group = connection.request(request, DescribeGroupsResponse, deadline).groups[0]
        # From version 6 on the absence of a group is an error, beside the state that says so.
        if group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            _check(group.error_code, "DescribeGroups", _subject(group_id), connection)
        if group.group_state == DEAD and connection.supports(ConsumerGroupDescribeRequest):
            return _consumer_group(connection, group, deadline)
        return group

    return at_coordinator(cluster, group_id, describe)


def _consumer_group(
    connection: Connection, unknown: DescribedGroup, deadline: Deadline
) -> DescribedGroup:
    """The group as one of the consumer protocol; `unknown` when it is none of these either."""
    request = ConsumerGroupDescribeRequest([unknown.group_id])
    (group,) = connection.request(request, ConsumerGroupDescribeResponse, deadline).groups
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return unknown
    _check(group.error_code, "ConsumerGroupDescribe", _subject(group.group_id), connection)
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.group_state,
        protocol_type=PROTOCOL_TYPE,
        protocol_data=group.assignor_name,
        members=[_as_classic(member) for member in group.members],
    )


def _as_classic(member: DescribedConsumerMember) -> DescribedGroupMember:
    subscription = ConsumerProtocolSubscription(topics=member.subscribed_topic_names)
    assignment = ConsumerProtocolAssignment(
        [
            ConsumerProtocolTopicPartition(topic.topic_name, topic.partitions)
            for topic in member.assignment.topic_partitions
        ]
    )
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=encode_subscription(subscription),
        member_assignment=encode_assignment(assignment),
    )


def delete_group(cluster: Cluster, group_id: str) -> None:
    """Deletes a group without members, with its offsets. Raises `BrokerError`."""

    def delete(connection: Connection, deadline: Deadline) -> None:
        request = DeleteGroupsRequest([group_id])
        row = connection.request(request, DeleteGroupsResponse, deadline).results[0]
        _check(row.error_code, "DeleteGroups", _subject(group_id), connection)

    at_coordinator(cluster, group_id, delete)


def committed_offsets(
    cluster: Cluster,
    group_id: str,
    partitions: Collection[TopicPartition] | None = None,
) -> dict[TopicPartition, CommittedOffset]:
    """The offsets that a group has committed: for some partitions, or (None) for all it has.
    Partitions without one are left out."""

    def fetch(connection: Connection, deadline: Deadline) -> dict[TopicPartition, CommittedOffset]:
        version = connection.version_of(OffsetFetchRequest)
        request = _offset_fetch_request(group_id, partitions, version)
        response = connection.request(request, OffsetFetchResponse, deadline)
        # From version 8 on there is one row for each group; before, the response is the row.
        group = response.groups[0] if response.groups else response
        _check(group.error_code, "OffsetFetch", _subject(group_id), connection)
        offsets = {}
        for topic in group.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                _check(row.error_code, "OffsetFetch", str(partition), connection)
                if row.committed_offset >= 0:
                    offsets[partition] = CommittedOffset(
                        row.committed_offset, row.committed_leader_epoch, row.metadata or ""
                    )
        return offsets

    return at_coordinator(cluster, group_id, fetch)


def commit_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> None:
    """Commits offsets for a group that has no members, creating the group if need be."""

    def commit(connection: Connection, deadline: Deadline) -> None:
        request = OffsetCommitRequest(group_id)
        ids = _topic_ids(cluster, connection, {each.topic for each in offsets}, deadline)
        version = connection.version_of(OffsetCommitRequest, with_topic_ids=bool(ids))
        for topic, indexes in by_topic(offsets):
            rows = []
            for index in indexes:
                committed = offsets[TopicPartition(topic, index)]
                rows.append(
                    OffsetCommitRequestPartition(
                        index, committed.offset, committed.leader_epoch, committed.metadata
                    )
                )
            request.topics.append(
                OffsetCommitRequestTopic(topic, ids.get(topic, ZERO_UUID), partitions=rows)
            )
        connection.send(request, deadline, version=version)
        response = connection.receive(OffsetCommitResponse, deadline)
        names = {topic_id: topic for topic, topic_id in ids.items()}
        for answered in response.topics:
            name = answered.name or names.get(answered.topic_id, "")
            for row in answered.partitions:
                partition = TopicPartition(name, row.partition_index)
                subject = f"{_subject(group_id)}, {partition}"
                _check(row.error_code, "OffsetCommit", subject, connection)

    at_coordinator(cluster, group_id, commit)


def _topic_ids(
    cluster: Cluster, connection: Connection, topics: Collection[str], deadline: Deadline
) -> dict[str, bytes]:
    """The ids by which topics go in an OffsetCommit to this coordinator. None if they go by their
    names: where it knows no such version, or the topics have no ids or are not there, which it then
    says itself."""
    newest = connection.version_of(OffsetCommitRequest, with_topic_ids=True)
    if newest == connection.version_of(OffsetCommitRequest):
        return {}
    try:
        ids = {topic: cluster.topic_id(topic, deadline) for topic in topics}
    except BrokerError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return {}
    return {} if ZERO_UUID in ids.values() else ids


def at_coordinator(
    cluster: Cluster, group_id: str, ask: Callable[[Connection, Deadline], Result]
) -> Result:
    """The result of `ask` with the connection to the group's coordinator, found anew as needed."""

    def attempt(deadline: Deadline) -> Result:
        node_id = cluster.coordinator(group_id, deadline)
        return ask(cluster.connection(node_id, deadline), deadline)

    return cluster.retrying(attempt)


def _offset_fetch_request(
    group_id: str, partitions: Iterable[TopicPartition] | None, version: int
) -> OffsetFetchRequest:
    topics = None if partitions is None else by_topic(partitions)
    if version < 8:
        request = OffsetFetchRequest(group_id, topics=None)
        if topics is not None:
            request.topics = [OffsetFetchRequestTopic(*topic) for topic in topics]
        return request
    group = OffsetFetchRequestGroup(group_id, topics=None)
    if topics is not None:
        group.topics = [
            OffsetFetchRequestTopics(name, partition_indexes=indexes) for name, indexes in topics
        ]
    return OffsetFetchRequest(groups=[group])


def _subject(group_id: str) -> str:
    return f"group {group_id!r}"


def _check(code: int, api: str, subject: str, connection: Connection) -> None:
    if code != ErrorCode.NONE:
        raise BrokerError(code, api=api, subject=subject, broker=str(connection.address))
