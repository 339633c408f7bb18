"""PySpark imports modules named `pyspark_*` and registers their `DefaultSource`."""
