"""Groups and offsets are loaded back: after restarts and crashes, and from what Kafka wrote."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from asyncbroker.broker import MEMORY_DIRECTORY
from asyncbroker.log.checkpoints import RECOVERY_POINTS
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from asyncbroker.protocol.messages.list_groups import ListGroupsRequest
from asyncbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from asyncbroker.protocol.records import Record, build_batch
from asyncbroker.tests.data_path_harness import forget_clean_stop, settle, under_test
from asyncbroker.tests.groups_harness import (
    OFFSETS,
    append_raw,
    commit,
    commit_request,
    committed,
    heartbeat,
    join_alone,
    join_request,
    offset_record,
    stored_batches,
)
from asyncbroker.tests.held_workers import HeldWorkers


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


async def test_what_a_crash_has_left_is_durable_before_it_is_served() -> None:
    """Or a loss of power would take it back: a generation would be given out twice."""
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic()
        await commit(t, 7)
    forget_clean_stop(files)
    files.remove(f"{MEMORY_DIRECTORY}/{RECOVERY_POINTS}")
    workers = HeldWorkers()
    workers.held = {"_journal", "_flush"}
    async with under_test(files=files, metadata=metadata, workers=workers) as t:
        await settle()
        try:
            with pytest.raises(KafkaError) as error:
                await t.ask(commit_request(8), 8)
            assert error.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        finally:
            workers.release()
        await settle()
        assert await committed(t) == {"flights": 7}


async def test_while_groups_are_loaded_requests_are_put_off_and_heartbeats_are_good() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as t:
        await t.topic()
        joined = await join_alone(t)
    workers = HeldWorkers()
    workers.held = {"replay_range"}
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
    workers.held = {"replay_range"}
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


async def test_a_topic_is_made_anew_when_the_offsets_of_the_old_one_are_gone_for_good() -> None:
    workers = HeldWorkers()
    async with under_test(files=MemoryFiles(), workers=workers) as t:
        topic = await t.topic()
        await commit(t, 7)
        workers.held = {"_journal", "_flush"}
        await t.broker.topics.delete(topic)
        making = asyncio.ensure_future(t.topic())
        await settle()
        is_made = making.done()
        workers.release()
        await making
        assert not is_made
        assert await committed(t) == {}


async def test_a_topic_is_made_anew_when_groups_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as t:
        topic = await t.topic()
        await commit(t, 7)
        # As if the broker had died between the two.
        monkeypatch.setattr(t.broker.groups, "on_topics_deleted", lambda names: None)
        await t.broker.topics.delete(topic)
    workers = HeldWorkers()
    workers.held = {"replay_range"}
    async with under_test(files=files, metadata=metadata, workers=workers) as t:
        making = asyncio.ensure_future(t.topic())
        await settle()
        is_made = making.done()
        workers.release()
        await making
        assert not is_made
        assert await committed(t) == {}
