"""What compaction must know of transactions: whose records were aborted, which markers may go.

Records of an aborted transaction are dropped at once. Its marker, or that of a committed one, goes
only in a pass over the log that meets no batch of the transaction any more, and when the marker's
delete horizon has come, so that a reader who has seen records of the transaction sees its end too.

A batch does not say how its transaction ends: the marker comes later. `find_aborted` reads ahead,
headers only. It is asked when the first transactional batch is met, so that the logs of everybody
else are not read twice. Kafka looks this up in its `.txnindex`; an index of what is aborted is not
needed below where a log has been compacted, since no such record is left there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from asyncbroker.log.file_range import segment_at
from asyncbroker.log.segment import Segment
from asyncbroker.protocol.batches import BatchHeader
from asyncbroker.protocol.records import Record, records_of

ABORT: Final = 0
COMMIT: Final = 1


class Aborted(NamedTuple):
    """An aborted transaction: from its first batch to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


def marker_type(batch: memoryview | bytes, header: BatchHeader) -> int | None:
    """What a control batch says: ABORT, COMMIT, something else, or None if it is empty."""
    record: Record | None = next(records_of(batch, header), None)
    if record is None or record.key is None or len(record.key) < 4:
        return None
    return int.from_bytes(record.key[2:4], "big")


def find_aborted(segments: Sequence[Segment], start: int, end_offset: int) -> list[Aborted]:
    """The aborted transactions with a batch in [start, end_offset). Reads on beyond the end for as
    long as one of them is open; the log has been decided that far."""
    first_offsets: dict[int, int] = {}
    aborted: list[Aborted] = []
    for segment in segments[segment_at(segments, start) :]:
        if segment.base_offset >= end_offset and not first_offsets:
            break
        for header, position, _ in segment.walk(0, segment.size):
            if header.base_offset >= end_offset and not first_offsets:
                break
            if not header.is_transactional or header.last_offset < start:
                continue
            producer_id = header.producer_id
            if not header.is_control:
                if header.base_offset < end_offset:
                    first_offsets.setdefault(producer_id, header.base_offset)
                continue
            first_offset = first_offsets.pop(producer_id, None)
            if first_offset is not None:
                kind = marker_type(segment.read_batch(header, position), header)
                if kind == ABORT:
                    aborted.append(Aborted(producer_id, first_offset, header.last_offset))
    return aborted


class Transactions:
    """One pass over a log, in order of offsets."""

    __slots__ = ("_aborted", "_find", "_open")

    def __init__(self, find: Callable[[int], list[Aborted]]) -> None:
        """`find` gives the aborted transactions from an offset on."""
        self._find = find
        self._aborted: dict[int, list[Aborted]] | None = None
        # Producers of whose transaction a batch was met.
        self._open: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of this batch are no part of the log; it is no control batch."""
        if not header.is_transactional:
            return False
        if self._aborted is None:
            self._aborted = {}
            for found in self._find(header.base_offset):
                self._aborted.setdefault(found.producer_id, []).append(found)
        self._open.add(header.producer_id)
        return any(
            found.first_offset <= header.base_offset <= found.last_offset
            for found in self._aborted.get(header.producer_id, ())
        )

    def may_discard(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether nothing is left of what this control batch ends."""
        if marker_type(batch, header) not in (ABORT, COMMIT, None):
            return False
        is_open = header.producer_id in self._open
        self._open.discard(header.producer_id)
        return not is_open
