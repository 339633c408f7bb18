"""Requests of members of a classic group, as the tests of groups send them."""

from __future__ import annotations

from asyncbroker.protocol.consumer_protocol import (
    ConsumerProtocolSubscription,
    encode_subscription,
)
from asyncbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from asyncbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from asyncbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

TOPIC = "dt"


def join_request(
    group: str,
    *,
    member_id: str = "",
    instance: str | None = None,
    protocols: dict[str, bytes] | None = None,
    kind: str = "consumer",
    session_ms: int = 10_000,
    version: int = 9,
) -> JoinGroupRequest:
    """JoinGroup of a consumer."""
    if protocols is None:
        subscription = ConsumerProtocolSubscription(topics=[TOPIC])
        protocols = {"range": encode_subscription(subscription)}
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=30_000 if version >= 1 else -1,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=kind,
        protocols=[JoinGroupRequestProtocol(name, data) for name, data in protocols.items()],
    )


def sync_request(
    group: str,
    generation_id: int,
    member_id: str,
    *,
    parts: dict[str, bytes] | None = None,
    instance: str | None = None,
    kind: str = "consumer",
    name: str = "range",
    version: int = 5,
) -> SyncGroupRequest:
    """SyncGroup; with parts, of a leader."""
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=kind if version >= 5 else None,
        protocol_name=name if version >= 5 else None,
        assignments=[SyncGroupRequestAssignment(*part) for part in (parts or {}).items()],
    )


def commit_request(
    group: str,
    generation_id: int = -1,
    member_id: str = "",
    offsets: dict[int, int] | None = None,
    *,
    topic: str = TOPIC,
    instance: str | None = None,
    metadata: str | None = "",
) -> OffsetCommitRequest:
    """OffsetCommit for some partitions of one topic."""
    partitions = [
        OffsetCommitRequestPartition(index, offset, committed_metadata=metadata)
        for index, offset in (offsets or {0: 1}).items()
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        group_instance_id=instance,
        topics=[OffsetCommitRequestTopic(topic, partitions=partitions)],
    )
