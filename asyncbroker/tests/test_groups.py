"""The driver of the coordinator: where groups are kept, and durable before answered."""

from __future__ import annotations

import asyncio
import errno
from contextlib import suppress

import pytest

from asyncbroker import group_shard
from asyncbroker.group_shard import LOAD_AGAIN_SECONDS_MAX
from asyncbroker.groups import java_hash, partition_of
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from asyncbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from asyncbroker.protocol.messages.join_group import JoinGroupRequestProtocol
from asyncbroker.protocol.messages.list_groups import ListGroupsRequest
from asyncbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from asyncbroker.testing.hands import look_at_group
from asyncbroker.tests.data_path_harness import settle, under_test
from asyncbroker.tests.groups_harness import (
    COMMITS,
    OFFSETS,
    OLD_JOIN,
    commit,
    commit_request,
    committed,
    heartbeat,
    join_alone,
    join_request,
    stored_batches,
)
from asyncbroker.tests.held_workers import HeldWorkers

# ---- the topic


async def test_a_group_of_the_consumer_protocol_can_be_looked_at() -> None:
    async with under_test() as t:
        await t.topic(partitions=2)
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=["flights"],
            topic_partitions=[],
        )
        joined = await t.ask(request, 1)
        assert joined.member_epoch == 2
        group = look_at_group(t.broker, "g")
        assert (group.state, group.generation) == ("Stable", 2)
        (member,) = group.members
        assert member.partitions == (("flights", 0), ("flights", 1))


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
        workers.held = COMMITS
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


async def test_a_member_whose_answer_waits_for_the_disk_keeps_its_session() -> None:
    workers = HeldWorkers()
    async with under_test(workers=workers) as t:
        await t.topic()
        joined = await join_alone(t)  # a session of ten seconds
        workers.held = COMMITS
        request = commit_request(1)
        request.member_id = joined.member_id
        request.generation_id_or_member_epoch = joined.generation_id
        waiting = t.begin(request, 8)
        await settle()
        # It sends one request at a time: no heartbeat comes while this one is not answered.
        for _ in range(5):
            t.clock.advance(7)
            await settle()
        workers.release()
        assert (await waiting).topics[0].partitions[0].error_code == 0
        # From the answer on it has its whole session again, and no more.
        t.clock.advance(9)
        assert await heartbeat(t, joined) is ErrorCode.NONE
        t.clock.advance(11)
        assert await heartbeat(t, joined) is ErrorCode.UNKNOWN_MEMBER_ID


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


async def test_on_a_full_disk_groups_are_not_loaded_again_for_every_request() -> None:
    is_full = False
    loads = 0

    def on_call(operation: str, path: str) -> None:
        nonlocal loads
        if OFFSETS not in path or not path.endswith(".log"):
            return
        loads += operation == "pread"
        if is_full and operation == "pwrite":
            raise OSError(errno.ENOSPC, "no space left on device")

    async with under_test(files=MemoryFiles(on_call)) as t:
        await t.topic()
        await commit(t, 1)
        is_full = True
        for _ in range(600):
            with suppress(KafkaError):
                await commit(t, 2)
            t.clock.advance(0.1)
            await settle()
        assert 3 < loads < 20
        is_full = False
        t.clock.advance(LOAD_AGAIN_SECONDS_MAX)
        await settle()
        assert await committed(t) == {"flights": 1}
        assert await commit(t, 3) is ErrorCode.NONE
        # The next time it is tried at once.
        is_full = True
        with pytest.raises(KafkaError):
            await commit(t, 4)
        is_full = False
        await settle()
        assert await commit(t, 5) is ErrorCode.NONE


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
        workers.held = COMMITS
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
