"""The batch reader: planned on the driver, each range read by the executor it goes to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from asyncbroker.spark.fetcher import open_cluster
from asyncbroker.spark.options import ReadOptions
from asyncbroker.spark.planner import plan
from asyncbroker.spark.range_reader import RangeReader

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Reads the ranges of a plan; the value of each of its partitions is an `OffsetRange`."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises ValueError for a schema that asks for other than the source's columns."""
        self._options = options
        self._ranges = RangeReader(options, schema)

    def partitions(self) -> list[InputPartition]:
        """One for each range, frozen for all actions on this DataFrame."""
        with open_cluster(self._options) as cluster:
            return [InputPartition(wanted) for wanted in plan(self._options, cluster)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a range; runs on an executor."""
        return self._ranges.read(partition.value)
