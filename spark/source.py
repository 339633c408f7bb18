"""The data source `asyncbroker` for PySpark: `spark.read.format("asyncbroker")`.

    flights = (
        spark.read.format("asyncbroker")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "flights")
        .load()
    )

Options, columns and semantics are those of Spark's own Kafka connector; `.schema("value binary")`,
or the option `columns`, reads fewer columns faster. `readStream`, `write` and `writeStream` work
alike. Any Kafka broker will do. PySpark finds it by the top-level module `pyspark_asyncbroker`,
which imports this one in a Python worker: it must be light and never fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from asyncbroker.spark.collector import spare_loaded_modules
from asyncbroker.spark.columns import chosen_schema, full_schema
from asyncbroker.spark.offset_limits import stream_limits
from asyncbroker.spark.options import ReadOptions, warn_of_ineffective
from asyncbroker.spark.table_options import (
    NO_OPTIONS_TO_WRITE,
    carrying,
    options_of_table,
    query_options,
)
from asyncbroker.spark.typed_schema import with_formats

if TYPE_CHECKING:
    from asyncbroker.spark.stream_reader import StreamReader
    from asyncbroker.spark.stream_writer import StreamWriter
    from asyncbroker.spark.writer import BatchWriter

STREAMS_FROM: Final = (4, 2)
"""The first PySpark that tells a source where a batch of a stream starts."""


class AsyncbrokerDataSource(DataSource):
    """Kafka topics as DataFrames; see the head of this file."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "asyncbroker"

    def __init__(self, options: dict[str, str]) -> None:
        """Called by a worker of Spark's that knows the options already, for each query anew."""
        super().__init__(options)
        spare_loaded_modules()

    def schema(self) -> StructType:
        """All columns, or those of the option `columns`; asked for when the user gives no schema.
        Raises ValueError for options."""
        table = options_of_table(self.options)
        options = self._options_of_any_query()
        if options.columns:
            chosen = chosen_schema(options.columns)
        else:
            chosen = full_schema(include_headers=options.include_headers)
        return carrying(with_formats(chosen, options.formats), table)

    def _options_of_any_query(self) -> ReadOptions:
        """Nobody says here whether it will be a batch or a stream, and what one refuses the other
        may take."""
        try:
            return ReadOptions.parse(self.options)
        except ValueError as refused:
            try:
                return ReadOptions.between(self.options, stream_limits)
            except ValueError:
                raise refused from None

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns in `schema`. Raises ValueError for options or columns."""
        # Spark has other workers look for formats and schemas, which are to start fast.
        from asyncbroker.spark.reader import BatchReader

        spare_loaded_modules()
        options = query_options(self.options, schema)
        warn_of_ineffective(options)
        return BatchReader(ReadOptions.parse(options), schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        """A reader of micro-batches with these columns. Raises ValueError for options or columns,
        ImportError for a PySpark that is too old."""
        _check_pyspark()
        from asyncbroker.spark.stream_options import StreamOptions
        from asyncbroker.spark.stream_reader import StreamReader

        options = query_options(self.options, schema)
        warn_of_ineffective(options, is_stream=True)
        return StreamReader(StreamOptions.parse(options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """A writer of rows with these columns. Raises ValueError for options or columns."""
        from asyncbroker.spark.write_options import WriteOptions, warn_of_unknown
        from asyncbroker.spark.writer import BatchWriter

        if overwrite:
            raise ValueError(
                "Save mode overwrite not allowed for Kafka. Allowed save mode is append."
            )
        if not self.options:
            raise ValueError(NO_OPTIONS_TO_WRITE)
        spare_loaded_modules()
        warn_of_unknown(self.options)
        return BatchWriter(WriteOptions.parse(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """A writer of micro-batches, as above. In output mode `complete`, which is what
        `overwrite` says, each batch is appended whole."""
        _check_pyspark()
        from asyncbroker.spark.stream_writer import StreamWriter
        from asyncbroker.spark.write_options import WriteOptions, warn_of_unknown

        if not self.options:
            raise ValueError(NO_OPTIONS_TO_WRITE)
        warn_of_unknown(self.options)
        return StreamWriter(WriteOptions.parse(self.options), schema)


def _check_pyspark() -> None:
    """Raises ImportError if streams need another PySpark than the one that is here."""
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < STREAMS_FROM:
        needed = ".".join(map(str, STREAMS_FROM))
        raise ImportError(
            f"streams of asyncbroker need PySpark {needed} or later, and this is "
            f"{pyspark.__version__}; batches are read and written with 4.0 and later"
        )
