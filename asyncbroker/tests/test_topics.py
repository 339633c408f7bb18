"""Topics over restarts: kept, recovered after crashes, moved in and out, and in large numbers."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from asyncbroker.broker import Broker
from asyncbroker.config import BrokerConfig
from asyncbroker.log.checkpoints import encode_epochs
from asyncbroker.log.errors import DirectoryRefused
from asyncbroker.log.files import RealFiles
from asyncbroker.log.leader_epochs import EpochStart
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.metadata_store import (
    Change,
    DeleteTopic,
    MemoryMetadataStore,
    PutTopic,
    StoredTopic,
)
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.metadata import MetadataRequest
from asyncbroker.sqlite_metadata import FILE_NAME, SqliteMetadataStore
from asyncbroker.tests.data_path_harness import (
    UnderTest,
    batch_of,
    fetch_request,
    offsets_of,
    settle,
    under_test,
)

DATA = "memory"


class Machine:
    """What outlives a broker: its files and its metadata."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.metadata = MemoryMetadataStore()

    @asynccontextmanager
    async def broker(self, **settings: Any) -> AsyncIterator[UnderTest]:
        """A broker on this machine, stopped in order at the end."""
        async with under_test(files=self.files, metadata=self.metadata, **settings) as test:
            yield test

    def after_a_crash(self) -> Machine:
        """A machine with everything as it is now, that no broker has had time to put in order."""
        copy = Machine()
        _copy_tree(self.files, copy.files, "")
        state = self.metadata.open()
        copy.metadata.apply([PutTopic(topic) for topic in state.topics.values()])
        for topic in state.deleted_topics.values():
            copy.metadata.apply([PutTopic(topic), DeleteTopic(topic.topic_id)])
        return copy


def _copy_tree(source: MemoryFiles, target: MemoryFiles, directory: str) -> None:
    for name in source.list_files(directory):
        path = f"{directory}/{name}".lstrip("/")
        target.write_whole(path, source.read_whole(path))
    for name in source.list_directories(directory):
        path = f"{directory}/{name}".lstrip("/")
        target.make_directory(path)
        _copy_tree(source, target, path)


def directories(machine: Machine) -> list[str]:
    return machine.files.list_directories(DATA)


async def test_topics_their_ids_settings_and_records_survive_a_restart() -> None:
    machine = Machine()
    async with machine.broker() as test:
        before = await test.topic("flights", partitions=3, segment_ms="5")
        await test.produce(batch_of(4), index=2)
        cluster_id = test.broker.cluster_id
    async with machine.broker() as test:
        after = test.broker.topics.get("flights")
        assert after is not None
        assert after.topic_id == before.topic_id
        assert after.config.overrides == {"segment.ms": "5"}
        assert test.broker.topics.by_id(before.topic_id) is after
        assert test.broker.topics.partition_count == 3
        assert test.broker.cluster_id == cluster_id
        assert offsets_of(await test.fetch(0, index=2)) == [0, 1, 2, 3]


async def test_the_leader_epoch_stays_after_a_stop_and_grows_after_a_crash() -> None:
    machine = Machine()
    async with machine.broker() as test:
        await test.topic()
        assert test.broker.topics.leader_epoch == 0
        await test.produce(batch_of())
        crashed = machine.after_a_crash()
    async with machine.broker() as test:
        assert test.broker.topics.leader_epoch == 0
    for expected in (1, 2):
        async with crashed.broker() as test:
            topic = test.broker.topics.get("flights")
            assert topic is not None
            response = await test.ask(MetadataRequest(None), 12)
            assert response.topics[0].partitions[0].leader_epoch == expected
            await test.produce(batch_of())
            assert topic.partitions[0].log.epochs.latest == expected
            metadata = crashed.metadata
            crashed = crashed.after_a_crash()
            crashed.metadata = metadata


async def test_a_topic_that_was_stored_before_a_crash_gets_its_directories() -> None:
    machine = Machine()
    async with machine.broker():
        pass
    machine.metadata.apply([PutTopic(StoredTopic("t", b"t" * 16, 2, {}))])
    async with machine.broker() as test:
        assert (await test.produce(batch_of(), topic="t", index=1)).error_code == 0
    assert directories(machine) == ["t-0", "t-1"]


async def test_a_deletion_that_was_stored_before_a_crash_is_carried_out() -> None:
    machine = Machine()
    async with machine.broker() as test:
        topic = await test.topic("t")
        await test.produce(batch_of(), topic="t")
    machine.metadata.apply([DeleteTopic(topic.topic_id)])
    async with machine.broker() as test:
        assert test.broker.topics.get("t") is None
        assert machine.metadata.open().deleted_topics == {}
        await settle()
        assert directories(machine) == []
        await test.topic("t")
        assert (await test.fetch(topic="t")).high_watermark == 0


