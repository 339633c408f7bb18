"""The driver of the coordinator: durable before answered, batched, loaded back, and never stuck."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Any

import pytest

from asyncbroker import group_shard
from asyncbroker.context import RequestContext
from asyncbroker.coordinator.records import OffsetCommitValue, offset_commit_record
from asyncbroker.groups import java_hash, partition_of
from asyncbroker.log.files import MemoryFiles
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest
from asyncbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from asyncbroker.protocol.messages.list_groups import ListGroupsRequest
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
from asyncbroker.protocol.records import Record, batches, build_batch, read_header
from asyncbroker.tests.data_path_harness import UnderTest, forget_clean_stop, settle, under_test
from asyncbroker.workers import InlineWorkers

OFFSETS = "__consumer_offsets"
OLD_JOIN = 3  # a version that joins at once


class HeldWorkers(InlineWorkers):
    """Runs jobs at once, but for those of the functions named in `held`, until `release`; the name
    may be that of the function or of one that is handed to it."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self._jobs: list[Callable[[], None]] = []

    def run(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        names = {getattr(part, "__name__", "") for part in (function, *args)}
        if not names & self.held:
            return super().run(function, *args)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.append(lambda: self._finish(future, function, args))
        return future

    def release(self) -> None:
        self.held.clear()
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            job()

    def _finish(self, future: asyncio.Future[Any], function: Any, args: Any) -> None:
        done = super().run(function, *args)
        error = done.exception()
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(done.result())


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
        group_id=group, topics=[OffsetCommitRequestTopic(topic, [partition])]
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


# ---- the topic


async def test_the_offsets_topic_is_created_on_first_use_by_whoever_comes_first() -> None:
    async with under_test(offsets_topic_num_partitions="4") as t:
        await t.topic()
        assert t.broker.topics.get(OFFSETS) is None
        outcomes = await asyncio.gather(*(commit(t, n, group=f"g{n}") for n in range(8)))
        assert outcomes == [ErrorCode.NONE] * 8
        topic = t.broker.topics.get(OFFSETS)
        assert topic is not None
        assert len(topic.partitions) == 4
        assert topic.config.overrides["cleanup.policy"] == "compact"


async def test_looking_for_a_coordinator_creates_the_topic_but_listing_groups_does_not() -> None:
    async with under_test() as t:
        assert (await t.ask(ListGroupsRequest(), 4)).groups == []
        assert t.broker.topics.get(OFFSETS) is None
        found = await t.ask(FindCoordinatorRequest(key="g"), 3)
        assert found.error_code == 0
        assert t.broker.topics.get(OFFSETS) is not None


async def test_a_topic_that_cannot_be_created_is_a_coordinator_that_is_not_available() -> None:
    async with under_test(asyncbroker_max_partitions="1") as t:
        await t.topic()
        found = await t.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        (coordinator,) = found.coordinators
        assert coordinator.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert OFFSETS in (coordinator.error_message or "")


def test_java_hashes() -> None:
    assert java_hash("") == 0
    assert java_hash("abc") == 96_354
    assert java_hash("polygenelubricants") == -(1 << 31)
    # Of two UTF-16 code units: 0xd83d * 31 + 0xde00.
    assert java_hash("😀") == 0xD83D * 31 + 0xDE00


def test_a_group_belongs_to_the_partition_that_kafka_would_choose() -> None:
    assert partition_of("polygenelubricants", 50) == 0
    assert partition_of("abc", 50) == 96_354 % 50
    assert partition_of("anything", 1) == 0


async def test_groups_are_spread_over_the_partitions_and_listed_together() -> None:
    async with under_test(offsets_topic_num_partitions="5") as t:
        await t.topic()
        names = [f"group-{number}" for number in range(20)]
        for name in names:
            await commit(t, 1, group=name)
        for index in range(5):
            stored = b"".join(batch for _, batch in stored_batches(t, index))
            for name in names:
                is_there = name.encode() + b"\x00\x07flights" in stored
                assert is_there == (partition_of(name, 5) == index)
        listed = (await t.ask(ListGroupsRequest(), 4)).groups
        assert sorted(group.group_id for group in listed) == sorted(names)


# ---- durability


async def test_many_commits_at_once_share_a_few_writes() -> None:
    syncs = 0

    def on_call(operation: str, path: str) -> None:
        nonlocal syncs
        syncs += operation == "datasync" and OFFSETS in path

    async with under_test(files=MemoryFiles(on_call)) as t:
        await t.topic()
        await commit(t, 0)
        syncs, before = 0, len(stored_batches(t))
        outcomes = await asyncio.gather(*(commit(t, n, group=f"g{n % 7}") for n in range(500)))
        assert outcomes == [ErrorCode.NONE] * 500
        assert len(stored_batches(t)) - before <= 2
        assert syncs <= 2


async def test_a_commit_is_answered_when_it_is_durable_and_heartbeats_do_not_wait() -> None:
    workers = HeldWorkers()
    async with under_test(workers=workers) as t:
        await t.topic()
        joined = await join_alone(t)
        workers.held = {"_flush"}
        first = t.begin(commit_request(1, group="other"), 8)
        await settle()
        second = t.begin(commit_request(2, group="other"), 8)
        fetched = t.begin(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup("other", topics=None)]), 8
        )
        await settle()
        assert not first.done()
        assert not second.done()
        assert not fetched.done()
        assert await heartbeat(t, joined) is ErrorCode.NONE
        workers.release()
        await asyncio.gather(first, second)
        offset = (await fetched).groups[0].topics[0].partitions[0].committed_offset
        assert offset == 2


