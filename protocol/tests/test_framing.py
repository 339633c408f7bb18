"""Framing: any chunking gives the same frames, and a claimed size gives no memory."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncbroker.protocol.framing import (
    FIRST_BUFFER_BYTES,
    GROWTH_FACTOR,
    LANDING_BYTES,
    PROVEN_BYTES_MAX,
    PROVEN_SPARE,
    UNFILLED_BYTES_MIN,
    FrameReader,
    new_unfilled,
)

FRAME_BYTES_MAX = 100 * 1024 * 1024


def framed(*bodies: bytes) -> bytes:
    return b"".join(pack(">i", len(body)) + body for body in bodies)


def receive(reader: FrameReader, stream: bytes, chunks: list[int]) -> list[bytearray]:
    """Feeds the stream in chunks of the given sizes, repeated until it is used up."""
    frames: list[bytearray] = []
    position = 0
    while position < len(stream):
        for size in chunks:
            frames += reader.feed(stream[position : position + size])
            position += size
    return frames


def test_frames_come_out_whole_and_in_order() -> None:
    reader = FrameReader(FRAME_BYTES_MAX)
    assert reader.feed(framed(b"one", b"", b"three")) == [b"one", b"", b"three"]
    assert reader.is_between_frames


@given(
    bodies=st.lists(st.binary(max_size=40), max_size=8),
    chunks=st.lists(st.integers(min_value=1, max_value=50), min_size=1, max_size=4),
)
def test_any_chunking_equals_whole(bodies: list[bytes], chunks: list[int]) -> None:
    stream = framed(*bodies)
    assert receive(FrameReader(FRAME_BYTES_MAX), stream, chunks) == bodies
    assert receive(FrameReader(FRAME_BYTES_MAX), stream, [1]) == bodies


@given(
    sizes=st.lists(st.integers(min_value=0, max_value=3 * LANDING_BYTES), max_size=4),
    chunk=st.integers(min_value=100, max_value=2 * LANDING_BYTES),
)
def test_frames_larger_than_the_landing_buffer_arrive_whole(sizes: list[int], chunk: int) -> None:
    bodies = [bytes([index]) * size for index, size in enumerate(sizes)]
    reader = FrameReader(FRAME_BYTES_MAX)
    assert receive(reader, framed(*bodies), [chunk]) == bodies
    assert reader.is_between_frames
    assert reader.held_bytes == 0


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_a_size_out_of_bounds_is_an_error_after_the_frames_before_it(size: int, chunk: int) -> None:
    reader = FrameReader(1000)
    stream = framed(b"fine", b"fine too") + pack(">i", size) + b"never looked at"
    assert receive(reader, stream, [chunk]) == [b"fine", b"fine too"]
    assert reader.error is not None
    assert str(size) in str(reader.error)


def test_a_frame_of_exactly_the_limit_is_allowed() -> None:
    reader = FrameReader(1000)
    assert reader.feed(framed(bytes(1000))) == [bytes(1000)]
    assert reader.error is None


def test_memory_follows_what_has_arrived_and_not_the_claimed_size() -> None:
    reader = FrameReader(FRAME_BYTES_MAX)
    reader.feed(pack(">i", FRAME_BYTES_MAX))
    assert reader.held_bytes == FIRST_BUFFER_BYTES
    arrived = 0
    for _ in range(200):
        arrived += 5000
        reader.feed(bytes(5000))
        assert reader.held_bytes <= max(FIRST_BUFFER_BYTES, arrived * GROWTH_FACTOR)
        assert reader.unfinished_bytes == arrived


def test_a_peer_that_sent_a_large_frame_gets_as_much_for_the_next_within_a_limit() -> None:
    reader = FrameReader(FRAME_BYTES_MAX)
    reader.feed(framed(bytes(1_000_000)))
    reader.feed(pack(">i", 1_000_000))
    assert reader.held_bytes == 1_000_000
    reader.feed(bytes(1_000_000))
    reader.feed(framed(bytes(3 * PROVEN_BYTES_MAX)))
    reader.feed(pack(">i", FRAME_BYTES_MAX))
    assert reader.held_bytes == PROVEN_BYTES_MAX


def test_a_frame_is_writable_and_outlives_the_bytes_that_follow() -> None:
    reader = FrameReader(FRAME_BYTES_MAX)
    (first,) = reader.feed(framed(b"first"))
    first[0] = ord("F")
    reader.feed(framed(b"later"))
    assert first == b"First"


def test_connections_may_share_one_landing_buffer() -> None:
    landing = bytearray(64)
    readers = [FrameReader(FRAME_BYTES_MAX, landing) for _ in range(3)]
    streams = [framed(bytes([index]) * 20, bytes([index]) * 90) for index in range(3)]
    frames: list[list[bytearray]] = [[], [], []]
    for position in range(0, len(streams[0]), 7):
        for index, reader in enumerate(readers):
            frames[index] += reader.feed(streams[index][position : position + 7])
    for index in range(3):
        assert frames[index] == [bytes([index]) * 20, bytes([index]) * 90]


@pytest.mark.parametrize("next_size", [LANDING_BYTES + 1, 300_000, 500_000])
def test_a_frame_that_is_given_back_makes_room_for_the_next(next_size: int) -> None:
    reader = FrameReader(FRAME_BYTES_MAX)
    (first,) = reader.feed(framed(b"1" * 300_000))
    reader.reuse(first)
    (second,) = reader.feed(framed(b"2" * next_size))
    assert second == b"2" * next_size
    if next_size <= 300_000:
        assert second is first


def test_a_frame_that_is_given_back_stays_as_it_is_while_somebody_sees_it() -> None:
    reader = FrameReader(FRAME_BYTES_MAX)
    (first,) = reader.feed(framed(b"1" * 300_000))
    seen = memoryview(first)[1000:2000]
    reader.reuse(first)
    (second,) = reader.feed(framed(b"2" * 300_000))
    assert second is not first
    assert seen == b"1" * 1000
    seen.release()
    (third,) = reader.feed(framed(b"3" * 300_000))
    assert third is first
    assert second == b"2" * 300_000


def test_a_frame_that_is_given_back_gives_no_memory_to_a_larger_claim() -> None:
    reader = FrameReader(FRAME_BYTES_MAX)
    (first,) = reader.feed(framed(bytes(100_000)))
    reader.reuse(first)
    reader.feed(pack(">i", FRAME_BYTES_MAX))
    assert reader.held_bytes == 100_000 + 100_000 // PROVEN_SPARE


def test_a_frame_that_is_a_little_larger_than_the_last_one_is_not_copied() -> None:
    reader = FrameReader(FRAME_BYTES_MAX)
    reader.feed(framed(bytes(1_000_000)))
    reader.feed(pack(">i", 1_050_000))
    assert reader.held_bytes == 1_050_000


def test_a_buffer_without_zeros_is_a_bytearray_as_any_other() -> None:
    for size in (0, 1, UNFILLED_BYTES_MIN, 1 << 20):
        buffer = new_unfilled(size)
        assert type(buffer) is bytearray
        assert len(buffer) == size
        buffer[:] = bytes(size)
        buffer += b"more"
        assert buffer == bytes(size) + b"more"
