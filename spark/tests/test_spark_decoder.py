"""The decoder: the same records as `records_of`, as Arrow columns, and the same refusals."""

from __future__ import annotations

import contextlib
import struct
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from asyncbroker.client.cluster import TopicPartition
from asyncbroker.client.reader import Fetched
from asyncbroker.protocol import native
from asyncbroker.protocol.messages.fetch import AbortedTransaction
from asyncbroker.protocol.records import (
    BATCH_HEADER_BYTES,
    Compression,
    CorruptBatch,
    Record,
    TimestampType,
    build_batch,
    read_header,
    records_of,
    stamp_crc,
    stamp_log_append_time,
)
from asyncbroker.spark.batch_table import batch_table, row_of
from asyncbroker.spark.columns import COLUMN_TYPES, full_schema
from asyncbroker.spark.decoder import BYTES_PER_BATCH, ROWS_PER_BATCH, Decoder

PARTITION = TopicPartition("flights", 3)
WAYS = [None] if native.RECORDS is None else [None, native.RECORDS]
# With the extension batches are collected, or read as they lie in the response.
ROADS = [(way, least) for way in WAYS for least in ((1 << 30,) if way is None else (1 << 30, 0))]
EVERYTHING = (0, 1 << 62)
ALL_COLUMNS = list(COLUMN_TYPES)
# With headers nothing is read as it lies in the response.
NO_HEADERS = [column for column in ALL_COLUMNS if column != "headers"]
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
NOW = 1_700_000_000_000

SAMPLE = [
    Record(0, NOW, b"key", b"value", [("h", b"1"), ("h", None)]),
    Record(0, NOW - 500, None, b""),
    Record(0, NOW + 70_000, b"", b"v" * 100),
]


DECODE_AND_LOOK = """
import sys
from asyncbroker.client.cluster import TopicPartition
from asyncbroker.client.reader import Fetched
from asyncbroker.protocol.records import Record, build_batch
from asyncbroker.spark.decoder import Decoder

batch = memoryview(build_batch([Record(0, 0, b"key", b"value"), Record(0, 1, None, b"")]))
partition = TopicPartition("flights", 3)
every_number = ["topic", "partition", "offset", "timestampType"]
for columns in (every_number, ["key", "value", "timestamp", *every_number]):
    decoder = Decoder(columns, partition, 0, 9)
    found = [*decoder.decode(Fetched(partition, batch, 0, 0, 0, 0, 0, [])), *decoder.rest()]
    assert sum(map(len, found)) == 2
assert "pyarrow" in sys.modules and "pandas" not in sys.modules
"""


