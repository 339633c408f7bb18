"""Headers: the oddities of Kafka's, golden bytes, and the table and kio as references."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from asyncbroker.protocol.api import API_BY_KEY, APIS
from asyncbroker.protocol.codec import codec_for
from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from asyncbroker.protocol.tests.codec_oracles import (
    HAS_KIO,
    kio_decode,
    kio_encode,
    kio_header_class,
)
from asyncbroker.protocol.tests.message_strategies import check

PRODUCE, METADATA, API_VERSIONS = 0, 3, 18

HEADERS = st.builds(
    RequestHeader,
    st.sampled_from([api.key for api in APIS]),
    st.integers(0, 15),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.none() | st.text("ab-é漢", max_size=9),
)


def is_flexible(header: RequestHeader) -> bool:
    return API_BY_KEY[header.api_key].is_flexible(header.api_version)


def test_request_header_v1_is_key_version_correlation_id_and_client_id() -> None:
    data = bytes.fromhex("0000 0003 00000007 0004 72642d31")  # Produce v3, "rd-1"
    header = RequestHeader(PRODUCE, 3, 7, "rd-1")
    assert encode_request_header(header) == data
    assert decode_request_header(data + b"body") == (header, len(data))


def test_request_header_v2_adds_tagged_fields_but_keeps_the_client_id_classic() -> None:
    data = bytes.fromhex("0000 0009 00000007 0004 72642d31 00")  # Produce v9
    header = RequestHeader(PRODUCE, 9, 7, "rd-1")
    assert encode_request_header(header) == data
    assert decode_request_header(data + b"body") == (header, len(data))


def test_a_request_may_have_no_client_id() -> None:
    data = bytes.fromhex("0003 0001 00000007 ffff")  # Metadata v1
    assert decode_request_header(data) == (RequestHeader(METADATA, 1, 7, None), 10)
    assert encode_request_header(RequestHeader(METADATA, 1, 7, None)) == data
    assert decode_request_header(data[:-2] + b"\0\0")[0].client_id == ""


def test_unknown_tagged_fields_of_a_request_header_are_skipped() -> None:
    data = bytes.fromhex("0000 0009 00000007 0000 02 00 03 616263 8101 00")
    assert decode_request_header(data + b"body")[1] == len(data)


@pytest.mark.parametrize(
    ("sent", "read"),
    [(b"b\xfccher", "b\ufffdcher"), (b"\xff" * 0x2AAA, "\ufffd" * 0x2AAA)],
)
def test_a_client_id_that_is_not_utf8_is_read_as_kafka_reads_it(sent: bytes, read: str) -> None:
    data = bytes.fromhex("0003 0001 00000007") + len(sent).to_bytes(2, "big") + sent
    for frame in (data, memoryview(data), bytearray(data)):
        assert decode_request_header(frame) == (RequestHeader(METADATA, 1, 7, read), len(data))


def test_the_header_of_an_api_versions_request_of_a_version_to_come_can_be_read() -> None:
    data = bytes.fromhex("0012 007f 00000007 0001 61 00")
    assert decode_request_header(data + b"???") == (RequestHeader(API_VERSIONS, 127, 7, "a"), 12)


@pytest.mark.parametrize("key", [-1, 4, 7, 999])
def test_an_unknown_api_key_is_a_protocol_error(key: int) -> None:
    data = key.to_bytes(2, "big", signed=True) + bytes.fromhex("0000 00000007 0000")
    with pytest.raises(ProtocolError, match=f"unknown api key {key}"):
        decode_request_header(data)


@pytest.mark.parametrize(
    "data",
    [
        "0000 0003 00000007 fffe",  # a length below -1
        "0000 0003 00000007 7fff 61",  # longer than the frame
        "0000 0003 00000007 2aab" + "ff" * 0x2AAB,  # not UTF-8, and too long when it is made so
        "0000 0009 00000007 0000",  # no tagged fields
        "0000 0009 00000007 0000 01 00",  # a tagged field cut off
        "0000 0009 00000007 0000 01 00 09 00",  # a tagged field too long
        "0000 0009 00000007 0000 ffffffffff",  # not a varint
    ],
)
def test_a_malformed_request_header_is_a_protocol_error(data: str) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(bytes.fromhex(data))


def test_every_truncated_request_header_is_a_protocol_error() -> None:
    for version in (3, 9):
        data = encode_request_header(RequestHeader(PRODUCE, version, 7, "client"))
        for size in range(len(data)):
            with pytest.raises(ProtocolError):
                decode_request_header(data[:size])


def test_random_bytes_are_a_header_or_a_protocol_error() -> None:
    def survive(key: int, rest: bytes) -> None:
        data = key.to_bytes(2, "big") + rest
        try:
            _, position = decode_request_header(data)
        except ProtocolError:
            return
        assert position <= len(data)

    check(survive, st.sampled_from([0, 1, 18]), st.binary(max_size=30), examples=300)


def test_request_headers_equal_their_table() -> None:
    def agree(header: RequestHeader) -> None:
        data = encode_request_header(header)
        assert decode_request_header(data) == (header, len(data))
        assert decode_request_header(memoryview(data)) == (header, len(data))
        codec = codec_for(RequestHeader, 2 if is_flexible(header) else 1, is_flexible(header))
        assert codec.encode(header) == data
        assert codec.decode(data) == header

    check(agree, HEADERS, examples=200)


@pytest.mark.skipif(not HAS_KIO, reason="kio needs Python 3.11")
def test_request_headers_equal_kio() -> None:
    def agree(header: RequestHeader) -> None:
        data = encode_request_header(header)
        kio_header = kio_header_class("RequestHeader", 2 if is_flexible(header) else 1)
        theirs = kio_decode(kio_header, data)
        assert kio_encode(theirs) == data
        assert header == RequestHeader(
            theirs.request_api_key,
            theirs.request_api_version,
            theirs.correlation_id,
            theirs.client_id,
        )

    check(agree, HEADERS, examples=200)


def test_response_header_v1_adds_tagged_fields() -> None:
    assert encode_response_header(PRODUCE, 8, 7) == bytes.fromhex("00000007")
    assert encode_response_header(PRODUCE, 9, 7) == bytes.fromhex("00000007 00")
    assert decode_response_header(PRODUCE, 8, bytes.fromhex("00000007 05")) == (7, 4)
    assert decode_response_header(PRODUCE, 9, bytes.fromhex("00000007 00 05")) == (7, 5)
    assert decode_response_header(PRODUCE, 9, bytes.fromhex("00000007 01 04 01 ff 05")) == (7, 8)


def test_the_response_to_api_versions_has_header_v0_in_every_version() -> None:
    for version in (0, 2, 3, 4, 127):
        assert encode_response_header(API_VERSIONS, version, 7) == bytes.fromhex("00000007")
        assert decode_response_header(API_VERSIONS, version, bytes.fromhex("00000007 00")) == (7, 4)


@pytest.mark.parametrize("data", ["", "000000", "00000007", "00000007 01", "00000007 01 00 05 00"])
def test_a_malformed_response_header_is_a_protocol_error(data: str) -> None:
    with pytest.raises(ProtocolError):
        decode_response_header(PRODUCE, 9, bytes.fromhex(data))


@pytest.mark.skipif(not HAS_KIO, reason="kio needs Python 3.11")
def test_response_headers_equal_kio() -> None:
    for api in APIS:
        for version in range(api.versions.first, api.versions.last + 1):
            is_v1 = api.is_flexible(version) and api.key != API_VERSIONS
            kio_header = kio_header_class("ResponseHeader", 1 if is_v1 else 0)
            data = encode_response_header(api.key, version, -5)
            assert kio_encode(kio_header(correlation_id=-5)) == data
            assert decode_response_header(api.key, version, data) == (-5, len(data))
