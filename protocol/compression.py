"""The five codecs of record batches, with a hard limit on what comes out of them.

The only file that imports codecs, each on first use. What Kafka means by their names:

- GZIP: RFC 1952, one or more members.
- SNAPPY: Java writes the framing of xerial's snappy-java (a 16-byte header, then blocks of at most
  32 KiB, each after its int32 size); librdkafka and others write one raw block. Both are read,
  xerial's is written.
- LZ4: the frame format with independent blocks (KIP-57; Java refuses linked ones).
- ZSTD: one or more frames (KIP-110), mostly without the decompressed size in their headers.

A few kilobytes can decompress to gigabytes, so `decompress` knows a limit before it starts: it
walks the headers of the blocks inside an LZ4 or zstd frame, which bound what they can hold, and
asks for no more room than the smaller of that bound and the caller's limit. Whatever is wrong with
the compressed bytes comes out as `CorruptBatch`.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final

Buffer = bytes | bytearray | memoryview

_MAPPED_BYTES_MIN: Final = 4 << 20


class Compression(IntEnum):
    """Codec ids as in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CorruptBatch(Exception):
    """Bytes that are not a record batch, or not the records that the batch promises."""


def compress(codec: Compression, data: Buffer) -> Buffer:
    """`data` as the payload of a batch, in the form that Kafka's Java producer writes."""
    return _COMPRESSORS[codec](data)


def decompress(codec: Compression, data: Buffer, bytes_max: int) -> Buffer:
    """The records inside a batch's payload.

    Raises CorruptBatch when `data` is damaged, truncated, followed by other bytes, or would
    decompress to more than `bytes_max` bytes; takes no more room for its output than that.
    """
    return _DECOMPRESSORS[codec](data, bytes_max)


def _room(size: int) -> memoryview:
    """Room for an output. A large `bytearray` keeps the interpreter busy, a tenth of a second for
    90 MB, until all of it is there; pages of a mapping come as they are written to, which codecs do
    while others run."""
    return memoryview(mmap.mmap(-1, size) if size >= _MAPPED_BYTES_MIN else bytearray(size))


def _too_large(bytes_max: int) -> CorruptBatch:
    return CorruptBatch(f"compressed records of more than {bytes_max} bytes")


# ---- none


def _keep(data: Buffer) -> Buffer:
    return data


def _check_size(data: Buffer, bytes_max: int) -> Buffer:
    if len(data) > bytes_max:
        raise CorruptBatch(f"records of more than {bytes_max} bytes")
    return data


# ---- gzip

_GZIP_WINDOW_BITS: Final = 31  # zlib's way to say: the gzip container, any window
_GZIP_PIECE_BYTES: Final = 4 << 20


def _gzip_compress(data: Buffer) -> bytes:
    import zlib

    compressor = zlib.compressobj(wbits=_GZIP_WINDOW_BITS)
    return compressor.compress(data) + compressor.flush()


def _gzip_decompress(data: Buffer, bytes_max: int) -> Buffer:
    import zlib

    parts: list[bytes] = []
    rest: Buffer = data
    left = bytes_max
    while True:
        member = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
        # Piece by piece: to put a large output together keeps the interpreter busy.
        while not member.eof:
            try:
                part = member.decompress(rest, min(left + 1, _GZIP_PIECE_BYTES))
            except zlib.error as error:
                raise CorruptBatch(f"gzip: {error}") from None
            if len(part) > left:
                raise _too_large(bytes_max)
            if not part and not member.eof:
                raise CorruptBatch("gzip: the stream ends early")
            parts.append(part)
            left -= len(part)
            rest = member.unconsumed_tail
        rest = member.unused_data
        if not rest:
            return parts[0] if len(parts) == 1 else _joined(parts)


def _joined(parts: list[bytes]) -> memoryview:
    """As `b"".join`, piece by piece for the same reason; the parts are given away."""
    output = _room(sum(map(len, parts)))
    end = len(output)
    while parts:
        part = parts.pop()
        output[end - len(part) : end] = part
        end -= len(part)
    return output


# ---- snappy

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest compatible one
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_INT32: Final = struct.Struct(">i")
# A copy of 64 bytes takes three: no element of snappy's format expands more.
_SNAPPY_RATIO_MAX: Final = 22


