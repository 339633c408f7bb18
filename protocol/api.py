"""The table of APIs: key, name, schema versions, first flexible version, where the messages are.

A row's versions are those its schema describes; what the broker advertises is the business of
`asyncbroker/handlers/__init__.py`. Message modules are imported when first asked for, since
declaring every dataclass at start would cost more time than the rest of the start together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.protocol.schema import Versions

if TYPE_CHECKING:
    from asyncbroker.protocol.codec import Codec


@dataclass(frozen=True, slots=True, eq=False)
class Api:
    """One API of Kafka's protocol; `flexible_from` is the first version with compact types.

    Rows are compared by identity: each exists once, and hashing must be cheap for the caches.
    """

    key: int
    name: str
    versions: Versions
    flexible_from: int
    module: str

    @property
    def request(self) -> type:
        """The request's message class, e.g. `JoinGroupRequest`."""
        return self._message("Request")

    @property
    def response(self) -> type:
        """The response's message class, e.g. `JoinGroupResponse`."""
        return self._message("Response")

    def is_flexible(self, version: int) -> bool:
        """Whether this version uses compact types and tagged fields (KIP-482)."""
        return version >= self.flexible_from

    def request_codec(self, version: int) -> Codec[Any]:
        """The codec of this version's request; ValueError for a version that is not in the row."""
        return _codec(self, "Request", version)

    def response_codec(self, version: int) -> Codec[Any]:
        """The codec of this version's response; ValueError for a version that is not in the row."""
        return _codec(self, "Response", version)

    def _message(self, suffix: str) -> type:
        module = import_module(f"asyncbroker.protocol.messages.{self.module}")
        message: type = getattr(module, self.name + suffix)
        return message


@cache
def _codec(api: Api, suffix: str, version: int) -> Codec[Any]:
    # construct takes longer to import than all else here, so only those who decode pay for it.
    from asyncbroker.protocol.codec import codec_for

    if version not in api.versions:
        raise ValueError(f"{api.name} has no version {version}")
    return codec_for(api._message(suffix), version, api.is_flexible(version))


def _api(key: int, name: str, module: str, versions: str, flexible_from: int) -> Api:
    return Api(key, name, Versions.parse(versions), flexible_from, module)


NEVER_FLEXIBLE: Final = 32767

APIS: Final[tuple[Api, ...]] = (
    _api(0, "Produce", "produce", "3-11", 9),
    _api(1, "Fetch", "fetch", "4-17", 12),
    _api(2, "ListOffsets", "list_offsets", "1-10", 6),
    _api(3, "Metadata", "metadata", "0-13", 9),
    _api(8, "OffsetCommit", "offset_commit", "2-10", 8),
    _api(9, "OffsetFetch", "offset_fetch", "1-10", 6),
    _api(10, "FindCoordinator", "find_coordinator", "0-5", 3),
    _api(11, "JoinGroup", "join_group", "0-9", 6),
    _api(12, "Heartbeat", "heartbeat", "0-4", 4),
    _api(13, "LeaveGroup", "leave_group", "0-5", 4),
    _api(14, "SyncGroup", "sync_group", "0-5", 4),
    _api(15, "DescribeGroups", "describe_groups", "0-6", 5),
    _api(16, "ListGroups", "list_groups", "0-5", 3),
    _api(17, "SaslHandshake", "sasl_handshake", "0-1", NEVER_FLEXIBLE),
    _api(18, "ApiVersions", "api_versions", "0-4", 3),
    _api(19, "CreateTopics", "create_topics", "0-7", 5),
    _api(20, "DeleteTopics", "delete_topics", "0-6", 4),
    _api(21, "DeleteRecords", "delete_records", "0-2", 2),
    _api(22, "InitProducerId", "init_producer_id", "0-5", 2),
    _api(23, "OffsetForLeaderEpoch", "offset_for_leader_epoch", "2-4", 4),
    _api(29, "DescribeAcls", "describe_acls", "1-3", 2),
    _api(32, "DescribeConfigs", "describe_configs", "0-4", 4),
    _api(33, "AlterConfigs", "alter_configs", "0-2", 2),
    _api(34, "AlterReplicaLogDirs", "alter_replica_log_dirs", "1-2", 2),
    _api(35, "DescribeLogDirs", "describe_log_dirs", "1-4", 2),
    _api(36, "SaslAuthenticate", "sasl_authenticate", "0-2", 2),
    _api(37, "CreatePartitions", "create_partitions", "0-3", 2),
    _api(42, "DeleteGroups", "delete_groups", "0-2", 2),
    _api(43, "ElectLeaders", "elect_leaders", "0-2", 2),
    _api(44, "IncrementalAlterConfigs", "incremental_alter_configs", "0-1", 1),
    _api(45, "AlterPartitionReassignments", "alter_partition_reassignments", "0-1", 0),
    _api(46, "ListPartitionReassignments", "list_partition_reassignments", "0", 0),
    _api(47, "OffsetDelete", "offset_delete", "0", NEVER_FLEXIBLE),
    _api(48, "DescribeClientQuotas", "describe_client_quotas", "0-1", 1),
    _api(50, "DescribeUserScramCredentials", "describe_user_scram_credentials", "0", 0),
    _api(51, "AlterUserScramCredentials", "alter_user_scram_credentials", "0", 0),
    _api(60, "DescribeCluster", "describe_cluster", "0-2", 0),
    _api(68, "ConsumerGroupHeartbeat", "consumer_group_heartbeat", "0-1", 0),
    _api(69, "ConsumerGroupDescribe", "consumer_group_describe", "0-1", 0),
    _api(74, "ListConfigResources", "list_config_resources", "0-1", 0),
    _api(75, "DescribeTopicPartitions", "describe_topic_partitions", "0", 0),
)

API_BY_KEY: Final[dict[int, Api]] = {api.key: api for api in APIS}
API_BY_NAME: Final[dict[str, Api]] = {api.name: api for api in APIS}
