"""Reads the batches of a segment with all their bytes, and tells the good ones from damage.

A batch is good if its CRC fits and its offsets have their place. Neither the base offset nor the
length is under the CRC. A wrong length leads to what is no batch, or to one whose CRC does not
fit. A wrong base offset collides with those of its neighbours: of several that cannot all be true
those lie which leave the most of them in peace (`_first_true`). What a damaged header says of the
next one counts there as well. Gaps alone are not damage, since compaction makes them.

Damage ends where the next good batch begins. If what the damaged header says of its size leads to
one, that is it, unless offsets are missing before that one and the CRC of the damaged batch fits
all that lies before an earlier one. It also is if that one is damaged itself, but the offset that
is due there by the first header is what the second one says, or what the third one's follows from.
Otherwise the bytes behind are searched for what looks like a batch. A record's value may contain
one, even several in a row, so a find only counts if the CRC of the damaged batch fits all that lies
before the find, or if the batches after it, each by the length of the one before, go on to the end
of the file, or to exactly the offset up to which the log was promised, or for longer than any one
batch can be. One whose offset is the one that the damaged header says comes next may be followed by
batches of wrong lengths: there the CRC says how far they go. Where none of that helps, which takes
several damaged batches near one another, what lies between them is given up with them.

Memory is bounded whatever a damaged length says. Only reads; what is made of the outcome, and
whether damage was promised data or the torn end of a crash, is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from asyncbroker.log.damage import DamagedRange, Holes
from asyncbroker.protocol.batches import (
    ATTRIBUTES_AT,
    BATCH_HEADER_BYTES,
    HEADER,
    LENGTH_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    read_header,
)
from asyncbroker.protocol.checksums import crc32c
from asyncbroker.protocol.compression import CorruptBatch

_CHUNK_BYTES: Final = 1 << 20
# How far in offsets the next batch can be: what one segment may hold.
_OFFSETS_AHEAD_MAX: Final = 1 << 31
# How many batches have to agree with one that leaves a gap, and how many are looked at if they do
# not.
_FOLLOWERS: Final = 2
_CHAIN_MAX: Final = 8
# What it counts that a batch tells the truth, without a gap before it: more than with one.
_FITS: Final = 1.5
_FITS_WHAT_IS_KNOWN: Final = 1.6
# How much more it counts if the damaged batch before it says so too, by its own offset.
_FITS_A_CLAIM: Final = 1.0
# What is due there is known by a damaged batch, and by the one behind the next: by two.
_FITS_WHAT_IS_DUE: Final = 2.6


class Readable(Protocol):
    """All that is asked of a file."""

    @property
    def path(self) -> str:
        """What it is called, for people."""

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes, fewer only at the end of the file."""


class GoodBatch(NamedTuple):
    """A batch whose CRC and place are right."""

    header: BatchHeader
    position: int


class Damage(NamedTuple):
    """Bytes [position, end) that are no good batch. `next_offset` is that of the batch behind, None
    if there is none in the segment; `reason` is "" for damage that was known before."""

    position: int
    end: int
    first_offset: int
    next_offset: int | None
    reason: str

    def range_in(self, base_offset: int, end_offset: int) -> DamagedRange:
        """As it is remembered of the segment at `base_offset`. `end_offset` is where the log goes
        on if no batch follows in the segment."""
        next_offset = end_offset if self.next_offset is None else self.next_offset
        return DamagedRange(base_offset, self.position, self.end, self.first_offset, next_offset)


class _Claim(NamedTuple):
    """What a damaged header says, of which each may be what lies: where its batch ends, which
    offset the next one may have, the same by its own offset alone, and the CRC."""

    end: int
    offsets: tuple[int, ...]
    own_offsets: tuple[int, ...]
    crc: int


class _Link(NamedTuple):
    """A batch of a chain, with how many offsets, at least, and how many damaged stretches lie
    between its beginning and the batch; and whether it is due there by the damage before it."""

    batch: GoodBatch
    offsets_before: int
    holes_before: int
    is_claimed: bool


class _Bad(Exception):
    """What is wrong at a position."""


