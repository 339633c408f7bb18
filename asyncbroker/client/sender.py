"""Sends record batches to the leaders of their partitions, several at a time, each once.

    with Sender(cluster) as sender:
        sender.send(TopicPartition("flights", 0), batch)    # built, and nobody's yet
        sender.flush()                                      # now all of them are acknowledged

Each leader has a connection of its own, on which up to `in_flight_max` requests are under way; a
request takes one batch of each partition. Batches of one partition wait in a queue, in order, until
they are acknowledged; the first ones in it are under way. When `buffer_bytes_max` bytes are in the
queues, `send` waits.

With `acks` -1 the sender is idempotent: it has a producer id, and numbers the batches of each
partition, so that a broker knows one that it has seen before. When one fails, those behind it fail
too, for a gap in the numbers; once nothing of the partition is under way, all of them are sent
again in order. So it is after a lost connection, with a new leader, or with a broker that was
started again. A batch that has waited for longer than `delivery_timeout_ms` is given up, with the
error that it met last.

Not known here: how batches are made, and transactions, for which the producer's id and epoch would
come from outside.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.connection import Connection, Deadline, next_to_answer
from asyncbroker.client.errors import (
    RETRIABLE,
    BrokerError,
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    RequestTimedOut,
    error_code,
)
from asyncbroker.client.partitions import STALE_METADATA, by_topic
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from asyncbroker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from asyncbroker.protocol.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    build_batch,
    read_header,
    records_of,
    stamp_producer,
)

IN_FLIGHT_MAX: Final = 5
"""A broker remembers the last five batches of a producer in a partition, and no more."""

REQUEST_BYTES_MAX: Final = 1 << 20
BUFFER_BYTES_MAX: Final = 32 << 20
DELIVERY_TIMEOUT_MS: Final = 120_000

SEQUENCE_MODULUS: Final = 2**31

_TRANSACTION_TIMEOUT_MS: Final = 60_000
_KEY_BYTES_SHOWN: Final = 60

_SEEN_BEFORE: Final = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class Numbers(Protocol):
    """What the records of a batch are called: a list, or an array."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: Any, /) -> Any: ...


@dataclass(slots=True, eq=False)
class _Batch:
    """A batch that is not acknowledged yet."""

    partition: TopicPartition
    data: bytearray
    count: int
    # What the caller calls its records, for errors.
    numbers: Numbers
    deadline: Deadline
    base_sequence: int = NO_SEQUENCE


@dataclass(slots=True)
class _Queue:
    """The batches of one partition, in order, of which the first `in_flight` are under way."""

    batches: deque[_Batch]
    in_flight: int = 0
    next_sequence: int = 0
    # A leader that knows nothing of a producer takes any number for its first one: a gap shows only
    # after that.
    is_known: bool = False
    # One has failed: nothing more is sent until those under way have come back.
    is_stopped: bool = False


