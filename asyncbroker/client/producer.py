"""Gathers records into batches and appends them, each once.

Records wait in one list per partition until there are enough bytes of them, or until `flush`. With
`acks` -1 the producer is idempotent: it takes a producer id and numbers its batches, so that the
broker knows an attempt that it has seen before. One request is under way at a time.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.connection import Deadline
from asyncbroker.client.errors import BrokerError, UnsupportedVersion
from asyncbroker.client.partitions import produce
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from asyncbroker.protocol.messages.produce import ProduceRequest
from asyncbroker.protocol.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Compression,
    Record,
    build_batch,
)

BATCH_BYTES: Final = 256 * 1024
"""Kafka refuses batches above 1 MiB by default (`message.max.bytes`)."""

RECORD_OVERHEAD_BYTES: Final = 24

SEQUENCE_MODULUS: Final = 2**31

ZSTD_FROM: Final = 7
"""The first version of Produce in which batches may be compressed with zstd."""

_TRANSACTION_TIMEOUT_MS: Final = 60_000


class Producer:
    """Appends records to one topic; see the head of this file."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        acks: int = -1,
        compression: Compression = Compression.NONE,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        """Looks the topic up, which creates it where the broker does so; raises `ClientError`."""
        self._cluster = cluster
        self._topic = topic
        self._acks = acks
        self._compression = compression
        self._batch_bytes = batch_bytes
        if compression is Compression.ZSTD:
            cluster.retrying(self._check_zstd)
        rows = cluster.topic_or_new(topic).partitions
        self._partition_count = len(rows)
        self._waiting: dict[int, list[Record]] = defaultdict(list)
        self._waiting_bytes: dict[int, int] = defaultdict(int)
        self._sequences: dict[int, int] = defaultdict(int)
        # Records without a key go to one partition until its batch is sent, then to the next: as
        # many batches as needed, and no more (KIP-480).
        self._keyless_partition = random.randrange(self._partition_count)
        self._producer_id = NO_PRODUCER_ID
        self._producer_epoch = NO_PRODUCER_EPOCH
        if acks == -1:
            self._producer_id, self._producer_epoch = cluster.retrying(self._init_producer_id)

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Takes a record; sends its batch when that is full. The key chooses the partition as in
        Kafka's clients, unless one is given."""
        if partition is None:
            partition = self._partition_for(key)
        elif not 0 <= partition < self._partition_count:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                api="Metadata",
                subject=str(TopicPartition(self._topic, partition)),
                message=f"the topic has {self._partition_count} partitions",
            )
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        record = Record(0, timestamp_ms, key, value, list(headers))
        size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        size += sum(len(name) + len(content or b"") for name, content in headers)
        if self._waiting_bytes[partition] + size > self._batch_bytes:
            self._send_batches([partition])
        self._waiting[partition].append(record)
        self._waiting_bytes[partition] += size

    def flush(self) -> None:
        """Sends what waits; when it returns, everything is acknowledged as `acks` asks."""
        self._send_batches([index for index, records in self._waiting.items() if records])

    def _partition_for(self, key: bytes | None) -> int:
        if key is None:
            return self._keyless_partition
        return (murmur2(key) & 0x7FFFFFFF) % self._partition_count

    def _send_batches(self, indexes: Sequence[int]) -> None:
        batches = {
            TopicPartition(self._topic, index): self._build(index)
            for index in indexes
            if self._waiting[index]
        }
        if not batches:
            return
        produce(self._cluster, batches, acks=self._acks)
        for index in indexes:
            self._sequences[index] += len(self._waiting[index])
            self._sequences[index] %= SEQUENCE_MODULUS
            self._waiting[index] = []
            self._waiting_bytes[index] = 0
        if self._keyless_partition in indexes:
            self._keyless_partition = (self._keyless_partition + 1) % self._partition_count

    def _build(self, index: int) -> bytearray:
        is_idempotent = self._producer_id != NO_PRODUCER_ID
        return build_batch(
            self._waiting[index],
            compression=self._compression,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._sequences[index] if is_idempotent else NO_SEQUENCE,
        )

    def _check_zstd(self, deadline: Deadline) -> None:
        """Old brokers stumble over a codec that they do not know (KIP-110)."""
        connection = self._cluster.any_connection(deadline)
        if connection.version_of(ProduceRequest) < ZSTD_FROM:
            raise UnsupportedVersion(f"broker {connection.address} does not know zstd")

    def _init_producer_id(self, deadline: Deadline) -> tuple[int, int]:
        connection = self._cluster.any_connection(deadline)
        request = InitProducerIdRequest(transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)
        response = connection.request(request, InitProducerIdResponse, deadline)
        if response.error_code != ErrorCode.NONE:
            raise BrokerError(
                response.error_code, api="InitProducerId", broker=str(connection.address)
            )
        return response.producer_id, response.producer_epoch


def murmur2(data: bytes) -> int:
    """The hash by which Kafka's clients choose a partition for a key, as an unsigned 32-bit number
    (`org.apache.kafka.common.utils.Utils.murmur2`)."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    length = len(data)
    whole = length & ~3
    hashed = 0x9747B28C ^ length
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        word = (word * multiplier) & mask
        word = ((word ^ (word >> 24)) * multiplier) & mask
        hashed = ((hashed * multiplier) & mask) ^ word
    if length > whole:
        hashed ^= int.from_bytes(data[whole:], "little")
        hashed = (hashed * multiplier) & mask
    hashed = ((hashed ^ (hashed >> 13)) * multiplier) & mask
    return hashed ^ (hashed >> 15)
