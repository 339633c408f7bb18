"""The PySpark data source: offset ranges, fetched by executors, decoded to Arrow in bulk."""
