"""The bytes of the journal: what stands in its file, and nothing of when or why.

    block 0, block 1    the head, twice: one of them survives whatever happens to the other
    block 2 ...         the ring: rounds, each in whole blocks of its own

All numbers are big-endian. A head, the rest of its block zeros:

     0  8  magic "ABJOURN1"
     8  4  CRC-32C of all that follows
    12  8  generation: raised each time the journal is emptied; of two heads the higher counts
    20 16  id: random, new in each generation
    36  8  size of the file in bytes

A round is what became durable with one fdatasync: a header and a table of frames, both under one
CRC, then the frames' bytes one after another, then zeros to the end of the block:

     0  8  magic "ABROUND1"
     8  4  CRC-32C of all that follows, up to the end of the table
    12 16  id of the head
    28  8  position: that of the last lap is smaller by the size of the ring
    36  8  position of the round before this one
    44  8  live from: rounds below this position are of no use any more
    52  8  size in bytes, with the zeros
    60  4  number of frames
    64     the table, 52 bytes a frame:
             0 16  topic id
            16  4  partition
            20  4  CRC-32C of the frame's bytes
            24  8  base offset of the segment whose file they belong to
            32  8  position in that file
            40  8  end offset: that after the last batch of the frame
            48  4  size in bytes

The id cannot be guessed, so that nobody who produces records can make a round: bytes of an old
frame may lie at the begin of a block when what stood before them was written over. A round begins
in a block of its own, so that a torn write reaches no byte of a round that was acknowledged.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from asyncbroker.log.system_calls import Buffer
from asyncbroker.protocol.checksums import crc32c

BLOCK_BYTES: Final = 4096
HEAD_BLOCKS: Final = 2
RING_BEGIN: Final = HEAD_BLOCKS * BLOCK_BYTES

HEAD_MAGIC: Final = b"ABJOURN1"
ROUND_MAGIC: Final = b"ABROUND1"

_HEAD: Final = struct.Struct(">8sIQ16sQ")
_ROUND: Final = struct.Struct(">8sI16sQQQQI")
_FRAME: Final = struct.Struct(">16siIqqqI")
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 8
_CRC_END: Final = _CRC_AT + _CRC.size


class CorruptJournal(Exception):
    """Bytes of the journal that are not what they should be."""


class Head(NamedTuple):
    """Whose rounds count."""

    generation: int
    journal_id: bytes
    file_bytes: int

    @property
    def ring_bytes(self) -> int:
        return self.file_bytes - RING_BEGIN


class Frame(NamedTuple):
    """Bytes of one segment file."""

    topic_id: bytes
    partition: int
    crc: int
    segment_base_offset: int
    segment_position: int
    end_offset: int
    size: int


class Round(NamedTuple):
    """The header of a round; positions count on from lap to lap."""

    position: int
    previous_position: int
    live_from: int
    size: int
    frames: list[Frame]

    @property
    def frames_at(self) -> int:
        """Where in the round the frames' bytes begin."""
        return _ROUND.size + len(self.frames) * _FRAME.size


def encode_head(head: Head) -> bytes:
    """One block."""
    data = bytearray(BLOCK_BYTES)
    _HEAD.pack_into(data, 0, HEAD_MAGIC, 0, head.generation, head.journal_id, head.file_bytes)
    _CRC.pack_into(data, _CRC_AT, crc32c(bytes(data[_CRC_END:])))
    return bytes(data)


def decode_head(block: bytes) -> Head:
    """Raises CorruptJournal."""
    if len(block) != BLOCK_BYTES or block[:_CRC_AT] != HEAD_MAGIC:
        raise CorruptJournal("no head of a journal")
    _, crc, generation, journal_id, file_bytes = _HEAD.unpack_from(block)
    if crc != crc32c(block[_CRC_END:]):
        raise CorruptJournal("the CRC of the head does not match")
    if file_bytes % BLOCK_BYTES or file_bytes <= RING_BEGIN:
        raise CorruptJournal(f"a journal of {file_bytes} bytes")
    return Head(generation, journal_id, file_bytes)


def round_bytes(frame_count: int, payload_bytes: int) -> int:
    """The size of a round."""
    used = _ROUND.size + frame_count * _FRAME.size + payload_bytes
    return -(-used // BLOCK_BYTES) * BLOCK_BYTES


def encode_frame(
    topic_id: bytes, partition: int, base_offset: int, position: int, end_offset: int, data: Buffer
) -> bytes:
    """A frame of the table."""
    return _FRAME.pack(
        topic_id, partition, crc32c(data), base_offset, position, end_offset, len(data)
    )


def encode_round(
    journal_id: bytes,
    position: int,
    previous_position: int,
    live_from: int,
    frames: Sequence[bytes],
    payloads: Sequence[Buffer],
) -> bytes:
    """A whole round, as it is written: frames of `encode_frame`, and their bytes."""
    size = round_bytes(len(frames), sum(map(len, payloads)))
    table = b"".join(frames)
    header = bytearray(_ROUND.size)
    _ROUND.pack_into(
        header,
        0,
        ROUND_MAGIC,
        0,
        journal_id,
        position,
        previous_position,
        live_from,
        size,
        len(frames),
    )
    _CRC.pack_into(header, _CRC_AT, crc32c(table, crc32c(bytes(header[_CRC_END:]))))
    return b"".join((header, table, *payloads)).ljust(size, b"\0")


def table_end(block: Buffer, journal_id: bytes) -> int | None:
    """How much of a round that begins in this block `decode_round` needs, if what the block says is
    true; None if it does not say that a round of this journal begins here."""
    if len(block) < _ROUND.size or bytes(block[:_CRC_AT]) != ROUND_MAGIC:
        return None
    _, _, found_id, _, _, _, _, count = _ROUND.unpack_from(block)
    return _ROUND.size + count * _FRAME.size if found_id == journal_id else None


def decode_round(data: Buffer, size_max: int) -> Round:
    """The header of the round that `data` begins with. Raises CorruptJournal."""
    _, crc, _, position, previous_position, live_from, size, count = _ROUND.unpack_from(data)
    end = _ROUND.size + count * _FRAME.size
    if size % BLOCK_BYTES or not end <= size <= size_max or len(data) < end:
        raise CorruptJournal(f"a round of {size} bytes with {count} frames")
    if crc != crc32c(bytes(data[_CRC_END:end])):
        raise CorruptJournal("the CRC of a round's header does not match")
    frames = [Frame(*fields) for fields in _FRAME.iter_unpack(bytes(data[_ROUND.size : end]))]
    if end + sum(frame.size for frame in frames) > size:
        raise CorruptJournal("the frames of a round are larger than the round")
    return Round(position, previous_position, live_from, size, frames)


def is_frame_whole(frame: Frame, data: Buffer) -> bool:
    """Whether `data` are the frame's bytes."""
    return len(data) == frame.size and crc32c(data) == frame.crc
