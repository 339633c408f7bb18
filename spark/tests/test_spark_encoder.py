"""Columns to batches: the same records come out, whether the extension or Arrow makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncbroker.client.partitioning import murmur2, partition_for
from asyncbroker.protocol.records import Compression, Record, read_header, records_of
from asyncbroker.spark import encoder
from asyncbroker.spark.encoder import Columns, Encoder
from asyncbroker.spark.extension import EXTENSION
from asyncbroker.spark.partitioner import (
    NO_PARTITION,
    murmur2_of,
    partitions_for,
    partitions_portably,
)

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

WAYS = ["portable"] if EXTENSION is None else ["portable", "compiled"]

nullable_bytes = st.none() | st.binary(max_size=200)
records = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp=st.integers(-1, 1 << 50),
        key=nullable_bytes,
        value=nullable_bytes | st.just(bytes(20_000)),
        headers=st.lists(st.tuples(st.text(max_size=5), nullable_bytes), max_size=3),
    ),
    max_size=40,
)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "portable":
        monkeypatch.setattr(encoder, "EXTENSION", None)
    return str(request.param)


def columns_of(rows: list[Record], *, has_headers: bool = True, offset: int = 0) -> Columns:
    """The records as columns, which begin `offset` rows into their buffers."""
    padding = [Record(0, 0, b"padding", b"padding", [("p", b"p")])] * offset
    padded = padding + rows

    def array(cells: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(cells, kind)[offset:]

    headers = None
    if has_headers:
        pairs = [[{"key": k, "value": v} for k, v in row.headers] or None for row in padded]
        headers = array(pairs, HEADERS)
    return Columns(
        keys=array([row.key for row in padded], pa.binary()),
        values=array([row.value for row in padded], pa.binary()),
        timestamps=np.array([row.timestamp for row in rows], np.int64),
        headers=headers,
    )


@settings(max_examples=60, deadline=None)
@given(
    rows=records,
    has_headers=st.booleans(),
    offset=st.integers(0, 9),
    bytes_max=st.sampled_from([1, 60, 1000, 1 << 20]),
    codec=st.sampled_from(Compression),
)
def test_records_are_what_the_columns_were(
    rows: list[Record], has_headers: bool, offset: int, bytes_max: int, codec: Compression
) -> None:
    columns = columns_of(rows, has_headers=has_headers, offset=offset)
    wanted = np.arange(len(rows))[::-1].copy()
    found_by_way = []
    for extension in {None, EXTENSION}:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(encoder, "EXTENSION", extension)
            encoder_of_way = Encoder(columns, bytes_max, codec)
            found_by_way.append([e.batch for e in encoder_of_way.batches(wanted)])
    for batches in found_by_way:
        assert batches == found_by_way[0]
        found = [record for batch in batches for record in records_of(batch)]
        assert [(r.timestamp, r.key, r.value) for r in found] == [
            (r.timestamp, r.key, r.value) for r in reversed(rows)
        ]
        expected = [r.headers if has_headers else [] for r in reversed(rows)]
        assert [r.headers for r in found] == expected
        for batch in batches:
            header = read_header(batch)
            times = [record.timestamp for record in records_of(batch)]
            assert (header.base_timestamp, header.max_timestamp) == (times[0], max(times))


def test_batches_are_about_as_large_as_they_may_be(way: str) -> None:
    rows = [Record(0, 1000 + i, b"key-%d" % i, bytes(100)) for i in range(1000)]
    parts = list(Encoder(columns_of(rows), 5000, Compression.NONE).batches(np.arange(1000)))
    assert np.concatenate([part.rows for part in parts]).tolist() == list(range(1000))
    for part in parts[:-1]:
        assert 4500 < len(part.batch) - 61 <= 5000


def test_records_without_keys_need_no_column_of_them(way: str) -> None:
    columns = Columns(None, pa.array([b"a", None]), np.array([5, 6]), None)
    (part,) = Encoder(columns, 1000, Compression.NONE).batches(np.arange(2))
    assert [(r.key, r.value) for r in records_of(part.batch)] == [(None, b"a"), (None, None)]


def test_a_header_without_a_key_is_no_record(way: str) -> None:
    headers = pa.array([[{"key": None, "value": b"v"}]], HEADERS)
    columns = Columns(None, pa.array([b"a"]), np.array([5]), headers)
    with pytest.raises(ValueError, match="no records"):
        list(Encoder(columns, 1000, Compression.NONE).batches(np.arange(1)))


@given(keys=st.lists(nullable_bytes, max_size=30), offset=st.integers(0, 3))
def test_keys_are_hashed_as_one_by_one(keys: list[bytes | None], offset: int) -> None:
    array = pa.array([b"padding"] * offset + keys, pa.binary())[offset:]
    hashes = murmur2_of(array).tolist()
    assert [h for h, key in zip(hashes, keys, strict=True) if key is not None] == [
        murmur2(key) for key in keys if key is not None
    ]
    expected = [NO_PARTITION if key is None else partition_for(key, 7) for key in keys]
    assert partitions_for(array, 7).tolist() == expected
    assert partitions_portably(array, 7).tolist() == expected


def test_keys_that_a_slice_leaves_out_have_no_partition() -> None:
    array = pa.array([b"a", b"b", None, b"d"], pa.binary())
    assert len(partitions_for(array[1:3], 5)) == 2
    assert len(partitions_for(array[:0], 5)) == 0
