"""Many batches of a segment at once, for compaction, by the compiled extension.

Most batches are plain: they come from clients, have no codec and no transaction, and each of their
records has a key of usual length and a value. Of those the extension takes as many as follow one
another: it finds their keys (`enter`, `ask`) and writes what stays of them (`keep`). A run ends
before the first batch that is not so, or in which anything is wrong; that one is taken by itself
(`SegmentReader.next`), as all are where there is no extension. A batch with a codec is a run of its
own once it is decompressed. Both ways lead to the same bytes, to which tests hold them.

Not known here: what stays.
"""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import Final, NamedTuple

from asyncbroker.log.batch_place import RELATIVE_OFFSET_MAX, header_in_place
from asyncbroker.log.errors import CorruptLog
from asyncbroker.log.files import is_portable_forced
from asyncbroker.log.segment import Segment
from asyncbroker.protocol import native
from asyncbroker.protocol.batches import (
    BATCH_HEADER_BYTES,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    BatchHeader,
    verify_crc,
)
from asyncbroker.protocol.compression import Buffer

# So much is taken in one call: about a millisecond at the most.
RUN_BYTES: Final = 128 << 10
# A batch of more records is worked off in steps.
RECORDS_UNDIVIDED_MAX: Final = 16_384

_CHUNK_BYTES: Final = 1 << 20
_INT64_MAX: Final = (1 << 63) - 1
_LENGTH_END: Final = LENGTH_AT + 4

EXTENSION: ModuleType | None = None if is_portable_forced() else native.RECORDS


class Run(NamedTuple):
    """What the extension is given: batches from the first on, as many as begin before `bytes_max`,
    with offsets from `next_offset` to before `end_offset`."""

    data: Buffer
    # Of one batch that is compressed: its records.
    payload: Buffer | None
    bytes_max: int
    next_offset: int
    end_offset: int
    records_max: int


class Taken(NamedTuple):
    """Where a run ends: in bytes, 0 if nothing was taken, and the next offset in the log."""

    end: int
    next_offset: int


class Kept(NamedTuple):
    """What stays of a run."""

    end: int
    next_offset: int
    batches: bytes
    # Of each batch three int64: where it begins, its last offset, its max timestamp.
    places: bytes
    record_count: int
    kept_record_count: int


def run_of_one(batch: Buffer, payload: Buffer, start_offset: int) -> Run:
    """A batch with its decompressed payload, if it has no offset below `start_offset`."""
    return Run(batch, payload, 0, start_offset, _INT64_MAX, RECORDS_UNDIVIDED_MAX)


def enter(
    offsets: dict[bytes, int], run: Run, key_bytes_max: int, entries_max: int
) -> tuple[Taken, int]:
    """Enters the offsets of a run's records by their keys, as far as `entries_max` suffices; and
    how long the longest key was."""
    if EXTENSION is None:
        return Taken(0, run.next_offset), 0
    end, next_offset, longest = EXTENSION.enter_keys(offsets, run, key_bytes_max, entries_max)
    return Taken(end, next_offset), longest


def ask(offsets: dict[bytes, int], run: Run, key_bytes_max: int) -> tuple[Taken, bytes]:
    """The offsets, int64, of the records of a run whose keys have no larger one."""
    if EXTENSION is None:
        return Taken(0, run.next_offset), b""
    end, next_offset, kept = EXTENSION.ask_keys(offsets, run, key_bytes_max)
    return Taken(end, next_offset), kept


def keep(run: Run, kept: Buffer | array[int], stops: Buffer | array[int]) -> Kept | None:
    """What stays of a run when the records at the offsets `kept` do, up to the first batch with one
    of the offsets `stops`; None if nothing was taken."""
    if EXTENSION is None:
        return None
    found = Kept(*EXTENSION.keep(run, kept, stops))
    return found if found.end else None


class SegmentReader:
    """The batches of a segment from a position on, in runs or one by one."""

    __slots__ = (
        "_chunk",
        "_end_offset",
        "_limit",
        "_next_offset",
        "_segment",
        "_start",
        "position",
    )

    def __init__(self, segment: Segment, position: int) -> None:
        self._segment = segment
        self._limit = segment.size
        self._end_offset = min(segment.base_offset + RELATIVE_OFFSET_MAX, _INT64_MAX - 1) + 1
        self._next_offset = segment.base_offset
        self._chunk = memoryview(b"")
        self._start = 0  # of the chunk
        self.position = position

    @property
    def is_at_end(self) -> bool:
        return self.position >= self._limit

    def first_offset(self) -> int:
        """That of the next batch, if one begins there; -1 if not."""
        rest = self._rest()
        return int.from_bytes(rest[:8], "big", signed=True) if len(rest) >= 8 else -1

    def run(self, start_offset: int, end_offset: int) -> Run:
        """What follows, as far as it has such offsets."""
        return Run(
            self._rest(),
            None,
            RUN_BYTES,
            max(start_offset, self._next_offset),
            min(end_offset, self._end_offset),
            RECORDS_UNDIVIDED_MAX,
        )

    def take(self, end: int, next_offset: int) -> None:
        """Goes on behind what was taken of a run."""
        if end:
            self.position += end
            self._next_offset = next_offset

    def next(self) -> tuple[BatchHeader, int, memoryview]:
        """The next batch and its position, after its CRC was found right. Raises CorruptLog."""
        segment, position = self._segment, self.position
        rest = self._rest()
        header = header_in_place(
            rest,
            0,
            segment.log_path,
            segment.base_offset,
            position,
            self._limit,
            self._next_offset,
        )
        if len(rest) < header.size:
            rest = self._read(max(_CHUNK_BYTES, header.size))
            if len(rest) < header.size:
                raise CorruptLog(segment.log_path, "the file ends within a batch", position)
        batch = rest[: header.size]
        if not verify_crc(batch, header):
            raise CorruptLog(segment.log_path, "the CRC does not match", position)
        self.take(header.size, header.next_offset)
        return header, position, batch

    def _rest(self) -> memoryview:
        """What is there from the position on: the whole next batch, unless it is very large."""
        rest = self._chunk[self.position - self._start :] if self._chunk else self._chunk
        size = BATCH_HEADER_BYTES
        if len(rest) >= BATCH_HEADER_BYTES:
            size = LENGTH_OVERHEAD + int.from_bytes(rest[LENGTH_AT:_LENGTH_END], "big")
        if len(rest) < size and (not self._chunk or self._start != self.position):
            return self._read(_CHUNK_BYTES)
        return rest

    def _read(self, size: int) -> memoryview:
        wanted = min(size, self._limit - self.position)
        self._chunk = memoryview(self._segment.open_file().pread(wanted, self.position))
        self._start = self.position
        return self._chunk
