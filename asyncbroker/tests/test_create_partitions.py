"""The CreatePartitions handler, as Apache Kafka 4.3 answers; and what becomes of the topic."""

from __future__ import annotations

import asyncio

import pytest

from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from asyncbroker.tests.data_path_harness import UnderTest, batch_of, offsets_of, under_test


async def grow(
    test: UnderTest,
    *topics: tuple[str, int] | tuple[str, int, list[list[int]] | None],
    validate_only: bool = False,
    version: int = 3,
) -> list[ErrorCode]:
    asked = []
    for name, count, *rest in topics:
        assignments = rest[0] if rest else None
        asked.append(
            CreatePartitionsTopic(
                name,
                count,
                None
                if assignments is None
                else [CreatePartitionsAssignment(ids) for ids in assignments],
            )
        )
    request = CreatePartitionsRequest(asked, 1000, validate_only)
    response: CreatePartitionsResponse = await test.ask(request, version)
    for result in response.results:
        assert (result.error_code == 0) == (result.error_message is None)
    return [ErrorCode(result.error_code) for result in response.results]


@pytest.mark.parametrize("version", range(4))
async def test_a_topic_gets_partitions_that_can_be_used_at_once(version: int) -> None:
    async with under_test() as test:
        topic = await test.topic("flights", partitions=2)
        assert await grow(test, ("flights", 4), version=version) == [ErrorCode.NONE]
        assert [partition.index for partition in topic.partitions] == [0, 1, 2, 3]
        assert test.broker.topics.partition_count == 4
        assert (await test.produce(batch_of(3), index=3)).error_code == 0
        assert offsets_of(await test.fetch(index=3)) == [0, 1, 2]


async def test_what_was_there_stays_over_growth_and_restart() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as test:
        topic = await test.topic("flights", partitions=2, segment_ms="5")
        await test.produce(batch_of(2), index=1)
        await grow(test, ("flights", 3))
        await test.produce(batch_of(1), index=2)
        topic_id = topic.topic_id
    async with under_test(files=files, metadata=metadata) as test:
        again = test.broker.topics.get("flights")
        assert again is not None
        assert (again.topic_id, len(again.partitions)) == (topic_id, 3)
        assert again.config.overrides == {"segment.ms": "5"}
        assert offsets_of(await test.fetch(index=1)) == [0, 1]
        assert offsets_of(await test.fetch(index=2)) == [0]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (("missing", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("flights", 2), ErrorCode.INVALID_PARTITIONS),
        (("flights", 1), ErrorCode.INVALID_PARTITIONS),
        (("flights", 0), ErrorCode.INVALID_PARTITIONS),
        (("flights", -1), ErrorCode.INVALID_PARTITIONS),
        (("flights", 1_000_000_000), ErrorCode.INVALID_PARTITIONS),
        (("flights", 4, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("flights", 4, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("flights", 4, [[1], [2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("flights", 4, [[1], [1, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("flights", 4, [[1], []]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_what_cannot_be_is_refused(topic: tuple[str, int], code: ErrorCode) -> None:
    async with under_test() as test:
        flights = await test.topic("flights", partitions=2)
        assert await grow(test, topic) == [code]
        assert len(flights.partitions) == test.broker.topics.partition_count == 2


async def test_partitions_can_be_assigned_to_this_broker() -> None:
    async with under_test() as test:
        topic = await test.topic("flights", partitions=2)
        assert await grow(test, ("flights", 4, [[1], [1]])) == [ErrorCode.NONE]
        assert len(topic.partitions) == 4


async def test_each_topic_has_its_own_outcome_and_one_named_twice_has_one() -> None:
    async with under_test() as test:
        topic = await test.topic("flights")
        await test.topic("twice")
        codes = await grow(test, ("missing", 2), ("twice", 2), ("flights", 2), ("twice", 3))
        assert codes == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.NONE,
        ]
        assert len(topic.partitions) == 2


async def test_validate_only_checks_and_changes_nothing() -> None:
    async with under_test() as test:
        topic = await test.topic("flights")
        assert await grow(test, ("flights", 5), validate_only=True) == [ErrorCode.NONE]
        assert await grow(test, ("flights", 1), validate_only=True) == [
            ErrorCode.INVALID_PARTITIONS
        ]
        assert len(topic.partitions) == 1
        assert await grow(test, ("flights", 5)) == [ErrorCode.NONE]


async def test_the_topic_of_the_groups_keeps_its_size() -> None:
    async with under_test() as test:
        await test.topic("__consumer_offsets", cleanup_policy="compact")
        assert await grow(test, ("__consumer_offsets", 5)) == [ErrorCode.INVALID_REQUEST]


async def test_growth_and_changes_of_settings_at_the_same_time_do_not_undo_each_other() -> None:
    metadata = MemoryMetadataStore()
    files = MemoryFiles()
    async with under_test(metadata=metadata, files=files) as test:
        topic = await test.topic("flights")
        await asyncio.gather(
            test.broker.topics.set_overrides(topic, {"segment.ms": "6"}),
            test.broker.topics.add_partitions(topic, 3),
            test.broker.topics.set_overrides(topic, {"segment.ms": "7"}),
        )
        assert [partition.log.config.segment_ms for partition in topic.partitions] == [7, 7, 7]
    (stored,) = metadata.open().topics.values()
    assert (stored.partition_count, stored.configs) == (3, {"segment.ms": "7"})


async def test_of_two_growths_at_the_same_time_the_later_sees_the_earlier() -> None:
    async with under_test() as test:
        topic = await test.topic("flights")
        outcomes = await asyncio.gather(
            grow(test, ("flights", 4)), grow(test, ("flights", 3)), grow(test, ("flights", 6))
        )
        assert [code for (code,) in outcomes] == [
            ErrorCode.NONE,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.NONE,
        ]
        assert [partition.index for partition in topic.partitions] == list(range(6))
        assert test.broker.topics.partition_count == 6


async def test_a_topic_that_is_being_deleted_does_not_grow() -> None:
    files = MemoryFiles()
    async with under_test(files=files) as test:
        topic = await test.topic("flights")
        growth = test.broker.topics.add_partitions(topic, 2)
        deletion = test.broker.topics.delete(topic)
        late = asyncio.ensure_future(grow(test, ("flights", 3)))
        outcomes = await asyncio.gather(growth, deletion, late, return_exceptions=True)
        assert outcomes[2] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert test.broker.topics.partition_count == 0
    assert files.list_directories("memory") == []


async def test_a_disk_that_refuses_leaves_the_topic_as_it_was() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as test:
        topic = await test.topic("flights")
        make = files.make_directory

        def refuse(path: str) -> None:
            if path.endswith("-2"):
                raise OSError(28, "No space left on device")
            make(path)

        files.make_directory = refuse  # type: ignore[method-assign]
        assert await grow(test, ("flights", 4)) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert len(topic.partitions) == test.broker.topics.partition_count == 1
        files.make_directory = make  # type: ignore[method-assign]
        assert await grow(test, ("flights", 4)) == [ErrorCode.NONE]
    (stored,) = metadata.open().topics.values()
    assert stored.partition_count == 4
