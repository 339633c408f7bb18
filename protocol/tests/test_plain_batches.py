"""The one look at a plain batch against the many of Python: what it lets pass is passed there too,
with the same header, and it lets pass every batch that is plain and sound."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncbroker.protocol import native
from asyncbroker.protocol.batches import (
    BATCH_HEADER_BYTES,
    NO_TIMESTAMP,
    check_batch,
    stamp_crc,
    stamp_max_timestamp,
    stamp_producer,
)
from asyncbroker.protocol.compression import Compression, CorruptBatch
from asyncbroker.protocol.errors import KafkaError
from asyncbroker.protocol.record_facts import (
    check_plain_batch,
    check_records_portably,
)
from asyncbroker.protocol.records import Record, build_batch

if native.RECORDS is None:
    pytest.skip("no compiler built it", allow_module_level=True)

NOW_MS = 1_700_000_000_000

nullable_bytes = st.none() | st.binary(max_size=40)
records = st.builds(
    Record,
    offset=st.just(0),
    timestamp=st.integers(-1, 1 << 62),
    key=nullable_bytes,
    value=nullable_bytes,
    headers=st.lists(st.tuples(st.text(max_size=5), nullable_bytes), max_size=2),
)
# Of a record whose numbers are one byte each.
ATTRIBUTES, TIMESTAMP_DELTA, OFFSET_DELTA = (BATCH_HEADER_BYTES + at for at in (1, 2, 3))


def is_sound(batch: bytes | bytearray) -> bool:
    """What Python says of a batch without attributes."""
    try:
        header = check_batch(batch)
        facts = check_records_portably(memoryview(batch)[BATCH_HEADER_BYTES:], header)
    except (KafkaError, CorruptBatch):
        return False
    return facts.has_all_offsets and facts.max_timestamp == header.max_timestamp


@settings(max_examples=100, deadline=None)
@given(
    st.lists(records, min_size=1, max_size=5),
    st.sampled_from([(-1, -1, -1), (7, 0, 0), (1 << 40, 32767, (1 << 31) - 1)]),
)
def test_every_batch_that_is_plain_and_sound_passes_with_its_header(
    found: list[Record], producer: tuple[int, int, int]
) -> None:
    producer_id, producer_epoch, base_sequence = producer
    batch = build_batch(
        found, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence
    )
    if max(record.timestamp for record in found) < found[0].timestamp:
        return
    assert is_sound(batch)
    assert check_plain_batch(batch) == check_batch(batch)


@settings(max_examples=200, deadline=None)
@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_what_passes_passes_in_python_too(found: list[Record], data: st.DataObject) -> None:
    batch = build_batch(found)
    places = st.integers(0, BATCH_HEADER_BYTES + 12) | st.integers(0, len(batch) - 1)
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(places) % len(batch)
        batch[at] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]) | st.integers(0, 255))
    if data.draw(st.booleans()):
        del batch[data.draw(st.integers(BATCH_HEADER_BYTES, len(batch))) :]
        struct.pack_into(">i", batch, 8, len(batch) - 12)
    if data.draw(st.integers(0, 9)):
        stamp_crc(batch)
    header = check_plain_batch(batch)
    if header is not None:
        assert is_sound(batch)
        assert header == check_batch(batch)


def changed(at: int, value: int, *, is_stamped: bool = True) -> Any:
    """A change of one byte."""

    def change(batch: bytearray) -> None:
        batch[at] = value
        if is_stamped:
            stamp_crc(batch)

    return change


@pytest.mark.parametrize(
    "change",
    [
        changed(ATTRIBUTES, 1, is_stamped=False),
        changed(7, 1),
        changed(11, 1),
        changed(16, 1),
        changed(21, 0x80),
        changed(22, 0x08),
        changed(22, 0x10),
        changed(22, 0x20),
        changed(22, 0x40),
        changed(22, 0x80),
        changed(26, 2),
        changed(60, 1),
        changed(60, 0),
        changed(42, 255),
        lambda batch: stamp_producer(batch, 5, 0, -1),
        changed(OFFSET_DELTA, 2),
        changed(TIMESTAMP_DELTA, 4),
        lambda batch: stamp_max_timestamp(batch, NO_TIMESTAMP),
        lambda batch: batch.extend(b"\0"),
        lambda batch: batch.pop(),
        lambda batch: batch.__delitem__(slice(60, None)),
        lambda batch: batch.clear(),
    ],
)
def test_one_lie_and_it_does_not_pass(change: Any) -> None:
    batch = build_batch([Record(0, NOW_MS, b"key", b"value"), Record(1, NOW_MS, None, b"v")])
    assert check_plain_batch(batch) is not None
    change(batch)
    assert check_plain_batch(batch) is None


@pytest.mark.parametrize("compression", list(Compression)[1:])
def test_compressed_ones_are_for_others(compression: Compression) -> None:
    batch = build_batch([Record(0, NOW_MS, b"key", b"value")], compression=compression)
    assert check_plain_batch(batch) is None


def test_only_bytes_are_looked_at() -> None:
    with pytest.raises(TypeError):
        native.RECORDS.check_plain("text")  # type: ignore[union-attr]
