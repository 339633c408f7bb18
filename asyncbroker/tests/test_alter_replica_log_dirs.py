"""The AlterReplicaLogDirs handler, as Apache Kafka 4.3 answers with one directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncbroker.log.files import RealFiles
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from asyncbroker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from asyncbroker.tests.data_path_harness import UnderTest, under_test


async def alter(
    test: UnderTest, *wanted: tuple[str, str, list[int]], version: int = 2
) -> dict[tuple[str, int], int]:
    """Which error each partition got, of those that are to be in directories."""
    directories = [
        AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(name, partitions)])
        for path, name, partitions in wanted
    ]
    response: AlterReplicaLogDirsResponse = await test.ask(
        AlterReplicaLogDirsRequest(directories), version
    )
    return {
        (topic.topic_name, partition.partition_index): partition.error_code
        for topic in response.results
        for partition in topic.partitions
    }


async def directory(test: UnderTest) -> str:
    (result,) = (await test.ask(DescribeLogDirsRequest(None), 4)).results
    return str(result.log_dir)


@pytest.mark.parametrize("version", [1, 2])
async def test_a_partition_that_is_in_the_directory_is_left_there(
    tmp_path: Path, version: int
) -> None:
    async with under_test(files=RealFiles(), log_dirs=str(tmp_path)) as test:
        await test.topic(partitions=2)
        here = await directory(test)
        assert here == str(tmp_path)
        outcomes = await alter(test, (here, "flights", [1, 0]), version=version)
        assert outcomes == {("flights", 1): 0, ("flights", 0): 0}


async def test_another_directory_is_not_there_whatever_is_to_be_in_it() -> None:
    async with under_test() as test:
        await test.topic()
        here = await directory(test)
        not_found = ErrorCode.LOG_DIR_NOT_FOUND
        for path in ("/elsewhere", "relative", "", here + "/"):
            outcomes = await alter(test, (path, "flights", [0, 7]), (path, "missing", [0]))
            assert set(outcomes.values()) == {not_found}
            assert len(outcomes) == 3


async def test_partitions_that_do_not_exist_are_unknown() -> None:
    async with under_test() as test:
        await test.topic()
        here = await directory(test)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        outcomes = await alter(test, (here, "flights", [0, 1, -1]), (here, "missing", [0]))
        assert outcomes == {
            ("flights", 0): 0,
            ("flights", 1): unknown,
            ("flights", -1): unknown,
            ("missing", 0): unknown,
        }


async def test_of_a_partition_that_is_named_twice_the_last_counts() -> None:
    async with under_test() as test:
        await test.topic()
        here = await directory(test)
        outcomes = await alter(test, (here, "flights", [0]), ("/elsewhere", "flights", [0]))
        assert outcomes == {("flights", 0): ErrorCode.LOG_DIR_NOT_FOUND}


async def test_a_directory_that_is_offline_says_so() -> None:
    async with under_test() as test:
        await test.topic()
        here = await directory(test)
        test.broker.storage.fail(OSError(5, "made up"))
        outcomes = await alter(test, (here, "flights", [0]))
        assert outcomes == {("flights", 0): ErrorCode.KAFKA_STORAGE_ERROR}
        test.broker.storage.error = None