def _snappy_compress(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    parts: list[bytes] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _snappy_decompress(data: Buffer, bytes_max: int) -> Buffer:
    import cramjam

    try:
        blocks: list[tuple[memoryview, int]] = []
        left = bytes_max
        for block in _snappy_blocks(memoryview(data)):
            size = cramjam.snappy.decompress_raw_len(block)
            if size > left:
                raise _too_large(bytes_max)
            if size > len(block) * _SNAPPY_RATIO_MAX:
                raise CorruptBatch(f"snappy: {size} bytes promised by a block of {len(block)}")
            blocks.append((block, size))
            left -= size
        output = _room(bytes_max - left)
        end = 0
        for block, size in blocks:
            cramjam.snappy.decompress_raw_into(block, output[end : end + size])
            end += size
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy: {error}") from None
    return output


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield view
        return
    if len(view) < len(_XERIAL_HEADER):
        raise CorruptBatch("snappy: the header is cut off")
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if len(view) - position < _INT32.size:
            raise CorruptBatch("snappy: a block's size is cut off")
        (size,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if not 0 < size <= len(view) - position:
            raise CorruptBatch(f"snappy: a block of {size} bytes, {len(view) - position} are left")
        yield view[position : position + size]
        position += size


# ---- lz4

_LZ4_MAGIC: Final = 0x184D2204
_LZ4_BLOCK_BYTES_MAX: Final = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_LZ4_RATIO_MAX: Final = 255
# Of some blocks, so that the frame is that of one call.
_LZ4_PIECE_BYTES: Final = 1 << 18
_UINT32_LE: Final = struct.Struct("<I")


def _lz4_compress(data: Buffer) -> bytes:
    import cramjam

    compressor = cramjam.lz4.Compressor(content_checksum=True, block_linked=False)
    # Piece by piece: the library keeps the interpreter to itself during each call.
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_PIECE_BYTES):
        compressor.compress(bytes(view[start : start + _LZ4_PIECE_BYTES]))
    return bytes(compressor.finish())


def _lz4_decompress(data: Buffer, bytes_max: int) -> Buffer:
    import cramjam

    bound = _lz4_bound(data)
    output = _room(min(bound, bytes_max))
    try:
        size = cramjam.lz4.decompress_into(data, output)
    except cramjam.DecompressionError as error:
        if bound > bytes_max:
            raise _too_large(bytes_max) from None
        raise CorruptBatch(f"lz4: {error}") from None
    return output[:size]


def _lz4_bound(data: Buffer) -> int:
    """At most how many bytes the frame holds, from the sizes of its blocks; checks its extent.

    Frame: magic u32, flags u8, block size code u8, [content size u64], [dictionary id u32], header
    checksum u8; blocks of size u32 (high bit: stored), bytes, [checksum u32]; a zero u32;
    [content checksum u32]. Little endian.
    """
    try:
        (magic,) = _UINT32_LE.unpack_from(data, 0)
        flags, block_code = data[4], data[5] >> 4 & 7
        block_bytes_max = _LZ4_BLOCK_BYTES_MAX[block_code]
    except (struct.error, IndexError, KeyError):
        raise CorruptBatch("lz4: no frame header") from None
    if magic != _LZ4_MAGIC or flags >> 6 != 1:
        raise CorruptBatch("lz4: not a frame of version 1")
    block_extra = 4 if flags & 0x10 else 0
    position = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    bound = 0
    while True:
        if position + 4 > len(data):
            raise CorruptBatch("lz4: the frame ends early")
        (word,) = _UINT32_LE.unpack_from(data, position)
        position += 4
        if word == 0:
            break
        size = word & 0x7FFFFFFF
        bound += min(block_bytes_max, size if word >> 31 else size * _LZ4_RATIO_MAX)
        position += size + block_extra
    if position + (4 if flags & 0x04 else 0) != len(data):
        raise CorruptBatch("lz4: the frame's end is not the payload's")
    return bound


# ---- zstd

_ZSTD_BLOCK_BYTES_MAX: Final = 128 << 10
# What Java's decoder takes by default (a window log of 27).
_ZSTD_WINDOW_BYTES_MAX: Final = 128 << 20
_ZSTD_RLE, _ZSTD_COMPRESSED, _ZSTD_RESERVED = 1, 2, 3


def _zstd_compress(data: Buffer) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=3).compress(data)


def _zstd_decompress(data: Buffer, bytes_max: int) -> Buffer:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    parts: list[bytes] = []
    view = memoryview(data)
    left = bytes_max
    while view or not parts:
        bound = 0
        try:
            size, bound = _zstd_extent(view, left)
            # The library takes a limit of 0 for none at all.
            parts.append(decompressor.decompress(view[:size], max(1, min(bound, left))))
        except zstandard.ZstdError as error:
            if bound > left:
                raise _too_large(bytes_max) from None
            raise CorruptBatch(f"zstd: {error}") from None
        left -= len(parts[-1])
        if left < 0:
            raise _too_large(bytes_max)
        view = view[size:]
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _zstd_extent(data: memoryview, bytes_max: int) -> tuple[int, int]:
    """The size of the first frame, and at most how many bytes it holds, by its blocks' headers.

    Block header, 24 bits little endian: last block 1, type 2 (stored, one byte repeated,
    compressed, reserved), size 21. A repeated byte is one byte long whatever its size.
    """
    import zstandard

    frame = zstandard.get_frame_parameters(data)
    block_bytes_max = min(_ZSTD_BLOCK_BYTES_MAX, frame.window_size)
    position = zstandard.frame_header_size(data)
    bound = 0
    is_last = False
    while not is_last:
        word = int.from_bytes(data[position : position + 3], "little")
        position += 3
        is_last, kind, size = bool(word & 1), word >> 1 & 3, word >> 3
        if kind == _ZSTD_RESERVED or position > len(data):
            raise CorruptBatch("zstd: the frame is broken or ends early")
        bound += block_bytes_max if kind == _ZSTD_COMPRESSED else size
        position += 1 if kind == _ZSTD_RLE else size
    position += 4 if frame.has_checksum else 0
    if position > len(data):
        raise CorruptBatch("zstd: the frame ends early")
    if frame.content_size != zstandard.CONTENTSIZE_UNKNOWN:
        if frame.content_size > bound:
            raise CorruptBatch("zstd: the frame promises more than its blocks can hold")
        if frame.content_size > bytes_max:
            raise _too_large(bytes_max)
        bound = frame.content_size
    return position, bound


_COMPRESSORS: Final[dict[Compression, Callable[[Buffer], Buffer]]] = {
    Compression.NONE: _keep,
    Compression.GZIP: _gzip_compress,
    Compression.SNAPPY: _snappy_compress,
    Compression.LZ4: _lz4_compress,
    Compression.ZSTD: _zstd_compress,
}

_DECOMPRESSORS: Final[dict[Compression, Callable[[Buffer, int], Buffer]]] = {
    Compression.NONE: _check_size,
    Compression.GZIP: _gzip_decompress,
    Compression.SNAPPY: _snappy_decompress,
    Compression.LZ4: _lz4_decompress,
    Compression.ZSTD: _zstd_decompress,
}
