"""Repairs the files of partitions while no broker uses them. No byte is deleted: what is taken out
of a file lies beside it afterwards, in one that ends in `.quarantined`.

- The torn end of the newest segment, if it was not promised, is cut off.
- Any other damage of records is taken out, and an empty batch takes its place: it has the offsets
  of what was lost, so that no others get them. Readers pass over them from then on; before, they
  were refused with CORRUPT_MESSAGE and had to skip them by themselves.
- An index that lies is built anew. Snapshots and small files that a broker does without are put
  aside.

A segment is written anew beside the old one and takes its name when it is durable, so a crash at
any time leaves the one or the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from asyncbroker.log.batch_scan import Damage
from asyncbroker.log.checkpoints import CorruptCheckpoint
from asyncbroker.log.config import LogConfig
from asyncbroker.log.damage import DAMAGED_RANGES, decode_ranges, encode_ranges
from asyncbroker.log.files import TEMPORARY_SUFFIX, File, Files
from asyncbroker.log.index import OFFSET_INDEX, TIME_INDEX
from asyncbroker.log.inspection import (
    Finding,
    SegmentFiles,
    check_partition,
    recovery_point_of,
    segments_of,
)
from asyncbroker.log.open_segments import OpenSegments
from asyncbroker.log.segment import LOG_SUFFIX, Segment, segment_name
from asyncbroker.log.unclean_scan import unused_name
from asyncbroker.protocol.batches import CONTROL_BIT, HEADER, LENGTH_OVERHEAD, MAGIC, stamp_crc

_COPY_BYTES: Final = 1 << 20
_INDEXES: Final = (OFFSET_INDEX.suffix, TIME_INDEX.suffix)


@dataclass(frozen=True, slots=True)
class Repair:
    """One step: what is done to a file, in words, and what it takes to do it. Without `pieces` the
    whole file is put aside; with a `segment`, that segment's indexes are built anew then."""

    path: str
    what: str
    segment: SegmentFiles | None = None
    # Damaged ranges of the segment; the last one may have no end in offsets: it is cut off.
    pieces: tuple[Damage, ...] = ()


def plan(directory: str) -> list[Repair]:
    """What there is to repair in a partition. Only reads."""
    repairs: list[Repair] = []
    promised = recovery_point_of(directory)
    segments = segments_of(directory)
    for segment in segments:
        pieces = tuple(found for found in segment.scan() if isinstance(found, Damage))
        if pieces:
            pieces = tuple(_with_end(piece, promised) for piece in pieces)
            what = "; ".join(_words(piece) for piece in pieces)
            repairs.append(Repair(segment.path + LOG_SUFFIX, what, segment, pieces))
    rewritten = [repair.segment.path for repair in repairs if repair.segment is not None]
    by_path = {segment.path: segment for segment in segments}
    for finding in _aside(check_partition(directory)):
        stem, suffix = os.path.splitext(finding.path)
        # Those of a segment that is written anew are built anew with it.
        if stem not in rewritten:
            is_index = suffix in _INDEXES
            what = "build it anew" if is_index else "put it aside"
            of = by_path[stem] if is_index else None
            repairs.append(Repair(finding.path, f"{what}: {finding.what}", of))
    return repairs


def _aside(findings: Iterable[Finding]) -> list[Finding]:
    """The findings in files that can be made anew and are there, or are to be there: who was killed
    in a repair may have left no index."""
    return [
        finding
        for finding in findings
        if not finding.is_of_records
        and (os.path.exists(finding.path) or finding.path.endswith(_INDEXES))
    ]


def _with_end(piece: Damage, promised: int) -> Damage:
    """Damage at the end of the log, where only the promise tells how many offsets it has had."""
    if piece.next_offset is None and piece.first_offset < promised:
        return piece._replace(next_offset=promised)
    return piece


def _words(piece: Damage) -> str:
    where = f"bytes {piece.position} to {piece.end}"
    if piece.next_offset is None:
        return f"cut off {where}: the log ends before offset {piece.first_offset}"
    offsets = f"offsets {piece.first_offset} to {piece.next_offset - 1}"
    return f"take out {where}; an empty batch stands for {offsets}"


