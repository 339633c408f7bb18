"""PySpark imports modules named `pyspark_*` and registers their `DefaultSource`."""

from asyncbroker.spark.source import AsyncbrokerDataSource as DefaultSource

__all__ = ["DefaultSource"]