async def test_a_deleted_topic_leaves_no_files_and_no_metadata() -> None:
    machine = Machine()
    async with machine.broker() as test:
        topic = await test.topic("t", partitions=2)
        await test.broker.topics.delete(topic)
        await settle()
        assert directories(machine) == []
        state = machine.metadata.open()
        assert (state.topics, state.deleted_topics) == ({}, {})


async def test_directories_that_moved_in_become_a_topic_with_later_epochs() -> None:
    source, target = Machine(), Machine()
    async with source.broker() as test:
        topic = await test.topic("flights", partitions=2)
        await test.produce(batch_of(3))
    source.files.write_whole(
        f"{DATA}/flights-0/leader-epoch-checkpoint", encode_epochs([EpochStart(41, 0)])
    )
    async with target.broker():
        pass
    for name in ("flights-0", "flights-1"):
        target.files.make_directory(f"{DATA}/{name}")
        _copy_tree(source.files, target.files, f"{DATA}/{name}")
    async with target.broker() as test:
        moved = test.broker.topics.get("flights")
        assert moved is not None
        assert moved.topic_id == topic.topic_id
        assert offsets_of(await test.fetch(0)) == [0, 1, 2]
        assert test.broker.topics.leader_epoch == 42
        await test.produce(batch_of())
        assert moved.partitions[0].log.epochs.latest == 42
    async with target.broker() as test:
        assert test.broker.topics.leader_epoch == 42
        assert test.broker.topics.get("flights") is not None


async def test_a_directory_of_another_topic_of_the_same_name_is_kept_aside() -> None:
    machine = Machine()
    async with machine.broker() as test:
        await test.topic("t")
        await test.produce(batch_of(), topic="t")
    machine.metadata = MemoryMetadataStore()
    machine.metadata.apply([PutTopic(StoredTopic("t", b"other".ljust(16), 1, {}))])
    async with machine.broker() as test:
        assert (await test.fetch(topic="t")).high_watermark == 0
    kept, stray = directories(machine)
    assert kept == "t-0"
    assert stray.endswith("-stray")


async def test_a_damaged_partition_is_offline_and_the_others_are_served() -> None:
    machine = Machine()
    async with machine.broker() as test:
        await test.topic("t", partitions=2)
        await test.produce(batch_of(), topic="t", index=1)

    def fail(operation: str, path: str) -> None:
        if operation == "open" and path.startswith(f"{DATA}/t-0/") and path.endswith(".log"):
            raise OSError(errno.EIO, "Input/output error", path)

    machine.files.on_call = fail
    async with machine.broker() as test:
        offline = await test.produce(batch_of(), topic="t", index=0)
        assert ErrorCode(offline.error_code) is ErrorCode.KAFKA_STORAGE_ERROR
        assert ErrorCode((await test.fetch(topic="t", index=0)).error_code) is (
            ErrorCode.KAFKA_STORAGE_ERROR
        )
        follower = await test.fetch(topic="t", index=0, last_fetched_epoch=0)
        assert ErrorCode(follower.error_code) is ErrorCode.KAFKA_STORAGE_ERROR
        assert (await test.produce(batch_of(), topic="t", index=1)).error_code == 0
        topic = test.broker.topics.get("t")
        assert topic is not None
        await test.broker.topics.delete(topic)


async def test_no_group_is_served_from_a_damaged_offsets_topic() -> None:
    machine = Machine()
    async with machine.broker() as test:
        await test.topic("__consumer_offsets", cleanup_policy="compact")

    def fail(operation: str, path: str) -> None:
        if operation == "open" and path.endswith(".log"):
            raise OSError(errno.EIO, "Input/output error", path)

    machine.files.on_call = fail
    async with machine.broker() as test:
        with pytest.raises(KafkaError) as caught:
            test.broker.groups.find("group")
        assert caught.value.code is ErrorCode.NOT_COORDINATOR


async def test_a_creation_that_the_disk_does_not_take_leaves_nothing() -> None:
    machine = Machine()
    async with machine.broker() as test:

        def fail(operation: str, path: str) -> None:
            if operation == "make_directory" and path.endswith("t-1"):
                raise OSError(errno.ENOSPC, "No space left on device", path)

        machine.files.on_call = fail
        with pytest.raises(KafkaError) as caught:
            await test.topic("t", partitions=2)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert test.broker.topics.partition_count == 0
        machine.files.on_call = None
        await test.topic("t", partitions=2)
        assert (await test.produce(batch_of(), topic="t", index=1)).error_code == 0


