"""Metadata (key 3), versions 0 to 13: brokers, topics, partitions and their leaders.

v0   an empty list of topics means all topics; from v1 on null means all, and empty means none
v1   racks, the controller's id, and whether a topic is internal (KIP-4)
v2   the cluster id (KIP-78)
v3   the throttle time (KIP-124)
v4   the client says whether topics may be created automatically (KIP-204)
v5   replicas that are offline (KIP-112)
v6   on a quota violation the response comes at once and says how long to wait (KIP-219)
v7   leader epochs (KIP-320)
v8   authorized operations (KIP-430)
v9   flexible (KIP-482)
v10  topic ids in the response; in requests they may not be used yet (KIP-516)
v11  the cluster's authorized operations move to DescribeCluster (KIP-700)
v12  topics may be asked for by id (KIP-516)
v13  an error at the top, which can send clients back to their bootstrap servers (KIP-1102)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import BOOL, INT16, INT32, STRING, UUID, array, wire


@dataclass(slots=True)
class MetadataRequestTopic:
    """One topic by name, or from v12 on by id with a null name."""

    topic_id: bytes = wire(UUID, "10+", ignorable=True)
    name: str | None = wire(STRING, nullable="10+")


@dataclass(slots=True)
class MetadataRequest:
    """The topics to tell about; null means all (in v0: an empty list)."""

    topics: list[MetadataRequestTopic] | None = wire(array(MetadataRequestTopic), nullable="1+")
    allow_auto_topic_creation: bool = wire(BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = wire(BOOL, "8-10")
    include_topic_authorized_operations: bool = wire(BOOL, "8+")


@dataclass(slots=True)
class MetadataResponseBroker:
    """A broker's address on the listener that the request came in on."""

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, "1+", nullable="0+", default=None, ignorable=True)


@dataclass(slots=True)
class MetadataResponsePartition:
    """One partition's leader and replicas."""

    error_code: int = wire(INT16)
    partition_index: int = wire(INT32)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32, "7+", default=-1, ignorable=True)
    replica_nodes: list[int] = wire(array(INT32))
    isr_nodes: list[int] = wire(array(INT32))
    offline_replicas: list[int] = wire(array(INT32), "5+", ignorable=True)


@dataclass(slots=True)
class MetadataResponseTopic:
    """One topic and its partitions, or why there is none."""

    error_code: int = wire(INT16)
    name: str | None = wire(STRING, nullable="12+")
    topic_id: bytes = wire(UUID, "10+", ignorable=True)
    is_internal: bool = wire(BOOL, "1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = wire(array(MetadataResponsePartition))
    topic_authorized_operations: int = wire(INT32, "8+", default=-2147483648)


@dataclass(slots=True)
class MetadataResponse:
    """The cluster as this broker knows it."""

    throttle_time_ms: int = wire(INT32, "3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = wire(array(MetadataResponseBroker))
    cluster_id: str | None = wire(STRING, "2+", nullable="0+", default=None, ignorable=True)
    controller_id: int = wire(INT32, "1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = wire(array(MetadataResponseTopic))
    cluster_authorized_operations: int = wire(INT32, "8-10", default=-2147483648)
    error_code: int = wire(INT16, "13+", ignorable=True)
