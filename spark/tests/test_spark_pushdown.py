"""Filters of Spark's: which are taken over, and what is left of the ranges then."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from asyncbroker.client.cluster import TopicPartition
from asyncbroker.protocol.messages.list_offsets import ListOffsetsPartitionResponse
from asyncbroker.spark import pushdown
from asyncbroker.spark.columns import COLUMN_TYPES
from asyncbroker.spark.planner import OffsetRange
from asyncbroker.spark.pushdown import Restriction

RANGES = [
    OffsetRange(TopicPartition("a", 0), 0, 100),
    OffsetRange(TopicPartition("a", 1), 50, 80),
    OffsetRange(TopicPartition("b", 0), 10, 20),
]
NAMES = {name: name for name in COLUMN_TYPES} | {"where": "partition"}
PARTITION, OFFSET, TOPIC, TIME = ("partition",), ("offset",), ("topic",), ("timestamp",)


def left(*filters: Filter) -> tuple[list[Any], list[tuple[str, int, int]]]:
    restriction = Restriction()
    refused = restriction.take(filters, NAMES)
    cluster: Any = None
    cut = restriction.applied_to(RANGES, cluster)
    return refused, [(str(wanted.partition), wanted.start, wanted.end) for wanted in cut]


EVERYTHING = [("a-0", 0, 100), ("a-1", 50, 80), ("b-0", 10, 20)]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], EVERYTHING),
        ([EqualTo(PARTITION, 0)], [("a-0", 0, 100), ("b-0", 10, 20)]),
        ([EqualTo(("where",), 1)], [("a-1", 50, 80)]),
        ([IsNotNull(PARTITION), Not(EqualTo(PARTITION, 0))], [("a-1", 50, 80)]),
        ([In(PARTITION, (1, 7))], [("a-1", 50, 80)]),
        ([Not(In(PARTITION, (1, 7)))], [("a-0", 0, 100), ("b-0", 10, 20)]),
        ([GreaterThan(PARTITION, 0), EqualTo(TOPIC, "b")], []),
        ([StringStartsWith(TOPIC, "b")], [("b-0", 10, 20)]),
        (
            [GreaterThan(OFFSET, 15), LessThanOrEqual(OFFSET, 60)],
            [("a-0", 16, 61), ("a-1", 50, 61), ("b-0", 16, 20)],
        ),
        (
            [GreaterThanOrEqual(OFFSET, 15), LessThan(OFFSET, 60), LessThan(OFFSET, 90)],
            [("a-0", 15, 60), ("a-1", 50, 60), ("b-0", 15, 20)],
        ),
        ([EqualTo(OFFSET, 15)], [("a-0", 15, 16), ("b-0", 15, 16)]),
        ([IsNotNull(OFFSET), IsNotNull(TOPIC), IsNotNull(TIME)], EVERYTHING),
    ],
)
def test_filters_that_are_taken_over(
    filters: list[Filter], expected: list[tuple[str, int, int]]
) -> None:
    assert left(*filters) == ([], expected)


@pytest.mark.parametrize(
    "one",
    [
        IsNotNull(("value",)),
        IsNotNull(("key",)),
        IsNull(PARTITION),
        Not(IsNotNull(PARTITION)),
        EqualTo(PARTITION, None),
        EqualTo(PARTITION, "0"),
        In(PARTITION, (1, None)),
        EqualTo(("value",), b"x"),
        Not(EqualTo(OFFSET, 3)),
        EqualTo(("headers", "key"), "x"),
        EqualTo(("nothing",), 1),
        LessThan(TIME, datetime(2024, 1, 1, tzinfo=timezone.utc)),
        GreaterThan(TIME, datetime(2024, 1, 1)),
    ],
)
def test_filters_that_are_left_to_spark(one: Filter) -> None:
    assert left(one) == ([one], EVERYTHING)


def test_some_offsets_are_a_hint() -> None:
    some = In(OFFSET, (55, 12, 13))
    assert left(some) == ([some], [("a-0", 12, 56), ("a-1", 50, 56), ("b-0", 12, 20)])


def test_a_time_raises_the_start_and_is_left_to_spark_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = {}

    def by_time(cluster: Any, times: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
        asked.update(times)
        offsets = {"a-0": 40, "a-1": -1, "b-0": 3}
        return {p: ListOffsetsPartitionResponse(offset=offsets[str(p)]) for p in times}

    monkeypatch.setattr(pushdown, "list_offsets", by_time)
    when = datetime(2024, 1, 1, 0, 0, 0, 5999, tzinfo=timezone.utc)
    filters = [
        GreaterThanOrEqual(TIME, when),
        GreaterThan(TIME, datetime(1960, 1, 1, tzinfo=timezone.utc)),
    ]
    assert left(*filters) == (filters, [("a-0", 40, 100), ("b-0", 10, 20)])
    assert set(asked.values()) == {1_704_067_200_005}