async def test_a_large_round_is_cut_into_batches() -> None:
    async with under_test() as t:
        await t.topic()
        metadata = "x" * 4_000
        requests = []
        for number in range(100):
            request = commit_request(number, group=f"g{number}")
            request.topics[0].partitions[0].committed_metadata = metadata
            requests.append(t.ask(request, 8))
        await asyncio.gather(*requests)
        sizes = [header.size for header, _ in stored_batches(t)]
        assert sum(sizes) > 400_000
        assert max(sizes) < 150_000


async def test_a_failed_write_loses_nothing_that_was_acknowledged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_full = False

    def on_call(operation: str, path: str) -> None:
        if is_full and operation == "pwrite" and OFFSETS in path and path.endswith(".log"):
            raise OSError(errno.ENOSPC, "no space left on device")

    async with under_test(files=MemoryFiles(on_call)) as t:
        await t.topic()
        joined = await join_alone(t)
        assert await commit(t, 1, group="other") is ErrorCode.NONE
        waiting = t.begin(join_request(), OLD_JOIN)
        assert await heartbeat(t, joined) is ErrorCode.REBALANCE_IN_PROGRESS

        is_full = True
        with pytest.raises(KafkaError) as refused:
            await commit(t, 2, group="other")
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
        with pytest.raises(KafkaError) as parked:
            await waiting
        assert parked.value.code is ErrorCode.NOT_COORDINATOR
        assert "lost a write" in caplog.text

        is_full = False
        await settle()
        assert await committed(t, "other") == {"flights": 1}
        assert await heartbeat(t, joined) is ErrorCode.NONE
        assert await commit(t, 3, group="other") is ErrorCode.NONE


async def test_a_broken_disk_takes_the_coordinator_away() -> None:
    is_broken = False

    def on_call(operation: str, path: str) -> None:
        if is_broken and operation == "datasync":
            raise OSError(errno.EIO, "input/output error")

    async with under_test(files=MemoryFiles(on_call)) as t:
        await t.topic()
        await commit(t, 1)
        is_broken = True
        with pytest.raises(KafkaError) as refused:
            await commit(t, 2)
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
        await settle()
        found = await t.ask(FindCoordinatorRequest(key="g"), 3)
        assert found.error_code == ErrorCode.NOT_COORDINATOR
        with pytest.raises(KafkaError):
            await commit(t, 3)
        is_broken = False


# ---- loading


async def test_groups_and_offsets_come_back_after_a_restart() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic()
        joined = await join_alone(t)
        for number in range(300):
            await commit(t, number, group=f"g{number % 40}")
    async with under_test(files=files, metadata=metadata) as t:
        await settle()
        assert await heartbeat(t, joined) is ErrorCode.NONE
        assert await committed(t, "g39") == {"flights": 279}
        assert await commit(t, 5, group="g39") is ErrorCode.NONE


async def test_a_crash_keeps_every_acknowledged_commit() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic()
        await commit(t, 7)
    forget_clean_stop(files)
    async with under_test(files=files, metadata=metadata) as t:
        await settle()
        assert await committed(t) == {"flights": 7}


async def test_while_groups_are_loaded_requests_are_put_off_and_heartbeats_are_good() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic()
        joined = await join_alone(t)
    workers = HeldWorkers()
    workers.held = {"_replay"}
    async with under_test(files=files, metadata=metadata, workers=workers) as t:
        assert await heartbeat(t, joined) is ErrorCode.NONE
        assert (await t.ask(FindCoordinatorRequest(key="g"), 3)).error_code == 0
        for put_off in (commit_request(1), join_request(), ListGroupsRequest()):
            with pytest.raises(KafkaError) as error:
                await t.ask(put_off, 5)
            assert error.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        workers.release()
        await settle()
        assert await heartbeat(t, joined) is ErrorCode.NONE
        groups = (await t.ask(ListGroupsRequest(), 4)).groups
        assert [group.group_state for group in groups] == ["Stable"]


