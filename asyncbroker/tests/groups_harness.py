"""What the tests of the groups' driver share: requests, a connection to lose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from asyncbroker.coordinator.records import OffsetCommitValue, offset_commit_record
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest
from asyncbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from asyncbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from asyncbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from asyncbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from asyncbroker.protocol.records import Record, batches, read_header
from asyncbroker.tests.data_path_harness import UnderTest, settle

OFFSETS = "__consumer_offsets"
# What makes commits durable in a worker: a round of the journal, or fsyncs.
COMMITS = frozenset({"_journal", "_flush"})
OLD_JOIN = 3  # a version that joins at once


class Connection:
    """A connection that a test can lose."""

    def __init__(self) -> None:
        self.is_lost = False
        self._callbacks: list[Callable[[], object]] = []

    def is_closing(self) -> bool:
        return self.is_lost

    def call_when_lost(self, callback: Callable[[], object]) -> None:
        self._callbacks.append(callback)

    def lose(self) -> None:
        self.is_lost = True
        for callback in self._callbacks:
            callback()


def commit_request(offset: int, *, group: str = "g", topic: str = "flights") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(0, offset, -1, "")
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(topic, partitions=[partition])]
    )


def join_request(**fields: Any) -> JoinGroupRequest:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"")],
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request


async def commit(t: UnderTest, offset: int, **fields: str) -> ErrorCode:
    response = await t.ask(commit_request(offset, **fields), 8)
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def committed(t: UnderTest, group: str = "g") -> dict[str, int]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)])
    response = await t.ask(request, 8)
    return {topic.name: topic.partitions[0].committed_offset for topic in response.groups[0].topics}


async def join_alone(t: UnderTest, **fields: Any) -> Any:
    """One member, in the generation that it is alone in, stable."""
    joining = t.begin(join_request(**fields), OLD_JOIN)
    await settle()
    t.clock.advance(3)
    joined = await joining
    sync = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequestAssignment(joined.member_id, b"part")],
    )
    assert (await t.ask(sync, 3)).assignment == b"part"
    return joined


async def heartbeat(t: UnderTest, joined: Any) -> ErrorCode:
    request = HeartbeatRequest("g", joined.generation_id, joined.member_id)
    return ErrorCode((await t.ask(request, 3)).error_code)


def stored_batches(t: UnderTest, index: int = 0) -> list[tuple[Any, bytes]]:
    topic = t.broker.topics.get(OFFSETS)
    assert topic is not None
    partition = topic.partitions[index]
    found = partition.locate(0, 10_000_000) if partition.high_watermark else None
    return [(h, bytes(b)) for h, b in batches(found.read())] if found is not None else []


async def append_raw(t: UnderTest, batch: bytearray) -> None:
    topic = t.broker.topics.get(OFFSETS)
    assert topic is not None
    appended = topic.partitions[0].append(batch, read_header(batch), is_client=False)
    if isinstance(appended, asyncio.Future):
        await appended


def offset_record(offset: int) -> Record:
    key, value = offset_commit_record("g", "flights", 0, OffsetCommitValue(offset, -1, "", 0))
    return Record(0, 0, key, value)
