"""The DescribeLogDirs handler, as Apache Kafka 4.3 answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncbroker.log.files import RealFiles
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from asyncbroker.tests.data_path_harness import UnderTest, batch_of, under_test


async def describe(
    test: UnderTest, topics: list[DescribableLogDirTopic] | None = None, version: int = 4
) -> DescribeLogDirsResult:
    response: DescribeLogDirsResponse = await test.ask(DescribeLogDirsRequest(topics), version)
    assert response.error_code == 0
    (result,) = response.results
    return result


def sizes(result: DescribeLogDirsResult) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 5))
async def test_sizes_are_those_of_the_batches(version: int) -> None:
    async with under_test() as test:
        await test.topic(partitions=2)
        await test.topic("empty")
        batches = [batch_of(3), batch_of(2, value=bytes(1000))]
        for batch in batches:
            await test.produce(batch, index=1)
        result = await describe(test, version=version)
        assert result.error_code == 0
        assert result.log_dir == "memory"
        assert sizes(result) == {
            ("flights", 0): 0,
            ("flights", 1): sum(map(len, batches)),
            ("empty", 0): 0,
        }
        (partition,) = result.topics[1].partitions
        assert (partition.offset_lag, partition.is_future_key) == (0, False)


async def test_only_what_is_asked_for_and_known_is_told() -> None:
    async with under_test() as test:
        await test.topic(partitions=3)
        await test.topic("other")
        asked = [
            DescribableLogDirTopic("flights", [2, 9, 0]),
            DescribableLogDirTopic("missing", [0]),
            DescribableLogDirTopic("other", []),
            DescribableLogDirTopic("flights", [2]),
        ]
        assert list(sizes(await describe(test, asked))) == [("flights", 0), ("flights", 2)]
        assert sizes(await describe(test, [])) == {}


async def test_the_volume_is_told_of_a_real_directory_only(tmp_path: Path) -> None:
    async with under_test(files=RealFiles(), log_dirs=str(tmp_path)) as test:
        result = await describe(test)
        assert result.log_dir == str(tmp_path)
        assert 0 < result.usable_bytes < result.total_bytes
    async with under_test() as test:
        result = await describe(test)
        assert (result.total_bytes, result.usable_bytes) == (-1, -1)


async def test_a_directory_that_is_offline_says_so() -> None:
    async with under_test() as test:
        await test.topic()
        test.broker.storage.fail(OSError(5, "made up"))
        result = await describe(test)
        assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
        test.broker.storage.error = None
