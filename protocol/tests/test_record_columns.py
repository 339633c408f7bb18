"""A batch's records as columns, and batches that lose some: held against the readable decoder."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncbroker.protocol import native
from asyncbroker.protocol.batches import DELETE_HORIZON_BIT
from asyncbroker.protocol.compression import CorruptBatch
from asyncbroker.protocol.record_columns import (
    record_columns,
    record_ends,
    with_codec,
    with_records,
    without_records,
)
from asyncbroker.protocol.records import (
    Compression,
    Record,
    TimestampType,
    build_batch,
    payload_of,
    read_header,
    records_of,
    stamp_crc,
    verify_crc,
)

NEEDS_EXTENSION = pytest.mark.skipif(native.RECORDS is None, reason="no compiler built it")

TEXTS = st.none() | st.binary(max_size=9) | st.binary(min_size=63, max_size=70)
RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.integers(1, 9000),
        timestamp=st.integers(-(1 << 40), 1 << 45),
        key=TEXTS | st.binary(min_size=8190, max_size=8200),
        value=TEXTS,
        headers=st.lists(st.tuples(st.text(max_size=4), TEXTS), max_size=2),
    ),
    min_size=1,
    max_size=8,
)


def batch_of(steps: list[Record], **fields: object) -> bytearray:
    """A batch whose records are as far apart in offsets as theirs say."""
    offset = 1000
    records = []
    for each in steps:
        offset += each.offset
        records.append(replace(each, offset=offset))
    return build_batch(records, base_offset=1000, keeps_offsets=True, **fields)  # type: ignore[arg-type]


@given(RECORDS)
def test_the_columns_are_those_of_the_decoder(steps: list[Record]) -> None:
    batch = batch_of(steps)
    header = read_header(batch)
    payload = bytes(payload_of(batch))
    columns = record_columns(payload, header)
    records = list(records_of(batch))
    assert columns.offset_deltas == [record.offset - 1000 for record in records]
    assert columns.keys == [record.key for record in records]
    assert columns.are_tombstones == [record.value is None for record in records]
    assert columns.ends[-1] == len(payload)


def entered(batch: bytearray, payload: bytes | bytearray) -> tuple[int, dict[bytes, int]]:
    """What the extension finds: where its run ends, and the last offsets of the keys."""
    assert native.RECORDS is not None
    offsets: dict[bytes, int] = {}
    run = (batch, payload, 0, 0, 1 << 62, 1 << 20)
    end, _, _ = native.RECORDS.enter_keys(offsets, run, 9000, 1 << 20)
    return end, offsets


@NEEDS_EXTENSION
@given(RECORDS, st.booleans(), st.sampled_from(Compression))
def test_keys_found_by_the_extension_are_those_of_the_columns(
    steps: list[Record], has_nulls: bool, codec: Compression
) -> None:
    if not has_nulls:
        steps = [replace(each, key=each.key or b"", value=each.value or b"") for each in steps]
    batch = batch_of(steps, compression=codec)
    payload = bytes(payload_of(batch))
    deltas, keys, are_tombstones, _ = record_columns(payload, read_header(batch))
    found = entered(batch, payload)
    if None in keys or True in are_tombstones:
        assert found == (0, {})
    else:
        assert found == (
            len(batch),
            dict(zip(keys, (1000 + delta for delta in deltas), strict=True)),
        )


@NEEDS_EXTENSION
@given(st.binary(min_size=1, max_size=200), st.integers(0, 400), st.data())
def test_keys_of_damaged_records_are_left_to_the_columns(
    noise: bytes, position: int, data: st.DataObject
) -> None:
    batch = batch_of([Record(1, 5, b"k" * at, b"v" * 20) for at in range(12)])
    header = read_header(batch)
    payload = bytearray(payload_of(batch))
    position %= len(payload)
    payload[position : position + len(noise)] = noise
    del payload[data.draw(st.integers(0, len(payload))) :]
    found = entered(batch, payload)
    try:
        deltas, keys, _, _ = record_columns(bytes(payload), header)
    except CorruptBatch:
        assert found == (0, {})
        return
    offsets = (1000 + delta for delta in deltas)
    assert found in ((0, {}), (len(batch), dict(zip(keys, offsets, strict=True))))


def wrong_crc(batch: bytearray) -> None:
    """In a value, so that nothing else is wrong."""
    batch[-2] ^= 1


def lying_last_offset(batch: bytearray) -> None:
    """Before its last record."""
    struct.pack_into(">i", batch, 23, 3)
    stamp_crc(batch)


def untouched(batch: bytearray) -> None:
    """For what is wrong with the run, and not with the batch."""


@NEEDS_EXTENSION
@pytest.mark.parametrize(
    ("spoil", "bytes_max", "end_offset", "records_max"),
    [
        (wrong_crc, 1 << 20, 1 << 62, 9),
        (lying_last_offset, 1 << 20, 1 << 62, 9),
        (untouched, 1, 1 << 62, 9),
        (untouched, 1 << 20, 1014, 9),
        (untouched, 1 << 20, 1 << 62, 2),
    ],
)
def test_a_run_ends_before_a_batch_that_is_not_for_it(
    spoil: Callable[[bytearray], None], bytes_max: int, end_offset: int, records_max: int
) -> None:
    """Of that one nothing is entered, nothing asked, and nothing is kept."""
    assert native.RECORDS is not None
    first = batch_of([Record(1, 5, b"a", b"v"), Record(1, 5, b"b", b"v")])
    records = [Record(offset, 5, b"c", b"v") for offset in (1010, 1012, 1014)]
    second = build_batch(records, base_offset=1010, keeps_offsets=True)
    run: tuple[object, ...] = (first + second, None, 1 << 20, 0, 1 << 62, 9)
    offsets: dict[bytes, int] = {}
    assert native.RECORDS.enter_keys(offsets, run, 99, 99)[0] == len(first + second)
    assert offsets == {b"a": 1001, b"b": 1002, b"c": 1014}
    spoil(second)
    run = (first + second, None, bytes_max, 0, end_offset, records_max)
    offsets = {}
    assert native.RECORDS.enter_keys(offsets, run, 99, 99)[:2] == (len(first), 1003)
    assert offsets == {b"a": 1001, b"b": 1002}
    kept = struct.pack("@2q", 1001, 1002)
    assert native.RECORDS.ask_keys(offsets, run, 99) == (len(first), 1003, kept)
    some = struct.pack("@2q", 1001, 1010)
    end, next_offset, left, _, *counts = native.RECORDS.keep(run, some, b"")
    assert (end, next_offset, counts) == (len(first), 1003, [2, 1])
    assert [record.offset for record in records_of(left)] == [1001]


@NEEDS_EXTENSION
@given(RECORDS, st.data())
def test_the_extension_keeps_of_a_batch_what_python_keeps(
    steps: list[Record], data: st.DataObject
) -> None:
    assert native.RECORDS is not None
    codec = data.draw(st.sampled_from(Compression))
    times = data.draw(st.sampled_from(TimestampType))
    batch = batch_of(steps, compression=codec, timestamp_type=times, producer_id=3, base_sequence=7)
    header = read_header(batch)
    kept = data.draw(st.sets(st.integers(0, len(steps) - 1), min_size=1).map(sorted))
    payload = bytes(payload_of(batch))
    deltas, _, _, ends = record_columns(payload, header)
    run = (batch, payload, 0, 0, 1 << 62, 1 << 20)
    offsets = struct.pack(f"@{len(kept)}q", *[1000 + deltas[index] for index in kept])
    end, next_offset, thinned, places, *counts = native.RECORDS.keep(run, offsets, b"")
    expected = with_records(header, payload, ends, kept, None)
    assert (end, next_offset, counts) == (len(batch), header.next_offset, [len(steps), len(kept)])
    assert read_header(thinned).compression is Compression.NONE
    assert verify_crc(thinned, read_header(thinned))
    assert with_codec(thinned, codec) == expected
    largest = read_header(expected).max_timestamp
    assert struct.unpack("@3q", places) == (0, header.last_offset, largest)


@given(RECORDS, st.data())
def test_what_is_kept_of_a_batch_is_what_it_was(steps: list[Record], data: st.DataObject) -> None:
    codec = data.draw(st.sampled_from(Compression))
    times = data.draw(st.sampled_from(TimestampType))
    horizon = data.draw(st.none() | st.integers(0, 1 << 45))
    before = batch_of(
        steps, compression=codec, timestamp_type=times, producer_id=3, base_sequence=7
    )
    header = read_header(before)
    kept = data.draw(st.sets(st.integers(0, len(steps) - 1), min_size=1).map(sorted))
    payload = bytes(payload_of(before))
    ends = record_columns(payload, header).ends
    assert record_ends(payload, len(steps), 0, len(payload)) == ends
    shifted = record_ends(b"abc" + payload + b"d", len(steps), 3, 3 + len(payload))
    assert shifted == [3 + end for end in ends]
    after = with_records(header, payload, ends, kept, horizon)
    records = list(records_of(before))
    assert list(records_of(after)) == [records[index] for index in kept]
    changed = read_header(after)
    assert verify_crc(after, changed)
    assert (changed.base_offset, changed.last_offset) == (header.base_offset, header.last_offset)
    assert (changed.last_sequence, changed.compression) == (header.last_sequence, codec)
    assert changed.timestamp_type is times
    assert changed.max_timestamp == max(records[index].timestamp for index in kept)
    has_horizon = changed.attributes & DELETE_HORIZON_BIT != 0
    assert has_horizon == (horizon is not None)
    assert changed.base_timestamp == (records[kept[0]].timestamp if horizon is None else horizon)


def test_a_horizon_that_is_set_stays() -> None:
    batch = build_batch([Record(0, 50, b"a", None), Record(0, 60, b"b", None)])
    header = read_header(batch)
    payload = bytes(payload_of(batch))
    batch = with_records(header, payload, record_columns(payload, header).ends, [1], 7000)
    assert read_header(batch).base_timestamp == 7000
    header = read_header(batch)
    payload = bytes(payload_of(batch))
    again = with_records(header, payload, record_columns(payload, header).ends, [0], 9000)
    assert read_header(again).base_timestamp == 7000
    assert [record.timestamp for record in records_of(again)] == [60]


def test_a_batch_without_records_is_its_head() -> None:
    batch = build_batch(
        [Record(0, 50, b"a", b"1")],
        compression=Compression.ZSTD,
        producer_id=3,
        producer_epoch=1,
        base_sequence=9,
    )
    header = read_header(batch)
    empty = without_records(header)
    after = read_header(empty)
    assert len(empty) == 61
    assert verify_crc(empty, after)
    assert (after.record_count, after.compression) == (0, Compression.NONE)
    assert (after.last_offset, after.last_sequence) == (header.last_offset, 9)
    assert (after.base_timestamp, after.max_timestamp) == (-1, 50)
    assert list(records_of(empty)) == []


@given(RECORDS, st.data())
def test_no_truncation_and_no_lie_gets_through(steps: list[Record], data: st.DataObject) -> None:
    batch = batch_of(steps)
    header = read_header(batch)
    payload = bytearray(payload_of(batch))
    cut = bytes(payload[: data.draw(st.integers(0, len(payload) - 1))])
    with pytest.raises(CorruptBatch):
        record_columns(cut, header)
    for seen in (cut, bytes(payload)):
        with pytest.raises(CorruptBatch):
            record_ends(seen, header.record_count, 0, len(cut))
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] = data.draw(st.integers(0, 255))
    try:
        columns = record_columns(bytes(payload), header)
    except CorruptBatch:
        return
    assert columns.ends[-1] == len(payload)
    assert len(columns.keys) == header.record_count


def test_offsets_must_ascend_within_the_batch() -> None:
    batch = build_batch([Record(0, 0, b"a", b""), Record(0, 0, b"b", b"")])
    header = read_header(batch)
    payload = bytearray(payload_of(batch))
    payload[3] = 2  # the first record's delta is 1, as that of the second
    with pytest.raises(CorruptBatch, match="ascend"):
        record_columns(bytes(payload), header)
