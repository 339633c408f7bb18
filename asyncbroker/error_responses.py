"""The response that gives one error to a whole request, for each API that has a place for it.

Handlers answer item by item and need none of this; it is what dispatch falls back to when a
`KafkaError` leaves a handler. Kafka has the same in each request's `getErrorResponse`. An API with
an error code at the top of its response gets it there; of the others, each item asked for is
answered with the error.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from asyncbroker.protocol.api import Api
from asyncbroker.protocol.errors import KafkaError


def error_response(api: Api, version: int, request: Any, error: KafkaError) -> Any | None:
    """The response to `request` that says `error`; None when the API has no place for it."""
    code = int(error.code)
    by_item = _BY_ITEM.get(api.name)
    if by_item is not None:
        messages = import_module(f"asyncbroker.protocol.messages.{api.module}")
        response = by_item(messages, version, request, code, error.message)
        if response is not None:
            return response
    response = api.response()
    if not hasattr(response, "error_code"):
        return None
    response.error_code = code
    if hasattr(response, "error_message"):
        response.error_message = error.message
    return response


# Each of these builds a response from (message module, version, request, error code, message), or
# returns None when that version has the error code at the top.


def _produce(messages: Any, version: int, request: Any, code: int, message: str | None) -> Any:
    if request.acks == 0:
        return None
    return messages.ProduceResponse(
        responses=[
            messages.TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    messages.PartitionProduceResponse(
                        index=partition.index,
                        error_code=code,
                        base_offset=-1,
                        error_message=message,
                    )
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _fetch(messages: Any, version: int, request: Any, code: int, message: str | None) -> Any:
    if version >= 7:
        return None
    return messages.FetchResponse(
        responses=[
            messages.FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    messages.PartitionData(
                        partition_index=partition.partition, error_code=code, high_watermark=-1
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _list_offsets(messages: Any, version: int, request: Any, code: int, message: str | None) -> Any:
    return messages.ListOffsetsResponse(
        topics=[
            messages.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    messages.ListOffsetsPartitionResponse(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _metadata(messages: Any, version: int, request: Any, code: int, message: str | None) -> Any:
    return messages.MetadataResponse(
        error_code=code,
        topics=[
            messages.MetadataResponseTopic(
                error_code=code,
                # A null name may only be answered from v12 on, where the id can stand alone.
                name=topic.name if topic.name is not None or version >= 12 else "",
                topic_id=topic.topic_id,
            )
            for topic in request.topics or ()
        ],
    )


def _offset_commit(
    messages: Any, version: int, request: Any, code: int, message: str | None
) -> Any:
    return messages.OffsetCommitResponse(
        topics=[
            messages.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    messages.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(messages: Any, version: int, request: Any, code: int, message: str | None) -> Any:
    if version >= 8:
        return messages.OffsetFetchResponse(
            groups=[
                messages.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
                for group in request.groups
            ]
        )
    topics = [
        messages.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                messages.OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=-1, metadata="", error_code=code
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]
    return messages.OffsetFetchResponse(error_code=code, topics=topics)


def _find_coordinator(
    messages: Any, version: int, request: Any, code: int, message: str | None
) -> Any:
    if version < 4:
        return messages.FindCoordinatorResponse(
            error_code=code, error_message=message, node_id=-1, port=-1
        )
    return messages.FindCoordinatorResponse(
        coordinators=[
            messages.Coordinator(
                key=key, node_id=-1, port=-1, error_code=code, error_message=message
            )
            for key in request.coordinator_keys
        ]
    )


def _consumer_group_describe(
    messages: Any, version: int, request: Any, code: int, message: str | None
) -> Any:
    return messages.ConsumerGroupDescribeResponse(
        groups=[
            messages.DescribedConsumerGroup(
                error_code=code, error_message=message, group_id=group_id
            )
            for group_id in request.group_ids
        ]
    )


def _describe_groups(
    messages: Any, version: int, request: Any, code: int, message: str | None
) -> Any:
    return messages.DescribeGroupsResponse(
        groups=[
            messages.DescribedGroup(group_id=group_id, error_code=code, error_message=message)
            for group_id in request.groups
        ]
    )


def _create_topics(
    messages: Any, version: int, request: Any, code: int, message: str | None
) -> Any:
    return messages.CreateTopicsResponse(
        topics=[
            messages.CreatableTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )


def _delete_topics(
    messages: Any, version: int, request: Any, code: int, message: str | None
) -> Any:
    asked = [(topic.name, topic.topic_id) for topic in request.topics]
    asked += [(name, bytes(16)) for name in request.topic_names]
    return messages.DeleteTopicsResponse(
        responses=[
            messages.DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=code, error_message=message
            )
            for name, topic_id in asked
        ]
    )


def _delete_records(
    messages: Any, version: int, request: Any, code: int, message: str | None
) -> Any:
    return messages.DeleteRecordsResponse(
        topics=[
            messages.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    messages.DeleteRecordsPartitionResult(
                        partition_index=partition.partition_index,
                        low_watermark=-1,
                        error_code=code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_for_leader_epoch(
    messages: Any, version: int, request: Any, code: int, message: str | None
) -> Any:
    return messages.OffsetForLeaderEpochResponse(
        topics=[
            messages.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    messages.EpochEndOffset(partition=partition.partition, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_configs(
    messages: Any, version: int, request: Any, code: int, message: str | None
) -> Any:
    return messages.DescribeConfigsResponse(
        results=[
            messages.DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _create_partitions(
    messages: Any, version: int, request: Any, code: int, message: str | None
) -> Any:
    return messages.CreatePartitionsResponse(
        results=[
            messages.CreatePartitionsTopicResult(
                name=topic.name, error_code=code, error_message=message
            )
            for topic in request.topics
        ]
    )


def _alter_replica_log_dirs(
    messages: Any, version: int, request: Any, code: int, message: str | None
) -> Any:
    return messages.AlterReplicaLogDirsResponse(
        results=[
            messages.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    messages.AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=code
                    )
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def _describe_log_dirs(
    messages: Any, version: int, request: Any, code: int, message: str | None
) -> Any:
    if version >= 3:
        return None
    return messages.DescribeLogDirsResponse(
        results=[messages.DescribeLogDirsResult(error_code=code)]
    )


def _delete_groups(
    messages: Any, version: int, request: Any, code: int, message: str | None
) -> Any:
    return messages.DeleteGroupsResponse(
        results=[
            messages.DeletableGroupResult(group_id=group_id, error_code=code)
            for group_id in request.groups_names
        ]
    )


def _elect_leaders(
    messages: Any, version: int, request: Any, code: int, message: str | None
) -> Any:
    if version >= 1:
        return None
    return messages.ElectLeadersResponse(
        replica_election_results=[
            messages.ReplicaElectionResult(
                asked.topic,
                [messages.PartitionResult(index, code, message) for index in asked.partitions],
            )
            for asked in request.topic_partitions or ()
        ]
    )


def _describe_topic_partitions(
    messages: Any, version: int, request: Any, code: int, message: str | None
) -> Any:
    return messages.DescribeTopicPartitionsResponse(
        topics=[
            messages.DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name)
            for topic in request.topics
        ]
    )


def _alter_configs(
    messages: Any, version: int, request: Any, code: int, message: str | None
) -> Any:
    return messages.AlterConfigsResponse(
        responses=[
            messages.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _incremental_alter_configs(
    messages: Any, version: int, request: Any, code: int, message: str | None
) -> Any:
    return messages.IncrementalAlterConfigsResponse(
        responses=[
            messages.IncrementalAlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _alter_user_scram_credentials(
    messages: Any, version: int, request: Any, code: int, message: str | None
) -> Any:
    return messages.AlterUserScramCredentialsResponse(
        results=[
            messages.AlterUserScramCredentialsResult(
                user=name, error_code=code, error_message=message
            )
            for name in {item.name: None for item in (*request.deletions, *request.upsertions)}
        ]
    )


_BY_ITEM: Final[dict[str, Callable[[Any, int, Any, int, str | None], Any]]] = {
    "Produce": _produce,
    "Fetch": _fetch,
    "ListOffsets": _list_offsets,
    "Metadata": _metadata,
    "OffsetCommit": _offset_commit,
    "OffsetFetch": _offset_fetch,
    "FindCoordinator": _find_coordinator,
    "DescribeGroups": _describe_groups,
    "ConsumerGroupDescribe": _consumer_group_describe,
    "CreateTopics": _create_topics,
    "DeleteTopics": _delete_topics,
    "DeleteRecords": _delete_records,
    "OffsetForLeaderEpoch": _offset_for_leader_epoch,
    "DescribeConfigs": _describe_configs,
    "CreatePartitions": _create_partitions,
    "AlterReplicaLogDirs": _alter_replica_log_dirs,
    "DescribeLogDirs": _describe_log_dirs,
    "DeleteGroups": _delete_groups,
    "ElectLeaders": _elect_leaders,
    "DescribeTopicPartitions": _describe_topic_partitions,
    "AlterConfigs": _alter_configs,
    "IncrementalAlterConfigs": _incremental_alter_configs,
    "AlterUserScramCredentials": _alter_user_scram_credentials,
}
