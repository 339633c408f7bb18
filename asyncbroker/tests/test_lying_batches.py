"""Batches whose header lies about their records, with a CRC that fits: refused or mended.

What Apache Kafka 4.3 answers was asked of it, lie by lie and codec by codec. Three things differ:
offsets within the batch that are not 0, 1, 2 are refused here in any codec, and there only in
compressed batches; a compressed record that is longer than its fields is taken there; and what
Kafka answers with UNKNOWN_SERVER_ERROR is INVALID_RECORD.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from asyncbroker.batch_rules import (
    AT_ONCE_BYTES_MAX,
    AT_ONCE_COMPRESSED_BYTES_MAX,
    BatchRules,
    conform,
    conformed_at_once,
)
from asyncbroker.protocol import native, record_facts
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.record_facts import check_records, check_records_portably
from asyncbroker.protocol.records import (
    Compression,
    Record,
    check_batch,
    encode_varint,
    frame_records,
    payload_of,
    records_of,
    stamp_crc,
    stamp_producer,
)

TIME_MS = 1_700_000_000_000
COUNT = 3
RULES = BatchRules()


def record(offset: int, time: int, *, key: bytes = b"k", header_count: int = 0) -> bytes:
    """One record, with numbers that need not be true."""
    body = b"".join(
        [
            b"\0",
            encode_varint(time),
            encode_varint(offset),
            encode_varint(len(key)),
            key,
            encode_varint(7),
            b"value %d" % (abs(offset) % 10),
            encode_varint(header_count),
        ]
    )
    return encode_varint(len(body)) + body


def payload(offsets: Iterable[int] = range(COUNT), times: Iterable[int] = range(COUNT)) -> bytes:
    return b"".join(record(offset, time) for offset, time in zip(offsets, times, strict=True))


def framed(
    codec: Compression,
    records: bytes | None = None,
    *,
    count: int = COUNT,
    last_offset_delta: int | None = None,
    max_timestamp: int = TIME_MS + COUNT - 1,
) -> bytearray:
    """A batch of these records, of which the header says what it is told to."""
    batch = frame_records(
        payload() if records is None else records,
        count,
        TIME_MS,
        max_timestamp,
        codec,
        last_offset_delta=last_offset_delta,
    )
    stamp_producer(batch, -1, -1, -1)
    return batch


def damaged_codec(codec: Compression) -> bytearray:
    """A batch whose records cannot be decompressed."""
    batch = framed(codec, payload() * 200, count=COUNT * 200)
    batch[-30:] = bytes(30)
    stamp_crc(batch)
    return batch


Lie = Callable[[Compression], bytearray]

REFUSED: dict[str, Lie] = {
    "fewer records than there are": lambda codec: framed(codec, count=2),
    "more records than there are": lambda codec: framed(codec, payload() + bytes(9), count=4),
    "a record that ends behind the batch": lambda codec: framed(codec, payload()[:-1]),
    "bytes behind the last record": lambda codec: framed(codec, payload() + b"\0"),
    "a record that is longer than its fields": lambda codec: framed(
        codec, bytes([payload()[0] + 2]) + payload()[1:]
    ),
    "a key that is longer than its record": lambda codec: framed(
        codec, payload()[:6].replace(b"\x02k", b"\x7ek") + payload()[6:]
    ),
    "headers that are not there": lambda codec: framed(
        codec, record(0, 0) + record(1, 1) + record(2, 2, header_count=60)
    ),
    "offsets with gaps": lambda codec: framed(codec, payload([0, 2, 5])),
    "offsets that descend": lambda codec: framed(codec, payload([2, 1, 0])),
    "offsets that repeat": lambda codec: framed(codec, payload([0, 0, 0])),
    "offsets below the batch": lambda codec: framed(codec, payload([-1, 0, 1])),
    "a timestamp of more than 64 bits": lambda codec: framed(
        codec, payload(times=[0, (1 << 63) - 1, 2])
    ),
    "what no codec has written": lambda codec: damaged_codec(
        codec if codec is not Compression.NONE else Compression.GZIP
    ),
}

MENDED: dict[str, Lie] = {
    "nothing": framed,
    "too small a max timestamp": lambda codec: framed(codec, max_timestamp=TIME_MS),
    "too large a max timestamp": lambda codec: framed(codec, max_timestamp=TIME_MS + 999),
    "a max timestamp of the far future": lambda codec: framed(codec, max_timestamp=1 << 60),
    "no max timestamp": lambda codec: framed(codec, max_timestamp=-1),
}

needs_extension = pytest.mark.skipif(native.RECORDS is None, reason="no compiler built it")


@pytest.fixture(params=["native", "portable"])
def checked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extension, and without it."""
    if request.param == "portable":
        monkeypatch.setattr(record_facts, "RECORDS", None)
    elif native.RECORDS is None:
        pytest.skip("no compiler built it")


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("lie", REFUSED)
def test_what_readers_would_stumble_over_is_refused(lie: str, codec: Compression) -> None:
    batch = REFUSED[lie](codec)
    header = check_batch(batch)
    with pytest.raises(KafkaError) as raised:
        conform(batch, header, RULES)
    assert raised.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Compression))
