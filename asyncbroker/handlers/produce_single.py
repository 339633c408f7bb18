"""The shortcut for a Produce with one batch for one partition, which is what most producers send.

It does what `produce.py` does, by its functions, with a tenth of the objects: `read_single` finds
the fields in the frame, a batch that is as most are is looked through once (`check_plain_batch`)
and appended, and the response is packed at once; with acks=all the commit round only hands it out,
and appends a small one itself, together with others of the partition.
What cannot be appended at once goes on as in `produce.py`, and what is no such request is left to
it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.batch_rules import AT_ONCE_BYTES_MAX
from asyncbroker.handlers.produce import (
    ACKS_ALL,
    ACKS_LEADER,
    Unfinished,
    append,
    check_header,
    find_partition,
    finish,
    late,
    refuse,
)
from asyncbroker.later import Later
from asyncbroker.log.config import INT64_MAX
from asyncbroker.protocol.errors import KafkaError
from asyncbroker.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from asyncbroker.protocol.record_facts import check_plain_batch
from asyncbroker.protocol.single_produce import read_single, single_answer

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext
    from asyncbroker.partition import Partition
    from asyncbroker.protocol.batches import BatchHeader

Answer = ProduceResponse | bytes

# Its frame is kept until then, however long a disk hangs: one of each connection.
IN_ROUND_BYTES_MAX: Final = 4 * 1024


def shortcut(
    broker: Broker, context: RequestContext, frame: bytearray, position: int, correlation_id: int
) -> Answer | Later[Answer] | Coroutine[Any, Any, ProduceResponse | None] | None:
    """Serves the request whose body is at `position`; None, and nothing is done, if it is one for
    `produce.handle`."""
    version = context.api_version
    single = read_single(frame, position, version)
    if single is None:
        return None
    acks, timeout_ms, name, index, records = single
    if acks != ACKS_ALL and acks != ACKS_LEADER:
        return None
    try:
        topic_name = str(name, "utf-8")
    except UnicodeDecodeError:
        return None
    try:
        partition, rules = find_partition(broker, context, acks, topic_name, index)
        header = None
        if rules.take_plain and len(records) <= AT_ONCE_BYTES_MAX:
            header = check_plain_batch(records)
        if header is not None:
            if acks == ACKS_ALL and _may_wait(broker, partition, header):
                wait = SingleWait(broker, version, correlation_id, name, index)
                wait.partition, wait.batch, wait.header = partition, records, header
                broker.commits.append_in_round(partition, wait)
                wait.begin(timeout_ms)
                return wait.later
            appended = append(partition, records, header, None)
        else:
            appended = append(partition, records, check_header(records, version), rules)
    except KafkaError as error:
        return _refused(topic_name, index, version, error)
    if isinstance(appended, Unfinished):
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms)
        outcome = PartitionProduceResponse(index)
        response = ProduceResponse([TopicProduceResponse(topic_name, [outcome])])
        return finish(broker, version, request, response, [(outcome, appended)], None)
    base_offset, last_offset, log_append_time_ms, log_start_offset, _ = appended
    if acks == ACKS_ALL and not broker.storage.is_volatile:
        wait = SingleWait(broker, version, correlation_id, name, index)
        later = wait.later
        wait.appended(base_offset, log_append_time_ms, log_start_offset)
        if broker.commits.call_when_durable(partition, last_offset + 1, wait.durable, later):
            wait.begin(timeout_ms)
            return later
    where = base_offset, log_append_time_ms, log_start_offset
    return single_answer(version, correlation_id, name, index, *where)


def _may_wait(broker: Broker, partition: Partition, header: BatchHeader) -> bool:
    """Whether the batch may be appended when the next commit round begins: it is small, and nothing
    needs a look at its records."""
    storage, config = broker.storage, partition.log.config
    return (
        header.size <= IN_ROUND_BYTES_MAX
        and header.size <= storage.inline_append_bytes_max
        and not storage.is_volatile
        and config.message_timestamp_before_max_ms == INT64_MAX
        and header.max_timestamp <= broker.clock.wall_ms() + config.message_timestamp_after_max_ms
    )


def _refused(topic_name: str, index: int, version: int, error: KafkaError) -> ProduceResponse:
    outcome = PartitionProduceResponse(index)
    refuse(outcome, error, version)
    return ProduceResponse([TopicProduceResponse(topic_name, [outcome])])


class SingleWait:
    """What `DurableWait` is for one batch. It has the answer, for when it is true, as soon as the
    batch is in the log: before that it holds the `batch` with its `header`, for the `partition`."""

    __slots__ = (
        "_broker",
        "_correlation_id",
        "_index",
        "_name",
        "_version",
        "batch",
        "deadline",
        "header",
        "later",
        "partition",
    )

    partition: Partition
    batch: bytearray | memoryview
    header: BatchHeader

    def __init__(
        self, broker: Broker, version: int, correlation_id: int, name: bytes, index: int
    ) -> None:
        self._broker = broker
        self.later: Later[Answer] = Later()
        self._version = version
        self._correlation_id = correlation_id
        self._name = name
        self._index = index

    def appended(self, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> None:
        """It is in the log."""
        self.later.ready = single_answer(
            self._version,
            self._correlation_id,
            self._name,
            self._index,
            base_offset,
            log_append_time_ms,
            log_start_offset,
        )

    def begin(self, timeout_ms: int) -> None:
        """Has an answer at the deadline in any case."""
        deadlines = self._broker.produce_deadlines
        self.deadline = deadlines.after_ms(timeout_ms)
        deadlines.add(self)

    def expire(self) -> None:
        """The time is over: the batch stays, or will be there."""
        if self.later.ready is None:
            # What comes next on the connection must not be in the log before it.
            self._broker.commits.append_now(self.partition)
        self.later.settle(self._refused(late()))

    def durable(self, error: BaseException | None) -> None:
        """The commit round has ended."""
        self._broker.produce_deadlines.remove(self)
        if error is None:
            self.later.settle(self.later.ready)
        else:
            self.later.settle(self._refused(error) if isinstance(error, KafkaError) else error)

    def _refused(self, error: KafkaError) -> ProduceResponse:
        return _refused(str(self._name, "utf-8"), self._index, self._version, error)