nullable_bytes = st.none() | st.binary(max_size=80)
record_lists = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        # As many as a datetime can hold, to compare.
        timestamp=st.integers(-1, 1 << 45),
        key=nullable_bytes,
        value=nullable_bytes | st.just(bytes(9000)),
        headers=st.lists(st.tuples(st.text(max_size=5), nullable_bytes), max_size=3),
    ),
    min_size=1,
    max_size=8,
)


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Batches as they may follow each other in a log: gaps, codecs, both kinds of timestamps."""
    batches = []
    offset = draw(st.integers(0, 1 << 40))
    for records in draw(st.lists(record_lists, min_size=1, max_size=4)):
        first = offset
        for record in records:
            offset += draw(st.integers(0, 2))
            record.offset = offset
            offset += 1
        batch = build_batch(
            records,
            base_offset=first,
            compression=draw(st.sampled_from(Compression)),
            keeps_offsets=True,
        )
        if draw(st.booleans()):
            stamp_log_append_time(batch, draw(st.integers(0, 1 << 45)))
        batches.append(bytes(batch))
    return batches


def fetched(*batches: bytes | bytearray) -> Fetched:
    """A response that brings these batches."""
    return Fetched(PARTITION, memoryview(b"".join(batches)), 0, 0, 0, 0, 0, [])


def arrow_batches(decoder: Decoder, *batches: bytes | bytearray) -> list[pa.RecordBatch]:
    found = [*decoder.decode(fetched(*batches)), *decoder.rest()]
    for records in found:
        records.validate(full=True)
    assert list(decoder.rest()) == []
    return found


def decoded(
    batches: list[bytes], columns: list[str], start: int = 0, end: int = 1 << 62
) -> list[dict[str, Any]]:
    """What comes of batches, the same in every way there is; damage is for the records to show."""
    outcomes: list[Any] = []
    for extension, least in ROADS:
        decoder = Decoder(
            columns,
            PARTITION,
            start,
            end,
            checks_crcs=False,
            extension=extension,
            plain_bytes_min=least,
        )
        try:
            found = arrow_batches(decoder, *batches)
            outcomes.append([row for records in found for row in records.to_pylist()])
        except CorruptBatch as error:
            outcomes.append(error)
    if all(isinstance(outcome, CorruptBatch) for outcome in outcomes):
        raise outcomes[0]
    assert all(outcome == outcomes[0] for outcome in outcomes)
    rows: list[dict[str, Any]] = outcomes[0]
    return rows


def expected(
    batches: list[bytes], columns: list[str], start: int = 0, end: int = 1 << 62
) -> list[dict[str, Any]]:
    rows = [
        {
            "key": record.key,
            "value": record.value,
            "topic": "flights",
            "partition": 3,
            "offset": record.offset,
            "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
            "timestampType": int(read_header(batch).timestamp_type),
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        for batch in batches
        for record in records_of(batch)
        if start <= record.offset < end
    ]
    return [{column: row[column] for column in columns} for row in rows]


@settings(max_examples=60, deadline=None)
@given(batches=logs())
def test_columns_are_what_the_records_are(batches: list[bytes]) -> None:
    for columns in (ALL_COLUMNS, NO_HEADERS):
        assert decoded(batches, columns) == expected(batches, columns)


@settings(max_examples=60, deadline=None)
@given(
    batches=logs(),
    columns=st.lists(st.sampled_from(ALL_COLUMNS), min_size=1, unique=True),
    cut=st.tuples(st.integers(0, 30), st.integers(0, 30)),
)
def test_a_range_cuts_batches_and_a_projection_keeps_its_order(
    batches: list[bytes], columns: list[str], cut: tuple[int, int]
) -> None:
    first = read_header(batches[0]).base_offset
    start, end = first + min(cut), first + max(cut)
    assert decoded(batches, columns, start, end) == expected(batches, columns, start, end)


def test_the_schema_is_the_one_that_spark_asks_for() -> None:
    wanted = to_arrow_schema(full_schema(include_headers=True), timezone="UTC")
    assert Decoder(ALL_COLUMNS, PARTITION, *EVERYTHING).schema.equals(wanted)


def test_columns_are_called_as_the_user_called_them() -> None:
    decoder = Decoder(["value", "offset"], PARTITION, *EVERYTHING, names=["VALUE", "Offset"])
    (records,) = arrow_batches(decoder, build_batch([Record(0, NOW, None, b"v")]))
    assert records.schema.names == ["VALUE", "Offset"]


def test_nulls_differ_from_what_is_empty() -> None:
    batch = bytes(
        build_batch(
            [
                Record(0, NOW, None, b""),
                Record(0, NOW, b"", None, [("h", None), ("h", b""), ("", b"x")]),
            ]
        )
    )
    rows = decoded([batch], ["key", "value", "headers"])
    assert rows == [
        {"key": None, "value": b"", "headers": None},
        {
            "key": b"",
            "value": None,
            "headers": [
                {"key": "h", "value": None},
                {"key": "h", "value": b""},
                {"key": "", "value": b"x"},
            ],
        },
    ]


@pytest.mark.parametrize("extension", WAYS)
def test_timestamps_beyond_microseconds_are_the_last_that_fit(extension: ModuleType | None) -> None:
    decoder = Decoder(["timestamp"], PARTITION, *EVERYTHING, extension=extension)
    batch = build_batch([Record(0, 1 << 62, None, None), Record(0, -1, None, None)])
    (records,) = arrow_batches(decoder, batch)
    assert records.column(0).cast(pa.int64()).to_pylist() == [9223372036854774000, -1000]


def test_a_batch_that_compaction_emptied_has_no_rows() -> None:
    batch = build_batch([Record(0, NOW, None, None)])[:BATCH_HEADER_BYTES]
    struct.pack_into(">i", batch, 8, BATCH_HEADER_BYTES - 12)
    struct.pack_into(">i", batch, 57, 0)
    for columns in (ALL_COLUMNS, NO_HEADERS):
        assert decoded([bytes(batch)], columns) == []


@pytest.mark.parametrize("compression", Compression)
def test_offsets_alone_need_no_look_at_the_records(compression: Compression) -> None:
    """Which is why damage to the records of a batch without gaps does not show."""
    batch = build_batch([Record(0, NOW, None, b"v")] * 5, base_offset=9, compression=compression)
    batch[BATCH_HEADER_BYTES:] = bytes(len(batch) - BATCH_HEADER_BYTES)
    columns = ["offset", "partition", "topic", "timestampType"]
    rows = decoded([bytes(batch)], columns)
    assert [row["offset"] for row in rows] == [9, 10, 11, 12, 13]
    with pytest.raises(CorruptBatch):
        decoded([bytes(batch)], ["offset", "value"])


def test_records_are_sent_when_there_are_enough_rows_or_bytes() -> None:
    small = build_batch([Record(0, NOW, None, b"")] * (ROWS_PER_BATCH // 4))
    large = build_batch([Record(0, NOW, None, bytes(BYTES_PER_BATCH // 32))])
    for batch, wanted in ((small, 4), (large, 32)):
        decoder = Decoder(["value"], PARTITION, *EVERYTHING)
        added = 1
        while not list(decoder.decode(fetched(batch))):
            added += 1
        assert added == wanted
        assert list(decoder.rest()) == []


def response_of(*sizes: int, compressed: int | None = None) -> list[bytearray]:
    """Batches of ten records each, whose values have these sizes; one of them is compressed."""
    return [
        build_batch(
            [Record(0, NOW, b"key", bytes(size))] * 10,
            base_offset=10 * index,
            compression=Compression.ZSTD if index == compressed else Compression.NONE,
        )
        for index, size in enumerate(sizes)
    ]


@pytest.mark.skipif(native.RECORDS is None, reason="the portable way collects batches")
def test_a_large_response_is_sent_at_once_in_pieces_of_like_size() -> None:
    batches = response_of(*[10_000] * 50)
    # Some more than enough is not worth a second one.
    assert [len(piece) for piece in decode_one(batches)] == [500]
    first, second = [len(piece) for piece in decode_one(response_of(*[10_000] * 90))]
    assert first == BYTES_PER_BATCH // 10_000 // 10 * 10 + 10
    assert first + second == 900


def decode_one(batches: list[bytearray]) -> list[pa.RecordBatch]:
    """What comes of a response, of which nothing is left for later."""
    decoder = Decoder(["key", "value", "offset"], PARTITION, *EVERYTHING)
    found = list(decoder.decode(fetched(*batches)))
    assert list(decoder.rest()) == []
    return found


@pytest.mark.skipif(native.RECORDS is None, reason="the portable way collects batches")
def test_records_stay_in_order_where_plain_batches_meet_others() -> None:
    """Also with what a small response before has left."""
    small, large = response_of(5), response_of(*[5000] * 20, compressed=12)
    for offset, batch in enumerate(large, 1):
        struct.pack_into(">q", batch, 0, 10 * offset)
    decoder = Decoder(["value", "offset"], PARTITION, *EVERYTHING)
    found = [*decoder.decode(fetched(*small)), *decoder.decode(fetched(*large)), *decoder.rest()]
    assert len(found) > 2
    assert [row for piece in found for row in piece.column(1).to_pylist()] == list(range(210))
    for piece in found:
        piece.validate(full=True)


@pytest.mark.parametrize(("extension", "least"), ROADS)
def test_what_was_aborted_and_markers_are_left_out_between_plain_batches(
    extension: ModuleType | None, least: int
) -> None:
    """On every road: read as they lie, they would be records as any others."""
    record, marker = Record(0, NOW, b"k", b"v"), Record(0, NOW, struct.pack(">hh", 0, 0), None)
    response = replace(
        fetched(
            build_batch([record]),
            build_batch([record], base_offset=1, producer_id=9, is_transactional=True),
            build_batch(
                [marker], base_offset=2, producer_id=9, is_transactional=True, is_control=True
            ),
            build_batch([record], base_offset=3),
        ),
        aborted_transactions=[AbortedTransaction(9, 1)],
    )
    decoder = Decoder(
        ["offset", "value"], PARTITION, *EVERYTHING, extension=extension, plain_bytes_min=least
    )
    found = [*decoder.decode(response), *decoder.rest()]
    assert [offset for piece in found for offset in piece.column(0).to_pylist()] == [0, 3]


def test_a_huge_batch_is_sent_in_pieces() -> None:
    batch = build_batch([Record(0, NOW, None, bytes(1 << 20))] * 40, compression=Compression.ZSTD)
    found = arrow_batches(Decoder(["value", "offset"], PARTITION, *EVERYTHING), batch)
    assert len(found) > 1
    assert max(records.nbytes for records in found) <= 2 * BYTES_PER_BATCH
    assert [row for records in found for row in records.column(1).to_pylist()] == list(range(40))


@pytest.mark.skipif(native.RECORDS is None, reason="the portable way needs `pa.array`")
def test_a_task_does_not_wait_for_pandas() -> None:
    """PyArrow imports it where it is asked to make an array of something."""
    subprocess.run([sys.executable, "-c", DECODE_AND_LOOK], check=True)


@pytest.mark.parametrize(("extension", "least"), ROADS)
def test_a_wrong_crc_is_corrupt_unless_nobody_looks(
    extension: ModuleType | None, least: int
) -> None:
    batches = [build_batch(SAMPLE, base_offset=3 * number) for number in range(3)]
    batches[1][-1] ^= 1
    columns = ["offset", "value"]
    with pytest.raises(CorruptBatch, match="flights-3, offset 3: the CRC of the batch"):
        arrow_batches(
            Decoder(columns, PARTITION, *EVERYTHING, extension=extension, plain_bytes_min=least),
            *batches,
        )
    # What lies beyond the end is not looked at.
    decoder = Decoder(columns, PARTITION, 0, 3, extension=extension, plain_bytes_min=least)
    assert sum(map(len, arrow_batches(decoder, *batches))) == 3


@pytest.mark.parametrize("extension", WAYS)
def test_what_is_no_batch_is_corrupt_and_half_a_batch_is_left_out(
    extension: ModuleType | None,
) -> None:
    whole = build_batch(SAMPLE)
    for size in range(len(whole)):
        rows = batch_table(memoryview(whole + whole[:size]), checks_crcs=True, extension=extension)
        assert rows.tolist() == [row_of(read_header(whole), memoryview(whole))]
    with pytest.raises(CorruptBatch, match="magic 0"):
        batch_table(memoryview(whole + bytes(61)), checks_crcs=True, extension=extension)


def test_what_only_the_extension_refuses_is_not_left_out() -> None:
    extension: Any = SimpleNamespace(scan=lambda *_: (b"", 0, False))
    with pytest.raises(CorruptBatch, match="no batch begins at byte 0"):
        batch_table(memoryview(build_batch(SAMPLE)), checks_crcs=True, extension=extension)


# ---- damage


def outcome(decode: Any) -> Any:
    try:
        return decode()
    except CorruptBatch:
        return CorruptBatch


@settings(max_examples=300, deadline=None)
@given(position=st.integers(BATCH_HEADER_BYTES, 400), byte=st.integers(0, 255))
def test_a_changed_byte_has_the_outcome_that_records_of_has(position: int, byte: int) -> None:
    batch = build_batch(SAMPLE)
    batch[BATCH_HEADER_BYTES + position % (len(batch) - BATCH_HEADER_BYTES)] = byte
    damaged = [bytes(batch)]
    # Timestamps that a datetime cannot hold are compared elsewhere.
    columns = [column for column in ALL_COLUMNS if column != "timestamp"]
    with contextlib.suppress(OverflowError):
        assert outcome(lambda: decoded(damaged, columns)) == outcome(
            lambda: expected(damaged, columns)
        )
        # Which headers are damaged is for nobody to see then, but all ways see the same.
        outcome(lambda: decoded(damaged, NO_HEADERS))


@settings(max_examples=300, deadline=None)
@given(payload=st.binary(max_size=60), count=st.integers(1, 5))
def test_noise_has_the_outcome_that_records_of_has(payload: bytes, count: int) -> None:
    batch = build_batch(SAMPLE)[:BATCH_HEADER_BYTES] + payload
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, count)
    struct.pack_into(">i", batch, 57, count)
    columns = [column for column in ALL_COLUMNS if column != "timestamp"]
    with contextlib.suppress(OverflowError):
        assert outcome(lambda: decoded([bytes(batch)], columns)) == outcome(
            lambda: expected([bytes(batch)], columns)
        )
        outcome(lambda: decoded([bytes(batch)], NO_HEADERS))


@settings(max_examples=100, deadline=None)
@given(batches=logs(), data=st.data())
def test_damage_anywhere_in_a_log_has_one_outcome(
    batches: list[bytes], data: st.DataObject
) -> None:
    log = bytearray(b"".join(batches))
    for _ in range(data.draw(st.integers(1, 3))):
        log[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(OverflowError):
        outcome(lambda: decoded([bytes(log)], NO_HEADERS))


@pytest.mark.parametrize("columns", [ALL_COLUMNS, NO_HEADERS])
@pytest.mark.parametrize("compression", Compression)
def test_every_truncation_is_corrupt(compression: Compression, columns: list[str]) -> None:
    whole = build_batch(SAMPLE, compression=compression)
    for size in range(BATCH_HEADER_BYTES, len(whole)):
        batch = whole[:size]
        struct.pack_into(">i", batch, 8, size - 12)
        with pytest.raises(CorruptBatch, match="flights-3, offsets 0 to 2: "):
            decoded([bytes(batch)], columns)


@pytest.mark.parametrize("columns", [ALL_COLUMNS, NO_HEADERS])
@pytest.mark.parametrize("count", [4, 1 << 20, (1 << 31) - 1])
def test_a_lying_count_is_corrupt(count: int, columns: list[str]) -> None:
    batch = build_batch(SAMPLE)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    with pytest.raises(CorruptBatch):
        decoded([bytes(batch)], columns)


@pytest.mark.parametrize("columns", [ALL_COLUMNS, NO_HEADERS])
def test_damage_to_one_batch_is_not_made_up_for_by_the_next(columns: list[str]) -> None:
    """A record that is a byte too long takes it from the batch behind it."""
    first = build_batch([Record(0, NOW, None, b"a")])
    first[BATCH_HEADER_BYTES] += 2
    second = build_batch([Record(0, NOW, None, b"b")], base_offset=1)
    with pytest.raises(CorruptBatch):
        decoded([bytes(first), bytes(second)], columns)


def test_damaged_headers_are_corrupt_also_beside_the_range() -> None:
    batch = build_batch([Record(0, NOW, None, None, [("ab", b"1")]), Record(0, NOW, None, b"v")])
    at = batch.index(b"ab") - 1
    batch[at] = 1
    with pytest.raises(CorruptBatch, match="a header with a key"):
        decoded([bytes(batch)], ["headers"], 1, 2)
    assert decoded([bytes(batch)], ["value"], 1, 2) == [{"value": b"v"}]


def test_a_timestamp_beyond_64_bits_is_corrupt() -> None:
    batch = build_batch([Record(0, 1, None, None), Record(0, 3, None, None)])
    struct.pack_into(">q", batch, 27, (1 << 63) - 1)
    with pytest.raises(CorruptBatch, match="more than 64 bits"):
        decoded([bytes(batch)], ["timestamp"])
    assert len(decoded([bytes(batch)], ["value"])) == 2


def test_header_keys_that_are_not_utf_8_get_replacement_characters() -> None:
    batch = build_batch([Record(0, NOW, None, None, [("ab", b"1"), ("é", b"2")])])
    at = batch.index(b"ab")
    batch[at : at + 1] = b"\xff"
    stamp_crc(batch)
    (row,) = decoded([bytes(batch)], ["headers"])
    assert [header["key"] for header in row["headers"]] == ["\ufffdb", "é"]


def test_timestamp_types_of_neighbouring_batches_are_kept_apart() -> None:
    created = build_batch([Record(0, 5, None, None)] * 2)
    appended = build_batch([Record(0, 5, None, None)] * 2, base_offset=2)
    stamp_log_append_time(appended, 9)
    rows = decoded([bytes(created), bytes(appended)], ["timestamp", "timestampType"])
    milliseconds = [(row["timestamp"] - EPOCH) // timedelta(milliseconds=1) for row in rows]
    assert milliseconds == [5, 5, 9, 9]
    assert [row["timestampType"] for row in rows] == [
        *[TimestampType.CREATE_TIME] * 2,
        *[TimestampType.LOG_APPEND_TIME] * 2,
    ]
