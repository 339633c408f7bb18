"""Where a query starts and ends: the options for offsets and timestamps, as values.

Of `startingTimestamp`, `startingOffsetsByTimestamp` and `startingOffsets` the first that is there
counts, and likewise of the ending ones. In JSON per partition -2 is earliest, -1 is latest; an
ending offset is exclusive. The words of refusals are those of Spark's connector.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from asyncbroker.client.cluster import TopicPartition
from asyncbroker.client.partitions import EARLIEST, LATEST


@dataclass(frozen=True, slots=True)
class SameOffset:
    """EARLIEST or LATEST, for every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """An offset for each partition; EARLIEST and LATEST among them."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class SameTimestamp:
    """The first record of each partition that is not older, in ms."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class PartitionTimestamps:
    """As `SameTimestamp`, with a timestamp for each partition."""

    timestamps: Mapping[TopicPartition, int]


OffsetLimit = SameOffset | PartitionOffsets | SameTimestamp | PartitionTimestamps

_NAMES: Final = {"earliest": EARLIEST, "latest": LATEST}
_ENDINGS: Final = {
    "endingoffsets": "offset",
    "endingoffsetsbytimestamp": "timestamp",
    "endingtimestamp": "timestamp",
}
_OFFSETS_EXAMPLE: Final = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMESTAMPS_EXAMPLE: Final = '{"topicA":{"0":123456789,"1":123456789}}'


def starting_limit(options: Mapping[str, str]) -> OffsetLimit:
    """Where a batch query starts; `options` have lower-case keys. Raises ValueError."""
    limit = _limit(options, "starting", SameOffset(EARLIEST))
    if limit == SameOffset(LATEST):
        raise ValueError("starting offset can't be latest for batch queries on Kafka")
    _refuse_special(limit, LATEST, "startingOffsets", "latest")
    return limit


def ending_limit(options: Mapping[str, str]) -> OffsetLimit:
    """Where a batch query ends; `options` have lower-case keys. Raises ValueError."""
    limit = _limit(options, "ending", SameOffset(LATEST))
    if limit == SameOffset(EARLIEST):
        raise ValueError("ending offset can't be earliest for batch queries on Kafka")
    _refuse_special(limit, EARLIEST, "endingOffsets", "earliest")
    return limit


def stream_limits(options: Mapping[str, str]) -> tuple[OffsetLimit, OffsetLimit]:
    """Where a new stream starts (by default at the latest offsets), and that it never ends."""
    for name, what in _ENDINGS.items():
        if name in options:
            raise ValueError(f"ending {what} not valid in streaming queries")
    return _limit(options, "starting", SameOffset(LATEST)), SameOffset(LATEST)


def moves_with_time(limit: OffsetLimit) -> bool:
    """Whether the limit is another one when the log has grown."""
    match limit:
        case SameOffset(offset):
            return offset == LATEST
        case PartitionOffsets(offsets):
            return LATEST in offsets.values()
        case _:
            return False


def check_order(start: OffsetLimit, end: OffsetLimit) -> None:
    """Refuses explicit offsets that cannot make a range, whatever the topic holds."""
    if not isinstance(start, PartitionOffsets) or not isinstance(end, PartitionOffsets):
        return
    if start.offsets.keys() != end.offsets.keys():
        raise ValueError(
            "[MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET] The specified start "
            "offset and end offset should have the same topic-partitions. For start offset: "
            f"{listed(start.offsets)}, for end offset: {listed(end.offsets)}."
        )
    for partition, first in start.offsets.items():
        last = end.offsets[partition]
        if 0 <= last < first:
            raise ValueError(
                "[UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] The specified start offset "
                f"{first} is greater than the end offset {last} for topic {partition.topic} "
                f"partition {partition.partition}."
            )


def listed(partitions: Mapping[TopicPartition, Any]) -> str:
    """Partitions for an error message."""
    return "{" + ", ".join(str(partition) for partition in sorted(partitions)) + "}"


def _limit(options: Mapping[str, str], side: str, default: OffsetLimit) -> OffsetLimit:
    if (text := options.get(f"{side}timestamp")) is not None:
        return SameTimestamp(_timestamp(text))
    if (text := options.get(f"{side}offsetsbytimestamp")) is not None:
        return PartitionTimestamps(_by_partition(text, _TIMESTAMPS_EXAMPLE, 0))
    if (text := options.get(f"{side}offsets")) is not None:
        name = text.strip().lower()
        if name in _NAMES:
            return SameOffset(_NAMES[name])
        return PartitionOffsets(_by_partition(text, _OFFSETS_EXAMPLE, EARLIEST))
    return default


def _timestamp(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"Expected a single long value, got {text}") from None


def _by_partition(text: str, example: str, smallest: int) -> dict[TopicPartition, int]:
    """Reads {"topic": {"partition": number}}; numbers below `smallest` are refused."""
    try:
        topics = json.loads(text)
        numbers = {
            TopicPartition(topic, int(partition)): _whole_number(number)
            for topic, partitions in topics.items()
            for partition, number in partitions.items()
        }
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f"Expected e.g. {example}, got {text}") from None
    for partition, number in numbers.items():
        if number < smallest:
            raise ValueError(f"{number} for {partition} is no offset or timestamp: {text}")
    return numbers


def _whole_number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _refuse_special(limit: OffsetLimit, special: int, option: str, name: str) -> None:
    if not isinstance(limit, PartitionOffsets):
        return
    for partition, offset in limit.offsets.items():
        if offset == special:
            raise ValueError(f"{option} for {partition} can't be {name} for batch queries on Kafka")