def test_a_last_offset_that_is_not_the_last_records_is_refused(codec: Compression) -> None:
    with pytest.raises(KafkaError) as raised:
        check_batch(framed(codec, last_offset_delta=5))
    assert raised.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("lie", MENDED)
def test_a_max_timestamp_is_that_of_the_records(lie: str, codec: Compression) -> None:
    batch = MENDED[lie](codec)
    before = bytes(batch)
    conformed, header = conform(batch, check_batch(batch), RULES)
    assert header == check_batch(conformed)
    assert header.max_timestamp == TIME_MS + COUNT - 1
    assert payload_of(conformed, header) == payload()
    if lie == "nothing":
        assert bytes(conformed) == before


@needs_extension
@pytest.mark.parametrize("codec", list(Compression))
def test_what_is_small_is_done_at_once_and_the_same_comes_of_it(codec: Compression) -> None:
    for lie in MENDED.values():
        batch = lie(codec)
        other = bytearray(batch)
        at_once = conformed_at_once(batch, check_batch(batch), RULES)
        assert at_once == conform(other, check_batch(other), RULES)
    for name, lie in REFUSED.items():
        if name == "what no codec has written":
            continue
        batch = lie(codec)
        with pytest.raises(KafkaError):
            conformed_at_once(batch, check_batch(batch), RULES)


@needs_extension
@pytest.mark.parametrize("codec", list(Compression))
def test_what_is_large_or_expands_much_is_for_a_thread(codec: Compression) -> None:
    count = AT_ONCE_BYTES_MAX // 10
    batch = framed(codec, payload(range(count), [0] * count), count=count, max_timestamp=TIME_MS)
    if codec is not Compression.NONE:
        bomb = framed(codec, record(0, 0, key=bytes(AT_ONCE_BYTES_MAX)), count=1)
        assert len(bomb) < AT_ONCE_COMPRESSED_BYTES_MAX
        assert conformed_at_once(bomb, check_batch(bomb), RULES) is None
    assert conformed_at_once(batch, check_batch(batch), RULES) is None
    assert conform(batch, check_batch(batch), RULES)[0] is batch


def test_compressed_batches_may_be_taken_by_their_header() -> None:
    rules = BatchRules(check_compressed_bytes_max=0)
    assert not rules.need_records(check_batch(framed(Compression.LZ4)))
    assert rules.need_records(check_batch(framed(Compression.LZ4, max_timestamp=-1)))


def test_facts_are_those_of_the_records() -> None:
    batch = framed(Compression.NONE, record(0, 5) + record(1, -7) + record(2, 3, key=b""))
    header = check_batch(batch)
    records: list[Record] = list(records_of(batch, header))
    facts = check_records(payload_of(batch), header)
    assert facts == check_records_portably(payload_of(batch), header)
    assert facts.min_timestamp == min(each.timestamp for each in records)
    assert facts.max_timestamp == max(each.timestamp for each in records)
    assert facts.keyless_count == 0
