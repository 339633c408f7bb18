"""The shortcut for a Produce with one batch for one partition, which is what most producers send.

It does what `produce.py` does, by its functions, with a tenth of the objects: `read_single` finds
the fields in the frame, a batch that is as most are is looked through once (`check_plain_batch`)
and appended, and the response is packed at once; with acks=all the commit round only hands it out.
What cannot be appended at once goes on as in `produce.py`, and what is no such request is left to
it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

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
    except UnicodeDecodeError:
        return None
    try:
        partition, rules = find_partition(broker, context, acks, topic_name, index)
        header = None
        if rules.take_plain and len(records) <= AT_ONCE_BYTES_MAX:
            header = check_plain_batch(records)
        if header is not None:
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
    answer = single_answer(
        *(version, correlation_id, name, index),
        base_offset,
        log_append_time_ms,
        log_start_offset,
    )
    if acks == ACKS_ALL and not broker.storage.is_volatile:
        wait = SingleWait(broker, answer, version, topic_name, index)
        later = wait.later
        if broker.commits.call_when_durable(partition, last_offset + 1, wait.durable, later):
            wait.begin(timeout_ms)
            return later
    return answer


def _refused(topic_name: str, index: int, version: int, error: KafkaError) -> ProduceResponse:
    outcome = PartitionProduceResponse(index)
    refuse(outcome, error, version)
    return ProduceResponse([TopicProduceResponse(topic_name, [outcome])])


class SingleWait:
    """What `DurableWait` is for one batch. It has the answer already, for when it is true."""

    __slots__ = ("_broker", "_index", "_topic_name", "_version", "deadline", "later")

    def __init__(
        self, broker: Broker, answer: bytes, version: int, topic_name: str, index: int
    ) -> None:
        self._broker = broker
        self.later: Later[Answer] = Later(answer)
        self._version = version
        self._topic_name = topic_name
        self._index = index

    def begin(self, timeout_ms: int) -> None:
        """Has an answer at the deadline in any case."""
        deadlines = self._broker.produce_deadlines
        self.deadline = deadlines.after_ms(timeout_ms)
        deadlines.add(self)

    def expire(self) -> None:
        """The time is over: the batch stays."""
        self.later.settle(self._refused(late()))

    def durable(self, error: BaseException | None) -> None:
        """The commit round has ended."""
        self._broker.produce_deadlines.remove(self)
        if error is None:
            self.later.settle(self.later.ready)
        else:
            self.later.settle(self._refused(error) if isinstance(error, KafkaError) else error)

    def _refused(self, error: KafkaError) -> ProduceResponse:
        return _refused(self._topic_name, self._index, self._version, error)
