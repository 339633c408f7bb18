"""Planning: which offsets a query reads, in how many pieces, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncbroker.client.cluster import TopicPartition
from asyncbroker.client.errors import BrokerError
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.list_offsets import ListOffsetsPartitionResponse
from asyncbroker.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from asyncbroker.spark import planner
from asyncbroker.spark.options import ReadOptions
from asyncbroker.spark.planner import DataLost, OffsetRange, plan, split


@dataclass
class Log:
    """A partition: where it begins and ends, and which timestamps (ms) it has."""

    earliest: int
    latest: int
    timestamps: dict[int, int] = field(default_factory=dict)


class StandInCluster:
    """What the planner asks of a cluster, from memory."""

    def __init__(self, logs: Mapping[TopicPartition, Log], internal: Iterable[str] = ()) -> None:
        self.logs = logs
        self.internal = set(internal)

    def topics(self) -> list[MetadataResponseTopic]:
        names = sorted({partition.topic for partition in self.logs})
        return [
            MetadataResponseTopic(
                name=name,
                is_internal=name in self.internal,
                partitions=[
                    MetadataResponsePartition(partition_index=index)
                    for topic, index in self.logs
                    if topic == name
                ],
            )
            for name in names
        ]

    def topic(self, name: str) -> MetadataResponseTopic:
        return next(topic for topic in self.topics() if topic.name == name)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        found = sorted(partition for partition in self.logs if partition.topic == topic)
        if not found:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, api="Metadata", subject=topic)
        return found


@pytest.fixture(autouse=True)
def _answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def earliest(cluster: Any, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: cluster.logs[partition].earliest for partition in partitions}

    def latest(
        cluster: Any, partitions: Iterable[TopicPartition], *, isolation_level: int
    ) -> dict[TopicPartition, int]:
        return {partition: cluster.logs[partition].latest for partition in partitions}

    def by_time(
        cluster: Any, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Any]:
        return {
            partition: ListOffsetsPartitionResponse(
                offset=min(
                    (o for o, t in cluster.logs[partition].timestamps.items() if t >= wanted),
                    default=-1,
                )
            )
            for partition, wanted in timestamps.items()
        }

    monkeypatch.setattr(planner, "earliest_offsets", earliest)
    monkeypatch.setattr(planner, "latest_offsets", latest)
    monkeypatch.setattr(planner, "list_offsets", by_time)


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
CLUSTER = StandInCluster(
    {
        T0: Log(0, 100, {10: 1000, 20: 2000}),
        T1: Log(50, 80, {60: 1000}),
        TopicPartition("other", 0): Log(0, 5),
        TopicPartition("__internal_t", 0): Log(0, 7),
    },
    internal=["__internal_t"],
)


def planned(**given_options: str) -> list[tuple[str, int, int]]:
    options = {"kafka.bootstrap.servers": "b", "subscribe": "t"} | given_options
    if "assign" in options or "subscribePattern" in options:
        del options["subscribe"]
    ranges = plan(ReadOptions.parse(options), CLUSTER)  # type: ignore[arg-type]
    return [(str(r.partition), r.start, r.end) for r in ranges]


def test_a_query_reads_everything_by_default() -> None:
    assert planned() == [("t-0", 0, 100), ("t-1", 50, 80)]


def test_several_topics_partitions_or_a_pattern_may_be_read() -> None:
    assert planned(subscribe="other,t") == [("other-0", 0, 5), ("t-0", 0, 100), ("t-1", 50, 80)]
    assert planned(assign='{"t":[1]}') == [("t-1", 50, 80)]
    assert planned(subscribePattern="t") == [("other-0", 0, 5), ("t-0", 0, 100), ("t-1", 50, 80)]
    assert planned(subscribePattern="^t") == [("t-0", 0, 100), ("t-1", 50, 80)]
    assert planned(subscribePattern="nothing") == []


def test_an_assigned_partition_that_does_not_exist_is_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert planned(assign='{"t":[1,9]}') == [("t-1", 50, 80)]
    assert caplog.messages == ["partition t-9 does not exist and is left out"]


def test_an_unknown_topic_is_an_error() -> None:
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        planned(subscribe="nothing")


def test_offsets_per_partition_are_exclusive_at_the_end() -> None:
    assert planned(
        startingOffsets='{"t":{"0":7,"1":-2}}', endingOffsets='{"t":{"0":-1,"1":60}}'
    ) == [("t-0", 7, 100), ("t-1", 50, 60)]


def test_an_empty_range_is_not_planned() -> None:
    same = '{"t":{"0":7,"1":70}}'
    assert planned(startingOffsets=same, endingOffsets=same) == []


@pytest.mark.parametrize("offsets", ['{"t":{"0":7}}', '{"t":{"0":7,"1":60,"2":0}}'])
def test_offsets_must_name_each_partition(offsets: str) -> None:
    for side, option in (("start", "startingOffsets"), ("end", "endingOffsets")):
        with pytest.raises(ValueError, match=f"specified for Kafka {side} offsets don't match"):
            planned(**{option: offsets})
    with pytest.raises(ValueError, match="for Kafka timestamp based start offsets don't match"):
        planned(startingOffsetsByTimestamp=offsets)


def test_timestamps_choose_the_first_record_that_is_not_older() -> None:
    assert planned(startingTimestamp="500", endingTimestamp="1500") == [
        ("t-0", 10, 20),
        ("t-1", 60, 80),
    ]
    assert planned(startingOffsetsByTimestamp='{"t":{"0":1001,"1":0}}') == [
        ("t-0", 20, 100),
        ("t-1", 60, 80),
    ]


def test_a_starting_timestamp_without_a_record_is_an_error_or_the_end() -> None:
    with pytest.raises(ValueError, match=r"No offset matched.* t-1 and timestamp 1500"):
        planned(startingTimestamp="1500")
    with pytest.raises(ValueError, match=r"No offset matched.* t-1 and timestamp 1600"):
        planned(startingOffsetsByTimestamp='{"t":{"0":1,"1":1600}}')
    assert planned(startingTimestamp="1500", startingOffsetsByTimestampStrategy="latest") == [
        ("t-0", 20, 100)
    ]


def test_a_start_beyond_the_log_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"RESOLVED_START_OFFSET_GREATER.* 500 .* 100 for topic t"):
        planned(startingOffsets='{"t":{"0":500,"1":60}}')


def test_an_end_beyond_the_log_is_an_error_at_once_or_cut() -> None:
    end = '{"t":{"0":500,"1":-1}}'
    with pytest.raises(DataLost, match=r"KAFKA_DATA_LOSS.*t-0 has offsets 0 to before 100"):
        planned(endingOffsets=end)
    assert planned(endingOffsets=end, failOnDataLoss="false") == [("t-0", 0, 100), ("t-1", 50, 80)]


def test_a_start_that_was_deleted_is_an_error_or_cut() -> None:
    start = '{"t":{"0":0,"1":10}}'
    with pytest.raises(DataLost, match="Some data may have been lost"):
        planned(startingOffsets=start)
    assert planned(startingOffsets=start, failOnDataLoss="false") == [
        ("t-0", 0, 100),
        ("t-1", 50, 80),
    ]
    # A range that was deleted as a whole is empty.
    assert (
        planned(startingOffsets=start, endingOffsets='{"t":{"0":0,"1":40}}', failOnDataLoss="false")
        == []
    )


# ---- splitting: the figures were observed with Spark's connector


def sizes_of(
    sizes: list[int], min_partitions: int | None, max_records: int | None = None
) -> list[int]:
    ranges = [OffsetRange(TopicPartition("t", i), 7, 7 + size) for i, size in enumerate(sizes)]
    return [r.size for r in split(ranges, min_partitions, max_records)]


@pytest.mark.parametrize(
    ("sizes", "min_partitions", "count"),
    [
        ([100] * 4, None, 4),
        ([100] * 4, 2, 4),
        ([100] * 4, 8, 8),
        ([100] * 4, 10, 12),
        ([10, 5, 0], 6, 6),
        ([1], 5, 1),
        ([], 5, 0),
    ],
)
def test_min_partitions_splits_as_the_connector_does(
    sizes: list[int], min_partitions: int | None, count: int
) -> None:
    assert len(sizes_of(sizes, min_partitions)) == count


def test_small_ranges_stay_whole_and_the_last_piece_takes_the_rest() -> None:
    assert sizes_of([1, 1000, 1], 5) == [1, 333, 333, 334, 1]


def test_max_records_caps_each_piece() -> None:
    assert sizes_of([250, 100], None, 100) == [83, 83, 84, 100]
    assert sizes_of([250, 100], 2, 1000) == [250, 100]


@given(
    sizes=st.lists(st.integers(0, 1000), max_size=6),
    min_partitions=st.none() | st.integers(1, 40),
    max_records=st.none() | st.integers(1, 1000),
)
def test_pieces_cover_the_ranges_in_order_without_overlap(
    sizes: list[int], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [OffsetRange(TopicPartition("t", i), i, i + size) for i, size in enumerate(sizes)]
    pieces = split(ranges, min_partitions, max_records)
    for whole in ranges:
        ends = [(p.start, p.end) for p in pieces if p.partition == whole.partition]
        assert [start for start, _ in ends] + [whole.end] * bool(ends) == (
            [whole.start] * bool(ends) + [end for _, end in ends]
        )
        assert bool(ends) == (whole.size > 0)
    assert all(piece.size > 0 for piece in pieces)
    if max_records is not None:
        assert all(piece.size <= max_records for piece in pieces)


@pytest.mark.parametrize(
    ("options", "pieces"),
    [
        ({}, [999_999, 1_000_000]),
        ({"maxRecordsPerPartition": "0"}, [1_999_999]),
        ({"minPartitions": "1"}, [1_999_999]),
        ({"maxRecordsPerPartition": "500000"}, [500_000, 500_000, 500_000, 499_999]),
    ],
)
def test_a_large_partition_is_split_by_default(options: dict[str, str], pieces: list[int]) -> None:
    cluster: Any = StandInCluster({T0: Log(1, 2_000_000)})
    base = {"kafka.bootstrap.servers": "b", "subscribe": "t"}
    ranges = plan(ReadOptions.parse(base | options), cluster)
    assert sorted(wanted.size for wanted in ranges) == sorted(pieces)
    assert ranges[0].start == 1
    assert all(a.end == b.start for a, b in pairwise(ranges))
