"""DescribeProducers (key 61), version 0.

Behaviour: tells of each partition which producer ids it knows (KIP-664): epoch, the sequence of the
last record and the time of the last batch. A producer that was silent for
`producer.id.expiration.ms` is not known any more. There are no transactions to tell about but those
that a data directory of Apache Kafka's brought along. A partition that is asked for twice is told
once. Partitions that do not exist are UNKNOWN_TOPIC_OR_PARTITION, names that no topic can have
INVALID_TOPIC_EXCEPTION, partitions that are offline KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.describe_producers import (
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersState,
    DescribeProducersTopicResponse,
)
from asyncbroker.topic_names import check_topic_name

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext
    from asyncbroker.log.producers import Producer
    from asyncbroker.partition import Partition


def handle(
    broker: Broker, _context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Tells of the producers."""
    wanted: dict[str, dict[int, None]] = {}
    for asked in request.topics:
        wanted.setdefault(asked.name, {}).update(dict.fromkeys(asked.partition_indexes))
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResponse(
                name, [_partition(broker, name, index) for index in indexes]
            )
            for name, indexes in wanted.items()
        ]
    )


def _partition(broker: Broker, name: str, index: int) -> DescribeProducersPartitionResponse:
    response = DescribeProducersPartitionResponse(index)
    try:
        producers = _find(broker, name, index).log.producers
    except KafkaError as error:
        response.error_code, response.error_message = error.code, error.message
        return response
    # At once: a thread may append meanwhile, and with it a producer.
    response.active_producers = [
        _state(producer_id, producer) for producer_id, producer in list(producers.producers())
    ]
    return response


def _find(broker: Broker, name: str, index: int) -> Partition:
    check_topic_name(name)
    topic = broker.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}"
        )
    topic.partitions[index].check_readable()
    return topic.partitions[index]


def _state(producer_id: int, producer: Producer) -> DescribeProducersState:
    batches = producer.batches
    return DescribeProducersState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=batches[-1].last_sequence if batches else -1,
        last_timestamp=producer.timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_start,
    )
