"""OffsetCommit, OffsetFetch and OffsetDelete: who may store or delete offsets when, and what comes
back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from asyncbroker.coordinator.consumer.group import ConsumerGroup
from asyncbroker.coordinator.effects import Caller, Record
from asyncbroker.coordinator.group import Group, GroupState
from asyncbroker.coordinator.offsets import CommittedOffset, Offsets
from asyncbroker.coordinator.records import (
    NO_EXPIRY,
    OffsetCommitValue,
    offset_commit_record,
    offset_tombstone,
)
from asyncbroker.coordinator.turn import Turn
from asyncbroker.protocol.consumer_protocol import PROTOCOL_TYPE as CONSUMER_PROTOCOL_TYPE
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from asyncbroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from asyncbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

PartitionExists = Callable[[str, int], bool]

NO_OFFSET: Final = -1
DEFAULT_RETENTION: Final = -1
INT64_MAX: Final = 2**63 - 1
GROUP_ID_NOT_FOUND_FROM: Final = 9

# What OffsetFetch answers for a partition that the group never committed. Many clients need the
# entry to be there, and its metadata not to be null.
NEVER_COMMITTED: Final = CommittedOffset(NO_OFFSET, -1, "", 0, None, 0)


def check_commit(group: Group | None, request: OffsetCommitRequest, caller: Caller) -> None:
    """Raises KafkaError unless the sender may commit for the group now.

    Without a generation the commit is "standalone": from a consumer that assigns itself, or from an
    administrator. That is allowed while the group has no members, and creates it if need be.
    """
    generation_id = request.generation_id_or_member_epoch
    if group is None:
        if generation_id < 0:
            return
        if caller.api_version >= GROUP_ID_NOT_FOUND_FROM:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if generation_id < 0 and group.state is GroupState.EMPTY:
        return
    group.check_member(request.member_id, request.group_instance_id)
    if generation_id != group.generation_id:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The member knows the new generation already, so it has nothing of its own to commit.
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def commit(
    group_error: ErrorCode,
    request: OffsetCommitRequest,
    exists: PartitionExists,
    offsets: Offsets,
    turn: Turn,
) -> OffsetCommitResponse:
    """Stores what can be stored; each partition has its own outcome."""
    expire_timestamp = NO_EXPIRY
    if request.retention_time_ms != DEFAULT_RETENTION:
        # Which may be "for ever"; the record that keeps it has 64 bits.
        expire_timestamp = min(turn.now.wall_ms + request.retention_time_ms, INT64_MAX)
    metadata_size_max = turn.config.offset_metadata_size_max
    records: list[Record] = []
    response = OffsetCommitResponse()
    for topic in request.topics:
        outcomes = []
        for partition in topic.partitions:
            index = partition.partition_index
            error = group_error
            if not exists(topic.name, index):
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(partition.committed_metadata or "") > metadata_size_max:
                error = error or ErrorCode.OFFSET_METADATA_TOO_LARGE
            if error is ErrorCode.NONE:
                value = _value_of(partition, turn.now.wall_ms, expire_timestamp)
                offsets.put(request.group_id, topic.name, index, value)
                records.append(offset_commit_record(request.group_id, topic.name, index, value))
            outcomes.append(OffsetCommitResponsePartition(index, error))
        response.topics.append(OffsetCommitResponseTopic(topic.name, partitions=outcomes))
    turn.append(records)
    return response


def fetch(
    request: OffsetFetchRequestGroup, offsets: Offsets, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    """The offsets asked for, or all that the group has. A group that nobody knows has none, which
    is not an error."""
    group_id = request.group_id
    topics = request.topics
    if topics is None:
        topics = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=list(partitions))
            for topic, partitions in offsets.of(group_id).items()
        ]
    response = OffsetFetchResponseGroup(group_id=group_id)
    for topic in topics:
        partitions = []
        for index in topic.partition_indexes:
            if require_stable and offsets.is_pending(group_id, topic.name, index):
                partition = _fetched(index, NEVER_COMMITTED, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            else:
                committed = offsets.get(group_id, topic.name, index) or NEVER_COMMITTED
                partition = _fetched(index, committed, ErrorCode.NONE)
            partitions.append(partition)
        response.topics.append(OffsetFetchResponseTopics(topic.name, partitions=partitions))
    return response


def delete(
    group: Group | ConsumerGroup,
    request: OffsetDeleteRequest,
    exists: PartitionExists,
    offsets: Offsets,
    turn: Turn,
) -> OffsetDeleteResponse:
    """Deletes offsets of topics that no member reads; what was never committed is deleted already.

    Only of groups of consumers does anybody know what their members read (KIP-496).
    """
    if isinstance(group, ConsumerGroup):
        is_empty = not group.members
    else:
        is_empty = group.state is GroupState.EMPTY
        if not is_empty and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return OffsetDeleteResponse(ErrorCode.NON_EMPTY_GROUP)
    group_id = group.group_id
    records: list[Record] = []
    response = OffsetDeleteResponse()
    for topic in request.topics:
        is_read = not is_empty and group.is_subscribed_to(topic.name)
        outcomes = []
        for partition in topic.partitions:
            index = partition.partition_index
            error = ErrorCode.NONE
            if not exists(topic.name, index):
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif is_read:
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif offsets.has(group_id, topic.name, index):
                offsets.remove(group_id, topic.name, index)
                records.append(offset_tombstone(group_id, topic.name, index))
            outcomes.append(OffsetDeleteResponsePartition(index, error))
        response.topics.append(OffsetDeleteResponseTopic(topic.name, outcomes))
    turn.append(records)
    return response


def _value_of(
    partition: OffsetCommitRequestPartition, now_ms: int, expire_timestamp: int
) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=now_ms,
        expire_timestamp=expire_timestamp,
    )


def _fetched(
    index: int, committed: CommittedOffset, error: ErrorCode
) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error,
    )
