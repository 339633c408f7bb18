"""The sink: `df.write.format("asyncbroker")`; that of streams, in `stream_writer.py`, is the same.

Each task writes by itself, with an idempotent producer: what it sends is there once, also across a
broker that is started again. A task or a batch that Spark runs a second time writes a second time,
as with Spark's own connector: at least once.

To write exactly once a task would open a transaction instead, and hand back what is needed to end
it: that is what `Written` is for. The driver gets all of them, in `commit` or in `abort`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.connection import Deadline
from asyncbroker.client.sender import Sender
from asyncbroker.spark.collector import spare_loaded_modules
from asyncbroker.spark.columns import COLUMN_TYPES, HEADERS
from asyncbroker.spark.fetcher import open_cluster
from asyncbroker.spark.memory import keep_freed_memory
from asyncbroker.spark.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

_TEXT: Final[tuple[DataType, ...]] = (StringType(), BinaryType())

# What each column may be; others are left out.
_TYPES: Final[dict[str, tuple[DataType, ...]]] = {
    "topic": (StringType(),),
    "key": _TEXT,
    "value": _TEXT,
    "partition": (IntegerType(),),
    "timestamp": (COLUMN_TYPES["timestamp"],),
    HEADERS: (COLUMN_TYPES[HEADERS],),
}


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task has done."""

    row_count: int


class TaskWriter:
    """What batch and stream writers do on executors."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Raises ValueError for columns that cannot be written."""
        _check_columns(schema, has_topic=options.topic is not None)
        self._options = options

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Writes the rows of a task."""
        # Only executors need pyarrow and numpy, and both take a while to import.
        from asyncbroker.spark.row_writer import RowWriter

        spare_loaded_modules()
        keep_freed_memory()
        options = self._options
        with open_cluster(options) as cluster:
            # As Kafka's producer, so that a stream goes on when a broker comes back.
            cluster.wait_for_broker(Deadline(options.block_ms_max / 1000))
            with self._sender(cluster) as sender:
                writer = RowWriter(options, cluster, sender)
                writer.write(batches)
        return Written(writer.row_count)

    def _sender(self, cluster: Cluster) -> Sender:
        options = self._options
        return Sender(
            cluster,
            acks=options.acks,
            is_idempotent=options.is_idempotent,
            in_flight_max=options.in_flight_max,
            buffer_bytes_max=options.buffer_bytes_max,
            delivery_timeout_ms=options.delivery_timeout_ms,
        )


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Raises ValueError for columns that cannot be written."""
        self._task = TaskWriter(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Writes the rows of a task; runs on an executor."""
        return self._task.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks have written, and nothing is left to do."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task has failed. What others have written stays."""


def _check_columns(schema: StructType, *, has_topic: bool) -> None:
    types = {field.name.lower(): field.dataType for field in schema.fields}
    if "topic" not in types and not has_topic:
        raise ValueError(
            "topic option required when no 'topic' attribute is present. Use the topic option for "
            "setting a topic."
        )
    if "value" not in types:
        raise ValueError("Required attribute 'value' not found")
    for name, allowed in _TYPES.items():
        # Whether a part may be null is nothing that the type of a column is about here.
        if name in types and types[name].simpleString() not in [t.simpleString() for t in allowed]:
            expected = " or ".join(kind.simpleString().upper() for kind in allowed)
            raise ValueError(
                f"{name} attribute unsupported type {types[name].simpleString().upper()}. {name} "
                f"must be a(n) {expected}"
            )
