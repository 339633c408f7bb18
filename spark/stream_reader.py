"""The reader of micro-batches: `spark.readStream.format("asyncbroker")`.

One object on the driver answers Spark's questions about offsets, by `stream_planner.py`. Copies of
it read the ranges on executors. Needs PySpark 4.2, which is the first to say where a batch starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from asyncbroker.spark.range_reader import RangeReader
from asyncbroker.spark.stream_offsets import from_json, to_json
from asyncbroker.spark.stream_options import StreamOptions
from asyncbroker.spark.stream_planner import StreamPlanner

if TYPE_CHECKING:
    import pyarrow as pa

_OWN_LIMITS: Final = ReadMaxRows((1 << 63) - 1)
"""Says that the limits of the options count. Spark passes single numbers, and they are more."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of Kafka topics; the value of each of its partitions is an `OffsetRange`."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        """Raises ValueError for a schema that asks for other than the source's columns."""
        self._planner = StreamPlanner(options)
        self._ranges = RangeReader(options.read, schema)

    def initialOffset(self) -> dict[str, Any]:
        """Where a new stream starts."""
        return to_json(self._planner.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        """A limit by which `latestOffset` knows that it may heed the options: a trigger of `once`
        asks for everything instead."""
        return _OWN_LIMITS

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends."""
        is_limited = not isinstance(limit, ReadAllAvailable)
        return to_json(self._planner.latest(from_json(start), is_limited=is_limited))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the log goes, for the progress of the query."""
        newest = self._planner.newest
        return None if newest is None else to_json(newest)

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on nothing is new."""
        self._planner.freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One for each range of a batch."""
        ranges = self._planner.plan(from_json(start), from_json(end))
        return [InputPartition(wanted) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a range; runs on an executor."""
        return self._ranges.read(partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything before `end` is done."""
        self._planner.commit(from_json(end))

    def stop(self) -> None:
        """The query has ended."""
        self._planner.close()
