"""A source in Python that reads nothing: it sends rows from memory, of the same columns and sizes
as those that ours reads of the topics of the bench.

What that takes is what Spark takes of any source in Python: to plan, to start tasks, to bring Arrow
through a socket, and to make rows of it in the JVM. It is the ceiling that ours is held against.
Workers of Spark import this module, so it needs nothing of ours.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_BATCH: Final = 16_384
BYTES_PER_BATCH: Final = 4 << 20
SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)


class Ceiling(DataSource):
    """Options: `rows`, `tasks`, `valueBytes`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ceiling"

    def __init__(self, options: dict[str, str]) -> None:
        """In a worker, as all below: freezing what there is spares it a long collection of garbage
        after each thing it has done, as ours does."""
        super().__init__(options)
        gc.freeze()

    def schema(self) -> str:
        """The columns of a topic."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of a batch."""
        gc.freeze()
        return _Reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Of a stream that has one micro-batch."""
        return _StreamReader(self.options, schema)


class _Reader(DataSourceReader):
    def __init__(self, options: Any, schema: StructType) -> None:
        self._rows = int(options["rows"])
        self._tasks = int(options["tasks"])
        self._value_bytes = int(options["valueBytes"])
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        bounds = [self._rows * number // self._tasks for number in range(self._tasks + 1)]
        return [InputPartition(end - start) for start, end in itertools.pairwise(bounds)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        gc.freeze()
        left = partition.value
        rows = max(1, min(ROWS_PER_BATCH, BYTES_PER_BATCH // self._value_bytes, left))
        fields = self._schema.fields
        arrays = [_array(field.name, field.dataType, rows, self._value_bytes) for field in fields]
        records = pa.RecordBatch.from_arrays(arrays, names=self._schema.fieldNames())
        while left > 0:
            yield records.slice(0, min(left, rows))
            left -= rows


class _StreamReader(DataSourceStreamReader):
    def __init__(self, options: Any, schema: StructType) -> None:
        self._reader = _Reader(options, schema)
        self._end = {"rows": int(options["rows"])}

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def latestOffset(self) -> dict[str, int]:
        return self._end

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return self._reader.partitions() if start != end else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)

    def commit(self, end: dict[str, int]) -> None:
        pass

    def stop(self) -> None:
        pass


def _array(name: str, kind: DataType, rows: int, value_bytes: int) -> pa.Array:
    """A column of as many bytes as such a one has in the topics."""
    import numpy as np
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

    arrow_type = to_arrow_type(kind, timezone="UTC")
    if not isinstance(kind, BinaryType | StringType):
        numbers = np.arange(rows).astype("i4" if arrow_type.bit_width == 32 else "i8")
        return pa.Array.from_buffers(arrow_type, rows, [None, pa.py_buffer(numbers)])
    size = {"value": value_bytes, "key": 8, "topic": 7}.get(name, 3)
    places = np.arange(rows + 1, dtype=np.int32) * np.int32(size)
    data = pa.py_buffer(b"x" * (size * rows))
    return pa.Array.from_buffers(arrow_type, rows, [None, pa.py_buffer(places), data])
