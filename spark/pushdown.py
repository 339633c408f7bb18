"""Filters of a query that say which offsets are worth reading, taken over from Spark.

Spark offers the conditions that are joined by AND, each over one column. What is taken:

- topic, partition: any comparison; ranges of partitions that do not pass are not read.
- offset: comparisons that leave one stretch of offsets; ranges are cut to it.
- timestamp: "not before", which raises the start to the first record that is as young, as the
  broker knows it. Younger records may be followed by older ones, so Spark filters again, and a
  "before" says nothing about where to stop.

What is not taken, or only used as a hint, goes back to Spark, which applies it to the rows. Filters
are known by the names of their classes: before PySpark 4.1 there are none.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.partitions import list_offsets
from asyncbroker.spark.planner import OffsetRange

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})

Test = Callable[[Any], bool]

_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "In": lambda value, operands: value in operands,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": operator.contains,
}


@dataclass(slots=True)
class Restriction:
    """What is to be read of the ranges of a plan: all of it until a filter has been taken over."""

    tests: list[tuple[str, Test]] = field(default_factory=list)
    start: int = 0
    end: int | None = None
    not_before_ms: int | None = None

    def take(self, filters: Iterable[Any], column_of: Mapping[str, str]) -> list[Any]:
        """Takes over what it can; returns the filters that Spark has to apply.

        `column_of` tells which of the source's columns stands behind a name.
        """
        return [one for one in filters if not self._is_taken(one, column_of)]

    def _is_taken(self, one: Any, column_of: Mapping[str, str]) -> bool:
        inner, is_negated = (one.child, True) if _kind(one) == "Not" else (one, False)
        path: Sequence[str] = getattr(inner, "attribute", ())
        column = column_of.get(path[0]) if len(path) == 1 else None
        if column is None:
            return False
        if _kind(inner) == "IsNotNull" and not is_negated:
            return column in _NEVER_NULL
        if column in ("topic", "partition"):
            return self._takes_partition(inner, is_negated, column)
        if column == "offset" and not is_negated:
            return self._takes_offset(inner)
        if column == "timestamp" and not is_negated:
            self._note_timestamp(inner)
        return False

    def _takes_partition(self, inner: Any, is_negated: bool, column: str) -> bool:
        compare = _COMPARISONS.get(_kind(inner))
        kind = str if column == "topic" else int
        operands = inner.value if _kind(inner) == "In" else [getattr(inner, "value", None)]
        if compare is None or not all(type(operand) is kind for operand in operands):
            return False
        operand = inner.value
        self.tests.append((column, lambda value: compare(value, operand) != is_negated))
        return True

    def _takes_offset(self, inner: Any) -> bool:
        value = getattr(inner, "value", None)
        if _kind(inner) == "In" and value and all(type(number) is int for number in value):
            # As a hint: those between them are for Spark to drop.
            self._keep(min(value), max(value) + 1)
            return False
        if type(value) is not int:
            return False
        match _kind(inner):
            case "EqualTo" | "EqualNullSafe":
                self._keep(value, value + 1)
            case "GreaterThan":
                self._keep(value + 1, None)
            case "GreaterThanOrEqual":
                self._keep(value, None)
            case "LessThan":
                self._keep(0, value)
            case "LessThanOrEqual":
                self._keep(0, value + 1)
            case _:
                return False
        return True

    def _keep(self, start: int, end: int | None) -> None:
        self.start = max(self.start, start)
        if end is not None:
            self.end = end if self.end is None else min(self.end, end)

    def _note_timestamp(self, inner: Any) -> None:
        value = getattr(inner, "value", None)
        kinds = ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual")
        if _kind(inner) not in kinds or not isinstance(value, datetime) or value.tzinfo is None:
            return
        milliseconds = (value - _EPOCH) // timedelta(milliseconds=1)
        if milliseconds > 0:
            self.not_before_ms = max(self.not_before_ms or 0, milliseconds)

    def applied_to(self, ranges: Iterable[OffsetRange], cluster: Cluster) -> list[OffsetRange]:
        """What is left of the ranges, which are of one partition each; raises ClientError."""
        left = [wanted for wanted in map(self._cut, ranges) if wanted.size > 0]
        if self.not_before_ms is None or not left:
            return left
        times = {wanted.partition: self.not_before_ms for wanted in left}
        found = list_offsets(cluster, times)
        cut = []
        for wanted in left:
            offset = found[wanted.partition].offset
            # Without a match there is no record as young, also none that is still to be read.
            start = wanted.end if offset < 0 else min(max(wanted.start, offset), wanted.end)
            cut.append(wanted.piece(start, wanted.end))
        return [wanted for wanted in cut if wanted.size]

    def _cut(self, wanted: OffsetRange) -> OffsetRange:
        if not self._passes(wanted.partition):
            return wanted.piece(wanted.end, wanted.end)
        start = max(wanted.start, self.start)
        end = wanted.end if self.end is None else min(wanted.end, self.end)
        return wanted.piece(start, max(start, end))

    def _passes(self, partition: TopicPartition) -> bool:
        return all(test(getattr(partition, column)) for column, test in self.tests)


def _kind(one: Any) -> str:
    return type(one).__name__
