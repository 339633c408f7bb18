"""Plans a batch query on the driver: which offsets of which partitions, in how many pieces.

Offsets are resolved once, so that every action on a DataFrame reads the same records. A range says
from where to before where; because of gaps (compaction, markers of transactions) it may hold fewer
records than offsets.

Spark's connector finds some of these errors in tasks, after a wait; here they come before anything
is read.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.partitions import (
    EARLIEST,
    LATEST,
    earliest_offsets,
    latest_offsets,
    list_offsets,
)
from asyncbroker.protocol.schema import ZERO_UUID
from asyncbroker.spark.offset_limits import (
    OffsetLimit,
    PartitionOffsets,
    PartitionTimestamps,
    SameOffset,
    SameTimestamp,
    listed,
)
from asyncbroker.spark.options import Assign, ReadOptions, Subscribe, SubscribePattern

logger = logging.getLogger(__name__)

RECORDS_PER_TASK: Final = 1_000_000
"""Larger ranges of batch queries are split, so that a large partition keeps several cores busy; to
start a task takes little beside reading so many records."""

Offsets = Mapping[TopicPartition, int]


class DataLost(Exception):
    """Offsets that were asked for are not in the log (any more)."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            "[KAFKA_DATA_LOSS] Some data may have been lost because they are not available in "
            "Kafka any more; either the data was aged out by Kafka or the topic may have been "
            "deleted before all the data in the topic was processed. If you don't want your query "
            "to fail on such cases, set the source option failOnDataLoss to false. "
            f"Reason: {reason}"
        )


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What one task reads of one partition: offsets from `start` to before `end`."""

    partition: TopicPartition
    start: int
    end: int
    topic_id: bytes = field(default=ZERO_UUID, compare=False, repr=False)
    """Of the topic that was planned for: in one of its name that is made later the same offsets are
    other records. Zeros where brokers have no ids."""

    @property
    def size(self) -> int:
        """The number of offsets, which is at least that of records."""
        return self.end - self.start

    def piece(self, start: int, end: int) -> OffsetRange:
        """Other offsets of the same partition."""
        return OffsetRange(self.partition, start, end, self.topic_id)


Narrowed = Callable[[Iterable[OffsetRange], Cluster], Iterable[OffsetRange]]


def all_of(ranges: Iterable[OffsetRange], cluster: Cluster) -> Iterable[OffsetRange]:
    """Leaves everything."""
    return ranges


def plan(options: ReadOptions, cluster: Cluster, narrowed: Narrowed = all_of) -> list[OffsetRange]:
    """The ranges of a query, none of them empty, of which `narrowed` leaves what is needed.

    Raises ValueError for limits that do not fit the partitions, DataLost, ClientError.
    """
    partitions = find_partitions(options, cluster)
    # Before the offsets: those of a topic that is made again in between are not taken for its own.
    topic_ids = topic_ids_of(partitions, cluster)
    earliest = earliest_offsets(cluster, partitions)
    latest = latest_offsets(cluster, partitions, isolation_level=options.isolation_level)
    starts = starting_offsets(options, cluster, earliest, latest)
    ends = _resolve(options.ending, "end", earliest, latest, cluster)
    ranges = []
    for partition in partitions:
        end = ends[partition]
        if end is None:
            end = latest[partition]
        ranges.append(
            _within_log(
                OffsetRange(partition, starts[partition], end, topic_ids[partition.topic]),
                earliest[partition],
                latest[partition],
                fail_on_data_loss=options.fail_on_data_loss,
            )
        )
    max_records = options.max_records_per_partition
    if max_records is None and options.min_partitions is None:
        max_records = RECORDS_PER_TASK
    return split(narrowed(ranges, cluster), options.min_partitions, max_records)


def find_partitions(options: ReadOptions, cluster: Cluster) -> list[TopicPartition]:
    """The partitions that the query is about, in order; an unknown topic is a ClientError."""
    match options.strategy:
        case Subscribe(topics):
            found = [p for topic in topics for p in cluster.partitions_of(topic)]
        case SubscribePattern(pattern):
            found = [
                TopicPartition(topic.name, row.partition_index)
                for topic in cluster.topics()
                if topic.name and not topic.is_internal and re.search(pattern, topic.name)
                for row in topic.partitions
            ]
        case Assign(assigned):
            names = {partition.topic for partition in assigned}
            existing = {p for name in names for p in cluster.partitions_of(name)}
            found = [partition for partition in assigned if partition in existing]
            for partition in assigned:
                if partition not in existing:
                    logger.warning("partition %s does not exist and is left out", partition)
    return sorted(found)


def topic_ids_of(partitions: Iterable[TopicPartition], cluster: Cluster) -> dict[str, bytes]:
    """The ids of the topics that these partitions are of; raises ClientError."""
    topics = {partition.topic for partition in partitions}
    return {topic: cluster.topic(topic).topic_id for topic in topics}


def starting_offsets(
    options: ReadOptions, cluster: Cluster, earliest: Offsets, latest: Offsets
) -> dict[TopicPartition, int]:
    """Where the query starts in each partition of a log that goes from `earliest` to `latest`.

    Raises ValueError for options that do not fit the partitions, ClientError.
    """
    starts = _resolve(options.starting, "start", earliest, latest, cluster)
    return {
        partition: _start_without_match(options, partition, latest[partition])
        if start is None
        else start
        for partition, start in starts.items()
    }


def _resolve(
    limit: OffsetLimit, position: str, earliest: Offsets, latest: Offsets, cluster: Cluster
) -> Mapping[TopicPartition, int | None]:
    """An offset for each partition; None where no record is as young as the timestamp."""
    match limit:
        case SameOffset(offset):
            return earliest if offset == EARLIEST else latest
        case PartitionOffsets(offsets):
            _check_assigned(offsets, latest, position)
            special = {EARLIEST: earliest, LATEST: latest}
            return {p: special[o][p] if o in special else o for p, o in offsets.items()}
        case SameTimestamp(timestamp):
            return _by_time(dict.fromkeys(latest, timestamp), cluster)
        case PartitionTimestamps(timestamps):
            _check_assigned(timestamps, latest, f"timestamp based {position}")
            return _by_time(timestamps, cluster)


def _by_time(
    timestamps: Mapping[TopicPartition, int], cluster: Cluster
) -> dict[TopicPartition, int | None]:
    found = list_offsets(cluster, timestamps)
    return {p: row.offset if row.offset >= 0 else None for p, row in found.items()}


def _check_assigned(
    specified: Mapping[TopicPartition, int], assigned: Offsets, position: str
) -> None:
    if specified.keys() != assigned.keys():
        raise ValueError(
            f"Partitions specified for Kafka {position} offsets don't match what are assigned. If "
            "startingOffsets contains specific offsets, you must specify all TopicPartitions. "
            "Maybe topic partitions are created or deleted while the query is running. Use -1 for "
            f"latest, -2 for earliest. Specified: {listed(specified)} Assigned: {listed(assigned)}"
        )


def _start_without_match(options: ReadOptions, partition: TopicPartition, latest: int) -> int:
    if options.starts_at_latest_without_match:
        return latest
    match options.starting:
        case SameTimestamp(timestamp):
            pass
        case PartitionTimestamps(timestamps):
            timestamp = timestamps[partition]
        case _:
            raise TypeError(f"{options.starting} always has an offset")
    raise ValueError(
        f"No offset matched from request of topic-partition {partition} and timestamp {timestamp}."
    )


def _within_log(
    wanted: OffsetRange, earliest: int, latest: int, *, fail_on_data_loss: bool
) -> OffsetRange:
    """The range, if the log has all of it; what the log has of it, if that will do."""
    partition, start, end = wanted.partition, wanted.start, wanted.end
    if start > end:
        raise ValueError(
            f"[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] The resolved start offset {start} is "
            f"greater than the resolved end offset {end} for topic {partition.topic} partition "
            f"{partition.partition}."
        )
    if (start >= earliest and end <= latest) or not wanted.size:
        return wanted
    reason = (
        f"{partition} has offsets {earliest} to before {latest}, and {start} to before {end} were "
        "asked for."
    )
    if fail_on_data_loss:
        raise DataLost(reason)
    logger.warning("Some data may have been lost. %s", reason)
    start = min(max(start, earliest), latest)
    return wanted.piece(start, max(start, min(end, latest)))


def split(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Cuts ranges as Spark's connector does: first those of more than `max_records` offsets (0 or
    None: however many), then, if there are fewer than `min_partitions`, the larger ones in
    proportion to their size."""
    pieces = [r for r in ranges if r.size > 0]
    if max_records:
        pieces = [p for r in pieces for p in _cut(r, math.ceil(r.size / max_records))]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(r.size for r in pieces)
    whole = [r for r in pieces if _piece_count(r.size, total, min_partitions) == 1]
    total_to_cut = total - sum(r.size for r in whole)
    count_to_cut = max(min_partitions - len(whole), 1)
    # As the connector has it: none of a partition with a piece that is small already.
    kept = {r.partition for r in whole}
    return [
        piece
        for r in pieces
        for piece in _cut(
            r, 1 if r.partition in kept else _piece_count(r.size, total_to_cut, count_to_cut)
        )
    ]


def _piece_count(size: int, total: int, count: int) -> int:
    # Java's Math.round: a half goes up.
    return max(math.floor(size / total * count + 0.5), 1)


def _cut(wanted: OffsetRange, count: int) -> Sequence[OffsetRange]:
    """The range in `count` pieces of nearly the same size, without empty ones."""
    pieces = []
    start = wanted.start
    for number in range(count):
        size = (wanted.end - start) // (count - number)
        if size:
            pieces.append(wanted.piece(start, start + size))
        start += size
    return pieces
