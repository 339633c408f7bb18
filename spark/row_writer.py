"""What a writing task does: sends rows of Arrow to the partitions where they belong.

Rows are gathered to some megabytes, sorted by where they go, encoded in bulk, and sent while the
next ones are encoded. Records without a key or a partition go to one partition until its batch is
full, then to the next: as many batches as needed, and no more (KIP-480).

Nothing is used here but the options and the columns: it runs on executors.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.connection import Deadline
from asyncbroker.client.errors import BrokerUnreachable, ConnectionLost
from asyncbroker.client.sender import Sender
from asyncbroker.spark.encoder import Columns, Encoder
from asyncbroker.spark.partitioner import NO_PARTITION, partitions_for
from asyncbroker.spark.write_options import WriteOptions

CHUNK_BYTES: Final = 8 << 20
"""So many bytes of rows are taken together: small ones of many partitions make better batches."""

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class NullTopic(Exception):
    """A row does not say where it goes."""

    def __init__(self, row: int) -> None:
        super().__init__(
            "[KAFKA_NULL_TOPIC_IN_DATA] The Kafka message data sent to the producer contains a "
            "null topic. Use the `topic` option for setting a default topic. It is in row "
            f"{row} of the task."
        )


class RowWriter:
    """Writes the rows of one task."""

    def __init__(self, options: WriteOptions, cluster: Cluster, sender: Sender) -> None:
        self._options = options
        self._cluster = cluster
        self._sender = sender
        self._partition_counts: dict[str, int] = {}
        self._keyless_partitions: dict[str, int] = {}
        self.row_count = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Writes all rows, and waits until they are acknowledged.

        Raises NullTopic, ValueError for a row that cannot be written, ClientError.
        """
        for table in _chunks(batches):
            self._write_table(table)
            self.row_count += table.num_rows
        self._sender.flush()

    def _write_table(self, table: pa.Table) -> None:
        columns = Columns(
            keys=_binary(table, "key"),
            values=_binary(table, "value"),
            timestamps=_milliseconds(table),
            headers=self._headers(table),
        )
        encoder = Encoder(columns, self._options.batch_bytes, self._options.compression)
        for topic, rows in self._by_topic(table):
            count = self._partition_count(topic)
            partitions = np.full(len(rows), NO_PARTITION)
            if columns.keys is not None:
                keys = columns.keys
                if len(rows) < len(keys):
                    keys = keys.take(pa.array(rows))
                partitions = partitions_for(keys, count)
            self._choose_given(table, rows, partitions, topic, count)
            # Of short numbers numpy makes a radix sort.
            narrow = partitions.astype(np.int16) if count < 1 << 15 else partitions
            order = np.argsort(narrow, kind="stable")
            for group in np.split(order, np.flatnonzero(np.diff(partitions[order])) + 1):
                self._send(topic, int(partitions[group[0]]), encoder, rows[group])

    def _send(
        self, topic: str, partition: int, encoder: Encoder, rows: npt.NDArray[np.int64]
    ) -> None:
        for encoded in encoder.batches(rows):
            to = self._next_keyless(topic) if partition == NO_PARTITION else partition
            self._sender.send(
                TopicPartition(topic, to), encoded.batch, encoded.rows + self.row_count
            )

    def _headers(self, table: pa.Table) -> Any:
        headers = _column(table, "headers", _HEADERS)
        if headers is None:
            return None
        keys = pc.struct_field(headers.flatten(), 0)
        if keys.null_count:
            first = int(np.flatnonzero(np.asarray(keys.is_null()))[0])
            row = pc.list_parent_indices(headers)[first].as_py() + self.row_count
            raise ValueError(f"A header has no key. It is in row {row} of the task.")
        return headers

    def _by_topic(self, table: pa.Table) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
        if self._options.topic is not None:
            yield self._options.topic, np.arange(table.num_rows)
            return
        topics = _column(table, "topic", pa.string()).dictionary_encode()
        if topics.null_count:
            nulls = np.flatnonzero(np.asarray(topics.is_null()))
            raise NullTopic(int(nulls[0]) + self.row_count)
        indexes = np.asarray(topics.indices)
        for index, topic in enumerate(topics.dictionary.to_pylist()):
            yield topic, np.flatnonzero(indexes == index)

    def _choose_given(
        self,
        table: pa.Table,
        rows: npt.NDArray[np.int64],
        partitions: npt.NDArray[np.int64],
        topic: str,
        count: int,
    ) -> None:
        """Puts the partitions that rows name in place of those that their keys have."""
        column = _column(table, "partition", pa.int32())
        if column is None:
            return
        given = column.take(pa.array(rows))
        numbers = np.asarray(pc.fill_null(given, NO_PARTITION)).astype(np.int64)
        is_given = np.asarray(given.is_valid())
        wrong = np.flatnonzero(is_given & ((numbers < 0) | (numbers >= count)))
        if len(wrong):
            row = int(rows[wrong[0]]) + self.row_count
            raise ValueError(
                f"There is no partition {numbers[wrong[0]]} in topic {topic}, which has {count}. "
                f"It is in row {row} of the task."
            )
        partitions[is_given] = numbers[is_given]

    def _partition_count(self, topic: str) -> int:
        count = self._partition_counts.get(topic)
        if count is None:
            count = self._count_partitions(topic)
            self._partition_counts[topic] = count
            self._keyless_partitions[topic] = random.randrange(count)
        return count

    def _count_partitions(self, topic: str) -> int:
        """Waits for a broker that is away, as Kafka's producer does (`max.block.ms`)."""
        deadline = Deadline(self._options.block_ms_max / 1000)
        while True:
            try:
                return len(self._cluster.topic_or_new(topic).partitions)
            except (BrokerUnreachable, ConnectionLost) as error:
                if not self._cluster.may_pass(error) or not self._cluster.back_off(deadline):
                    raise

    def _next_keyless(self, topic: str) -> int:
        partition = self._keyless_partitions[topic]
        self._keyless_partitions[topic] = (partition + 1) % self._partition_counts[topic]
        return partition


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in tables of about `CHUNK_BYTES`, each column of which is one array."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        gathered.append(batch)
        size += batch.nbytes
        if size >= CHUNK_BYTES:
            yield pa.Table.from_batches(gathered).combine_chunks()
            gathered, size = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered).combine_chunks()


def _column(table: pa.Table, name: str, kind: pa.DataType) -> Any:
    """A column in the type that is meant, whichever of its kind Spark sends; None without it."""
    index = _index_of(table.column_names, name)
    if index is None:
        return None
    column = table.column(index)
    array = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    return array if array.type == kind else array.cast(kind)


def _index_of(names: list[str], name: str) -> int | None:
    return next((i for i, found in enumerate(names) if found.lower() == name), None)


def _binary(table: pa.Table, name: str) -> Any:
    return _column(table, name, pa.binary())


def _milliseconds(table: pa.Table) -> npt.NDArray[np.int64]:
    """The timestamps of the rows; now for those that have none."""
    now = time.time_ns() // 1_000_000
    column = _column(table, "timestamp", pa.timestamp("us", tz="UTC"))
    if column is None:
        return np.full(table.num_rows, now)
    microseconds = column.cast(pa.int64())
    numbers: npt.NDArray[np.int64] = np.asarray(pc.fill_null(microseconds, 0))
    milliseconds = numbers // 1000
    milliseconds[np.asarray(column.is_null())] = now
    return milliseconds
