"""The sink of streams: `df.writeStream.format("asyncbroker")`.

What it does is in `writer.py`, which PySpark 4.0 can import; this one needs a later PySpark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from asyncbroker.spark.write_options import WriteOptions
from asyncbroker.spark.writer import TaskWriter, Written

if TYPE_CHECKING:
    import pyarrow as pa


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Raises ValueError for columns that cannot be written."""
        self._task = TaskWriter(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Writes the rows of a task; runs on an executor."""
        return self._task.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks have written, and nothing is left to do."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """A task has failed. What others have written stays; Spark runs the batch again."""
