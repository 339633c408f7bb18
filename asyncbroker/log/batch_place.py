"""Whether a batch can lie where it was found in a segment.

The header tells its size and its offsets, and from the place follows what these may be: it ends
within the file, comes after the batch before it, and is near enough to the segment's base offset
for an index. Not known here: the batch's CRC, and what to do about one that does not fit.
"""

from __future__ import annotations

from typing import Final

from asyncbroker.log.errors import CorruptLog
from asyncbroker.protocol.batches import BatchHeader, read_header
from asyncbroker.protocol.compression import Buffer, CorruptBatch

# The indexes hold offsets, relative to the base offset, and positions in signed 32 bits.
RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1


def header_in_place(
    chunk: Buffer,
    at: int,
    path: str,
    segment_base_offset: int,
    position: int,
    limit: int,
    next_offset: int,
) -> BatchHeader:
    """The header at `chunk[at]`, which is `position` in the file `path`, if it can be that of a
    batch that ends by `limit` and has no offset below `next_offset`. Raises CorruptLog."""
    try:
        header = read_header(chunk, at)
    except CorruptBatch as damage:
        raise CorruptLog(path, str(damage), position) from damage
    if position + header.size > limit:
        raise CorruptLog(path, f"a batch of {header.size} bytes, {limit - position} left", position)
    if (
        header.base_offset < next_offset
        or header.last_offset - segment_base_offset > RELATIVE_OFFSET_MAX
    ):
        raise CorruptLog(path, f"offset {header.base_offset} here", position)
    return header
