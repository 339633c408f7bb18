"""Tells which batches of a Fetch response a reader may not see.

The broker sends all batches up to the last stable offset and, to readers with `read_committed`, a
list of aborted transactions: a producer and where its transaction began. Such a transaction goes on
until the producer's next abort marker, a control batch in the log. Markers take offsets, but are no
records for anybody.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from typing import Final

from asyncbroker.protocol.compression import Buffer
from asyncbroker.protocol.messages.fetch import AbortedTransaction
from asyncbroker.protocol.records import BatchHeader, CorruptBatch, records_of

_CONTROL_KEY: Final = struct.Struct(">hh")  # version, type
_ABORT: Final = 0


class AbortedTransactions:
    """The aborted transactions of one response; its batches are to be asked for in their order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._to_come = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self._producer_ids: set[int] = set()

    def hides(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether the batch is a marker, or belongs to an aborted transaction."""
        while self._to_come and self._to_come[0].first_offset <= header.last_offset:
            self._producer_ids.add(self._to_come.popleft().producer_id)
        if header.is_control:
            if header.producer_id in self._producer_ids and _is_abort_marker(header, batch):
                self._producer_ids.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._producer_ids


def _is_abort_marker(header: BatchHeader, batch: Buffer) -> bool:
    for record in records_of(batch, header):
        if record.key is None or len(record.key) < _CONTROL_KEY.size:
            raise CorruptBatch("a control record without a type")
        return bool(_CONTROL_KEY.unpack_from(record.key)[1] == _ABORT)
    return False
