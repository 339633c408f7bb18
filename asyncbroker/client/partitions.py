"""Requests about partitions, each of which has to go to the partition's leader.

`exchange` groups partitions by leader, asks all leaders at once, and asks again, with fresh
metadata, about those that came back with an error that may pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.connection import Connection, Deadline
from asyncbroker.client.errors import RETRIABLE, BrokerError, error_code
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from asyncbroker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from asyncbroker.protocol.schema import RecordBytes

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

CONSUMER: Final = -1

STALE_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""From a leader these mean that it knows less, or more, than the metadata we have; the next look at
the metadata tells whether the topic is really gone."""

Response = TypeVar("Response")
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Row]):
    """What a leader said about one partition."""

    partition: TopicPartition
    error_code: int
    error_message: str | None
    row: Row


def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation_level: int = READ_UNCOMMITTED,
) -> dict[TopicPartition, ListOffsetsPartitionResponse]:
    """The first offset whose timestamp (ms) is not below the given one, for each partition; or, for
    `LATEST`, `EARLIEST` and `MAX_TIMESTAMP`, that one. Offset -1 when there is none."""

    def build(connection: Connection, partitions: list[TopicPartition]) -> ListOffsetsRequest:
        request = ListOffsetsRequest(
            replica_id=CONSUMER, timeout_ms=cluster.deadline().for_broker_ms
        )
        if connection.version_of(ListOffsetsRequest) >= 2:
            request.isolation_level = isolation_level
        for topic, indexes in by_topic(partitions):
            rows = [
                ListOffsetsPartition(
                    partition_index=index, timestamp=timestamps[TopicPartition(topic, index)]
                )
                for index in indexes
            ]
            request.topics.append(ListOffsetsTopic(topic, rows))
        return request

    def outcomes(response: ListOffsetsResponse) -> Iterator[Outcome[ListOffsetsPartitionResponse]]:
        for topic in response.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                yield Outcome(partition, row.error_code, None, row)

    return exchange(cluster, timestamps, build, ListOffsetsResponse, outcomes)


def earliest_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where each partition begins."""
    found = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    return {partition: row.offset for partition, row in found.items()}


def latest_offsets(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    *,
    isolation_level: int = READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """Where each partition ends: the offset of the next record; with `READ_COMMITTED` the offset
    up to which all transactions are decided."""
    found = list_offsets(
        cluster, dict.fromkeys(partitions, LATEST), isolation_level=isolation_level
    )
    return {partition: row.offset for partition, row in found.items()}


def produce(
    cluster: Cluster,
    batches: Mapping[TopicPartition, RecordBytes],
    *,
    acks: int = -1,
    transactional_id: str | None = None,
) -> dict[TopicPartition, PartitionProduceResponse]:
    """Appends one record batch to each partition, and says where they went.

    A batch may be appended twice when an attempt succeeds unseen, unless it has a producer id and
    sequence. With `acks` 0 nobody answers, and the result is empty.
    """

    def build(connection: Connection, partitions: list[TopicPartition]) -> ProduceRequest:
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=cluster.deadline().for_broker_ms,
        )
        for topic, indexes in by_topic(partitions):
            rows = [
                PartitionProduceData(index, batches[TopicPartition(topic, index)])
                for index in indexes
            ]
            request.topic_data.append(TopicProduceData(topic, rows))
        return request

    def outcomes(response: ProduceResponse) -> Iterator[Outcome[PartitionProduceResponse]]:
        for topic in response.responses:
            for row in topic.partition_responses:
                yield Outcome(
                    TopicPartition(topic.name, row.index), row.error_code, row.error_message, row
                )

    if acks == 0:
        return cluster.retrying(
            lambda deadline: _produce_unanswered(cluster, batches, build, deadline)
        )
    return exchange(cluster, batches, build, ProduceResponse, outcomes)


def _produce_unanswered(
    cluster: Cluster,
    batches: Mapping[TopicPartition, RecordBytes],
    build: Callable[[Connection, list[TopicPartition]], ProduceRequest],
    deadline: Deadline,
) -> dict[TopicPartition, PartitionProduceResponse]:
    for node_id, partitions in _by_leader(cluster, batches, deadline).items():
        connection = cluster.connection(node_id, deadline)
        connection.send(build(connection, partitions), deadline, is_answered=False)
    return {}


def exchange(
    cluster: Cluster,
    partitions: Collection[TopicPartition],
    build: Callable[[Connection, list[TopicPartition]], object],
    response: type[Response],
    outcomes: Callable[[Response], Iterable[Outcome[Row]]],
) -> dict[TopicPartition, Row]:
    """Asks the leaders of all partitions, until each has answered without an error.

    `build` makes the request for some partitions of one leader, `outcomes` takes its response
    apart. Raises `BrokerError` for the first partition whose error will not pass.
    """
    waiting = dict.fromkeys(partitions)
    rows: dict[TopicPartition, Row] = {}

    def attempt(deadline: Deadline) -> dict[TopicPartition, Row]:
        failure: BrokerError | None = None
        for connection, answer in _ask_leaders(cluster, waiting, build, response, deadline):
            for outcome in outcomes(answer):
                if outcome.error_code == ErrorCode.NONE:
                    rows[outcome.partition] = outcome.row
                    waiting.pop(outcome.partition, None)
                else:
                    failure = partition_error(
                        outcome.error_code,
                        _api_name(response),
                        outcome.partition,
                        connection,
                        outcome.error_message,
                    )
                    if not failure.is_retriable:
                        raise failure
        if failure is not None:
            raise failure
        return rows

    return cluster.retrying(attempt)


def partition_error(
    code: int,
    api: str,
    partition: TopicPartition,
    connection: Connection,
    message: str | None = None,
) -> BrokerError:
    """The error of one partition, as its leader has told it."""
    return BrokerError(
        code,
        api=api,
        subject=str(partition),
        broker=str(connection.address),
        message=message,
        is_retriable=error_code(code) in RETRIABLE | STALE_METADATA,
    )


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """The indexes of partitions, by topic."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        topics[topic].append(index)
    return list(topics.items())


def _by_leader(
    cluster: Cluster, partitions: Iterable[TopicPartition], deadline: Deadline
) -> dict[int, list[TopicPartition]]:
    leaders: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition in partitions:
        leaders[cluster.leader(partition, deadline)].append(partition)
    return leaders


def _ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    build: Callable[[Connection, list[TopicPartition]], object],
    response: type[Response],
    deadline: Deadline,
) -> list[tuple[Connection, Response]]:
    """Sends to all leaders before it waits for the first. One attempt."""
    asked: list[Connection] = []
    for node_id, led in _by_leader(cluster, partitions, deadline).items():
        connection = cluster.connection(node_id, deadline)
        connection.send(build(connection, led), deadline)
        asked.append(connection)
    return [(connection, connection.receive(response, deadline)) for connection in asked]


def _api_name(response: type) -> str:
    return response.__name__.removesuffix("Response")
