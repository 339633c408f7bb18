"""Record batches: golden bytes, round trips, other clients, and everything that can be wrong."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from asyncbroker.protocol.batches import RECORD_BYTES_MIN
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.records import (
    BATCH_HEADER_BYTES,
    BatchHeader,
    Compression,
    CorruptBatch,
    Record,
    TimestampType,
    batches,
    build_batch,
    check_batch,
    read_header,
    records_of,
    stamp,
    stamp_crc,
    stamp_log_append_time,
    stamp_max_timestamp,
    verify_crc,
)

NOW = 1_700_000_000_000

nullable_bytes = st.none() | st.binary(max_size=80)
headers = st.lists(st.tuples(st.text(max_size=10), nullable_bytes), max_size=4)
record_lists = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp=st.integers(0, 1 << 45),
        key=nullable_bytes,
        value=nullable_bytes,
        headers=headers,
    ),
    min_size=1,
    max_size=20,
)

SAMPLE = [
    Record(0, NOW, b"key", b"value", [("h", b"1"), ("h", None), ("", b"")]),
    Record(1, NOW - 500, None, b"", []),
    Record(2, NOW + 70_000, b"", None, []),
    Record(3, NOW, b"k" * 100, b"v" * 1000, []),
]


def numbered(records: list[Record], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + index, r.timestamp, r.key, r.value, list(r.headers))
        for index, r in enumerate(records)
    ]


def as_tuples(records: object) -> list[tuple[object, ...]]:
    """Records of any of the three libraries, to compare."""
    return [
        (r.offset, r.timestamp, r.key, r.value, [tuple(h) for h in r.headers])
        for r in records  # type: ignore[attr-defined]
    ]


# ---- golden bytes


def test_the_smallest_batch_byte_by_byte() -> None:
    batch = build_batch([Record(0, 5, b"k", b"v")], base_offset=7, partition_leader_epoch=3)
    assert batch.hex(" ") == (
        "00 00 00 00 00 00 00 07 "  # base offset
        "00 00 00 3a "  # 58 bytes follow
        "00 00 00 03 "  # leader epoch
        "02 "  # magic
        "23 f4 63 e1 "  # CRC-32C
        "00 00 "  # attributes
        "00 00 00 00 "  # last offset delta
        "00 00 00 00 00 00 00 05 "  # base timestamp
        "00 00 00 00 00 00 00 05 "  # max timestamp
        "ff ff ff ff ff ff ff ff "  # producer id
        "ff ff "  # producer epoch
        "ff ff ff ff "  # base sequence
        "00 00 00 01 "  # one record
        "10 00 00 00 02 6b 02 76 00"  # 8 bytes, attributes, deltas, key, value, no headers
    )


def test_nulls_headers_and_long_varints_byte_by_byte() -> None:
    records = [Record(0, 1000, None, None), Record(1, 0, b"", b"x", [("a", None), ("é", b"")])]
    assert build_batch(records)[BATCH_HEADER_BYTES:].hex(" ") == (
        "0c 00 00 00 01 01 00 "  # null key, null value
        "1e 00 cf 0f 02 00 02 78 04 "  # -1000 ms, delta 1, empty key, "x", two headers
        "02 61 01 04 c3 a9 00"
    )


# ---- headers


def test_header_fields_and_what_follows_from_them() -> None:
    batch = build_batch(
        SAMPLE,
        base_offset=100,
        compression=Compression.ZSTD,
        producer_id=9,
        producer_epoch=2,
        base_sequence=2147483646,
        partition_leader_epoch=5,
        is_transactional=True,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
    )
    header = read_header(batch)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (100, 103, 104)
    assert (header.producer_id, header.producer_epoch) == (9, 2)
    assert header.last_sequence == 1  # after 2147483647 comes 0
    assert header.partition_leader_epoch == 5
    assert header.compression is Compression.ZSTD
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.is_transactional
    assert not header.is_control
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 70_000)
    assert header.record_count == 4


def test_a_batch_without_sequence_has_no_last_sequence() -> None:
    assert read_header(build_batch(SAMPLE)).last_sequence == -1


def test_header_is_read_at_a_position() -> None:
    assert read_header(b"12345" + build_batch(SAMPLE, base_offset=8), 5).base_offset == 8


@pytest.mark.parametrize(
    ("position", "layout", "value"),
    [
        (0, ">q", -1),  # base offset
        (8, ">i", 48),  # length
        (8, ">i", -1),
        (16, ">b", 1),  # magic
        (21, ">h", 5),  # compression
        (23, ">i", -1),  # last offset delta
        (57, ">i", -1),  # record count
        (57, ">i", 5),
    ],
)
def test_an_impossible_header_is_corrupt(position: int, layout: str, value: int) -> None:
    batch = build_batch(SAMPLE)
    struct.pack_into(layout, batch, position, value)
    with pytest.raises(CorruptBatch):
        read_header(batch)


def test_a_short_header_is_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        read_header(bytes(build_batch(SAMPLE))[: BATCH_HEADER_BYTES - 1])
    with pytest.raises(CorruptBatch):
        read_header(bytes(200), -1)


def test_batches_are_slices_and_a_partial_last_one_is_left_out() -> None:
    first, second = build_batch(SAMPLE), build_batch(SAMPLE, base_offset=4)
    both = bytes(first + second)
    for size in range(len(both) + 1):
        whole = [bytes(batch) for _, batch in batches(both[:size])]
        expected = [first, second][: (size >= len(first)) + (size == len(both))]
        assert whole == expected


def test_batches_stop_with_an_error_where_no_batch_can_begin() -> None:
    found = batches(build_batch(SAMPLE) + bytes(BATCH_HEADER_BYTES))
    next(found)
    with pytest.raises(CorruptBatch):
        next(found)


# ---- round trips


@settings(max_examples=60)
@given(
    records=record_lists,
    codec=st.sampled_from(Compression),
    base_offset=st.integers(0, 1 << 62),
    partition_leader_epoch=st.integers(-1, 100),
)
def test_what_is_built_is_read_back(
    records: list[Record], codec: Compression, base_offset: int, partition_leader_epoch: int
) -> None:
    batch = build_batch(
        records,
        base_offset=base_offset,
        compression=codec,
        partition_leader_epoch=partition_leader_epoch,
    )
    header = read_header(batch)
    assert verify_crc(batch, header)
    assert header.base_timestamp == records[0].timestamp
    assert header.max_timestamp == max(r.timestamp for r in records)
    assert list(records_of(batch)) == numbered(records, base_offset)


@given(timestamps=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=5))
@settings(max_examples=50)
def test_any_timestamp_within_64_bits_of_the_first_survives(timestamps: list[int]) -> None:
    first = timestamps[0]
    kept = [t for t in timestamps if -(1 << 63) <= t - first < 1 << 63]
    batch = build_batch([Record(0, t, None, None) for t in kept])
    assert [r.timestamp for r in records_of(batch)] == kept


def test_log_append_time_overrides_the_records_timestamps() -> None:
    batch = build_batch(SAMPLE)
    stamp_log_append_time(batch, NOW + 9)
    header = read_header(batch)
    assert verify_crc(batch, header)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {r.timestamp for r in records_of(batch)} == {NOW + 9}


def test_stamping_an_offset_and_an_epoch_keeps_the_crc() -> None:
    batch = build_batch(SAMPLE)
    stamp(memoryview(batch), 1 << 40, 6)
    header = read_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 6)
    assert verify_crc(batch, header)
    assert [r.offset for r in records_of(batch)] == [(1 << 40) + i for i in range(4)]


def test_a_max_timestamp_left_out_by_the_producer_is_computed() -> None:
    batch = build_batch(SAMPLE)
    struct.pack_into(">q", batch, 35, -1)
    stamp_crc(batch)
    assert check_batch(batch).max_timestamp == -1
    stamp_max_timestamp(batch, NOW + 70_000)
    assert check_batch(batch).max_timestamp == NOW + 70_000


def test_gaps_are_kept_when_asked_for() -> None:
    records = [Record(10, NOW, b"a", b"1"), Record(13, NOW, b"b", b"2"), Record(19, NOW, b"c", b"")]
    batch = build_batch(records, base_offset=8, keeps_offsets=True)
    assert read_header(batch).last_offset == 19
    assert [r.offset for r in records_of(batch)] == [10, 13, 19]
    with pytest.raises(ValueError, match="does not ascend"):
        build_batch(records[::-1], base_offset=8, keeps_offsets=True)
    with pytest.raises(ValueError, match="does not ascend"):
        build_batch(records, base_offset=11, keeps_offsets=True)


def test_a_batch_without_records_is_not_built_but_read() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])
    for codec in Compression:  # what compaction leaves of a batch
        batch = build_batch(SAMPLE, compression=codec)[:BATCH_HEADER_BYTES]
        struct.pack_into(">i", batch, 8, BATCH_HEADER_BYTES - 12)
        struct.pack_into(">i", batch, 57, 0)
        assert list(records_of(batch)) == []


# ---- other clients

CLIENT_CODECS = {
    # kafka-python takes snappy and LZ4 from packages that are not installed here.
    "kafka-python": [Compression.NONE, Compression.GZIP, Compression.ZSTD],
    "aiokafka": list(Compression),
}
BUILDERS = {"kafka-python": KafkaPythonBuilder, "aiokafka": AiokafkaBuilder}
READERS = {"kafka-python": KafkaPythonBatch, "aiokafka": AiokafkaBatch}
CLIENTS = [(client, codec) for client, codecs in CLIENT_CODECS.items() for codec in codecs]


@settings(max_examples=25, deadline=None)
@given(records=record_lists)
@pytest.mark.parametrize(("client", "codec"), CLIENTS)
def test_batches_of_other_clients_are_read(
    client: str, codec: Compression, records: list[Record]
) -> None:
    builder = BUILDERS[client](
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for offset, r in enumerate(records):
        # aiokafka takes a null timestamp for "now", kafka-python wants the keyword names.
        builder.append(
            offset, timestamp=r.timestamp, key=r.key, value=r.value, headers=list(r.headers)
        )
    batch = bytes(builder.build())
    header = check_batch(batch)
    assert header.record_count == len(records)
    assert list(records_of(batch)) == numbered(records)
    if codec is Compression.NONE:
        assert batch == bytes(build_batch(records, partition_leader_epoch=_epoch_of(batch)))


def _epoch_of(batch: bytes) -> int:
    return read_header(batch).partition_leader_epoch


@settings(max_examples=25, deadline=None)
@given(records=record_lists, base_offset=st.integers(0, 1 << 50))
@pytest.mark.parametrize(("client", "codec"), CLIENTS)
def test_other_clients_read_our_batches(
    client: str, codec: Compression, records: list[Record], base_offset: int
) -> None:
    batch = bytes(build_batch(records, base_offset=base_offset, compression=codec))
    reader = READERS[client](bytearray(batch))
    assert reader.validate_crc()
    assert as_tuples(reader) == as_tuples(numbered(records, base_offset))


# ---- what a client may send


def code_of(batch: bytes | bytearray) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        check_batch(batch)
    assert caught.value.message
    return caught.value.code


def changed(position: int, layout: str, value: int, **build: int) -> bytearray:
    """The sample batch with one field of the header changed, and a right CRC."""
    batch = build_batch(SAMPLE, **build)  # type: ignore[arg-type]
    struct.pack_into(layout, batch, position, value)
    stamp_crc(batch)
    return batch


def test_a_good_batch_passes_as_any_kind_of_buffer() -> None:
    batch = build_batch(SAMPLE, producer_id=1, producer_epoch=0, base_sequence=0)
    for buffer in (batch, bytes(batch), memoryview(batch), memoryview(bytes(batch))):
        header = check_batch(buffer)
        assert isinstance(header, BatchHeader)
        assert header == read_header(batch)


def _refused() -> Iterator[tuple[str, bytes | bytearray, ErrorCode]]:
    invalid, corrupt = ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE
    batch = build_batch(SAMPLE)
    yield "no batch", b"", invalid
    yield "two batches", batch + build_batch(SAMPLE), invalid
    yield "trailing byte", batch + b"\x00", invalid
    yield "half a second batch", batch + build_batch(SAMPLE)[:30], invalid
    yield "half a header", batch[:30], corrupt
    yield "magic 1", changed(16, ">b", 1), invalid
    yield "magic 0 and too short", batch[:16] + b"\x00" + batch[17:40], invalid
    yield "length too small", changed(8, ">i", 48), corrupt
    yield "negative length", changed(8, ">i", -5), corrupt
    yield "length beyond the end", changed(8, ">i", len(batch)), corrupt
    yield "base offset", changed(0, ">q", 1), invalid
    yield "no records", changed(57, ">i", 0), invalid
    yield "negative count", changed(57, ">i", -4), invalid
    yield "count above the last delta", changed(57, ">i", 5), invalid
    yield "last delta above the count", changed(23, ">i", 4), invalid
    yield "control batch", changed(21, ">h", 0x20), invalid
    yield "delete horizon", changed(21, ">h", 0x40), invalid
    yield "codec 5", changed(21, ">h", 5), invalid
    yield "codec 7", changed(21, ">h", 7), invalid
    yield "producer without sequence", changed(43, ">q", 3), invalid
    yield "max before base timestamp", changed(35, ">q", NOW - 1), invalid
    damaged = bytearray(batch)
    damaged[-1] ^= 1
    yield "damaged", damaged, corrupt


REFUSED = list(_refused())


@pytest.mark.parametrize(
    ("batch", "code"), [(batch, code) for _, batch, code in REFUSED], ids=[n for n, *_ in REFUSED]
)
def test_what_a_client_may_not_send_is_refused_with_kafkas_code(
    batch: bytes | bytearray, code: ErrorCode
) -> None:
    assert code_of(batch) is code


def test_every_truncation_is_refused() -> None:
    batch = bytes(build_batch(SAMPLE))
    for size in range(len(batch)):
        with pytest.raises(KafkaError):
            check_batch(batch[:size])


def test_every_flipped_bit_is_noticed() -> None:
    batch = build_batch(SAMPLE[:2])
    for position in range(len(batch)):
        if 12 <= position < 16:
            continue  # the leader epoch is the broker's to write
        for bit in range(8):
            batch[position] ^= 1 << bit
            with pytest.raises(KafkaError):
                check_batch(batch)
            batch[position] ^= 1 << bit


@pytest.mark.parametrize("codec", Compression)
def test_a_crc_covers_every_bit_after_it(codec: Compression) -> None:
    batch = build_batch(SAMPLE, compression=codec)
    header = read_header(batch)
    for position in range(21, len(batch)):
        batch[position] ^= 0x10
        assert not verify_crc(batch, header)
        batch[position] ^= 0x10
    assert verify_crc(batch, header)
    assert not verify_crc(batch[:-1], header)


# ---- records that lie


def lying(payload: bytes, record_count: int = 1, last_offset_delta: int = 0) -> bytearray:
    """A batch around any bytes, with a right CRC."""
    batch = build_batch([Record(0, NOW, None, None)])[:BATCH_HEADER_BYTES] + payload
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, last_offset_delta)
    struct.pack_into(">i", batch, 57, record_count)
    stamp_crc(batch)
    return batch


LIES = {
    "no records": b"",
    "length beyond the end": b"\x14\x00\x00\x00\x01\x01\x00",
    "negative length": b"\x01",
    "length of zero": b"\x00",
    "endless varint": b"\x80" * 20,
    "varint of 33 bits": b"\xff\xff\xff\xff\x7f" + bytes(20),
    "varint cut off": b"\xff",
    "key beyond the record": b"\x0c\x00\x00\x00\x14\x01\x00",
    "key of 2 GiB": b"\x14\x00\x00\x00\xfe\xff\xff\xff\x0f\x01\x00",
    "key length -2": b"\x0c\x00\x00\x00\x03\x01\x00",
    "value beyond the record": b"\x0c\x00\x00\x00\x01\x14\x00",
    "headers -1": b"\x0c\x00\x00\x00\x01\x01\x01",
    "a billion headers": b"\x14\x00\x00\x00\x01\x01\x80\xa8\xd6\xb9\x07",
    "null header key": b"\x10\x00\x00\x00\x01\x01\x02\x01\x00",
    "header key beyond the record": b"\x10\x00\x00\x00\x01\x01\x02\x14\x00",
    "bytes after the fields": b"\x0e\x00\x00\x00\x01\x01\x00\x00",
    "fields after the record": b"\x0a\x00\x00\x00\x01\x01\x00",
    "bytes after the records": b"\x0c\x00\x00\x00\x01\x01\x00\x00",
    "offset beyond the batch": b"\x0c\x00\x00\x02\x01\x01\x00",
    "negative offset delta": b"\x0c\x00\x00\x01\x01\x01\x00",
    "timestamp beyond 64 bits": b"\x1e\x00\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x01\x01\x00",
}


@pytest.mark.parametrize("payload", LIES.values(), ids=LIES)
def test_records_that_lie_are_corrupt(payload: bytes) -> None:
    with pytest.raises(CorruptBatch):
        list(records_of(lying(payload)))


@pytest.mark.parametrize(("size", "count"), [(0, 1), (6, 1), (13, 2), (7, 2**31 - 1)])
def test_more_records_than_there_are_bytes_for_may_not_be_sent(size: int, count: int) -> None:
    with pytest.raises(KafkaError) as raised:
        check_batch(lying(bytes(size), count, count - 1))
    assert raised.value.code is ErrorCode.INVALID_RECORD
    assert f"{count} records in {size} bytes" in str(raised.value)


def test_the_smallest_records_may_be_sent() -> None:
    records = [Record(offset, NOW, None, None) for offset in range(3)]
    for codec in Compression:
        assert check_batch(build_batch(records, compression=codec)).record_count == 3
    same_time = build_batch(records)
    assert len(same_time) == BATCH_HEADER_BYTES + 3 * RECORD_BYTES_MIN


def test_compressed_records_need_bytes_as_well() -> None:
    batch = lying(b"")
    struct.pack_into(">h", batch, 21, Compression.ZSTD)
    stamp_crc(batch)
    with pytest.raises(KafkaError, match="1 records in 0 bytes"):
        check_batch(batch)


def test_the_lies_differ_from_a_record_that_is_right() -> None:
    assert list(records_of(lying(b"\x0c\x00\x00\x00\x01\x01\x00"))) == [Record(0, NOW, None, None)]


def test_a_lying_count_is_corrupt() -> None:
    record = b"\x0c\x00\x00\x00\x01\x01\x00"
    for count in (2, 2147483647):
        with pytest.raises(CorruptBatch):
            list(records_of(lying(record, record_count=count, last_offset_delta=2147483646)))


@pytest.mark.parametrize("codec", Compression)
def test_every_truncation_of_the_payload_is_corrupt(codec: Compression) -> None:
    whole = build_batch(SAMPLE, compression=codec)
    for size in range(BATCH_HEADER_BYTES, len(whole)):
        batch = whole[:size]
        with pytest.raises(CorruptBatch):
            list(records_of(batch))
        struct.pack_into(">i", batch, 8, size - 12)
        with pytest.raises(CorruptBatch):
            list(records_of(batch))


@settings(max_examples=300)
@given(payload=st.binary(max_size=60), count=st.integers(1, 5))
def test_noise_is_corrupt_or_records(payload: bytes, count: int) -> None:
    try:
        found = list(records_of(lying(payload, record_count=count, last_offset_delta=count)))
        assert len(found) == count
    except CorruptBatch:
        pass


@settings(max_examples=300)
@given(
    position=st.integers(0, 10_000), byte=st.integers(0, 255), codec=st.sampled_from(Compression)
)
def test_a_changed_byte_is_corrupt_or_bounded(position: int, byte: int, codec: Compression) -> None:
    batch = build_batch(SAMPLE, compression=codec)
    batch[position % len(batch)] = byte
    with contextlib.suppress(CorruptBatch):
        assert len(list(records_of(batch, decompressed_bytes_max=1 << 20))) <= 2000


def test_a_small_batch_that_decompresses_to_gigabytes_is_corrupt() -> None:
    batch = build_batch([Record(0, NOW, None, bytes(20 << 20))], compression=Compression.ZSTD)
    assert len(batch) < 3000
    with pytest.raises(CorruptBatch, match="more than 1048576 bytes"):
        list(records_of(batch, decompressed_bytes_max=1 << 20))


def test_header_keys_that_are_not_utf_8_are_read_as_java_does() -> None:
    payload = b"\x14\x00\x00\x00\x01\x01\x02\x04\xff\x61\x01"
    (record,) = records_of(lying(payload))
    assert record.headers == [("\ufffda", None)]


# ---- batches that Kafka's Java producer wrote, cut from a broker's log files

JAVA_RECORDS = [
    Record(0, 0, b"key1", b"hello " * 5 + b"hello", [("h1", b"a"), ("h2", b"b")]),
    Record(1, 0, b"key2", b"hello " * 3 + b"world world world", [("h1", b"c")]),
]
JAVA_BATCHES = {
    Compression.NONE: (
        "00000000000000000000009c0000000002984451bd000000000001000001a21f8dd311000001a21f8dd320"
        "0000000000000000000000000000000000026e000000086b6579314668656c6c6f2068656c6c6f2068656c"
        "6c6f2068656c6c6f2068656c6c6f2068656c6c6f040468310261046832026264001e02086b657932466865"
        "6c6c6f2068656c6c6f2068656c6c6f20776f726c6420776f726c6420776f726c64020468310263"
    ),
    Compression.GZIP: (
        "000000000000000000000076000000000271688c5f000100000001000001a21f8ddc0a000001a21f8ddc1c"
        "0000000000000001000000000000000000021f8b08000000000000ffcb636060e0c84ead3474cb48cdc9c9"
        "57c04bb2b064183225b264183125a530a83081f41961d1579e5f9493824c3281f42503003d3211b16b0000"
        "00"
    ),
    Compression.SNAPPY: (
        "000000000000000000000082000000000286630d6b000200000001000001a21f8de366000001a21f8de3ac"
        "00000000000000020000000000000000000282534e415050590000000001000000010000003d6c3c6e0000"
        "00086b6579314668656c6c6f207206003c040468310261046832026266008c0102013900324a390010776f"
        "726c642e060014020468310263"
    ),
    Compression.LZ4: (
        "00000000000000000000007c000000000231aec266000300000001000001a21f8de9d8000001a21f8dea05"
        "00000000000000030000000000000000000204224d186040823c000000ff016e000000086b657931466865"
        "6c6c6f2006000af000040468310261046832026264005a0238001f3238000058776f726c64060060020468"
        "31026300000000"
    ),
    Compression.ZSTD: (
        "000000000000000000000078000000000203172a2c000400000001000001a21f8df0b6000001a21f8df0dd"
        "00000000000000040000000000000000000228b52ffd0058dc0100f4026e000000086b6579314668656c6c"
        "6f20040468310261046832026264004e02086b657932776f726c640204683102630300299cb655c2e42e4b"
        "010000"
    ),
}


@pytest.mark.parametrize(("codec", "text"), JAVA_BATCHES.items())
def test_batches_of_the_java_producer_are_read(codec: Compression, text: str) -> None:
    batch = bytes.fromhex(text)
    header = check_batch(batch)
    assert (header.compression, header.record_count) == (codec, 2)
    assert header.producer_id >= 0
    found = list(records_of(batch))
    assert [(r.key, r.value, r.headers) for r in found] == [
        (r.key, r.value, r.headers) for r in JAVA_RECORDS
    ]
    assert [r.timestamp for r in found] == [header.base_timestamp, header.max_timestamp]
