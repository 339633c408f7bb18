"""The record batches in the bytes of a Fetch response, as a table with a row for each.

A response of 8 MB may hold hundreds of batches. The compiled extension makes the rows and checks
the CRCs in one call; without it the same rows are made in Python. Columns are those below; what
cannot be a batch is CorruptBatch, and one that is cut off at the end is left out.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

import numpy as np
import numpy.typing as npt

from asyncbroker.protocol.batches import CONTROL_BIT, TRANSACTIONAL_BIT, batches, scanned
from asyncbroker.protocol.batches import verify_crc as crc_matches
from asyncbroker.protocol.records import BatchHeader
from asyncbroker.spark.extension import EXTENSION

Rows = npt.NDArray[np.int64]

POSITION: Final = 0
SIZE: Final = 1
BASE_OFFSET: Final = 2
LAST_OFFSET_DELTA: Final = 3
ATTRIBUTES: Final = 4
BASE_TIMESTAMP: Final = 5
MAX_TIMESTAMP: Final = 6
PRODUCER_ID: Final = 7
RECORD_COUNT: Final = 8
CRC_MATCHES: Final = 9
COLUMN_COUNT: Final = 10

NOT_FOR_EVERYBODY: Final = TRANSACTIONAL_BIT | CONTROL_BIT
"""Batches without these attributes are shown to every reader."""


def batch_table(
    records: memoryview, *, checks_crcs: bool, extension: ModuleType | None = EXTENSION
) -> Rows:
    """A row for each whole batch. Where CRCs are not checked they count as right."""
    if extension is None:
        found = [row_of(h, b, checks_crc=checks_crcs) for h, b in batches(records)]
        if not found:
            return np.empty((0, COLUMN_COUNT), np.int64)
        rows = np.array(found, np.int64)
        rows[1:, POSITION] = rows[:-1, SIZE].cumsum()
        return rows
    data = scanned(extension, records, checks_crcs=checks_crcs)
    return np.frombuffer(data, np.int64).reshape(-1, COLUMN_COUNT)


def row_of(header: BatchHeader, batch: memoryview, *, checks_crc: bool = False) -> list[int]:
    """The row of one batch, which stands at the beginning of its bytes."""
    return [
        0,
        header.size,
        header.base_offset,
        header.last_offset_delta,
        header.attributes,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.record_count,
        not checks_crc or crc_matches(batch, header),
    ]
