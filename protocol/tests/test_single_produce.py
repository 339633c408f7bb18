"""The shortcut through Produce against the codecs: what it reads is what they read, what it leaves
alone is more than one batch, and its answers are theirs byte for byte."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncbroker.protocol.api import API_BY_NAME
from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.headers import encode_response_header
from asyncbroker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from asyncbroker.protocol.single_produce import read_single, single_answer

PRODUCE = API_BY_NAME["Produce"]
VERSIONS = range(3, 12)
versions = st.sampled_from(VERSIONS)
int16 = st.integers(-(1 << 15), (1 << 15) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
names = st.text(max_size=126).filter(lambda name: len(name.encode()) <= 126)
batches = st.binary(max_size=300)


def single(name: str, index: int, batch: bytes, acks: int, timeout_ms: int) -> ProduceRequest:
    topic = TopicProduceData(name, [PartitionProduceData(index, batch)])
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])


def outcome_of_codec(frame: bytearray, position: int, version: int) -> Any:
    """What `read_single` should say, by way of the codec; None for all that is not for it."""
    try:
        request = PRODUCE.request_codec(version).decode(frame, position)
    except ProtocolError:
        return None
    if request.transactional_id is not None or len(request.topic_data) != 1:
        return None
    topic = request.topic_data[0]
    if len(topic.partition_data) != 1 or topic.partition_data[0].records is None:
        return None
    data = topic.partition_data[0]
    return request.acks, request.timeout_ms, topic.name.encode(), data.index, bytes(data.records)


def outcome_of_shortcut(frame: bytearray, position: int, version: int) -> Any:
    found = read_single(frame, position, version)
    return None if found is None else (*found[:4], bytes(found[4]))


@settings(max_examples=100, deadline=None)
@given(versions, names, int32, batches, int16, int32, st.binary(max_size=9))
def test_one_batch_for_one_partition_is_read(
    version: int, name: str, index: int, batch: bytes, acks: int, timeout_ms: int, header: bytes
) -> None:
    request = single(name, index, batch, acks, timeout_ms)
    frame = bytearray(header + PRODUCE.request_codec(version).encode(request))
    expected = (acks, timeout_ms, name.encode(), index, batch)
    assert outcome_of_shortcut(frame, len(header), version) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_the_batch_is_the_frames_own(version: int) -> None:
    frame = bytearray(PRODUCE.request_codec(version).encode(single("t", 0, b"batch", -1, 1)))
    found = read_single(frame, 0, version)
    assert found is not None
    found[4][0:5] = b"BATCH"
    assert b"BATCH" in frame


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "request_",
    [
        ProduceRequest(),
        ProduceRequest(topic_data=[TopicProduceData("t")]),
        ProduceRequest(topic_data=[TopicProduceData("t", [PartitionProduceData(0, None)])]),
        ProduceRequest(topic_data=[TopicProduceData("t", [PartitionProduceData(0, b"b")] * 2)]),
        ProduceRequest(topic_data=[TopicProduceData("t", [PartitionProduceData(0, b"b")])] * 2),
        ProduceRequest("id", topic_data=[TopicProduceData("t", [PartitionProduceData(0, b"b")])]),
        ProduceRequest("", topic_data=[TopicProduceData("t", [PartitionProduceData(0, b"b")])]),
        single("n" * 127, 0, b"b", 1, 1),
        single("n" * 249, 0, b"b", 1, 1),
    ],
)
def test_all_else_is_left_to_the_codec(version: int, request_: ProduceRequest) -> None:
    frame = bytearray(PRODUCE.request_codec(version).encode(request_))
    assert read_single(frame, 0, version) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_cut_off_or_goes_on_is_left_to_the_codec(version: int) -> None:
    whole = PRODUCE.request_codec(version).encode(single("topic", 3, bytes(200), -1, 1000))
    for size in range(len(whole)):
        assert read_single(bytearray(whole[:size]), 0, version) is None
    assert read_single(bytearray(whole + b"\0"), 0, version) is None


@settings(max_examples=100, deadline=None)
@given(versions, st.data())
def test_whatever_bytes_come_nothing_is_read_that_the_codec_would_not(
    version: int, data: st.DataObject
) -> None:
    size = data.draw(st.sampled_from([0, 1, 61, 126, 127, 200]))
    frame = bytearray(
        PRODUCE.request_codec(version).encode(single("topic", 3, bytes(size), -1, 1000))
    )
    ends = st.integers(0, 40) | st.integers(len(frame) - 6, len(frame) - 1)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(ends) % len(frame)
        frame[at] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]) | st.integers(0, 255))
    found = outcome_of_shortcut(frame, 0, version)
    if found is not None:
        try:
            found[2].decode()
        except UnicodeDecodeError:
            return  # its caller looks at the name
        assert found == outcome_of_codec(frame, 0, version)


@settings(max_examples=100, deadline=None)
@given(versions, int32, names, int32, int64, int64, int64)
def test_the_answer_is_what_the_codec_writes(
    version: int,
    correlation_id: int,
    name: str,
    index: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> None:
    outcome = PartitionProduceResponse(
        index,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )
    response = ProduceResponse([TopicProduceResponse(name, [outcome])])
    body = PRODUCE.response_codec(version).encode(response)
    expected = encode_response_header(0, version, correlation_id) + body
    answer = single_answer(
        version,
        correlation_id & 0xFFFFFFFF,
        name.encode(),
        index,
        base_offset,
        log_append_time_ms,
        log_start_offset,
    )
    assert answer == pack(">i", len(expected)) + expected
