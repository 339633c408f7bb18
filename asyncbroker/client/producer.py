"""Gathers records into batches and appends them, each once.

    with Producer(cluster, "flights") as producer:
        producer.send(b"value", key=b"key")
        producer.flush()    # now everything is acknowledged

Records wait in one list per partition until there are enough bytes of them, or until `flush`; how
their batches are sent, several at a time, is in `sender.py`. A producer has connections of its own,
beside those of the cluster, and is to be closed before it; closing does not flush.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.connection import Deadline
from asyncbroker.client.errors import BrokerError, UnsupportedVersion
from asyncbroker.client.partitioning import partition_for
from asyncbroker.client.sender import Sender
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.produce import ProduceRequest
from asyncbroker.protocol.records import Compression, Record, build_batch

BATCH_BYTES: Final = 256 * 1024
"""Kafka refuses batches above 1 MiB by default (`message.max.bytes`)."""

RECORD_OVERHEAD_BYTES: Final = 24

ZSTD_FROM: Final = 7
"""The first version of Produce in which batches may be compressed with zstd."""


@dataclass(slots=True)
class _Waiting:
    """The records that wait for one partition."""

    records: list[Record] = field(default_factory=list)
    # The how manyeth of the producer each is, from 1 on.
    numbers: list[int] = field(default_factory=list)
    size: int = 0


class Producer:
    """Appends records to one topic; see the head of this file. Errors call records by number, from
    1 on, in the order in which they were sent."""

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
        self._compression = compression
        self._batch_bytes = batch_bytes
        if compression is Compression.ZSTD:
            cluster.retrying(self._check_zstd)
        rows = cluster.topic_or_new(topic).partitions
        self._partition_count = len(rows)
        self._waiting: dict[int, _Waiting] = defaultdict(_Waiting)
        self._count = 0
        # Records without a key go to one partition until its batch is sent, then to the next: as
        # many batches as needed, and no more (KIP-480).
        self._keyless_partition = random.randrange(self._partition_count)
        self._sender = Sender(cluster, acks=acks)

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; what was not flushed is lost."""
        self._sender.close()

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
        if self._waiting[partition].size + size > self._batch_bytes:
            self._send_batch(partition)
        self._count += 1
        waiting = self._waiting[partition]
        waiting.records.append(record)
        waiting.numbers.append(self._count)
        waiting.size += size

    def flush(self) -> None:
        """Sends what waits; when it returns, everything is acknowledged as `acks` asks."""
        for index in list(self._waiting):
            self._send_batch(index)
        self._sender.flush()

    def _partition_for(self, key: bytes | None) -> int:
        if key is None:
            return self._keyless_partition
        return partition_for(key, self._partition_count)

    def _send_batch(self, index: int) -> None:
        waiting = self._waiting.pop(index)
        if not waiting.records:
            return
        batch = build_batch(waiting.records, compression=self._compression)
        self._sender.send(TopicPartition(self._topic, index), batch, waiting.numbers)
        if index == self._keyless_partition:
            self._keyless_partition = (index + 1) % self._partition_count

    def _check_zstd(self, deadline: Deadline) -> None:
        """Old brokers stumble over a codec that they do not know (KIP-110)."""
        connection = self._cluster.any_connection(deadline)
        if connection.version_of(ProduceRequest) < ZSTD_FROM:
            raise UnsupportedVersion(f"broker {connection.address} does not know zstd")
