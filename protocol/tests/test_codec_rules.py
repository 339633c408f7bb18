"""The rules of the wire, one by one, on small messages made for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from asyncbroker.protocol import codec as interpreted
from asyncbroker.protocol.api import API_BY_NAME
from asyncbroker.protocol.codec import Codec, codec_for
from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    RecordBytes,
    array,
    wire,
)


@dataclass(slots=True)
class Point:
    x: int = wire(INT8)
    y: int = wire(INT8, "1+", default=-1)


@dataclass(slots=True)
class Numbers:
    """All types of one size, and so one run."""

    int8: int = wire(INT8)
    int16: int = wire(INT16)
    int32: int = wire(INT32)
    int64: int = wire(INT64)
    uint16: int = wire(UINT16)
    uint32: int = wire(UINT32)
    float64: float = wire(FLOAT64)
    boolean: bool = wire(BOOL)
    uuid: bytes = wire(UUID)


@dataclass(slots=True)
class Texts:
    text: str = wire(STRING)
    text_or_null: str | None = wire(STRING, nullable="0+", default=None)
    data: bytes = wire(BYTES)
    data_or_null: bytes | None = wire(BYTES, nullable="0+", default=None)


@dataclass(slots=True)
class Lists:
    numbers: list[int] = wire(array(INT32))
    ids: list[bytes] = wire(array(UUID))
    texts: list[str] | None = wire(array(STRING), nullable="0+", default=None)
    points: list[Point] = wire(array(Point))


@dataclass(slots=True)
class Structs:
    point: Point = wire(Point)
    point_or_null: Point | None = wire(Point, nullable="0+", default=None)
    after: int = wire(INT8)


@dataclass(slots=True)
class Batches:
    before: int = wire(INT8)
    records: RecordBytes = wire(RECORDS, nullable="0+", default=None)
    more_records: RecordBytes = wire(RECORDS)
    after: str = wire(STRING)


@dataclass(slots=True)
class Tagged:
    number: int = wire(INT8)
    last: str | None = wire(STRING, nullable="0+", default=None, tag=200)
    first: int = wire(INT16, default=7, tag=0)
    point: Point | None = wire(Point, default=None, tag=1)
    point_or_null: Point | None = wire(Point, nullable="0+", default=None, tag=2)
    points: list[Point] = wire(array(Point), tag=3)
    whole: Point = wire(Point, tag=4)


@dataclass(slots=True)
class Ages:
    always: int = wire(INT8)
    new: int = wire(INT8, "2+", default=-1)
    new_list: list[int] = wire(array(INT32), "2+")
    new_point: Point = wire(Point, "2+")
    old: int = wire(INT8, "0-1", ignorable=True)


def both(codec: Codec[Any], message: Any, data: bytes) -> None:
    """The message has these bytes, and they are this message, compiled as well as interpreted."""
    assert codec.encode(message) == data
    assert interpreted.build(codec, message) == data
    assert codec.decode(data) == message
    assert codec.decode(bytearray(data)) == message
    assert codec.decode(memoryview(data)) == message
    assert interpreted.parse(codec, data) == message


def neither(codec: Codec[Any], data: bytes) -> None:
    """The bytes are refused, compiled as well as interpreted."""
    with pytest.raises(ProtocolError):
        codec.decode(data)
    with pytest.raises(ProtocolError):
        interpreted.parse(codec, data)


def cannot_encode(codec: Codec[Any], message: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the words are not the same in both
        codec.encode(message)
    with pytest.raises(ValueError):  # noqa: PT011
        interpreted.build(codec, message)


def test_numbers_are_big_endian_and_signed_where_kafka_says() -> None:
    message = Numbers(-1, -2, -3, -4, 0xFFFE, 0xFFFF_FFFD, 1.5, True, bytes(range(16)))
    data = bytes.fromhex(
        "ff fffe fffffffd fffffffffffffffc fffe fffffffd 3ff8000000000000 01"
        "000102030405060708090a0b0c0d0e0f"
    )
    both(codec_for(Numbers, 0, False), message, data)
    both(codec_for(Numbers, 0, True), message, data + b"\0")


def test_any_byte_but_zero_is_true() -> None:
    codec = codec_for(Numbers, 0, False)
    data = codec.encode(Numbers())
    assert codec.decode(data[:-17] + b"\x02" + data[-16:]).boolean is True


def test_classic_lengths_are_int16_for_strings_and_int32_for_bytes() -> None:
    codec = codec_for(Texts, 0, False)
    both(codec, Texts("é", "", b"\1", b""), bytes.fromhex("0002c3a9 0000 0000000101 00000000"))
    both(codec, Texts("", None, b"", None), bytes.fromhex("0000 ffff 00000000 ffffffff"))


def test_compact_lengths_are_varints_of_the_length_plus_one() -> None:
    codec = codec_for(Texts, 0, True)
    both(codec, Texts("é", "", b"\1", b""), bytes.fromhex("03c3a9 01 0201 01 00"))
    both(codec, Texts("", None, b"", None), bytes.fromhex("01 00 01 00 00"))
    both(codec, Texts("x" * 126), bytes.fromhex("7f" + "78" * 126 + "00 01 00 00"))
    both(codec, Texts("x" * 127), bytes.fromhex("8001" + "78" * 127 + "00 01 00 00"))
    both(codec, Texts("x" * 16_383), bytes.fromhex("808001" + "78" * 16_383 + "00 01 00 00"))


@pytest.mark.parametrize(
    "data",
    [
        "ffff ffff 00000000 ffffffff",  # a null string that may not be null
        "0000 ffff ffffffff ffffffff",  # null bytes that may not be null
        "0000 fffe 00000000 ffffffff",  # a length below -1
        "0000 ffff 00000000 fffffffe",
        "0000 ffff 00000000 7fffffff",  # more than there is
        "0000 0003 00000000 00",
    ],
)
def test_wrong_classic_lengths_are_refused(data: str) -> None:
    neither(codec_for(Texts, 0, False), bytes.fromhex(data))


@pytest.mark.parametrize(
    "data",
    [
        "00 00 01 00 00",  # a null string that may not be null
        "01 00 00 00 00",  # null bytes that may not be null
        "ffffffff0f 00 01 00 00",  # more than there is
        "ffffffff1f 00 01 00 00",  # 33 bits
        "ffffffffff01 00 01 00 00",  # six bytes
        "8080808080 00 01 00 00",
    ],
)
def test_wrong_compact_lengths_are_refused(data: str) -> None:
    neither(codec_for(Texts, 0, True), bytes.fromhex(data))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("62fc63686572", "b\ufffdcher"),  # Latin-1
        ("eda080", "\ufffd\ufffd\ufffd"),  # a lone surrogate
        ("ff", "\ufffd"),
    ],
)
def test_what_is_not_utf_8_is_read_as_kafka_reads_it(data: str, text: str) -> None:
    size = len(data) // 2
    classic = bytes.fromhex(f"{size:04x} {data} ffff 00000000 ffffffff")
    compact = bytes.fromhex(f"{size + 1:02x} {data} 00 01 00 00")
    for codec, sent in (codec_for(Texts, 0, False), classic), (codec_for(Texts, 0, True), compact):
        assert codec.decode(sent) == interpreted.parse(codec, sent) == Texts(text)


def test_a_text_that_would_not_fit_as_utf_8_is_refused() -> None:
    """Each of its bytes may take three then."""
    tail = bytes.fromhex("ffff 00000000 ffffffff")
    codec = codec_for(Texts, 0, False)
    fits, too_long = (size.to_bytes(2, "big") + b"\xff" * size + tail for size in (10_922, 10_923))
    assert codec.encode(codec.decode(fits))
    neither(codec, too_long)


def test_a_compact_string_is_no_longer_than_a_classic_one_can_be() -> None:
    codec = codec_for(Texts, 0, True)
    both(codec, Texts("x" * 32_767), bytes.fromhex("808002" + "78" * 32_767 + "00 01 00 00"))
    neither(codec, bytes.fromhex("818002" + "78" * 32_768 + "00 01 00 00"))


def test_varints_need_not_be_the_shortest() -> None:
    codec = codec_for(Texts, 0, True)
    assert codec.decode(bytes.fromhex("828000 61 00 8100 00 8000")) == Texts("a")


def test_arrays_of_numbers_ids_texts_and_structs() -> None:
    message = Lists([1, -1], [bytes(16)], ["a", ""], [Point(1, 2)])
    codec = codec_for(Lists, 1, False)
    id_hex = "00" * 16
    both(
        codec,
        message,
        bytes.fromhex(
            f"00000002 00000001 ffffffff 00000001 {id_hex} 00000002 000161 0000 00000001 0102"
        ),
    )
    both(codec, Lists(), bytes.fromhex("00000000 00000000 ffffffff 00000000"))
    codec = codec_for(Lists, 1, True)
    both(
        codec,
        message,
        bytes.fromhex(f"03 00000001 ffffffff 02 {id_hex} 03 0261 01 02 0102 00 00"),
    )
    both(codec, Lists(), bytes.fromhex("01 01 00 01 00"))


@pytest.mark.parametrize(
    "data",
    [
        "ffffffff 00000000 ffffffff 00000000",  # a null array that may not be null
        "00000000 00000000 fffffffe 00000000",
        "00000002 00000001 00000000 ffffffff",  # room for one less
        "00000000 00000000 ffffffff 7fffffff",
        "00000000 00000000 7fffffff 00000000",
    ],
)
def test_wrong_counts_are_refused(data: str) -> None:
    neither(codec_for(Lists, 1, False), bytes.fromhex(data))


def test_structs_and_nullable_structs() -> None:
    codec = codec_for(Structs, 1, True)
    both(codec, Structs(Point(1, 2), Point(3, 4), 5), bytes.fromhex("0102 00 01 0304 00 05 00"))
    both(codec, Structs(Point(1, 2), None, 5), bytes.fromhex("0102 00 ff 05 00"))
    codec = codec_for(Structs, 0, False)
    both(codec, Structs(Point(1), Point(3), 5), bytes.fromhex("01 01 03 05"))


def test_records_are_slices_of_the_buffer_and_bytes_are_copies() -> None:
    frame = bytearray.fromhex("ff ff 07 00000003 616263 00000001 64 0000")
    message = codec_for(Batches, 0, False).decode(frame, 2)
    assert isinstance(message.records, memoryview)
    frame[7:10] = b"xyz"
    assert bytes(message.records) == b"xyz"
    data = codec_for(Texts, 0, False).decode(bytearray.fromhex("0000 ffff 00000001 61 ffffffff"))
    assert type(data.data) is bytes


def test_records_become_parts_of_their_own() -> None:
    @dataclass
    class FileRange:
        size: int

    codec = codec_for(Batches, 0, False)
    view = memoryview(b"defg")
    elsewhere = FileRange(300)
    parts = codec.encode_parts(Batches(7, view, elsewhere, "a"))
    assert parts == [
        bytes.fromhex("07 00000004"),
        view,
        bytes.fromhex("0000012c"),
        elsewhere,
        b"\0\1a",
    ]
    assert parts[1] is view
    assert parts[3] is elsewhere
    with pytest.raises(ValueError, match="elsewhere"):
        codec.encode(Batches(7, view, elsewhere, "a"))
    assert codec.encode_parts(Batches(7, None, b"", "")) == [
        bytes.fromhex("07 ffffffff 00000000 0000")
    ]
    both(codec, Batches(7, b"abc", b"d", "a"), bytes.fromhex("07 00000003616263 0000000164 000161"))


def test_tagged_fields_are_written_by_rising_tag_and_only_when_they_differ() -> None:
    codec = codec_for(Tagged, 1, True)
    both(codec, Tagged(5), bytes.fromhex("05 00"))
    both(
        codec,
        Tagged(5, "a", 8, Point(1, 2), Point(3, 4), [Point(5, 6)], Point(7, 8)),
        bytes.fromhex(
            "05 06 00 02 0008 01 03 0102 00 02 04 01 0304 00 03 04 02 0506 00 04 03 0708 00"
            "c801 02 02 61"
        ),
    )


def test_tagged_fields_may_come_in_any_order_and_the_last_of_a_tag_counts() -> None:
    codec = codec_for(Tagged, 1, True)
    data = bytes.fromhex("05 04 c801 02 0261 00 02 0001 00 02 0002 63 00")
    assert codec.decode(data) == Tagged(5, "a", 2) == interpreted.parse(codec, data)


def test_unknown_tagged_fields_are_skipped_at_every_level() -> None:
    unknown = "02 09 00 ffffffff0f 02 beef"
    structs = codec_for(Structs, 1, True)
    data = bytes.fromhex(f"0102 {unknown} 01 0304 {unknown} 05 {unknown}")
    assert structs.decode(data) == Structs(Point(1, 2), Point(3, 4), 5)
    assert interpreted.parse(structs, data) == Structs(Point(1, 2), Point(3, 4), 5)
    tagged = codec_for(Tagged, 1, True)
    data = bytes.fromhex("05 03 05 00 01 05 0102 01 09 00 c901 01 ff")
    assert tagged.decode(data) == Tagged(5, point=Point(1, 2)) == interpreted.parse(tagged, data)


def test_the_struct_shows_unknown_tagged_fields_to_a_trace() -> None:
    values = codec_for(Tagged, 1, True).struct.parse(bytes.fromhex("05 02 00 02 0008 09 01 ff"))
    assert values.number == 5
    assert values._tagged_fields == {"first": 8, 9: b"\xff"}


@pytest.mark.parametrize(
    "data",
    [
        "05 01 00 03 0008ff",  # longer than its value
        "05 01 00 01 0008",  # shorter than its value
        "05 01 00 02 00",  # cut off
        "05 01 63 05 00",  # unknown, and longer than what is left
        "05 01 63 ffffffff0f",
        "05 01 ffffffff1f 00",  # a tag of 33 bits
        "05 01 e38080808000 00",  # a tag of six bytes
        "05 02 63 00",  # one of two
        "05 ffffffff0f",
        "05 01 01 02 0102 00",  # the struct would reach into what follows
    ],
)
def test_wrong_tagged_fields_are_refused(data: str) -> None:
    neither(codec_for(Tagged, 1, True), bytes.fromhex(data))


def test_fields_that_a_version_lacks_hold_their_defaults_after_decoding() -> None:
    codec = codec_for(Ages, 0, False)
    message = codec.decode(bytes.fromhex("01 02"))
    assert message == Ages(1, old=2) == Ages(1, -1, [], Point(0, -1), 2)
    again = codec.decode(bytes.fromhex("01 02"))
    assert again.new_list is not message.new_list
    assert again.new_point is not message.new_point


def test_a_value_in_a_field_that_the_version_lacks_is_an_error_unless_ignorable() -> None:
    codec = codec_for(Ages, 0, False)
    both(codec, Ages(1, old=2), bytes.fromhex("01 02"))
    for message in (Ages(1, new=3), Ages(1, new_list=[4]), Ages(1, new_point=Point(5))):
        cannot_encode(codec, message)
    newer = codec_for(Ages, 2, False)
    assert newer.encode(Ages(1, 3, [], Point(5), old=6)) == bytes.fromhex("01 03 00000000 05 ff")
    with pytest.raises(ValueError, match="Ages v0 has no new, which is 3"):
        codec.encode(Ages(1, new=3))


@pytest.mark.parametrize(
    ("message_class", "changes"),
    [
        (Numbers, {"int8": 128}),
        (Numbers, {"int64": 1 << 63}),
        (Numbers, {"uint16": -1}),
        (Numbers, {"int32": "1"}),
        (Numbers, {"uuid": bytes(15)}),
        (Numbers, {"uuid": bytes(17)}),
        (Texts, {"text": None}),
        (Texts, {"data": None}),
        (Texts, {"data": 5}),
        (Texts, {"data": "text"}),
        (Texts, {"text": "\ud800"}),
        (Texts, {"text": "x" * 32_768}),
        (Lists, {"numbers": None}),
        (Lists, {"numbers": [1 << 31]}),
        (Lists, {"texts": [None]}),
        (Lists, {"ids": [b""]}),
        (Lists, {"points": [None]}),
        (Structs, {"point": None}),
        (Batches, {"more_records": None}),
    ],
)
def test_values_that_do_not_fit_are_value_errors(
    message_class: type, changes: dict[str, Any]
) -> None:
    cannot_encode(codec_for(message_class, 1, False), message_class(**changes))


def test_a_count_is_refused_before_any_item_is_read() -> None:
    codec = codec_for(Lists, 1, False)
    with pytest.raises(ProtocolError, match="points has 3 items, with 5 bytes left"):
        codec.decode(bytes.fromhex("00000000 00000000 ffffffff 00000003 0102 0304 05"))


def test_a_prefix_never_ends_past_the_buffer() -> None:
    for message_class in (Texts, Tagged):
        codec = codec_for(message_class, 1, True)
        data = codec.encode(message_class())[:-1] + bytes.fromhex("01 63 05 00")
        with pytest.raises(ProtocolError, match=r"5 bytes|length 5"):
            codec.decode_prefix(data)


def test_the_array_items_of_a_message_are_limited_in_all() -> None:
    codec = codec_for(Lists, 1, False)
    data = codec.encode(Lists([1, 2], [], ["a"], [Point(1, 2)]))
    assert codec.decode(data, items_max=4).numbers == [1, 2]
    with pytest.raises(ProtocolError, match="too many"):
        codec.decode(data, items_max=3)


def test_a_protocol_error_says_where() -> None:
    codec = codec_for(Lists, 1, False)
    with pytest.raises(
        ProtocolError, match=r"^Lists v1: texts\[\] has length 9, with 1 bytes left$"
    ):
        codec.decode(bytes.fromhex("00000000 00000000 00000001 0009 61"))
    with pytest.raises(ProtocolError, match=r"^Lists v1: ends early, after 2 bytes$"):
        codec.decode(bytes(2))


def test_tables_that_cannot_be_encoded_are_refused() -> None:
    @dataclass(slots=True)
    class Empty:
        later: int = wire(INT8, "5+")

    @dataclass(slots=True)
    class ManyEmpty:
        items: list[Empty] = wire(array(Empty))

    with pytest.raises(TypeError, match="Empty v0 has no fields"):
        codec_for(ManyEmpty, 0, False).decode(b"\0\0\0\0")
    with pytest.raises(TypeError, match="not flexible"):
        codec_for(Tagged, 1, False).encode(Tagged())


def test_codecs_are_made_once() -> None:
    assert codec_for(Lists, 1, False) is codec_for(Lists, 1, False)
    assert API_BY_NAME["Fetch"].request_codec(12) is API_BY_NAME["Fetch"].request_codec(12)


def test_versions_outside_the_row_of_an_api_have_no_codec() -> None:
    for version in (3, 18):
        with pytest.raises(ValueError, match=f"Fetch has no version {version}"):
            API_BY_NAME["Fetch"].request_codec(version)
