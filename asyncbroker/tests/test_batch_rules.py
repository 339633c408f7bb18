"""What a topic's settings ask of the records in a batch."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest

from asyncbroker.batch_rules import (
    RECORD_ERRORS_MAX,
    BatchRules,
    InvalidRecords,
    conform,
    timestamp_errors,
)
from asyncbroker.log.config import LogConfig
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.records import (
    BATCH_HEADER_BYTES,
    Compression,
    Record,
    build_batch,
    check_batch,
    payload_of,
    read_header,
    records_of,
    stamp_crc,
)

NO_MAX_TIMESTAMP = (-1).to_bytes(8, "big", signed=True)
MAX_TIMESTAMP_AT = 35


def records(count: int = 3, *, key: bytes | None = b"key") -> list[Record]:
    return [Record(index, 1_000 + index, key, b"value %d" % index) for index in range(count)]


def test_a_batch_needs_no_look_inside_when_nothing_is_asked_of_its_records() -> None:
    header = read_header(build_batch(records(), compression=Compression.GZIP))
    unchecked = BatchRules(check_compressed_bytes_max=0)
    assert not unchecked.need_records(header)
    assert not replace(unchecked, compression=Compression.GZIP).need_records(header)


def test_a_batch_in_another_codec_than_the_topics_needs_a_look() -> None:
    header = read_header(build_batch(records(), compression=Compression.GZIP))
    assert BatchRules(compression=Compression.NONE).need_records(header)


@pytest.mark.parametrize("codec", list(Compression))
def test_a_batch_is_stored_in_the_codec_of_the_topic(codec: Compression) -> None:
    """Recompressed only if different; producer fields stay."""
    batch = build_batch(
        records(), compression=Compression.SNAPPY, producer_id=7, producer_epoch=1, base_sequence=40
    )
    conformed, header = conform(batch, read_header(batch), BatchRules(compression=codec))
    assert header == check_batch(conformed)
    assert header.compression is codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 40)
    assert list(records_of(conformed)) == records()


def test_a_keyless_record_on_a_compacted_topic_is_named_by_its_index() -> None:
    batch = build_batch([*records(2), *records(1, key=None), *records(1), *records(1, key=None)])
    with pytest.raises(InvalidRecords) as raised:
        conform(batch, read_header(batch), BatchRules(requires_keys=True))
    assert raised.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in raised.value.record_errors] == [2, 4]


def test_an_empty_key_is_a_key() -> None:
    batch = build_batch(records(key=b""))
    conformed, _ = conform(batch, read_header(batch), BatchRules(requires_keys=True))
    assert conformed is batch


def test_a_million_bad_records_are_told_in_a_few_words() -> None:
    batch = build_batch(records(RECORD_ERRORS_MAX + 50, key=None))
    with pytest.raises(InvalidRecords) as raised:
        conform(batch, read_header(batch), BatchRules(requires_keys=True))
    assert len(raised.value.record_errors) == RECORD_ERRORS_MAX


def test_a_missing_max_timestamp_is_filled_in() -> None:
    """Lookups by time rely on it, and sarama leaves it at -1."""
    batch = build_batch(records())
    batch[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = NO_MAX_TIMESTAMP
    stamp_crc(batch)
    header = check_batch(batch)
    assert BatchRules().need_records(header)
    conformed, header = conform(batch, header, BatchRules())
    assert header == check_batch(conformed)
    assert header.max_timestamp == 1_002


def test_records_that_cannot_be_decoded_are_the_clients_mistake() -> None:
    batch = build_batch(records(), compression=Compression.GZIP)
    batch[BATCH_HEADER_BYTES + 12] ^= 0xFF
    stamp_crc(batch)
    with pytest.raises(KafkaError) as raised:
        conform(batch, check_batch(batch), BatchRules(requires_keys=True))
    assert raised.value.code is ErrorCode.INVALID_RECORD


def test_a_batch_that_expands_beyond_the_limit_is_refused() -> None:
    bomb = build_batch([Record(0, 0, b"k", bytes(1_000_000))], compression=Compression.GZIP)
    rules = BatchRules(requires_keys=True, decompressed_bytes_max=10_000)
    with pytest.raises(KafkaError) as raised:
        conform(bomb, check_batch(bomb), rules)
    assert raised.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "rules",
    [
        BatchRules(requires_keys=True),
        BatchRules(compression=Compression.ZSTD),
        BatchRules(requires_keys=True, compression=Compression.NONE),
    ],
)
def test_many_tiny_records_take_little_more_room_than_their_bytes(rules: BatchRules) -> None:
    tiny = (Record(index, 0, b"k", None) for index in range(20_000))
    batch = build_batch(tiny, compression=Compression.GZIP)
    header = check_batch(batch)
    payload_bytes = len(payload_of(batch, header))
    assert payload_bytes > 5 * len(batch)
    tracemalloc.start()
    try:
        conform(batch, header, rules)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 5 * payload_bytes


def test_records_out_of_the_accepted_times_are_named_by_their_index() -> None:
    batch = build_batch(records(5))
    config = LogConfig(message_timestamp_before_max_ms=1, message_timestamp_after_max_ms=1)
    errors = timestamp_errors(batch, read_header(batch), config, 1_002)
    assert [index for index, _ in errors] == [0, 4]
