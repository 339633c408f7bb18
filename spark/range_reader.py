"""What a task does: reads one range of offsets and makes Arrow of it.

Batch and stream readers are pickled and sent to executors, where each task opens a client of its
own, so that the driver never sees a record. Nothing is used here but the range, the options and the
columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from asyncbroker.spark.collector import spare_loaded_modules
from asyncbroker.spark.columns import projected_columns
from asyncbroker.spark.fetcher import OffsetsMissing, fetch, open_cluster, remaining_range
from asyncbroker.spark.memory import keep_freed_memory
from asyncbroker.spark.options import ReadOptions
from asyncbroker.spark.planner import OffsetRange
from asyncbroker.spark.typed_schema import TypedField, typed_fields

if TYPE_CHECKING:
    import pyarrow as pa

    from asyncbroker.spark.decoder import Decoder


class RangeReader:
    """Reads ranges into the columns of a schema."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises ValueError for a schema that asks for what the source cannot give."""
        self._options = options
        self._fields: list[TypedField] | None = None
        self._names = schema.fieldNames()
        if not options.formats.are_typed:
            self._columns = projected_columns(schema)
            self.column_of = dict(zip(self._names, self._columns, strict=True))
            return
        self._fields = typed_fields(schema, options.formats)
        # The offset is for errors to name.
        columns = [*(one.column for one in self._fields), "offset"]
        self._columns = self._names = list(dict.fromkeys(columns))
        self.column_of = {
            one.field.name: one.column for one in self._fields if one.origin == "column"
        }

    def read(self, wanted: OffsetRange | None) -> Iterator[pa.RecordBatch]:
        """The records of a range; of None there are none: Spark makes one partition without a
        value of an empty list of them. Raises DataLost, CorruptBatch, UndecodableValue,
        ClientError."""
        if wanted is None:
            return
        if self._fields is None:
            yield from self._records(wanted)
            return
        # Only executors need pyarrow and numpy, and both take a while to import.
        from asyncbroker.spark.typed_values import TypedColumns

        typed = TypedColumns(self._fields, self._options.formats, wanted.partition)
        for records in self._records(wanted):
            rows = typed.rows(records)
            if len(rows):
                yield rows

    def _records(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        keep_freed_memory()
        with open_cluster(self._options) as cluster:
            # The driver has reached one.
            cluster.wait_for_broker(cluster.deadline())
            while wanted.size:
                decoder = self._decoder(wanted)
                spare_loaded_modules()
                try:
                    for fetched in fetch(self._options, cluster, wanted):
                        yield from decoder.decode(fetched)
                    wanted = wanted.piece(wanted.end, wanted.end)
                except OffsetsMissing as missing:
                    wanted = remaining_range(self._options, cluster, wanted, missing)
                yield from decoder.rest()

    def _decoder(self, wanted: OffsetRange) -> Decoder:
        from asyncbroker.spark.decoder import Decoder

        return Decoder(
            self._columns,
            wanted.partition,
            wanted.start,
            wanted.end,
            names=self._names,
            checks_crcs=self._options.check_crcs,
        )
