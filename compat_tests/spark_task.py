"""A task of Spark's in a process of its own, for `test_spark_memory.py`: reads all of a topic.

Prints rows, bytes and the most memory that the process had at any time, before it read and after,
as JSON. The arguments are the broker's address and the topic.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy
import pyarrow

from asyncbroker.spark import decoder
from asyncbroker.spark.columns import full_schema
from asyncbroker.spark.options import ReadOptions
from asyncbroker.spark.reader import BatchReader


def peak_bytes() -> int:
    """The most memory that this process has had in use."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def main(servers: str, topic: str) -> None:
    """Reads every partition, one after the other."""
    assert numpy
    assert pyarrow
    assert decoder
    options = ReadOptions.parse(
        {
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "maxRecordsPerPartition": "0",
        }
    )
    reader = BatchReader(options, full_schema(include_headers=False))
    before, rows, size = peak_bytes(), 0, 0
    partitions = reader.partitions()
    for partition in partitions:
        found: Any = reader.read(partition)
        for records in found:
            rows += records.num_rows
            size += records.nbytes
    print(
        json.dumps(
            {
                "tasks": len(partitions),
                "rows": rows,
                "bytes": size,
                "before": before,
                "peak": peak_bytes(),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