class Sender:
    """Sends batches; see the head of this file. For one thread."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = -1,
        is_idempotent: bool | None = None,
        in_flight_max: int = IN_FLIGHT_MAX,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        buffer_bytes_max: int = BUFFER_BYTES_MAX,
        delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS,
    ) -> None:
        """Takes a producer id if it `is_idempotent`, by default with `acks` -1. Raises
        `ClientError`."""
        self._cluster = cluster
        self._acks = acks
        self._in_flight_max = in_flight_max
        self._request_bytes_max = request_bytes_max
        self._buffer_bytes_max = buffer_bytes_max
        self._delivery_timeout_s = delivery_timeout_ms / 1000
        self._queues: dict[TopicPartition, _Queue] = defaultdict(lambda: _Queue(deque()))
        # The partitions that have something to send.
        self._ready: dict[TopicPartition, None] = {}
        self._connections: dict[int, Connection] = {}
        self._requests: dict[int, deque[list[_Batch]]] = defaultdict(deque)
        self.waiting_bytes = 0
        """The bytes of the batches that are not acknowledged yet."""
        self.producer_id, self.producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        if acks == -1 if is_idempotent is None else is_idempotent:
            self.producer_id, self.producer_epoch = cluster.retrying(self._init_producer_id)

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; what is not acknowledged may or may not be written."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._requests.clear()

    @property
    def requests_under_way(self) -> int:
        """The number of requests that are not answered yet."""
        return sum(map(len, self._requests.values()))

    def send(self, partition: TopicPartition, batch: bytearray, numbers: Numbers = ()) -> None:
        """Takes a batch, which is the sender's from now on; waits while too many bytes are under
        way. `numbers` is what errors call its records, else they count from 0.

        Raises `BrokerError` for any batch so far that was refused, naming the record if it can.
        """
        count = read_header(batch).record_count
        queue = self._queues[partition]
        entry = _Batch(partition, batch, count, numbers, Deadline(self._delivery_timeout_s))
        if self.producer_id != NO_PRODUCER_ID:
            entry.base_sequence = queue.next_sequence
            queue.next_sequence = (queue.next_sequence + count) % SEQUENCE_MODULUS
        self._stamp(entry)
        queue.batches.append(entry)
        self.waiting_bytes += len(batch)
        self._ready[partition] = None
        # Nothing has changed for the others since the last answer.
        self._dispatch([partition])
        while self.waiting_bytes > self._buffer_bytes_max:
            self._step()

    def flush(self) -> None:
        """Waits until everything is acknowledged. Raises `BrokerError` as `send` does."""
        while self.waiting_bytes:
            self._step()

    def _stamp(self, batch: _Batch) -> None:
        stamp_producer(batch.data, self.producer_id, self.producer_epoch, batch.base_sequence)

    # --- sending ----------------------------------------------------------------------------------

    def _step(self) -> None:
        """Waits for an answer, if one is awaited, and sends what can be sent then."""
        node_id = self._next_to_answer()
        if node_id is not None:
            self._receive(node_id)
        self._dispatch(list(self._ready))

    def _dispatch(self, ready: Sequence[TopicPartition]) -> None:
        """Sends what is ready, as far as requests may be under way."""
        for node_id, partitions in self._by_leader(ready).items():
            while len(self._requests[node_id]) < self._in_flight_max:
                batches = self._next_batches(partitions)
                if not batches or not self._send_request(node_id, batches):
                    break

    def _by_leader(self, ready: Sequence[TopicPartition]) -> dict[int, list[TopicPartition]]:
        leaders: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition in ready:
            queue = self._queues[partition]
            if queue.is_stopped:
                continue
            try:
                leader = self._cluster.leader(partition, self._cluster.deadline())
            except (BrokerError, BrokerUnreachable, ConnectionLost, RequestTimedOut) as error:
                self._check_may_pass(error)
                self._stop(partition, error)
                self._cluster.back_off(self._cluster.deadline())
                self._resume(partition)
            else:
                leaders[leader].append(partition)
        return leaders

    def _next_batches(self, partitions: Sequence[TopicPartition]) -> list[_Batch]:
        """The next batch of each partition, as far as they fit into a request."""
        batches: list[_Batch] = []
        size = 0
        for partition in partitions:
            queue = self._queues[partition]
            if queue.is_stopped or queue.in_flight >= len(queue.batches):
                continue
            if queue.in_flight and not queue.is_known:
                continue
            batch = queue.batches[queue.in_flight]
            if batches and size + len(batch.data) > self._request_bytes_max:
                break
            batches.append(batch)
            size += len(batch.data)
        return batches

    def _send_request(self, node_id: int, batches: list[_Batch]) -> bool:
        deadline = self._cluster.deadline()
        request = ProduceRequest(acks=self._acks, timeout_ms=deadline.for_broker_ms)
        data = {batch.partition: batch.data for batch in batches}
        for topic, indexes in by_topic(data):
            rows = [PartitionProduceData(i, data[TopicPartition(topic, i)]) for i in indexes]
            request.topic_data.append(TopicProduceData(topic, rows))
        for batch in batches:
            queue = self._queues[batch.partition]
            queue.in_flight += 1
            if queue.in_flight == len(queue.batches):
                del self._ready[batch.partition]
        self._requests[node_id].append(batches)
        try:
            self._connection(node_id).send(request, deadline, is_answered=self._acks != 0)
        except (BrokerError, BrokerUnreachable, ConnectionLost, RequestTimedOut) as error:
            self._lose(node_id, error)
            return False
        if self._acks == 0:
            self._requests[node_id].pop()
            for batch in batches:
                self._came_back(batch)
                self._remove(batch)
        return True

    def _connection(self, node_id: int) -> Connection:
        connection = self._connections.get(node_id)
        if connection is None or connection.is_closed:
            connection = self._cluster.dedicated_connection(node_id, self._cluster.deadline())
            self._connections[node_id] = connection
        return connection

    # --- receiving --------------------------------------------------------------------------------

    def _next_to_answer(self) -> int | None:
        """The leader that answers next, of those of which an answer is awaited."""
        waiting = {self._connections[n]: n for n, requests in self._requests.items() if requests}
        if not waiting:
            return None
        return waiting[next_to_answer(list(waiting), self._cluster.deadline())]

    def _receive(self, node_id: int) -> None:
        connection = self._connections[node_id]
        try:
            response = connection.receive(ProduceResponse, self._cluster.deadline())
        except (ConnectionLost, RequestTimedOut) as error:
            self._lose(node_id, error)
            return
        asked = {batch.partition: batch for batch in self._requests[node_id].popleft()}
        failures = []
        for topic in response.responses:
            for row in topic.partition_responses:
                batch = asked.pop(TopicPartition(topic.name, row.index), None)
                if batch is None:
                    raise ClientError(f"Produce was answered for {topic.name}-{row.index}, unasked")
                self._came_back(batch)
                if row.error_code in (ErrorCode.NONE, _SEEN_BEFORE):
                    self._remove(batch)
                else:
                    failures.append((batch, row))
        if asked:
            raise ClientError(f"Produce was not answered for {next(iter(asked))}")
        for batch, row in failures:
            self._refused(batch, row, connection)
        if failures:
            self._cluster.back_off(self._cluster.deadline())
        self._resume(*(batch.partition for batch, _ in failures), *list(self._stopped()))

    def _stopped(self) -> list[TopicPartition]:
        return [p for p, queue in self._queues.items() if queue.is_stopped and not queue.in_flight]

    def _refused(
        self, batch: _Batch, row: PartitionProduceResponse, connection: Connection
    ) -> None:
        """Prepares another attempt, or raises what the leader has said."""
        code = error_code(row.error_code)
        queue = self._queues[batch.partition]
        is_first = bool(queue.batches) and queue.batches[0] is batch
        error = BrokerError(
            row.error_code,
            api="Produce",
            subject=_described(batch, row),
            broker=str(connection.address),
            message=_message(row),
        )
        if code in _TOO_LARGE and batch.count > 1:
            self._split(batch)
            queue.is_stopped = True
        elif code in RETRIABLE | STALE_METADATA or not is_first:
            # One that is not the first fails for the gap that an earlier one has left.
            self._stop(batch.partition, error)
        else:
            raise error

    def _lose(self, node_id: int, error: ClientError) -> None:
        """The connection is gone: whatever was under way on it is sent again."""
        self._check_may_pass(error)
        connection = self._connections.pop(node_id, None)
        if connection is not None:
            connection.close()
        lost = [batch for request in self._requests.pop(node_id, ()) for batch in request]
        for batch in lost:
            self._came_back(batch)
        for partition in dict.fromkeys(batch.partition for batch in lost):
            self._stop(partition, error)
        self._cluster.back_off(self._cluster.deadline())
        self._resume(*self._stopped())

    def _check_may_pass(self, error: ClientError) -> None:
        if not (isinstance(error, RequestTimedOut) or self._cluster.may_pass(error)):
            raise error

    # --- queues -----------------------------------------------------------------------------------

    def _came_back(self, batch: _Batch) -> None:
        self._queues[batch.partition].in_flight -= 1

    def _remove(self, batch: _Batch) -> None:
        queue = self._queues[batch.partition]
        queue.is_known = True
        queue.batches.remove(batch)
        self.waiting_bytes -= len(batch.data)

    def _stop(self, partition: TopicPartition, error: ClientError) -> None:
        """Nothing more of the partition is sent for now; raises `error` if its first batch has
        waited for too long."""
        queue = self._queues[partition]
        queue.is_stopped = True
        if queue.batches and queue.batches[0].deadline.has_passed:
            batch = queue.batches[0]
            seconds = f"{self._delivery_timeout_s:g} s"
            raise ClientError(
                f"{_described(batch, None)} could not be written within {seconds}: {error}"
            ) from error

    def _resume(self, *partitions: TopicPartition) -> None:
        """Sends partitions again from their first batch on, if nothing of them is under way."""
        for partition in partitions:
            queue = self._queues[partition]
            if not queue.in_flight:
                queue.is_stopped = False
                if queue.batches:
                    self._ready[partition] = None

    def _split(self, batch: _Batch) -> None:
        """Puts two halves where the batch was: together they have its numbers."""
        header = read_header(batch.data)
        records = list(records_of(batch.data, header))
        middle = len(records) // 2
        halves = []
        for first, part in ((0, records[:middle]), (middle, records[middle:])):
            data = build_batch(part, compression=header.compression)
            numbers = batch.numbers[first : first + len(part)]
            half = _Batch(batch.partition, data, len(part), numbers, batch.deadline)
            if batch.base_sequence != NO_SEQUENCE:
                half.base_sequence = (batch.base_sequence + first) % SEQUENCE_MODULUS
            self._stamp(half)
            halves.append(half)
        queue = self._queues[batch.partition]
        place = queue.batches.index(batch)
        queue.batches.remove(batch)
        for half in reversed(halves):
            queue.batches.insert(place, half)
        self.waiting_bytes += sum(len(half.data) for half in halves) - len(batch.data)

    def _init_producer_id(self, deadline: Deadline) -> tuple[int, int]:
        connection = self._cluster.any_connection(deadline)
        request = InitProducerIdRequest(transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)
        response = connection.request(request, InitProducerIdResponse, deadline)
        if response.error_code != ErrorCode.NONE:
            raise BrokerError(
                response.error_code, api="InitProducerId", broker=str(connection.address)
            )
        return response.producer_id, response.producer_epoch


def _described(batch: _Batch, row: PartitionProduceResponse | None) -> str:
    """Partition and record, or records, for people."""
    index = _index_of_culprit(batch, row)
    if index is not None:
        number = batch.numbers[index] if len(batch.numbers) else index
        return f"{batch.partition}, record {number} ({_key_of(batch, index)})"
    if len(batch.numbers):
        return f"{batch.partition}, records {batch.numbers[0]} to {batch.numbers[-1]}"
    return f"{batch.partition}, a batch of {batch.count} records"


def _index_of_culprit(batch: _Batch, row: PartitionProduceResponse | None) -> int | None:
    if row is not None and row.record_errors:
        return min(max(row.record_errors[0].batch_index, 0), batch.count - 1)
    return 0 if batch.count == 1 else None


def _key_of(batch: _Batch, index: int) -> str:
    record = list(records_of(batch.data))[index]
    size = len(record.value or b"")
    if record.key is None:
        return f"no key, a value of {size:,} bytes"
    shown = repr(record.key[:_KEY_BYTES_SHOWN])
    return f"key {shown}, a value of {size:,} bytes"


def _message(row: PartitionProduceResponse) -> str | None:
    details = [found.batch_index_error_message for found in row.record_errors[:1]]
    return "; ".join(text for text in (row.error_message, *details) if text) or None
