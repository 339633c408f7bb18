"""The codecs: what Java writes is read, damage is CorruptBatch, bombs stop at the limit."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import tracemalloc

import cramjam
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncbroker.protocol.compression import Compression, CorruptBatch, compress, decompress

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
LIMIT = 1 << 20

SAMPLES = {
    "nothing": b"",
    "one byte": b"x",
    "text": b"the quick brown fox jumps over the lazy dog " * 400,
    "noise": random.Random(1).randbytes(100_000),
    "zeros": bytes(300_000),
}


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize("codec", list(Compression))
def test_what_is_compressed_comes_back(codec: Compression, sample: bytes) -> None:
    packed = compress(codec, sample)
    for buffer in (packed, bytearray(packed), memoryview(packed)):
        assert decompress(codec, buffer, LIMIT) == sample


@settings(max_examples=50)
@given(data=st.binary(max_size=2000), codec=st.sampled_from(CODECS))
def test_the_limit_is_exact(data: bytes, codec: Compression) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    if data:
        with pytest.raises(CorruptBatch):
            decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", list(Compression))
def test_an_uncompressed_size_over_the_limit_is_refused(codec: Compression) -> None:
    with pytest.raises(CorruptBatch, match=f"more than {LIMIT} bytes"):
        decompress(codec, compress(codec, bytes(LIMIT + 1)), LIMIT)


def _bombs() -> dict[str, tuple[Compression, bytes]]:
    size = 64 << 20
    block = bytes(32 << 10)
    packed_block = bytes(cramjam.snappy.compress_raw(block))
    stream = zstandard.ZstdCompressor().compressobj()
    without_size = stream.compress(bytes(size)) + stream.flush()
    xerial = compress(Compression.SNAPPY, block)[:16]
    return {
        "gzip": (Compression.GZIP, gzip.compress(bytes(size))),
        "gzip members": (Compression.GZIP, gzip.compress(bytes(LIMIT // 4)) * 100),
        "xerial": (
            Compression.SNAPPY,
            bytes(xerial) + (struct.pack(">i", len(packed_block)) + packed_block) * 2048,
        ),
        "raw snappy": (Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(size)))),
        "lz4": (Compression.LZ4, bytes(compress(Compression.LZ4, bytes(size)))),
        "zstd": (Compression.ZSTD, zstandard.ZstdCompressor().compress(bytes(size))),
        "zstd without its size": (Compression.ZSTD, without_size),
        "zstd frames": (Compression.ZSTD, zstandard.ZstdCompressor().compress(block) * 2048),
    }


BOMBS = _bombs()


@pytest.mark.parametrize(("codec", "bomb"), BOMBS.values(), ids=BOMBS)
def test_a_bomb_stops_at_the_limit(codec: Compression, bomb: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            decompress(codec, bomb, LIMIT)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Parts that are joined may stand beside their sum.
    assert peak < 3 * LIMIT


@pytest.mark.parametrize("codec", CODECS)
def test_every_truncation_is_corrupt(codec: Compression) -> None:
    packed = compress(codec, b"some text, some more text " * 20)
    for size in range(len(packed)):
        if codec is Compression.SNAPPY and size == 16:
            continue  # xerial's header alone is a whole, empty stream
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:size], LIMIT)


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_after_the_end_are_corrupt(codec: Compression) -> None:
    packed = bytes(compress(codec, b"some text, some more text " * 20))
    for tail in (b"\x00", b"\x01\x02\x03\x04\x05\x06\x07\x08"):
        with pytest.raises(CorruptBatch):
            decompress(codec, packed + tail, LIMIT)


@settings(max_examples=200)
@given(data=st.binary(max_size=200), codec=st.sampled_from(CODECS))
def test_noise_is_corrupt_or_bounded(data: bytes, codec: Compression) -> None:
    heads = {
        Compression.GZIP: b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
        Compression.SNAPPY: b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01",
        Compression.LZ4: b"\x04\x22\x4d\x18\x60\x40\x82",
        Compression.ZSTD: b"\x28\xb5\x2f\xfd",
    }
    for candidate in (data, heads[codec] + data):
        with contextlib.suppress(CorruptBatch):
            assert len(decompress(codec, candidate, LIMIT)) <= LIMIT


@settings(max_examples=200)
@given(codec=st.sampled_from(CODECS), position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_is_corrupt_or_bounded(codec: Compression, position: int, bit: int) -> None:
    packed = bytearray(compress(codec, SAMPLES["text"][:5000]))
    packed[position % len(packed)] ^= 1 << bit
    with contextlib.suppress(CorruptBatch):
        assert len(decompress(codec, packed, LIMIT)) <= LIMIT


def test_snappy_is_written_as_java_frames_it() -> None:
    data = random.Random(2).randbytes(70_000)
    packed = compress(Compression.SNAPPY, data)
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    sizes = []
    position = 16
    while position < len(packed):
        (size,) = struct.unpack_from(">i", packed, position)
        sizes.append(cramjam.snappy.decompress_raw_len(packed[position + 4 : position + 4 + size]))
        position += 4 + size
    assert sizes == [32768, 32768, 70_000 - 2 * 32768]


def test_raw_snappy_is_read_as_librdkafka_writes_it() -> None:
    packed = bytes(cramjam.snappy.compress_raw(b"value " * 1000))
    assert decompress(Compression.SNAPPY, packed, LIMIT) == b"value " * 1000


@pytest.mark.parametrize("size", [-1, 0, 1000, 0x7FFFFFFF, -0x80000000])
def test_a_lying_xerial_block_size_is_corrupt(size: int) -> None:
    packed = bytearray(compress(Compression.SNAPPY, b"value " * 100))
    struct.pack_into(">i", packed, 16, size)
    with pytest.raises(CorruptBatch):
        decompress(Compression.SNAPPY, packed, LIMIT)


def test_a_raw_snappy_block_may_not_promise_what_it_cannot_hold() -> None:
    with pytest.raises(CorruptBatch, match="promised"):
        decompress(Compression.SNAPPY, b"\xff\xff\x7f\x00a", 1 << 30)


def test_lz4_is_written_with_independent_blocks_and_a_checksum() -> None:
    packed = compress(Compression.LZ4, SAMPLES["text"])
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0b1110_0100 == 0b0110_0100  # version 1, independent, content checksum


def test_lz4_content_checksum_is_checked() -> None:
    packed = bytearray(compress(Compression.LZ4, SAMPLES["noise"][:1000]))
    packed[-1] ^= 1
    with pytest.raises(CorruptBatch):
        decompress(Compression.LZ4, packed, LIMIT)


def test_lz4_with_linked_blocks_is_read_all_the_same() -> None:
    compressor = cramjam.lz4.Compressor(block_linked=True)
    compressor.compress(SAMPLES["text"] * 10)
    packed = bytes(compressor.finish())
    assert decompress(Compression.LZ4, packed, LIMIT) == SAMPLES["text"] * 10


def test_gzip_of_several_members_is_read() -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"two")
    assert decompress(Compression.GZIP, packed, 7) == b"one two"


@pytest.mark.parametrize("with_checksum", [False, True])
@pytest.mark.parametrize("with_size", [False, True])
def test_zstd_frames_are_read_with_and_without_size_and_checksum(
    with_size: bool, with_checksum: bool
) -> None:
    compressor = zstandard.ZstdCompressor(
        write_content_size=with_size, write_checksum=with_checksum
    )
    stream = compressor.compressobj(size=300_000 if with_size else -1)
    packed = stream.compress(SAMPLES["zeros"]) + stream.flush()
    assert decompress(Compression.ZSTD, packed, LIMIT) == SAMPLES["zeros"]
    assert decompress(Compression.ZSTD, packed * 2, LIMIT) == SAMPLES["zeros"] * 2


def test_zstd_may_not_promise_more_than_its_blocks_can_hold() -> None:
    packed = bytearray(zstandard.ZstdCompressor().compress(bytes(200_000)))
    field = packed.index((200_000).to_bytes(4, "little"))
    packed[field : field + 4] = (1 << 30).to_bytes(4, "little")
    with pytest.raises(CorruptBatch, match="promises more"):
        decompress(Compression.ZSTD, packed, 1 << 31)


@pytest.mark.parametrize("size", [1 << 18, (1 << 18) + 1, 3_000_000, 9_000_000])
def test_large_records_are_worked_off_in_pieces_and_nothing_is_different(size: int) -> None:
    """Single calls over all of them would keep the interpreter from other threads."""
    data = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
    whole = cramjam.lz4.Compressor(content_checksum=True, block_linked=False)
    whole.compress(data)
    assert compress(Compression.LZ4, data) == bytes(whole.finish())
    packed = compress(Compression.GZIP, data)
    assert decompress(Compression.GZIP, packed, size) == data
    with pytest.raises(CorruptBatch):
        decompress(Compression.GZIP, packed, size - 1)
    with pytest.raises(CorruptBatch):
        decompress(Compression.GZIP, packed[:-3], size)
