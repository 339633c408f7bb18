"""The data source `asyncbroker` for PySpark: `spark.read.format("asyncbroker")`.

    flights = (
        spark.read.format("asyncbroker")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "flights")
        .load()
    )

Options, columns and semantics are those of Spark's own Kafka connector; `.schema("value binary")`
reads fewer columns faster. It reads any Kafka broker. PySpark finds it by the top-level module
`pyspark_asyncbroker`, which imports this one in a Python worker: it must be light and never fail.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from asyncbroker.spark.columns import full_schema
from asyncbroker.spark.options import ReadOptions, warn_of_ineffective
from asyncbroker.spark.reader import BatchReader


class AsyncbrokerDataSource(DataSource):
    """Kafka topics as DataFrames; see the head of this file."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "asyncbroker"

    def schema(self) -> StructType:
        """All columns; asked for when the user gives no schema. Raises ValueError for options."""
        options = ReadOptions.parse(self.options)
        return full_schema(include_headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns in `schema`. Raises ValueError for options or columns."""
        warn_of_ineffective(self.options)
        return BatchReader(ReadOptions.parse(self.options), schema)
