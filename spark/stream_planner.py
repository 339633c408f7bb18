"""Decides on the driver where a stream goes on: what is new, how much of it, and what is lost.

Spark asks `latest` again and again; when the answer differs from where the stream stands, it writes
the answer to its checkpoint and asks `plan` for the ranges of a batch. After a crash it plans the
batch of the checkpoint again.

Spark saves the end of each batch, but not where the first one started. When that moves with time
(by default a stream starts at the latest offsets), the first batch therefore ends where it starts:
what follows is counted from a place in the checkpoint.

A topic that is deleted and made again gets another id; as long as this object lives it sees that,
whatever the offsets are. Across a restart only offsets that went backwards tell.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.connection import Deadline
from asyncbroker.client.errors import BrokerError
from asyncbroker.client.partitions import earliest_offsets, latest_offsets
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.spark.committer import Committer
from asyncbroker.spark.fetcher import open_cluster
from asyncbroker.spark.offset_limits import listed, moves_with_time
from asyncbroker.spark.options import Subscribe
from asyncbroker.spark.planner import (
    DataLost,
    OffsetRange,
    find_partitions,
    split,
    starting_offsets,
)
from asyncbroker.spark.stream_offsets import Offsets, backlog, limited
from asyncbroker.spark.stream_options import StreamOptions

logger = logging.getLogger(__name__)

METADATA_SECONDS_MAX: Final = 1.0
"""Spark asks a hundred times a second what is new: new partitions need not be seen so fast."""


class StreamPlanner:
    """The driver's side of a stream; see the head of this file. Raises ClientError throughout."""

    def __init__(
        self, options: StreamOptions, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """`monotonic` is a clock, in seconds."""
        self._options = options
        self._monotonic = monotonic
        self._cluster: Cluster | None = None
        self._known: list[TopicPartition] = []
        self._known_at = -METADATA_SECONDS_MAX
        self._topic_ids: dict[str, bytes] = {}
        # Topics that were made again, until a batch has been planned in the new one.
        self._recreated: set[str] = set()
        self._planned_end: Offsets | None = None
        group = options.committing_group
        self._committer = None if group is None else Committer(group)
        # Where the stream starts, as long as it is not in the checkpoint.
        self._moving_start: Offsets | None = None
        self._has_saved_start = False
        self._frozen: Offsets | None = None
        self._last_trigger = -options.trigger_delay_max_ms / 1000
        self.newest: Offsets | None = None
        """What there was to read when it was last looked at, whatever the limits."""

    def close(self) -> None:
        """Closes the connections; may be called again."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def freeze(self) -> None:
        """From now on there is nothing new: the stream is to end with what there is."""
        self._frozen = self.newest = self._latest_offsets({})

    def initial(self) -> Offsets:
        """Where a new stream starts."""
        read = self._options.read
        cluster = self._opened()
        partitions = self._partitions({})
        latest = self._frozen or latest_offsets(
            cluster, partitions, isolation_level=read.isolation_level
        )
        start = starting_offsets(read, cluster, earliest_offsets(cluster, latest), latest)
        if moves_with_time(read.starting) or read.starts_at_latest_without_match:
            self._moving_start = start
        return start

    def latest(self, start: Offsets, *, is_limited: bool) -> Offsets:
        """Where the next batch ends, which begins at `start`; the same offsets for no batch."""
        # Spark asks from where it has come to; `commit` it calls a batch late, or for the last
        # batch never.
        self.commit(start)
        if start == self._moving_start and not self._has_saved_start:
            self._has_saved_start = True
            return start
        if start == self._planned_end:
            self._recreated.clear()
        newest = self._latest_offsets(start) if self._frozen is None else self._frozen
        self.newest = newest
        starts = self._true_starts(start, newest)
        ends: Offsets = newest
        if is_limited:
            if self._is_too_early(starts, newest):
                return start
            if (largest := self._options.offsets_per_trigger_max) is not None:
                ends = limited(starts, newest, largest)
        # A new topic whose end is where the old one stood would go unnoticed.
        return {
            p: end - 1 if p.topic in self._recreated and 0 < end == start.get(p) else end
            for p, end in ends.items()
        }

    def plan(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """The ranges of a batch. Raises DataLost if the query is to fail on that."""
        self._planned_end = end
        if self._is_replay_of_saved_start(start, end):
            return []
        if gone := start.keys() - end.keys():
            self._lost(f"{listed(dict.fromkeys(gone))} are gone. Some data may have been missed")
        earliest = self._earliest(end)
        ranges = []
        for partition, first in sorted(earliest.items()):
            topic_id = self._topic_id(partition.topic)
            wanted = OffsetRange(partition, start.get(partition, 0), end[partition], topic_id)
            ranges.append(self._in_log(wanted, first, is_new=partition not in start))
        read = self._options.read
        return split(ranges, read.min_partitions, read.max_records_per_partition)

    def commit(self, end: Offsets) -> None:
        """Tells the group, if there is one, that everything before `end` is done."""
        if self._committer is not None:
            self._committer.commit(self._opened(), end)

    # --- what there is ----------------------------------------------------------------------------

    def _opened(self) -> Cluster:
        if self._cluster is None:
            self._cluster = open_cluster(self._options.read)
        return self._cluster

    def _latest_offsets(self, start: Offsets) -> Offsets:
        """The latest offsets of all partitions that there are now; asked for again while some are
        below `start`: a new leader may not know yet how far its log is promised."""
        cluster, read = self._opened(), self._options.read
        for attempt in range(self._options.fetch_attempts):
            if attempt:
                time.sleep(self._options.retry_interval_ms / 1000)
            partitions = self._partitions(start, is_fresh=attempt > 0)
            latest = latest_offsets(cluster, partitions, isolation_level=read.isolation_level)
            backwards = [
                f"{partition} from {start[partition]} to {offset}"
                for partition, offset in latest.items()
                if offset < start.get(partition, 0) and partition.topic not in self._recreated
            ]
            if not backwards:
                break
            logger.warning(
                "latest offsets went backwards, asked %d of %d times: %s",
                *(attempt + 1, self._options.fetch_attempts, ", ".join(backwards)),
            )
        return latest

    def _partitions(self, start: Offsets, *, is_fresh: bool = False) -> list[TopicPartition]:
        """All partitions that the stream is about, looked for from time to time."""
        now = self._monotonic()
        if is_fresh or now - self._known_at >= METADATA_SECONDS_MAX:
            self._opened().forget()
            self._known = self._find(start)
            self._known_at = now
            self._look_at_ids()
        return self._known

    def _find(self, start: Offsets) -> list[TopicPartition]:
        try:
            return find_partitions(self._options.read, self._opened())
        except BrokerError as error:
            if not self._may_go_on_without(error, start):
                raise
            logger.warning("Some data may have been lost. %s", error)
        return [
            partition
            for topic in self._subscribed()
            for partition in self._partitions_if_any(topic)
        ]

    def _may_go_on_without(self, error: BrokerError, start: Offsets) -> bool:
        """Whether the error is that of a topic which is gone, and that is not to stop the stream.
        Of a stream that has not begun it is a misspelt name."""
        return (
            error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            and not self._options.read.fail_on_data_loss
            and bool(start)
            and bool(self._subscribed())
        )

    def _subscribed(self) -> tuple[str, ...]:
        strategy = self._options.read.strategy
        return strategy.topics if isinstance(strategy, Subscribe) else ()

    def _partitions_if_any(self, topic: str) -> list[TopicPartition]:
        try:
            return self._opened().partitions_of(topic)
        except BrokerError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return []

    def _look_at_ids(self) -> None:
        cluster = self._opened()
        for topic in {partition.topic for partition in self._known}:
            topic_id = cluster.topic_id(topic, Deadline(cluster.timeout_s))
            if self._topic_ids.setdefault(topic, topic_id) != topic_id:
                self._topic_ids[topic] = topic_id
                self._recreated.add(topic)

    def _topic_id(self, topic: str) -> bytes:
        """The id of the topic as it was looked at last: another one may be there by now, which the
        tasks of a batch are not to take for it."""
        if topic not in self._topic_ids:
            self._topic_ids[topic] = self._opened().topic(topic).topic_id
        return self._topic_ids[topic]

    def _earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Where partitions begin; those that are gone are lost."""
        cluster = self._opened()
        try:
            return earliest_offsets(cluster, partitions)
        except BrokerError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            self._lost(str(error))
        topics = {partition.topic for partition in partitions}
        present = {p for topic in topics for p in self._partitions_if_any(topic)}
        return earliest_offsets(cluster, present.intersection(partitions))

    # --- how much of it, and what is lost ---------------------------------------------------------

    def _true_starts(self, start: Offsets, newest: Offsets) -> Offsets:
        """From where there is something to read: a new partition, and one of a topic that was made
        again, from its beginning."""
        starts = {p: offset for p, offset in start.items() if p.topic not in self._recreated}
        if new := [partition for partition in newest if partition not in starts]:
            starts |= earliest_offsets(self._opened(), new)
        return starts

    def _is_too_early(self, starts: Offsets, newest: Offsets) -> bool:
        smallest = self._options.offsets_per_trigger_min
        # A stream that ends with what there is must not wait for more.
        if smallest is None or self._frozen is not None:
            return False
        now = self._monotonic()
        delay_s = self._options.trigger_delay_max_ms / 1000
        if now - self._last_trigger < delay_s and backlog(starts, newest) < smallest:
            return True
        self._last_trigger = now
        return False

    def _is_replay_of_saved_start(self, start: Offsets, end: Offsets) -> bool:
        """Whether this is a first batch, planned again after a crash: `start` has moved since, and
        the batch had nothing in it."""
        return (
            start == self._moving_start
            and not self._has_saved_start
            and any(offset < start.get(partition, 0) for partition, offset in end.items())
        )

    def _in_log(self, wanted: OffsetRange, earliest: int, *, is_new: bool) -> OffsetRange:
        """The range as far as the log has it, which begins at `earliest`."""
        partition, start, end = wanted.partition, wanted.start, wanted.end
        if partition.topic in self._recreated:
            self._lost(f"Topic {partition.topic} was deleted and created again.")
            start = min(earliest, end)
        elif start > end:
            self._lost(
                f"Partition {partition}'s offset was changed from {start} to {end}. Some data may "
                "have been missed; maybe the topic was deleted and created again."
            )
            start = end
        elif is_new and earliest > 0:
            self._lost(
                f"Added partition {partition} starts from {earliest} instead of 0. Some data may "
                "have been missed"
            )
            start = min(earliest, end)
        elif start < earliest and start < end:
            self._lost(f"{partition} begins at offset {earliest}, and {start} was asked for.")
            start = min(earliest, end)
        return wanted.piece(start, end)

    def _lost(self, reason: str) -> None:
        if self._options.read.fail_on_data_loss:
            raise DataLost(reason)
        logger.warning("Some data may have been lost. %s", reason)