@dataclass(slots=True)
class BatchScan:
    """One reading of one segment's file, up to the position `limit`."""

    file: Readable
    base_offset: int
    limit: int
    # Where the next segment begins; None for the newest one, which compaction never touches, so
    # that it has no gaps.
    end_offset: int | None = None
    # Up to where the log is promised, if that is known: a batch ends there.
    promised_offset: int = -1
    # Beyond it no batch goes.
    offset_limit: int = 1 << 63
    # Where interest ends: beyond it only what is needed to judge what lies before is read.
    stop: int = 1 << 63
    # The largest batch that a topic takes.
    batch_bytes_max: int = 1 << 20
    # What is known to be damaged already.
    holes: Holes = field(default_factory=dict)
    # Headers that were looked at before it is their batches' turn, by position.
    _ahead: dict[int, BatchHeader] = field(default_factory=dict)
    _chunk: bytes = b""
    _chunk_position: int = 0

    def run(self, position: int, next_offset: int) -> Iterator[GoodBatch | Damage]:
        """What is there from `position` on, where a batch begins whose offset is expected to be
        `next_offset`, or later."""
        while position < self.limit and position < self.stop:
            hole = self.holes.get(position)
            if hole is not None:
                yield Damage(position, hole.end, hole.first_offset, hole.next_offset, "")
                position, next_offset = hole.end, hole.next_offset
                continue
            end: int = position
            found: int | None = None
            reason = ""
            try:
                header = self._whole(position)
            except _Bad as bad:
                reason = str(bad)
                end, found = self._next_good(position, next_offset)
                if found is not None and end < self.limit:
                    # What was damaged had an offset at least.
                    claimed = self._claim(position, next_offset).own_offsets
                    end, found = self._first_true(end, next_offset + 1, found, claimed)
            else:
                if not self._is_due(header, position, next_offset):
                    end, found = self._first_true(position, next_offset, None)
                    reason = f"offset {header.base_offset}, not {next_offset}"
                if end == position:
                    yield GoodBatch(header, position)
                    position, next_offset = position + header.size, header.next_offset
                    continue
            yield Damage(position, end, next_offset, found, reason)
            if found is None:
                return
            position, next_offset = end, found

    # ---- offsets

    def _is_due(self, header: BatchHeader, position: int, next_offset: int) -> bool:
        """Whether the batch with a good CRC that begins at `position` surely has its own offset: it
        is the one that is due, or leaves a gap, where there may be some, and is followed by others
        that think so too."""
        if header.base_offset == next_offset:
            return header.next_offset <= self._offset_limit(next_offset)
        if self.end_offset is None or header.base_offset < next_offset:
            return False
        for _ in range(_FOLLOWERS):
            position += header.size
            next_offset = header.next_offset
            if next_offset > self.end_offset:
                return False
            if position >= self.limit:
                return True
            if (hole := self.holes.get(position)) is not None:
                return next_offset <= hole.first_offset
            try:
                header = self._header(position, is_ahead=True)
            except _Bad:
                return False
            if header.base_offset < next_offset:
                return False
        return True

    def _first_true(
        self, position: int, next_offset: int, found: int | None, claimed: tuple[int, ...] = ()
    ) -> tuple[int, int | None]:
        """The first batch from `position` on whose base offset is not the one that lies; its
        position and offset. At the end of the segment, the offset there.

        A CRC covers how many offsets a batch has, and not which. So of the batches that follow one
        another here those lie that have to, for as many as possible to tell the truth: each begins
        at least as far behind the one before as there are offsets in between; exactly as far where
        there are no gaps. If `found` is given, damage lies before, with `next_offset` offsets or
        more, and says that one of `claimed` is due; `found` stands for a batch that is damaged as
        well. Where it is not what the first of them says itself, it is what is due there, and that
        one lies.
        """
        chain, end, known_limit = self._chain(position, next_offset, claimed)
        if not chain or chain[0].batch.position != position:
            return position, next_offset if found is None else found
        offsets_before = chain[-1].offsets_before + chain[-1].batch.header.last_offset_delta + 1
        limit = min(known_limit, self._offset_limit(next_offset))
        may_skip = self.end_offset is not None
        due, fits_due, is_told = next_offset, _FITS_WHAT_IS_KNOWN, False
        if found is not None and found != chain[0].batch.header.base_offset:
            due, fits_due, is_told = found, _FITS_WHAT_IS_DUE, True
        # Of each batch as the last one that is true: how well that fits, and the first true one.
        best: list[tuple[float, int] | None] = []
        for at, link in enumerate(chain):
            offset = link.batch.header.base_offset
            fits: tuple[float, int] | None = None
            is_lie = is_told and at == 0
            if not is_lie and offset + offsets_before - link.offsets_before <= limit:
                rest = offset - next_offset - link.offsets_before
                is_due = offset - due == link.offsets_before
                if is_due or (rest >= 0 and (may_skip or found is not None or link.holes_before)):
                    fits = (fits_due if is_due else 1.0, -at)
                for known, other in zip(best, chain, strict=False):
                    rest = offset - other.batch.header.base_offset
                    rest -= link.offsets_before - other.offsets_before
                    is_gap = may_skip or link.holes_before > other.holes_before
                    if known is not None and (rest == 0 or (rest > 0 and is_gap)):
                        fits = max(
                            fits or (0.0, 0), (known[0] + (1.0 if rest else _FITS), known[1])
                        )
            if fits is not None and link.is_claimed:
                fits = (fits[0] + _FITS_A_CLAIM, fits[1])
            best.append(fits)
        score, first = max((each for each in best if each is not None), default=(0.0, 0))
        if score:
            return chain[-first].batch.position, chain[-first].batch.header.base_offset
        if end >= self.limit:
            return self.limit, self.end_offset
        hole = self.holes.get(end)
        return end, next_offset + offsets_before if hole is None else hole.first_offset

    def _chain(
        self, position: int, next_offset: int, claimed: tuple[int, ...]
    ) -> tuple[list[_Link], int, int]:
        """Some of the batches with good CRCs from `position` on, where the last of them ends, and
        up to where its offsets may go; what is damaged between them is stepped over."""
        chain: list[_Link] = []
        end = position
        offsets_before = holes_before = end_offsets_before = 0
        while position < self.limit and position not in self.holes and len(chain) < _CHAIN_MAX:
            try:
                header = self._whole(position)
            except _Bad:
                claimed = self._claim(position, next_offset).own_offsets
                position, found = self._next_good(position, next_offset)
                offsets_before += 1
                holes_before += 1
                if found is None or holes_before > _CHAIN_MAX:
                    break
                continue
            is_claimed = header.base_offset in claimed
            claimed = ()
            good = GoodBatch(header, position)
            chain.append(_Link(good, offsets_before, holes_before, is_claimed))
            offsets_before += header.last_offset_delta + 1
            end_offsets_before = offsets_before
            position = end = position + header.size
        limit = self.offset_limit
        if (hole := self.holes.get(position)) is not None:
            limit = hole.first_offset - (offsets_before - end_offsets_before)
        return chain, end, limit

    # ---- bytes

    def _whole(self, position: int) -> BatchHeader:
        """The header of the batch at `position`, whose CRC is right."""
        header = self._header(position)
        if not self._is_crc_right(header, position):
            raise _Bad("the CRC does not match")
        return header

    def _offset_limit(self, next_offset: int) -> int:
        """Up to where the offsets of a batch may go, of which `next_offset` is expected."""
        if self.end_offset is not None:
            return self.end_offset
        return min(self.offset_limit, max(self.base_offset, next_offset) + _OFFSETS_AHEAD_MAX)

    def _header(self, position: int, *, is_ahead: bool = False) -> BatchHeader:
        header = self._ahead.get(position) if is_ahead else self._ahead.pop(position, None)
        if header is not None:
            return header
        data = self._read(position, BATCH_HEADER_BYTES, is_ahead=is_ahead)
        try:
            header = read_header(data)
        except CorruptBatch as damage:
            raise _Bad(str(damage)) from damage
        if header.size > self.limit - position:
            raise _Bad(f"a batch of {header.size} bytes, {self.limit - position} left")
        if is_ahead:
            self._ahead[position] = header
        return header

    def _is_crc_right(self, header: BatchHeader, position: int) -> bool:
        return self._crc(position + ATTRIBUTES_AT, position + header.size) == header.crc

    def _crc(self, at: int, end: int, crc: int = 0) -> int:
        """The CRC of what lies between two positions, behind what has the CRC `crc`; -1 if the file
        is shorter."""
        while at < end:
            data = self._read(at, min(_CHUNK_BYTES, end - at))
            if not data:
                return -1
            crc = crc32c(data, crc)
            at += len(data)
        return crc

    def _next_good(self, position: int, next_offset: int) -> tuple[int, int | None]:
        """Where the next good batch after damage at `position` begins, or the next damage, if what
        the headers say puts its beginning beyond doubt; and its offset."""
        claim = self._claim(position, next_offset)
        if position + BATCH_HEADER_BYTES <= claim.end <= self.limit:
            is_last = claim.end == self.limit
            found = None if is_last else self._offset_behind(claim, claim.end, next_offset)
            if is_last or found is not None:
                says = self._offset_at(claim.end) if is_last else found
                if says not in claim.offsets:
                    # What is missing may lie here: a wrong length can end where another batch does.
                    end = self._end_by_crc(position, next_offset, claim.end)
                    if end is not None:
                        return end, self._offset_behind(claim, end, next_offset)
                return claim.end, self.end_offset if is_last else found
        tries_left = _CHAIN_MAX
        for at, own_offset, crc in self._candidates_summed(position, next_offset):
            if crc == claim.crc:
                # It was only the length that led elsewhere, or what else no CRC covers.
                return at, self._offset_behind(claim, at, next_offset)
            is_claimed = own_offset in claim.offsets and tries_left > 0
            tries_left -= is_claimed
            if self._goes_on(at) or (is_claimed and self._goes_on(at, over_lengths=True)):
                return at, own_offset
        return self.limit, self.end_offset

    def _candidates_summed(self, position: int, next_offset: int) -> Iterator[tuple[int, int, int]]:
        """What looks like a good batch behind damage at `position`: its position, its offset, and
        the CRC of a batch that would end there; -1 where none can."""
        summed_to, summed = position + ATTRIBUTES_AT, 0
        for at, own_offset in self.candidates(position + 1, next_offset):
            if at >= position + BATCH_HEADER_BYTES:
                summed_to, summed = at, self._crc(summed_to, at, summed)
            yield at, own_offset, summed if summed_to == at else -1

    def _claim(self, position: int, next_offset: int) -> _Claim:
        """What stands at `position`, taken for a header."""
        if self.limit - position < BATCH_HEADER_BYTES:
            return _Claim(-1, (), (), -1)
        fields = HEADER.unpack(self._read(position, BATCH_HEADER_BYTES))
        base_offset, length, _, _, crc, _, last_offset_delta, *_, record_count = fields
        # Compaction leaves fewer records than offsets.
        counts = (last_offset_delta + 1, record_count)
        offsets = tuple(base + count for count in counts for base in (base_offset, next_offset))
        return _Claim(position + LENGTH_OVERHEAD + length, offsets, offsets[::2], crc)

    def _offset_behind(self, claim: _Claim, position: int, next_offset: int) -> int | None:
        """The offset of the batch at `position`, if a damaged one ends there: one that the damage
        claims, if the batch says so too or, damaged or not, leads to one whose offset fits; else
        its own, if it is good."""
        says = self._offset_at(position)
        behind = None
        with suppress(_Bad):
            header = self._header(position)
            behind = self._offset_at(position + header.size)
            if behind is not None:
                behind -= header.last_offset_delta + 1
        for offset in claim.offsets:
            is_possible = next_offset < offset <= self._offset_limit(next_offset)
            if is_possible and offset in (says, behind):
                return offset
        return self._good_offset(position, next_offset)

    def _offset_at(self, position: int) -> int | None:
        """The offset that what begins at a position says, whatever else it is."""
        hole = self.holes.get(position)
        if hole is not None:
            return hole.first_offset
        if position >= self.limit:
            return self.promised_offset if self.end_offset is None else self.end_offset
        return int.from_bytes(self._read(position, 8), "big", signed=True)

    def candidates(self, position: int, next_offset: int) -> Iterator[tuple[int, int]]:
        """Position and offset of whatever from `position` on looks like a good batch."""
        while position + BATCH_HEADER_BYTES <= self.limit:
            chunk = self.file.pread(min(_CHUNK_BYTES, self.limit - position), position)
            at = chunk.find(MAGIC, MAGIC_AT)
            while 0 <= at - MAGIC_AT <= len(chunk) - BATCH_HEADER_BYTES:
                start = at - MAGIC_AT
                ahead = int.from_bytes(chunk[start : start + 8], "big", signed=True) - next_offset
                if 0 <= ahead < _OFFSETS_AHEAD_MAX:
                    found = self._good_offset(position + start, next_offset)
                    if found is not None:
                        yield position + start, found
                at = chunk.find(MAGIC, at + 1)
            # Overlapping, so that no header is cut in two.
            position += max(1, len(chunk) - BATCH_HEADER_BYTES + 1)

    def _good_offset(self, position: int, next_offset: int) -> int | None:
        """The base offset of a good batch at `position`; None if there is none."""
        hole = self.holes.get(position)
        if hole is not None:
            return hole.first_offset
        try:
            header = self._whole(position)
        except _Bad:
            return None
        is_possible = next_offset <= header.base_offset
        is_possible &= header.next_offset <= self._offset_limit(next_offset)
        return header.base_offset if is_possible else None

    def _goes_on(self, position: int, *, over_lengths: bool = False) -> bool:
        """Whether what follows the batch at `position` shows that it is no part of another: batches
        by their lengths, or, `over_lengths`, batches with good CRCs, wherever these end."""
        start = position
        next_offset = -1
        while position < self.limit and position - start <= self.batch_bytes_max:
            hole = self.holes.get(position)
            if hole is not None:
                return True
            try:
                header = self._whole(position) if over_lengths else self._header(position)
            except _Bad:
                if next_offset == self.promised_offset:
                    return True
                behind = None
                if over_lengths:
                    behind = self._end_by_crc(position, next_offset, self.limit)
                if behind is None:
                    return False
                position = behind
                continue
            if header.base_offset < next_offset and not self._is_crc_right(header, position):
                return False
            if header.base_offset == self.promised_offset:
                return True
            next_offset = header.next_offset
            position += header.size
        return True

    def _end_by_crc(self, position: int, next_offset: int, limit: int) -> int | None:
        """Where the batch at `position` ends by its CRC, whatever its length says: where another
        good one begins, before `limit`."""
        crc = self._claim(position, next_offset).crc
        for at, _, summed in self._candidates_summed(position, next_offset):
            if at >= limit or at - position > self.batch_bytes_max:
                break
            if summed == crc:
                return at
        return None

    def _read(self, position: int, size: int, *, is_ahead: bool = False) -> memoryview:
        """Up to `size` bytes, at most a chunk's; fewer at the end of the file. What lies before a
        position `is_ahead` is still to be read, and its chunk stays."""
        at = position - self._chunk_position
        if not 0 <= at <= len(self._chunk) - size:
            if is_ahead:
                return memoryview(self.file.pread(min(size, self.limit - position), position))
            wanted = min(_CHUNK_BYTES, max(size, min(self.stop, self.limit) - position))
            self._chunk = self.file.pread(min(wanted, self.limit - position), position)
            self._chunk_position, at = position, 0
        return memoryview(self._chunk)[at : at + size]


def has_batch(file: Readable, position: int, limit: int, next_offset: int) -> bool:
    """Whether a whole batch with a good CRC and a later offset lies anywhere in a range."""
    scan = BatchScan(file, 0, limit)
    return next(scan.candidates(position, next_offset), None) is not None
