"""Holds the write-ahead log of an SQLite file against its checksums, before SQLite opens it.

SQLite takes the first frame whose checksum is wrong for the torn end of a crash, and forgets it and
all that follows without a word. But each commit was durable before the next one began: if there is
more than one behind that frame, it is damage to what was promised, and nobody knows what is lost.
The last commit may be torn, and nobody was told of it.

    a header     magic, version, page size, sequence, two salts, two sums of all that
    frames       page, size of the database if the frame ends a commit or 0, the two salts, two sums
                 of these first 8 bytes and the page, going on from those before; then the page

All are 4 bytes, big endian; the sums are over words whose order the last bit of the magic tells.
Frames with other salts are of an earlier use of the file (https://www.sqlite.org/walformat.html).
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import Final

from asyncbroker.log.errors import DirectoryRefused

_HEADER: Final = struct.Struct(">IIIIIIII")
_FRAME: Final = struct.Struct(">IIIIII")
_MAGIC: Final = 0x377F0682
_PAGE_BYTES_MAX: Final = 65536
# Salts of another use of the file differ in some 16 bits: they are random.
_DAMAGED_BITS_MAX: Final = 4
_SUMMED_OF_HEADER: Final = 24
_SUMMED_OF_FRAME: Final = 8


def check_wal(path: str) -> None:
    """Raises DirectoryRefused if it has lost more than the end that a crash may have torn."""
    try:
        with open(path, "rb") as file:
            count = lost_commits(file.read())
    except OSError as error:
        raise DirectoryRefused(f"{path}: {error}") from error
    if count > 1:
        raise DirectoryRefused(f"{path} is damaged: {count} commits are behind the damage")


def lost_commits(wal: bytes) -> int:
    """How many commits lie behind the first damage of a write-ahead log: up to one was never
    promised."""
    if len(wal) < _HEADER.size + _FRAME.size:
        return 0
    magic, _, page_bytes, _, *salts, sum0, sum1 = _HEADER.unpack_from(wal)
    is_big = bool(magic & 1)
    sums = _sums(wal[:_SUMMED_OF_HEADER], is_big, (0, 0))
    if magic & ~1 != _MAGIC or not _is_page_size(page_bytes) or sums != (sum0, sum1):
        return _commits_without_header(wal)
    lost = 0
    pages = set[int]()
    is_whole = True
    for at in range(
        _HEADER.size, len(wal) - _FRAME.size - page_bytes + 1, _FRAME.size + page_bytes
    ):
        page, commit_size, salt0, salt1, sum0, sum1 = _FRAME.unpack_from(wal, at)
        damaged_bits = (salt0 ^ salts[0]).bit_count() + (salt1 ^ salts[1]).bit_count()
        is_ours = damaged_bits <= _DAMAGED_BITS_MAX
        if is_whole:
            page_at = at + _FRAME.size
            sums = _sums(wal[at : at + _SUMMED_OF_FRAME], is_big, sums)
            sums = _sums(wal[page_at : page_at + page_bytes], is_big, sums)
            is_whole = not damaged_bits and sums == (sum0, sum1)
        if is_whole or not is_ours:
            continue
        # No commit has a page twice: of one before its end is damaged.
        is_next = page in pages
        pages = {page} if is_next else pages | {page}
        lost += is_next + bool(commit_size)
    return lost


def _commits_without_header(wal: bytes) -> int:
    """Commits behind a header that is damaged: as if it had the salts of the first frame."""
    page_bytes = int.from_bytes(wal[8:12], "big")
    sizes = [page_bytes] if _is_page_size(page_bytes) else [1 << bits for bits in range(9, 17)]
    first = _FRAME.unpack_from(wal, _HEADER.size)[2:4]
    return max(
        sum(
            bool(commit_size) and (salt0, salt1) == first
            for _, commit_size, salt0, salt1, *_ in (
                _FRAME.unpack_from(wal, at)
                for at in range(_HEADER.size, len(wal) - _FRAME.size - size + 1, _FRAME.size + size)
            )
        )
        for size in sizes
    )


def _is_page_size(size: int) -> bool:
    return 512 <= size <= _PAGE_BYTES_MAX and not size & (size - 1)


def _sums(data: bytes, is_big: bool, sums: tuple[int, int]) -> tuple[int, int]:
    words = array("I", data)
    if is_big != (sys.byteorder == "big"):
        words.byteswap()
    sum0, sum1 = sums
    for even, odd in zip(words[::2], words[1::2], strict=True):
        sum0 = (sum0 + even + sum1) & 0xFFFFFFFF
        sum1 = (sum1 + odd + sum0) & 0xFFFFFFFF
    return sum0, sum1