async def test_a_creation_that_cannot_be_taken_back_either_is_taken_back_by_the_next(
    tmp_path: Path,
) -> None:
    """On a disk that is full for the logs and for the store."""

    class FullStore(SqliteMetadataStore):
        is_full = False

        def apply(self, changes: Sequence[Change]) -> None:
            if self.is_full and isinstance(changes[0], DeleteTopic):
                raise OSError(errno.ENOSPC, "No space left on device")
            super().apply(changes)

    def fail(operation: str, path: str) -> None:
        if operation == "make_directory":
            raise OSError(errno.ENOSPC, "No space left on device", path)

    files, store = MemoryFiles(), FullStore(tmp_path / FILE_NAME)
    async with under_test(files=files, metadata=store) as test:
        store.is_full = True
        files.on_call = fail
        for _ in range(2):
            with pytest.raises(KafkaError):
                await test.topic()
        store.is_full = False
        files.on_call = None
        created = await test.topic()
        assert (await test.produce(batch_of())).error_code == 0
    async with under_test(files=files, metadata=store) as test:
        assert [topic.topic_id for topic in test.broker.topics] == [created.topic_id]
        assert offsets_of(await test.fetch(0)) == [0]


class FullStore(MemoryMetadataStore):
    """Takes nothing while it is full."""

    is_full = False

    def apply(self, changes: object) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().apply(changes)  # type: ignore[arg-type]


async def test_a_creation_that_cannot_be_stored_leaves_nothing() -> None:
    machine = Machine()
    machine.metadata = store = FullStore()
    async with machine.broker() as test:
        kept = await test.topic("kept")
        store.is_full = True
        with pytest.raises(KafkaError):
            await test.topic("t")
        with pytest.raises(KafkaError):
            await test.broker.topics.delete(kept)
        store.is_full = False
        assert test.broker.topics.get("kept") is kept
        await test.topic("t")
        await test.broker.topics.delete(kept)
        assert test.broker.topics.get("kept") is None


async def test_nobody_is_told_of_what_another_request_has_not_made_durable() -> None:
    """A client that has lost its connection asks again, while its first request is under way."""
    machine = Machine()
    machine.metadata = store = FullStore()
    async with machine.broker() as test:
        topics, kept = test.broker.topics, await test.topic("kept")
        store.is_full = True
        changes = [topics.create("t", 1, {}) for _ in range(2)]
        changes += [topics.delete(kept) for _ in range(2)]  # type: ignore[misc]
        changes.append(topics.set_overrides(kept, {"segment.ms": "5"}))  # type: ignore[arg-type]
        for outcome in await asyncio.gather(*changes, return_exceptions=True):
            assert isinstance(outcome, KafkaError)
            assert outcome.code is ErrorCode.KAFKA_STORAGE_ERROR
        store.is_full = False
        first, again = topics.create("t", 1, {}), topics.create("t", 1, {})
        assert (await first).name == "t"
        with pytest.raises(KafkaError, match="topic t exists"):
            await again
        deletion, again_deletion = topics.delete(kept), topics.delete(kept)
        await deletion
        with pytest.raises(KafkaError, match="topic kept was deleted"):
            await again_deletion


async def test_no_topic_comes_or_goes_while_the_directory_is_offline() -> None:
    async with Machine().broker() as test:
        topic = await test.broker.topics.create("old", 1, {})
        test.broker.storage.fail(OSError(errno.EIO, "made up"))
        for change in (
            lambda: test.broker.topics.create("new", 1, {}),
            lambda: test.broker.topics.delete(topic),
        ):
            with pytest.raises(KafkaError, match="offline until a restart") as raised:
                await change()
            assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert [topic.name for topic in test.broker.topics] == ["old"]
        test.broker.storage.error = None


async def test_settings_of_a_topic_on_its_way_out_cannot_change() -> None:
    machine = Machine()
    async with machine.broker() as test:
        topic = await test.topic("t")
        deletion = test.broker.topics.delete(topic)
        with pytest.raises(KafkaError) as caught:
            await test.broker.topics.set_overrides(topic, {"segment.ms": "5"})
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await deletion
    async with machine.broker() as test:
        assert test.broker.topics.get("t") is None


