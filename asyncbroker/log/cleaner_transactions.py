"""What compaction must know of transactions: whose records were aborted, which markers may go.

Records of an aborted transaction are dropped at once. Its marker, or that of a committed one, goes
only in a pass over the log that meets no batch of the transaction any more, and when the marker's
delete horizon has come, so that a reader who has seen records of the transaction sees its end too.

A batch does not say how its transaction ends: the marker comes later. `find_aborted` reads ahead,
headers only. It is asked when the first transactional batch is met, so that the logs of everybody
else are not read twice. Kafka looks this up in its `.txnindex`; an index of what is aborted is not
needed below where a log has been compacted, since no such record is left there.

Damage may have been a marker. A transaction that was open where a hole begins may have ended in it,
either way: what it had written before is in doubt, and nobody may take it for committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from asyncbroker.log.errors import CorruptLog
from asyncbroker.log.file_range import segment_at
from asyncbroker.log.segment import Segment
from asyncbroker.protocol.batches import NO_PRODUCER_ID, BatchHeader, verify_crc
from asyncbroker.protocol.records import Record, records_of

ABORT: Final = 0
COMMIT: Final = 1
# Markers are smaller. What is as small is read as a whole, so that none looks like something else.
_MARKER_BYTES_MAX: Final = 256


class Aborted(NamedTuple):
    """An aborted transaction: from its first batch to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class Decided(NamedTuple):
    """What is known of the transactions in a part of a log: which were aborted, and of which a part
    is in doubt, from their first batch to the last offset of the hole in which they may end."""

    aborted: list[Aborted]
    in_doubt: list[Aborted]


def marker_type(batch: memoryview | bytes, header: BatchHeader) -> int | None:
    """What a control batch says: ABORT, COMMIT, something else, or None if it is empty."""
    record: Record | None = next(records_of(batch, header), None)
    if record is None or record.key is None or len(record.key) < 4:
        return None
    return int.from_bytes(record.key[2:4], "big")


def find_aborted(segments: Sequence[Segment], start: int, end_offset: int) -> Decided:
    """The transactions with a batch in [start, end_offset) that were aborted, or may have been.
    Reads on beyond the end for as long as one of them is open; the log has been decided that far.
    Raises CorruptLog for damage that was not known."""
    open_from: dict[int, int] = {}  # by producer
    found = Decided([], [])
    for segment in segments[segment_at(segments, start) :]:
        if segment.base_offset >= end_offset and not open_from:
            break
        holes = sorted(segment.holes.items(), reverse=True)
        for header, position, _ in segment.walk(0, segment.size):
            while holes and holes[-1][0] < position:
                _doubt(found, open_from, holes.pop()[1].next_offset)
            if header.base_offset >= end_offset and not open_from:
                break
            if header.size <= _MARKER_BYTES_MAX:
                _check(segment, header, position)
            if _is_a_repair(header):
                _doubt(found, open_from, header.next_offset)
            if not header.is_transactional or header.last_offset < start:
                continue
            producer_id = header.producer_id
            if not header.is_control:
                if header.base_offset < end_offset:
                    open_from.setdefault(producer_id, header.base_offset)
            elif (first_offset := open_from.pop(producer_id, None)) is not None:
                _check(segment, header, position)
                kind = marker_type(segment.read_batch(header, position), header)
                if kind == ABORT:
                    found.aborted.append(Aborted(producer_id, first_offset, header.last_offset))
        for _, hole in reversed(holes):
            _doubt(found, open_from, hole.next_offset)
    return found


def _check(segment: Segment, header: BatchHeader, position: int) -> None:
    if not verify_crc(segment.read_batch(header, position), header):
        raise CorruptLog(segment.log_path, "the CRC does not match", position)


def _doubt(found: Decided, open_from: dict[int, int], next_offset: int) -> None:
    """Any of the open transactions may have ended where the log has a hole up to `next_offset`."""
    for producer_id, first_offset in open_from.items():
        found.in_doubt.append(Aborted(producer_id, first_offset, next_offset - 1))
    open_from.clear()


def _is_a_repair(header: BatchHeader) -> bool:
    """Whether this stands for batches that a repair has taken out: see `repair.empty_batch`."""
    return header.is_control and header.producer_id == NO_PRODUCER_ID and not header.record_count


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
