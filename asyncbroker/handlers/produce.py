"""Produce (key 0), versions 3 to 11.

Behaviour: each partition has its own outcome, and the request as a whole never fails. A batch is
checked by its header and CRC, then record by record without making objects of them, and appended as
it came unless the topic wants it otherwise (`batch_rules.py`).
acks=1 answers when the batch is in the page cache, acks=all (-1) when a commit round has made it
durable or `timeout_ms` is over (REQUEST_TIMED_OUT; the batch stays). acks=0 has no answer: an error
closes the connection, since nothing else would tell the client.

A request whose appends all ran on the event loop is answered without a coroutine: this is the path
that small requests take. With acks=all it waits as a `DurableWait`, which the commit round answers.
Most requests, those with one batch for one partition, hardly ever come here: see
`produce_single.py`.

v3   record batches of format 2 only (KIP-98)
v4   KAFKA_STORAGE_ERROR (KIP-112); v3 gets NOT_LEADER_OR_FOLLOWER instead
v5   log start offset (KIP-107)
v7   zstd (KIP-110); earlier versions get UNSUPPORTED_COMPRESSION_TYPE for it
v8   record errors and error messages (KIP-467)
v9   flexible (KIP-482)
v10  current leader and endpoints (KIP-951): never sent, there is nobody else to go to
v11  TRANSACTION_ABORTABLE (KIP-890): not used

Versions 0 to 2 are advertised only (see `handlers/__init__.py`).
Not done: transactions. A transactional batch gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one
code that every client takes as final.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.batch_rules import InvalidRecords, conform, conformed_at_once, timestamp_errors
from asyncbroker.later import Later
from asyncbroker.log.appended import Appended
from asyncbroker.protocol.errors import ErrorCode, KafkaError, ProtocolError
from asyncbroker.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from asyncbroker.protocol.records import Compression, check_batch

if TYPE_CHECKING:
    from asyncbroker.batch_rules import BatchRules
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext
    from asyncbroker.partition import Partition
    from asyncbroker.protocol.records import BatchHeader

ACKS_ALL: Final = -1
ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1

STORAGE_ERROR_VERSION: Final = 4
ZSTD_VERSION: Final = 7

# The one client that may write to internal topics; the name is Kafka's.
ADMIN_CLIENT_ID: Final = "__admin_client"


def handle(
    broker: Broker, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Later[ProduceResponse] | Coroutine[Any, Any, ProduceResponse | None] | None:
    """Appends what `request` carries, partition by partition.

    Raises KafkaError for the request as a whole, ProtocolError for an acks=0 that failed.
    """
    acks = request.acks
    if not ACKS_ALL <= acks <= ACKS_LEADER:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}")
    if request.transactional_id is not None:
        raise _no_transactions()
    version = context.api_version
    response = ProduceResponse()
    unfinished: list[tuple[PartitionProduceResponse, Unfinished]] = []
    wait: DurableWait | None = None
    for topic_data in request.topic_data:
        outcomes: list[PartitionProduceResponse] = []
        response.responses.append(TopicProduceResponse(topic_data.name, outcomes))
        for data in topic_data.partition_data:
            outcome = PartitionProduceResponse(data.index)
            outcomes.append(outcome)
            try:
                partition, rules = find_partition(
                    broker, context, acks, topic_data.name, data.index
                )
                records: Any = data.records
                if records is None:
                    raise KafkaError(ErrorCode.INVALID_RECORD, "a partition without a record batch")
                appended = append(partition, records, check_header(records, version), rules)
            except KafkaError as error:
                refuse(outcome, error, version)
                continue
            if isinstance(appended, Unfinished):
                unfinished.append((outcome, appended))
                continue
            _accept(outcome, appended)
            if acks == ACKS_ALL and not broker.storage.is_volatile:
                if wait is None:
                    wait = DurableWait(broker, request, response, version)
                wait.add(partition, appended.last_offset + 1, outcome)
    if unfinished:
        return finish(broker, version, request, response, unfinished, wait)
    if wait is not None and wait.begin():
        return wait.later
    return _answer(request, response)


def find_partition(
    broker: Broker, context: RequestContext, acks: int, topic_name: str, index: int
) -> tuple[Partition, BatchRules]:
    """The partition to append to, if this client may, with these acks; and its topic's rules."""
    topic = broker.topics.get(topic_name)
    if topic is None or not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.is_internal and context.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic_name} is internal")
    rules = topic.config.rules
    if acks == ACKS_ALL and rules.min_insync_replicas > 1:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "there is one replica")
    return topic.partitions[index], rules


def check_header(records: bytearray | memoryview, version: int) -> BatchHeader:
    """The header of a batch, if clients of this version may send one like it."""
    header = check_batch(records)
    if header.is_transactional:
        raise _no_transactions()
    if version < ZSTD_VERSION and header.compression is Compression.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    return header


def append(
    partition: Partition,
    records: bytearray | memoryview,
    header: BatchHeader,
    rules: BatchRules | None,
) -> Appended | Unfinished:
    """Appends a batch, or begins to, by the topic's rules; without any its records are as they
    have to be."""
    if rules is not None and rules.need_records(header):
        conformed = conformed_at_once(records, header, rules)
        if conformed is None:
            return Unfinished(partition, records, header, rules=rules)
        records, header = conformed
    try:
        appended = partition.append(records, header)
    except KafkaError as error:
        if error.code is ErrorCode.INVALID_TIMESTAMP:
            return Unfinished(partition, records, header, error=error)
        raise
    if isinstance(appended, Appended):
        return appended
    return Unfinished(partition, records, header, appending=appended)


# ---- what has to wait