def carry_out(files: Files, repairs: Sequence[Repair]) -> None:
    """Does what `plan` said."""
    for repair in repairs:
        if repair.pieces:
            assert repair.segment is not None
            _rewrite(files, repair.segment, repair.pieces)
        else:
            _put_aside(files, repair.path)
        if repair.segment is not None:
            _build_indexes(files, repair.segment)
        files.sync_directory(os.path.dirname(repair.path))


def _rewrite(files: Files, segment: SegmentFiles, pieces: Sequence[Damage]) -> None:
    """Writes a segment anew without its damaged pieces, which are kept beside it."""
    path = segment.path + LOG_SUFFIX
    old = files.open(path)
    files.remove(path + TEMPORARY_SUFFIX)
    new = files.open(path + TEMPORARY_SUFFIX, create=True)
    end = position = 0
    for piece in pieces:
        end = _copy(old, position, piece.position, new, end)
        if piece.end > piece.position:
            name = unused_name(files, f"{segment.path}.{piece.position}")
            kept = files.open(name, create=True)
            _copy(old, piece.position, piece.end, kept, 0)
            kept.datasync()
            kept.close()
        if piece.next_offset is not None:
            batch = empty_batch(piece.first_offset, piece.next_offset)
            new.pwrite(batch, end)
            end += len(batch)
        position = piece.end
    _copy(old, position, old.size(), new, end)
    new.datasync()
    new.close()
    old.close()
    files.sync_directory(segment.directory)
    # Before the name changes hands: a crash must not leave positions of the one for the other.
    _forget_positions(files, segment, pieces)
    files.rename(path + TEMPORARY_SUFFIX, path)


def _build_indexes(files: Files, segment: SegmentFiles) -> None:
    """Builds both indexes from the log; what there was of them is put aside."""
    name = segment_name(segment.base_offset) + LOG_SUFFIX
    for suffix in _INDEXES:
        _put_aside(files, segment.path + suffix)
    built = Segment(
        files,
        OpenSegments(),
        segment.directory,
        segment.base_offset,
        sizes={name: files.list_files(segment.directory)[name]},
        index_interval_bytes=LogConfig().index_interval_bytes,
        created_ms=0,
    )
    for header, position, _ in built.walk(built.rewind(segment.base_offset), built.size):
        built.note(position, header.last_offset, header.max_timestamp)
    built.finish()
    built.persist_indexes(sync=True)
    built.close()


def _put_aside(files: Files, path: str) -> None:
    if files.exists(path):
        files.rename(path, unused_name(files, path))


def _forget_positions(files: Files, segment: SegmentFiles, pieces: Sequence[Damage]) -> None:
    """Leaves of the damage of a segment only which offsets were lost: their producers may go on
    behind them."""
    path = os.path.join(segment.directory, DAMAGED_RANGES)
    try:
        known = decode_ranges(files.read_whole(path)) if files.exists(path) else []
    except CorruptCheckpoint:
        return  # it is put aside
    lost = (
        piece.range_in(segment.base_offset, piece.next_offset).without_bytes()
        for piece in pieces
        if piece.next_offset is not None
    )
    rest = {each for each in known if each.base_offset != segment.base_offset}
    if ranges := sorted({*rest, *lost}):
        files.write_atomically(path, encode_ranges(ranges))
    else:
        files.remove(path)


def _copy(source: File, begin: int, end: int, target: File, position: int) -> int:
    """Copies bytes; gives the position after them in `target`."""
    for at in range(begin, end, _COPY_BYTES):
        data = source.pread(min(_COPY_BYTES, end - at), at)
        target.pwrite(data, position)
        position += len(data)
    return position


def empty_batch(first_offset: int, next_offset: int) -> bytearray:
    """A batch without records that has these offsets, as compaction leaves them; but a control
    batch of nobody, which tells that a marker may have been here."""
    batch = bytearray(
        HEADER.pack(
            first_offset,
            HEADER.size - LENGTH_OVERHEAD,
            0,
            MAGIC,
            0,
            CONTROL_BIT,
            next_offset - first_offset - 1,
            -1,
            -1,
            -1,
            -1,
            -1,
            0,
        )
    )
    stamp_crc(batch)
    return batch
