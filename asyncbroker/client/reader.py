"""Reads record batches from partitions, one step ahead of its caller.

A `Reader` has a connection of its own to each leader and keeps one Fetch waiting on it. As soon as
a response is there the next request goes out, and only then is the response handed over: the broker
works while the caller decodes. For that it looks at the headers of batches and no further; what
comes back are the bytes as they lie in the log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import add
from typing import Final

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.connection import Connection, Deadline, next_to_answer
from asyncbroker.client.errors import (
    BrokerError,
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    RequestTimedOut,
)
from asyncbroker.client.partitions import READ_UNCOMMITTED, by_topic, partition_error
from asyncbroker.protocol import native
from asyncbroker.protocol.batches import batches, scanned
from asyncbroker.protocol.compression import CorruptBatch
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from asyncbroker.protocol.schema import ZERO_UUID

MAX_WAIT_MS: Final = 500
MIN_BYTES: Final = 1
MAX_BYTES: Final = 50 * 1024 * 1024
PARTITION_MAX_BYTES: Final = 1024 * 1024

# What is asked for beyond what is expected: records differ, and a batch that is cut off has to be
# asked for once more.
BYTES_TO_SPARE: Final = 64 * 1024
BYTES_TO_SPARE_FACTOR: Final = 1.1

TOPIC_IDS_FROM: Final = 13
"""The first version of Fetch that names topics by id."""

# What `scan` of the extension gives for each batch.
_ROW_COLUMNS: Final = 10
_BASE_OFFSET: Final = 2
_LAST_OFFSET_DELTA: Final = 3


@dataclass(frozen=True, slots=True)
class Fetched:
    """Some batches of one partition.

    `records` are whole batches, but for the last, which may be cut off. The first may begin before
    `position`: records below it were not asked for, nor are those from the reader's end offset on.
    `next_offset` is where the reader goes on.
    """

    partition: TopicPartition
    records: memoryview
    position: int
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: list[AbortedTransaction]


@dataclass(slots=True)
class _Leader:
    """The connection to one leader, and what was asked on it last."""

    connection: Connection
    asked: dict[TopicPartition, int] = field(default_factory=dict)
    topic_names: dict[bytes, str] = field(default_factory=dict)


class Reader:
    """Reads partitions from given offsets on; see the head of this file."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        *,
        end_offsets: Mapping[TopicPartition, int] | None = None,
        max_wait_ms: int = MAX_WAIT_MS,
        min_bytes: int = MIN_BYTES,
        max_bytes: int = MAX_BYTES,
        partition_max_bytes: int = PARTITION_MAX_BYTES,
        isolation_level: int = READ_UNCOMMITTED,
        topic_ids: Mapping[str, bytes] | None = None,
    ) -> None:
        """A partition is done when its position reaches its end offset, if it has one. Topics with
        other ids than `topic_ids` are not those that are meant, whatever their names."""
        self._cluster = cluster
        self._ends = dict(end_offsets or {})
        self._positions = {
            partition: offset
            for partition, offset in positions.items()
            if not self._is_at_end(partition, offset)
        }
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes
        self._isolation_level = isolation_level
        # By partition, what an offset took of the last response.
        self._bytes_per_offset: dict[TopicPartition, float] = {}
        self._leaders: dict[int, _Leader] = {}
        # A topic that is deleted and made again gets another id: its offsets mean something else.
        self._topic_ids = dict(topic_ids or {})
        self._trouble: Deadline | None = None
        self._last_trouble: ClientError | None = None
        self._failure: BrokerError | None = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; may be called again."""
        for leader in self._leaders.values():
            leader.connection.close()
        self._leaders.clear()

    @property
    def is_done(self) -> bool:
        """Whether every partition has been read to its end offset."""
        return not self._positions

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset to read; None when the partition is done."""
        return self._positions.get(partition)

    def poll(self) -> list[Fetched]:
        """What the next response brings; empty when a leader had nothing new for `max_wait_ms`.

        Errors that may pass are waited out for as long as the cluster's timeout. Raises
        `BrokerError`: with OFFSET_OUT_OF_RANGE when a position is not in the log any more.
        """
        if self.is_done:
            return []
        try:
            self._raise_failure()
            self._send(self._trouble or self._cluster.deadline())
            fetched = self._receive(self._trouble or self._cluster.deadline())
        except (BrokerError, BrokerUnreachable, ConnectionLost) as error:
            self._wait_out(error)
            return []
        except RequestTimedOut:
            if self._last_trouble is None:
                raise
            # The time ran out in the middle of one more attempt: what the others met says more.
            raise self._last_trouble from None
        self._trouble = self._last_trouble = None
        return fetched

    def _raise_failure(self) -> None:
        """Raises the error of one partition, if the last response had batches of another one and
        they had to be handed over first."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _wait_out(self, error: ClientError) -> None:
        """Goes back to the start, unless the error is for good or trouble has lasted too long."""
        self.close()
        if self._trouble is None:
            self._trouble = self._cluster.deadline()
        self._last_trouble = error
        if not self._cluster.may_pass(error) or not self._cluster.back_off(self._trouble):
            self._trouble = self._last_trouble = None
            raise error

    # --- sending ----------------------------------------------------------------------------------

    def _send(self, deadline: Deadline) -> None:
        """Sees to it that every partition is being asked for."""
        underway = {p for leader in self._leaders.values() for p in leader.asked}
        missing: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition in self._positions:
            if partition not in underway:
                missing[self._cluster.leader(partition, deadline)].append(partition)
        for node_id, partitions in missing.items():
            leader = self._leaders.get(node_id)
            if leader is None:
                connection = self._cluster.dedicated_connection(node_id, deadline)
                leader = self._leaders[node_id] = _Leader(connection)
            if not leader.asked:
                self._ask(leader, partitions, deadline)

    def _ask(self, leader: _Leader, partitions: list[TopicPartition], deadline: Deadline) -> None:
        topic_ids = {topic: self._topic_id(topic, deadline) for topic, _ in by_topic(partitions)}
        version = leader.connection.version_of(FetchRequest)
        if ZERO_UUID in topic_ids.values():
            version = min(version, TOPIC_IDS_FROM - 1)
        request = FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=self._isolation_level,
            topics=[
                FetchTopic(topic, topic_ids[topic], [self._row(topic, index) for index in indexes])
                for topic, indexes in by_topic(partitions)
            ],
        )
        leader.connection.send(request, deadline, version=version)
        leader.asked = {partition: self._positions[partition] for partition in partitions}
        leader.topic_names = {topic_id: topic for topic, topic_id in topic_ids.items()}

    def _row(self, topic: str, index: int) -> FetchPartition:
        partition = TopicPartition(topic, index)
        position = self._positions[partition]
        return FetchPartition(
            partition=index,
            fetch_offset=position,
            partition_max_bytes=self._bytes_up_to_end(partition, position),
        )

    def _bytes_up_to_end(self, partition: TopicPartition, position: int) -> int:
        """How much to ask for: not much more than there probably is until the end."""
        end, each = self._ends.get(partition), self._bytes_per_offset.get(partition)
        if end is None or each is None:
            return self._partition_max_bytes
        probable = int((end - position) * each * BYTES_TO_SPARE_FACTOR) + BYTES_TO_SPARE
        return min(probable, self._partition_max_bytes)

    def _topic_id(self, topic: str, deadline: Deadline) -> bytes:
        topic_id = self._cluster.topic_id(topic, deadline)
        if self._topic_ids.setdefault(topic, topic_id) != topic_id:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                api="Metadata",
                subject=f"topic {topic!r}",
                message="the topic was deleted and created again",
                is_retriable=False,
            )
        return topic_id

    # --- receiving --------------------------------------------------------------------------------

    def _receive(self, deadline: Deadline) -> list[Fetched]:
        leader = self._next_to_answer(deadline)
        response = leader.connection.receive(FetchResponse, deadline)
        asked, leader.asked = leader.asked, {}
        if response.error_code != ErrorCode.NONE:
            raise BrokerError(
                response.error_code, api="Fetch", broker=str(leader.connection.address)
            )
        fetched = []
        failure: BrokerError | None = None
        for topic in response.responses:
            name = topic.topic or leader.topic_names.get(topic.topic_id, "")
            for row in topic.partitions:
                partition = TopicPartition(name, row.partition_index)
                if partition not in asked:
                    raise ClientError(f"Fetch was answered for {partition}, unasked")
                if row.error_code != ErrorCode.NONE:
                    failure = _failure(row, partition, asked[partition], leader.connection)
                elif records := _records(row):
                    fetched.append(self._advance(row, partition, asked[partition], records))
        self._failure = failure
        if not fetched:
            self._raise_failure()
        elif failure is None and self._positions:
            self._ask_ahead(deadline)
        return fetched

    def _ask_ahead(self, deadline: Deadline) -> None:
        """Sends the next request before the caller works off this response. If that fails, it is
        for the next `poll` to deal with: what has been fetched is not given up."""
        try:
            self._send(deadline)
        except (BrokerError, BrokerUnreachable, ConnectionLost):
            self.close()

    def _next_to_answer(self, deadline: Deadline) -> _Leader:
        waiting = {leader.connection: leader for leader in self._leaders.values() if leader.asked}
        return waiting[next_to_answer(list(waiting), deadline)]

    def _advance(
        self, row: PartitionData, partition: TopicPartition, position: int, records: memoryview
    ) -> Fetched:
        try:
            next_offset = _offset_after(records, position)
        except CorruptBatch as error:
            raise ClientError(f"{partition} at offset {position}: {error}") from error
        if next_offset > position:
            self._bytes_per_offset[partition] = len(records) / (next_offset - position)
        if self._is_at_end(partition, next_offset):
            del self._positions[partition]
        else:
            self._positions[partition] = next_offset
        return Fetched(
            partition=partition,
            records=records,
            position=position,
            next_offset=next_offset,
            high_watermark=row.high_watermark,
            last_stable_offset=row.last_stable_offset,
            log_start_offset=row.log_start_offset,
            aborted_transactions=row.aborted_transactions or [],
        )

    def _is_at_end(self, partition: TopicPartition, offset: int) -> bool:
        end = self._ends.get(partition)
        return end is not None and offset >= end


def _failure(
    row: PartitionData, partition: TopicPartition, position: int, connection: Connection
) -> BrokerError:
    message = None
    if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        message = f"offset {position} is not in the log"
    return partition_error(row.error_code, "Fetch", partition, connection, message)


def _offset_after(records: memoryview, position: int) -> int:
    """Where to go on after some batches that were fetched from `position`. Raises CorruptBatch."""
    if native.RECORDS is None:
        return max([position, *(header.next_offset for header, _ in batches(records))])
    rows = memoryview(scanned(native.RECORDS, records, checks_crcs=False)).cast("q")
    lasts = map(add, rows[_BASE_OFFSET::_ROW_COLUMNS], rows[_LAST_OFFSET_DELTA::_ROW_COLUMNS])
    return max(position, max(lasts, default=-1) + 1)


def _records(row: PartitionData) -> memoryview | None:
    """The records of a decoded row; None when there are none."""
    return row.records if isinstance(row.records, memoryview) and len(row.records) else None