async def test_loading_is_tried_again_after_a_lack_of_descriptors() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic()
        await commit(t, 5)
    workers = HeldWorkers()
    workers.held = {"_replay"}
    async with under_test(files=files, metadata=metadata, workers=workers) as t:

        def no_descriptor(operation: str, path: str) -> None:
            if OFFSETS in path:
                raise OSError(errno.EMFILE, "made up")

        await settle()
        files.on_call = no_descriptor
        workers.release()
        await settle()
        with pytest.raises(KafkaError) as error:
            await t.ask(commit_request(6), 8)
        assert error.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        files.on_call = None
        t.clock.advance(1)
        await settle()
        assert await committed(t) == {"flights": 5}


async def test_offsets_with_a_damaged_byte_are_not_served() -> None:
    """Serving what cannot be true would send consumers anywhere."""
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic()
        await commit(t, 0x0102030405)
        [(header, batch)] = stored_batches(t)
    damaged = batch.replace(bytes([1, 2, 3, 4, 5]), bytes([1, 2, 3, 4, 6]))
    assert damaged != batch
    files.open(f"memory/{OFFSETS}-0/{header.base_offset:020d}.log").pwrite(damaged, 0)
    async with under_test(files=files, metadata=metadata) as t:
        await settle()
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
        [group] = (await t.ask(request, 8)).groups
        assert group.error_code == ErrorCode.NOT_COORDINATOR
        assert not group.topics


async def append_raw(t: UnderTest, batch: bytearray) -> None:
    topic = t.broker.topics.get(OFFSETS)
    assert topic is not None
    appended = topic.partitions[0].append(batch, read_header(batch), is_client=False)
    if isinstance(appended, asyncio.Future):
        await appended


def offset_record(offset: int) -> Record:
    key, value = offset_commit_record("g", "flights", 0, OffsetCommitValue(offset, -1, "", 0))
    return Record(0, 0, key, value)


async def test_a_partition_that_kafka_wrote_is_loaded_transactions_and_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    marker_key, marker_value = b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x05"
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic()
        await commit(t, 1)
        transaction: dict[str, Any] = {
            "producer_id": 9,
            "producer_epoch": 0,
            "is_transactional": True,
        }
        await append_raw(t, build_batch([offset_record(50)], base_sequence=0, **transaction))
        marker = Record(0, 0, marker_key, marker_value)
        await append_raw(t, build_batch([marker], is_control=True, **transaction))
        await append_raw(t, build_batch([Record(0, 0, b"\x00\x03\x05other", b"\x00\x00")]))
        await append_raw(t, build_batch([Record(0, 0, b"\x00\x01\xff", b"\x00\x03")]))
    async with under_test(files=files, metadata=metadata) as t:
        await settle()
        assert await committed(t) == {"flights": 50}
        assert "passed over" in caplog.text


async def test_offsets_of_a_topic_that_a_crash_has_deleted_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic()
        await t.topic("other")
        await commit(t, 1)
        await commit(t, 1, topic="other")
        other = t.broker.topics.get("other")
        assert other is not None
        # As if the broker had died between the two.
        monkeypatch.setattr(t.broker.groups, "on_topics_deleted", lambda names: None)
        await t.broker.topics.delete(other)
    async with under_test(files=files, metadata=metadata) as t:
        await settle()
        assert await committed(t) == {"flights": 1}


async def test_offsets_of_a_deleted_topic_are_forgotten_for_good() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as t:
        topic = await t.topic()
        await commit(t, 7)
        await t.broker.topics.delete(topic)
        await t.topic()
        assert await committed(t) == {}
    async with under_test(files=files, metadata=metadata) as t:
        await settle()
        assert await committed(t) == {}


# ---- waiting members


async def test_time_moves_the_group_on_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with under_test() as t:
        joined = await join_alone(t)
        assert joined.generation_id == 1
        t.clock.advance(11)
        assert await heartbeat(t, joined) is ErrorCode.UNKNOWN_MEMBER_ID
        assert "its session timed out" in caplog.text


async def test_a_lost_connection_gives_its_member_up() -> None:
    async with under_test() as t:
        joined = await join_alone(t)
        connection = Connection()
        context = RequestContext(connection=connection)
        waiting = t.begin(join_request(), OLD_JOIN, context)
        await settle()
        connection.lose()
        await settle()
        assert waiting.cancelled()
        # The new member never knew its id, so nobody waits for it; the old one is alone again.
        again = await t.ask(join_request(member_id=joined.member_id), OLD_JOIN, RequestContext())
        assert again.generation_id == 2
        assert len(again.members) == 1


