"""The shortcut for a Produce with one batch for one partition, which is what most producers send.

It does what `produce.py` does, with a tenth of the objects: `read_single` finds the fields in the
frame, the batch is appended, and the response is packed at once; with acks=all the commit round
only hands it out. Nothing is refused here. What may not be appended as it is (`None`), and what
cannot be appended at once or at all, is left to `produce.py`, so that each rule and each error has
one place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from asyncbroker.batch_rules import (
    AT_ONCE_BYTES_MAX,
    BatchRules,
    Conformed,
    conformed_at_once,
)
from asyncbroker.handlers.produce import (
    ACKS_ALL,
    ACKS_LEADER,
    ZSTD_VERSION,
    Unfinished,
    find_partition,
    finish,
    late,
    refuse,
)
from asyncbroker.later import Later
from asyncbroker.log.partition_log import Appended
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from asyncbroker.protocol.record_facts import check_plain_batch
from asyncbroker.protocol.records import Compression, check_batch
from asyncbroker.protocol.single_produce import read_single, single_answer

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext
    from asyncbroker.partition import Partition
    from asyncbroker.protocol.records import BatchHeader

Answer = ProduceResponse | bytes


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
        partition, rules = find_partition(broker, context, acks, topic_name, index)
        header = None
        if rules.take_plain and len(records) <= AT_ONCE_BYTES_MAX:
            header = check_plain_batch(records)
        conformed: Conformed | None
        if header is not None:
            conformed = records, header
        else:
            header = check_batch(records)
            if header.is_transactional or (
                version < ZSTD_VERSION and header.compression is Compression.ZSTD
            ):
                return None
            conformed = records, header
            if rules.need_records(header):
                conformed = conformed_at_once(records, header, rules)
    except (KafkaError, UnicodeDecodeError):
        return None
    appended: Appended | asyncio.Future[Appended] | KafkaError | BatchRules
    if conformed is None:
        appended = rules
    else:
        try:
            appended = partition.append(*conformed)
        except KafkaError as error:
            appended = error
    if not isinstance(appended, Appended):
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms)
        return _leave(broker, version, request, topic_name, partition, records, header, appended)
    base_offset, last_offset, log_append_time_ms, log_start_offset, _ = appended
    answer = single_answer(
        *(version, correlation_id, name, index),
        base_offset,
        log_append_time_ms,
        log_start_offset,
    )
    if acks == ACKS_ALL and not broker.storage.is_volatile:
        wait = SingleWait(broker, answer, version, topic_name, index)
        if broker.commits.call_when_durable(partition, last_offset + 1, wait.durable):
            return wait.begin(timeout_ms)
    return answer


def _leave(
    broker: Broker,
    version: int,
    request: ProduceRequest,
    topic_name: str,
    partition: Partition,
    records: memoryview,
    header: BatchHeader,
    appended: KafkaError | asyncio.Future[Appended] | BatchRules,
) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse | None]:
    """Leaves the rest to `produce.py`: the batch was refused, or is on its way in a worker, or has
    to be conformed to the topic's rules there."""
    outcome = PartitionProduceResponse(partition.index)
    response = ProduceResponse([TopicProduceResponse(topic_name, [outcome])])
    unfinished = Unfinished(outcome, partition, records, header)
    if isinstance(appended, BatchRules):
        unfinished.rules = appended
    elif not isinstance(appended, KafkaError):
        unfinished.appending = appended
    elif appended.code is ErrorCode.INVALID_TIMESTAMP:
        unfinished.error = appended
    else:
        refuse(outcome, appended, version)
        return response
    return finish(broker, version, request, response, [unfinished], None)


class SingleWait:
    """What `DurableWait` is for one batch. It has the answer already, for when it is true."""

    __slots__ = ("_answer", "_broker", "_index", "_topic_name", "_version", "deadline", "later")

    def __init__(
        self, broker: Broker, answer: bytes, version: int, topic_name: str, index: int
    ) -> None:
        self._broker = broker
        self._answer = answer
        self._version = version
        self._topic_name = topic_name
        self._index = index

    def begin(self, timeout_ms: int) -> Later[Answer]:
        """Has the answer at the deadline in any case."""
        self.later: Later[Answer] = Later()
        deadlines = self._broker.produce_deadlines
        self.deadline = deadlines.after_ms(timeout_ms)
        deadlines.add(self)
        return self.later

    def expire(self) -> None:
        """The time is over: the batch stays."""
        self.later.settle(self._refused(late()))

    def durable(self, error: BaseException | None) -> None:
        """The commit round has ended."""
        self._broker.produce_deadlines.remove(self)
        if error is None:
            self.later.settle(self._answer)
        else:
            self.later.settle(self._refused(error) if isinstance(error, KafkaError) else error)

    def _refused(self, error: KafkaError) -> ProduceResponse:
        outcome = PartitionProduceResponse(self._index)
        refuse(outcome, error, self._version)
        return ProduceResponse([TopicProduceResponse(self._topic_name, [outcome])])
