"""The compiled extension against Python and kafka-python: the same bytes, the same answers.

What it makes of records for Arrow is tested with the decoder of the Spark source.
"""

from __future__ import annotations

import mmap
import struct
import threading
from itertools import cycle
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncbroker.protocol import native
from asyncbroker.protocol.batches import HEADER, batches, stamp_crc, verify_crc
from asyncbroker.protocol.records import (
    BATCH_HEADER_BYTES,
    CorruptBatch,
    Record,
    build_batch,
    records_of,
)
from asyncbroker.protocol.tests import native_fuzzer

if native.RECORDS is None:
    pytest.skip("no compiler built it", allow_module_level=True)
extension = native.RECORDS

nullable_bytes = st.none() | st.binary(max_size=80)
records = st.builds(
    Record,
    offset=st.just(0),
    timestamp=st.integers(-1, (1 << 62) - 1),
    key=nullable_bytes,
    value=nullable_bytes | st.just(bytes(9000)),
    headers=st.lists(st.tuples(st.text(max_size=5), nullable_bytes), max_size=3),
)
EVERYTHING = (0, 1 << 62)


# ---- CRC-32C


@pytest.mark.parametrize("size", [*range(66), 1023, 3071, 3072, 3073, 6151, 100_001])
def test_the_crc_is_that_of_another_implementation(size: int) -> None:
    data = bytes(i * 7 & 0xFF for i in range(size))
    for start in (0, 1, 0xFFFFFFFF):
        assert extension.crc32c(data, start) == crc32c(data, start)
        assert extension.crc32c_by_table(data, start) == crc32c(data, start)
    assert extension.crc32c(memoryview(data)[1:]) == crc32c(data[1:])


# ---- batches


def outcome_of_scan(data: bytes) -> Any:
    rows, end, is_sound = extension.scan(data, True)
    found = list(struct.iter_unpack("@10q", rows))
    return [(position, size, bool(crc)) for position, size, *_, crc in found], end, is_sound


def outcome_of_batches(data: bytes) -> Any:
    found = []
    end = 0
    try:
        for header, batch in batches(data):
            found.append((end, header.size, verify_crc(batch, header)))
            end += header.size
    except CorruptBatch:
        return found, end, False
    return found, end, True


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_scan_finds_what_reading_header_by_header_finds(data: st.DataObject) -> None:
    log = b"".join(
        bytes(build_batch([Record(0, 5, None, b"v" * size)], base_offset=size))
        for size in data.draw(st.lists(st.integers(0, 3000), min_size=1, max_size=4))
    )
    damaged = bytearray(log)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(log)))])
    for seen in (bytes(damaged), cut):
        assert outcome_of_scan(seen) == outcome_of_batches(seen)


# ---- damage


@pytest.mark.skipif(not native_fuzzer.is_possible(), reason="no sanitizers here")
def test_no_damage_leads_outside_a_buffer() -> None:
    assert native_fuzzer.run(4000, seed=1) == 0


# ---- records


def values_of(batch: bytes) -> list[bytes | None]:
    """The values, by way of the extension."""
    rows, _, _ = extension.scan(batch, True)
    payload = memoryview(batch)[BATCH_HEADER_BYTES:]
    count, _, _, _, _, (validity, offsets, data), _ = extension.decode(
        [payload], rows, *EVERYTHING, False, False, False, False, True, False
    )
    ends = memoryview(offsets).cast("i")
    return [
        data[ends[i] : ends[i + 1]] if validity is None or validity[i >> 3] >> (i & 7) & 1 else None
        for i in range(count)
    ]


@settings(max_examples=100, deadline=None)
@given(st.lists(records, min_size=1, max_size=8))
def test_records_of_kafka_pythons_batches_are_read(found: list[Record]) -> None:
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 24)
    for offset, record in enumerate(found):
        builder.append(offset, record.timestamp, record.key, record.value, record.headers)
    batch = bytes(builder.build())
    theirs = [record.value for record in DefaultRecordBatch(batch)]
    assert values_of(batch) == theirs == [record.value for record in found]


def columns_of(found: list[Record]) -> tuple[Any, ...]:
    """Records as `encode` takes them: what Arrow would have, made by hand."""
    headers = [header for record in found for header in record.headers]
    places = [0]
    for record in found:
        places.append(places[-1] + len(record.headers))
    return (
        struct.pack(f"@{len(found)}q", *[record.timestamp for record in found]),
        column_of([record.key for record in found]),
        column_of([record.value for record in found]),
        (
            0,
            None,
            struct.pack(f"@{len(places)}i", *places),
            column_of([key.encode() for key, _ in headers]),
            column_of([value for _, value in headers]),
        ),
    )