@dataclass(slots=True)
class Unfinished:
    """One partition whose append has not ended yet, because of one of: `rules`, to which the batch
    must be conformed first; `appending`, an append in a worker thread; `error`, which a look at the
    records has to explain."""

    partition: Partition
    records: bytearray | memoryview
    header: BatchHeader
    rules: BatchRules | None = None
    error: KafkaError | None = None
    appending: asyncio.Future[Appended] | None = None


class DurableWait:
    """A request with acks=all, whose batches are in their logs and may not be durable yet."""

    __slots__ = (
        "_broker",
        "_bug",
        "_count",
        "_is_complete",
        "_response",
        "_undurable",
        "_version",
        "deadline",
        "later",
    )

    def __init__(
        self, broker: Broker, request: ProduceRequest, response: ProduceResponse, version: int
    ) -> None:
        self.later: Later[ProduceResponse] = Later()
        self.deadline = broker.produce_deadlines.after_ms(request.timeout_ms)
        self._broker = broker
        self._response = response
        self._version = version
        # By number, as outcomes may be equal.
        self._undurable: dict[int, PartitionProduceResponse] = {}
        self._count = 0
        self._is_complete = False
        self._bug: BaseException | None = None

    def add(self, partition: Partition, end_offset: int, outcome: PartitionProduceResponse) -> None:
        """One more partition, which has to be durable up to an offset."""
        number = self._count
        self._count += 1
        callback = functools.partial(self._durable, number)
        if self._broker.commits.call_when_durable(partition, end_offset, callback):
            self._undurable[number] = outcome

    def begin(self) -> bool:
        """Whether there is anything to wait for, when all were added; then `later` has the answer,
        at the deadline in any case."""
        self._is_complete = True
        if self._bug is not None:
            self.later.settle(self._bug)
        elif self._undurable:
            self._broker.produce_deadlines.add(self)
        else:
            return False
        return True

    def expire(self) -> None:
        """The time is over: the batches stay."""
        error = late()
        for outcome in self._undurable.values():
            refuse(outcome, error, self._version)
        self._undurable.clear()
        self.later.settle(self._response)

    def _durable(self, number: int, error: BaseException | None) -> None:
        """A commit round has ended for one partition."""
        outcome = self._undurable.pop(number, None)
        if outcome is None:
            # It comes too late.
            return
        if isinstance(error, KafkaError):
            refuse(outcome, error, self._version)
        elif error is not None:
            self._bug = error
        if self._is_complete and not self._undurable:
            self._broker.produce_deadlines.remove(self)
            self.later.settle(self._bug or self._response)


async def finish(
    broker: Broker,
    version: int,
    request: ProduceRequest,
    response: ProduceResponse,
    unfinished: list[tuple[PartitionProduceResponse, Unfinished]],
    wait: DurableWait | None,
) -> ProduceResponse | None:
    """Waits for all appends, then for all that has to be durable. `timeout_ms` bounds the latter
    only: a batch that is on its way into the log cannot be called back."""
    for outcome, item in unfinished:
        try:
            appended = await _appended(broker, item)
        except KafkaError as error:
            refuse(outcome, error, version)
            continue
        _accept(outcome, appended)
        if request.acks == ACKS_ALL:
            if wait is None:
                wait = DurableWait(broker, request, response, version)
            wait.add(item.partition, appended.last_offset + 1, outcome)
    if wait is not None and wait.begin():
        return await wait.later
    return _answer(request, response)


async def _appended(broker: Broker, item: Unfinished) -> Appended:
    """The outcome of an append that did not end at once."""
    partition, header = item.partition, item.header
    try:
        if item.error is not None:
            raise item.error
        if item.appending is not None:
            return await item.appending
        assert item.rules is not None
        conformed = await broker.workers.run(conform, item.records, header, item.rules)
        appended = partition.append(*conformed)
        return appended if isinstance(appended, Appended) else await appended
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_TIMESTAMP:
            raise
        record_errors = await broker.workers.run(
            timestamp_errors,
            item.records,
            header,
            partition.log.config,
            broker.clock.wall_ms(),
        )
        raise InvalidRecords(error.code, str(error.message), record_errors) from error


# ---- the answer


def _accept(outcome: PartitionProduceResponse, appended: Appended) -> None:
    outcome.base_offset = appended.base_offset
    outcome.log_append_time_ms = appended.log_append_time_ms
    outcome.log_start_offset = appended.log_start_offset


def refuse(outcome: PartitionProduceResponse, error: KafkaError, version: int) -> None:
    """Makes `error` the partition's outcome, in words that a client of this version knows."""
    code = error.code
    if code is ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_VERSION:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    outcome.error_code = code
    outcome.error_message = error.message
    outcome.base_offset = outcome.log_append_time_ms = outcome.log_start_offset = -1
    if isinstance(error, InvalidRecords):
        outcome.record_errors = [
            BatchIndexAndErrorMessage(index, message) for index, message in error.record_errors
        ]


def _answer(request: ProduceRequest, response: ProduceResponse) -> ProduceResponse | None:
    """The response; with acks=0 there is none, and an error ends the connection."""
    if request.acks != ACKS_NONE:
        return response
    for topic in response.responses:
        for outcome in topic.partition_responses:
            if outcome.error_code:
                raise ProtocolError(
                    f"acks=0 to {topic.name}-{outcome.index} failed: "
                    f"{ErrorCode(outcome.error_code).name}"
                )
    return None


def late() -> KafkaError:
    """What who waits is told at his deadline."""
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT, "not durable in time; it stays, or will be there"
    )


def _no_transactions() -> KafkaError:
    return KafkaError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "this broker has no transactions"
    )