async def test_a_stop_answers_those_who_wait() -> None:
    machine = Machine()
    async with machine.broker() as test:
        await test.topic()
        fetch = test.begin(fetch_request({("flights", 0): 0}, max_wait_ms=60_000), 12)
        creation = asyncio.ensure_future(test.topic("late"))
        await asyncio.sleep(0)
        test.broker.end_waits()
        response = await fetch
        assert response.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await creation
    async with machine.broker() as test:
        assert test.broker.topics.get("late") is not None


async def test_checkpoints_are_written_now_and_then() -> None:
    machine = Machine()
    written: list[str] = []
    async with machine.broker(log_flush_offset_checkpoint_interval_ms="1000") as test:
        await test.topic()
        machine.files.on_call = lambda operation, path: (
            written.append(path) if operation == "write_atomically" else None
        )
        for _ in range(2):
            await test.produce(batch_of(), acks=-1)
            written.clear()
            test.clock.advance(1.0)
            await settle()
            assert f"{DATA}/recovery-point-offset-checkpoint" in written


async def test_a_stop_costs_no_fsync_for_partitions_that_nobody_wrote_to() -> None:
    machine = Machine()
    synced: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation in ("datasync", "sync_directory", "write_atomically"):
            synced.append(path)

    async with machine.broker() as test:
        await test.topic("idle", partitions=50)
        await test.topic("busy", partitions=2)
        await test.produce(batch_of(), topic="busy", index=0)
        await test.produce(batch_of(), topic="busy", index=1)
        machine.files.on_call = note
    assert [path for path in synced if "idle" in path] == []
    assert [path for path in synced if "busy-1" in path] != []
    synced.clear()
    async with machine.broker() as test:
        await test.produce(batch_of(), topic="busy", index=0)
    assert [path for path in synced if "busy-0" in path] != []
    assert [path for path in synced if "idle" in path or "busy-1" in path] == []
    machine.files.on_call = None
    async with machine.broker() as test:
        assert offsets_of(await test.fetch(topic="busy", index=0)) == [0, 1]
        assert offsets_of(await test.fetch(topic="busy", index=1)) == [0]


async def test_a_directory_in_use_is_refused() -> None:
    machine = Machine()
    async with machine.broker():
        with pytest.raises(DirectoryRefused, match="in use"):
            async with machine.broker():
                pass
    async with machine.broker() as test:
        await test.topic()


async def test_a_directory_of_another_node_is_refused() -> None:
    machine = Machine()
    async with machine.broker(node_id="1"):
        pass
    with pytest.raises(DirectoryRefused, match="node"):
        async with machine.broker(node_id="2"):
            pass
    async with machine.broker(node_id="1"):
        pass


def config_on(directory: Path) -> BrokerConfig:
    return BrokerConfig.from_settings({"log.dirs": str(directory)})


async def test_topics_survive_a_restart_on_a_real_disk(tmp_path: Path) -> None:
    broker = Broker(config_on(tmp_path))
    await broker.start()
    topic = await broker.topics.create("t", 3, {"segment.ms": "5"})
    producer_id = await broker.producer_ids.allocate()
    await broker.topics.delete(await broker.topics.create("gone", 1, {}))
    await broker.stop()
    broker = Broker(config_on(tmp_path))
    await broker.start()
    kept = broker.topics.get("t")
    assert kept is not None
    assert (kept.topic_id, len(kept.partitions)) == (topic.topic_id, 3)
    assert kept.config.overrides == {"segment.ms": "5"}
    assert broker.topics.get("gone") is None
    assert await broker.producer_ids.allocate() > producer_id
    await broker.stop()
    assert RealFiles().list_directories(str(tmp_path)) == ["t-0", "t-1", "t-2"]


async def test_damaged_metadata_is_refused_and_the_directory_given_back(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"this is no database" * 100)
    with pytest.raises(DirectoryRefused, match=FILE_NAME):
        await Broker(config_on(tmp_path)).start()
    (tmp_path / FILE_NAME).unlink()
    broker = Broker(config_on(tmp_path))
    await broker.start()
    await broker.stop()


async def test_ten_thousand_partitions_are_created_told_and_kept() -> None:
    machine = Machine()
    async with machine.broker() as test:
        await asyncio.gather(
            test.topic("wide", partitions=5000),
            *(test.topic(f"narrow{number}", partitions=5) for number in range(1000)),
        )
        response = await test.ask(MetadataRequest(None), 12)
        assert sum(len(topic.partitions) for topic in response.topics) == 10_000
    async with machine.broker() as test:
        assert len(test.broker.topics) == 1001
        assert test.broker.topics.partition_count == 10_000
        assert (await test.produce(batch_of(), topic="wide", index=4999)).error_code == 0