def column_of(pieces: list[bytes | None]) -> tuple[int, bytes, bytes, bytes]:
    # Two rows that nobody asked for come first, as in a slice.
    pieces = [b"not", None, *pieces]
    validity = bytearray(len(pieces) // 8 + 1)
    offsets = [0]
    for index, piece in enumerate(pieces):
        validity[index >> 3] |= (piece is not None) << (index & 7)
        offsets.append(offsets[-1] + len(piece or b""))
    data = b"".join(piece or b"" for piece in pieces)
    return 2, bytes(validity), struct.pack(f"@{len(offsets)}i", *offsets), data


def batch_of(payload: bytes, count: int, base_timestamp: int, max_timestamp: int) -> bytes:
    size = BATCH_HEADER_BYTES - 12 + len(payload)
    fields = (0, size, -1, 2, 0, 0, count - 1, base_timestamp, max_timestamp, -1, -1, -1, count)
    batch = bytearray(HEADER.pack(*fields)) + payload
    stamp_crc(batch)
    return bytes(batch)


@settings(max_examples=100, deadline=None)
@given(st.lists(records, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_encoded_records_are_those_that_python_builds(found: list[Record], random: Any) -> None:
    rows = random.sample(range(len(found)), random.randint(1, len(found)))
    encoded = extension.encode(struct.pack(f"@{len(rows)}q", *rows), *columns_of(found), 1 << 30)
    chosen = [found[row] for row in rows]
    assert batch_of(*encoded) == bytes(build_batch(chosen))
    assert encoded[1] == len(rows)


def test_as_many_records_are_encoded_as_have_room_and_one_at_least() -> None:
    found = [Record(0, number, None, bytes(100)) for number in range(10)]
    columns = columns_of(found)
    rows = struct.pack("@10q", *range(10))
    (first, *_) = records_of(build_batch(found[:1]))
    assert first.value == bytes(100)
    for room, count in ((0, 1), (1, 1), (220, 2), (10_000, 10)):
        payload, encoded, base, largest = extension.encode(rows, *columns, room)
        assert (encoded, base, largest) == (count, 0, count - 1)
        assert len(list(records_of(batch_of(payload, encoded, base, largest)))) == count


def test_columns_that_are_none_are_nulls() -> None:
    encoded = extension.encode(bytes(8), struct.pack("@q", 5), None, None, None, 100)
    assert batch_of(*encoded) == bytes(build_batch([Record(0, 5, None, None)]))


@pytest.mark.parametrize("row", [-1, 3, 1 << 62])
def test_rows_that_there_are_not_are_refused(row: int) -> None:
    columns = columns_of([Record(0, 5, b"k", b"v")] * 3)
    with pytest.raises(ValueError, match="no records"):
        extension.encode(struct.pack("@q", row), *columns, 100)


def test_offsets_of_arrow_that_leave_the_data_are_refused() -> None:
    rows, times = bytes(8), bytes(8)
    for offsets in ((0, 5), (-1, 0), (2, 1), (1 << 30, 1 << 30)):
        column = (0, None, struct.pack("@2i", *offsets), b"abc")
        with pytest.raises(ValueError, match="no records"):
            extension.encode(rows, times, column, None, None, 100)
    firsts = (1, 2, -1, -(1 << 63), (1 << 63) - 1)
    for unfit in (*[(first, None, bytes(4)) for first in firsts], (0, b"", bytes(8))):
        with pytest.raises(ValueError, match="do not fit"):
            extension.encode(rows, times, (*unfit, b""), None, None, 100)
        none = (0, None, bytes(4), b"")
        with pytest.raises(ValueError, match="do not fit"):
            extension.encode(rows, times, None, None, (*unfit, none, none), 100)


def test_lists_of_headers_that_leave_their_columns_are_refused() -> None:
    rows, times = bytes(8), bytes(8)
    one = (0, None, struct.pack("@2i", 0, 1), b"h")
    for places in ((0, 2), (1, 2), (-1, 0), (1, 0)):
        headers = (0, None, struct.pack("@2i", *places), one, one)
        with pytest.raises(ValueError, match="no records"):
            extension.encode(rows, times, None, None, headers, 100)


def test_payloads_that_no_offsets_of_arrow_reach_are_refused() -> None:
    with mmap.mmap(-1, 1 << 30) as gigabyte, pytest.raises(ValueError, match="more than 2 GiB"):
        extension.decode([gigabyte, gigabyte], bytes(160), *EVERYTHING, *[True] * 6)


def test_rows_that_are_not_those_of_the_payloads_are_refused() -> None:
    with pytest.raises(TypeError, match="not those of the payloads"):
        extension.decode([b""], bytes(8), 0, 1, True, True, True, True, True, True)


def test_bytes_that_change_under_way_give_whole_columns_or_none() -> None:
    """Two headers or one, in as many bytes and with as many bytes in them; before them come records
    enough to give others a turn."""
    two, one = b"\x04\0\0\0\0", b"\x02\x80\0\x80\0"
    many = [Record(0, 0, None, None)] * 20_000
    batch = build_batch([*many, Record(0, 0, None, None, [("", b""), ("", b"")])])
    rows, _, _ = extension.scan(batch, True)
    payload = batch[BATCH_HEADER_BYTES:]
    at = payload.rindex(two)
    is_done = threading.Event()

    def change() -> None:
        for state in cycle((one, two)):
            payload[at:] = state
            if is_done.is_set():
                return

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(200):
            try:
                *_, (_, places, (_, keys, _), (_, values, _)) = extension.decode(
                    [memoryview(payload)], rows, *EVERYTHING, *[False] * 5, True
                )
            except ValueError:
                continue
            (count,) = struct.unpack("@i", places[-4:])
            assert keys == values == bytes(4 * (count + 1))
    finally:
        is_done.set()
        changing.join()
