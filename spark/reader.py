"""The batch reader: planned on the driver, each range read by the executor it goes to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from asyncbroker.spark.fetcher import open_cluster
from asyncbroker.spark.options import ReadOptions
from asyncbroker.spark.planner import plan
from asyncbroker.spark.pushdown import Restriction
from asyncbroker.spark.range_reader import RangeReader

if TYPE_CHECKING:
    import pyarrow as pa


class FilterTaker:
    """What Spark calls as `pushFilters` of a reader, from PySpark 4.1 on.

    Where `spark.sql.python.filterPushdown.enabled` is off, as it is by default, PySpark refuses a
    reader that has a `pushFilters` of its own. It compares `__func__` of the attribute with its own
    method; this one passes for it, and then simply is not called.
    """

    def __init__(self, restriction: Restriction, column_of: Mapping[str, str]) -> None:
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)
        self._restriction = restriction
        self._column_of = column_of

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        return self._restriction.take(filters, self._column_of)


class BatchReader(DataSourceReader):
    """Reads the ranges of a plan; the value of each of its partitions is an `OffsetRange`."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises ValueError for a schema that asks for other than the source's columns."""
        self._options = options
        self._ranges = RangeReader(options, schema)
        self._restriction = Restriction()
        # An attribute, and no method: see `FilterTaker`.
        taker = FilterTaker(self._restriction, self._ranges.column_of)
        self.pushFilters = taker  # type: ignore[method-assign]

    def partitions(self) -> list[InputPartition]:
        """One for each range, frozen for all actions on this DataFrame."""
        with open_cluster(self._options) as cluster:
            ranges = plan(self._options, cluster, self._restriction.applied_to)
        return [InputPartition(wanted) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a range; runs on an executor."""
        return self._ranges.read(partition.value)