async def test_a_connection_that_is_lost_before_it_waits_is_not_waited_for() -> None:
    async with under_test() as t:
        connection = Connection()
        connection.is_lost = True
        waiting = t.begin(join_request(), OLD_JOIN, RequestContext(connection=connection))
        await settle()
        assert waiting.cancelled()
        assert (await t.ask(ListGroupsRequest(), 4)).groups[0].group_state != "Stable"


async def test_members_that_wait_are_answered_when_the_broker_stops() -> None:
    async with under_test() as t:
        waiting = t.begin(join_request(), OLD_JOIN)
        await settle()
    with pytest.raises(KafkaError) as error:
        await waiting
    assert error.value.code is ErrorCode.NOT_COORDINATOR


async def test_a_commit_under_way_is_finished_when_the_broker_stops() -> None:
    files, metadata, workers = MemoryFiles(), MemoryMetadataStore(), HeldWorkers()
    async with under_test(files=files, metadata=metadata, workers=workers) as t:
        await t.topic()
        await commit(t, 1)
        workers.held = {"_flush"}
        committing = t.begin(commit_request(2), 8)
        await settle()
        stopping = asyncio.ensure_future(t.broker.groups.stop())
        await settle()
        assert not committing.done()
        workers.release()
        await stopping
        response = await committing
        assert response.topics[0].partitions[0].error_code == 0
        with pytest.raises(KafkaError):
            await commit(t, 3)
    async with under_test(files=files, metadata=metadata) as t:
        await settle()
        assert await committed(t) == {"flights": 2}


async def test_200_members_become_one_group() -> None:
    async with under_test(group_initial_rebalance_delay_ms="1000") as t:
        joining = [t.begin(join_request(), OLD_JOIN) for _ in range(200)]
        await settle()
        t.clock.advance(3)
        joined = await asyncio.gather(*joining)
        leader = next(response for response in joined if response.members)
        assert len(leader.members) == 200
        assert {response.generation_id for response in joined} == {1}
        syncing = [
            t.begin(
                SyncGroupRequest(
                    "g",
                    1,
                    response.member_id,
                    assignments=[
                        SyncGroupRequestAssignment(m.member_id, m.member_id.encode())
                        for m in response.members
                    ],
                ),
                3,
            )
            for response in joined
        ]
        synced = await asyncio.gather(*syncing)
        assert [response.assignment.decode() for response in synced] == [
            response.member_id for response in joined
        ]


async def test_a_group_larger_than_a_message_may_be_is_stored_and_disturbs_no_other() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    protocols = [JoinGroupRequestProtocol("range", bytes(1_200_000))]
    async with under_test(files=files, metadata=metadata) as t:
        other = t.begin(join_request(group_id="other"), OLD_JOIN)
        await settle()
        joined = await join_alone(t, protocols=protocols)
        assert (await other).error_code == 0
    async with under_test(files=files, metadata=metadata) as t:
        await settle()
        assert await heartbeat(t, joined) is ErrorCode.NONE


async def test_a_commit_that_fails_while_the_broker_stops_is_answered() -> None:
    is_broken = False

    def on_call(operation: str, path: str) -> None:
        if is_broken and operation == "datasync":
            raise OSError(errno.EIO, "input/output error")

    workers = HeldWorkers()
    async with under_test(files=MemoryFiles(on_call), workers=workers) as t:
        await t.topic()
        await commit(t, 1)
        workers.held = {"_flush"}
        committing = t.begin(commit_request(2), 8)
        await settle()
        stopping = asyncio.ensure_future(t.broker.groups.stop())
        await settle()
        is_broken = True
        workers.release()
        await stopping
        with pytest.raises(KafkaError) as error:
            await committing
        assert error.value.code is ErrorCode.NOT_COORDINATOR
        is_broken = False


async def test_a_mistake_of_ours_is_told_and_loses_nothing_but_the_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with under_test() as t:
        await t.topic()
        await commit(t, 1)
        with monkeypatch.context() as patch:
            patch.setattr(group_shard, "build_batch", lambda records: 1 / 0)
            with pytest.raises(KafkaError) as error:
                await commit(t, 2)
        assert error.value.code is ErrorCode.NOT_COORDINATOR
        assert "ZeroDivisionError" in caplog.text
        await settle()
        assert await committed(t) == {"flights": 1}
        assert await commit(t, 3) is ErrorCode.NONE
