"""The batch reader: planned on the driver, each range read by the executor it goes to.

An executor opens a client of its own, so that the driver never sees a record. `read` uses nothing
but its argument, the options and the columns, since Spark calls it on a pickled copy in another
process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from asyncbroker.spark.columns import projected_columns
from asyncbroker.spark.fetcher import OffsetsMissing, fetch_batches, open_cluster, remaining_range
from asyncbroker.spark.options import ReadOptions
from asyncbroker.spark.planner import OffsetRange, plan

if TYPE_CHECKING:
    import pyarrow as pa

    from asyncbroker.spark.decoder import Decoder


class BatchReader(DataSourceReader):
    """Reads the ranges of a plan; the value of each of its partitions is an `OffsetRange`."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises ValueError for a schema that asks for other than the source's columns."""
        self._options = options
        self._columns = projected_columns(schema)
        self._names = schema.fieldNames()

    def partitions(self) -> list[InputPartition]:
        """One for each range, frozen for all actions on this DataFrame."""
        with open_cluster(self._options) as cluster:
            return [InputPartition(wanted) for wanted in plan(self._options, cluster)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a range; runs on an executor."""
        wanted: OffsetRange | None = partition.value
        # Spark makes one partition without a value of an empty list of them.
        if wanted is not None:
            yield from self._read_range(wanted)

    def _read_range(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        with open_cluster(self._options) as cluster:
            while wanted.size:
                decoder = self._decoder(wanted)
                try:
                    for header, batch in fetch_batches(self._options, cluster, wanted):
                        decoder.add(header, batch)
                        if decoder.is_full:
                            yield from decoder.take()
                    wanted = OffsetRange(wanted.partition, wanted.end, wanted.end)
                except OffsetsMissing as missing:
                    wanted = remaining_range(self._options, cluster, wanted, missing.position)
                yield from decoder.take()

    def _decoder(self, wanted: OffsetRange) -> Decoder:
        # Only executors need pyarrow and numpy, and both take a while to import.
        from asyncbroker.spark.decoder import Decoder

        return Decoder(self._columns, wanted.partition, wanted.start, wanted.end, names=self._names)
