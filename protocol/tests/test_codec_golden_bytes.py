"""Golden bytes: those of Kafka's own classes for every API, and some taken apart by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from asyncbroker.protocol import codec as interpreted
from asyncbroker.protocol.api import API_BY_NAME, APIS
from asyncbroker.protocol.codec import Codec
from asyncbroker.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from asyncbroker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchLeaderIdAndEpoch,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from asyncbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from asyncbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from asyncbroker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from asyncbroker.protocol.tests.message_json import from_json

FROM_KAFKA = [
    json.loads(line)
    for line in (Path(__file__).parent / "golden" / "kafka.jsonl").read_text().splitlines()
]


def codec_of(message_name: str, version: int) -> Codec[Any]:
    if message_name.endswith("Request"):
        return API_BY_NAME[message_name.removesuffix("Request")].request_codec(version)
    return API_BY_NAME[message_name.removesuffix("Response")].response_codec(version)


def test_every_api_has_golden_bytes_from_kafka() -> None:
    names = {golden["message"] for golden in FROM_KAFKA}
    assert names == {api.name + kind for api in APIS for kind in ("Request", "Response")}


@pytest.mark.parametrize(
    "golden", FROM_KAFKA, ids=lambda golden: f"{golden['message']} v{golden['version']}"
)
def test_messages_have_the_bytes_that_kafka_gives_them(golden: dict[str, Any]) -> None:
    codec = codec_of(golden["message"], golden["version"])
    message = from_json(codec.message_class, golden["fields"])
    data = bytes.fromhex(golden["bytes"])
    assert codec.encode(message) == data
    assert codec.decode(data) == message
    assert interpreted.parse(codec, data) == message


BY_HAND: list[tuple[int, Any, str]] = [
    (
        3,
        ProduceRequest(
            None, -1, 30_000, [TopicProduceData("t", [PartitionProduceData(2, b"batch")])]
        ),
        "ffff"  # no transactional id
        "ffff 00007530"  # acks -1, timeout 30 s
        "00000001 0001 74"  # one topic, "t"
        "00000001 00000002"  # one partition, 2
        "00000005 6261746368",  # five bytes of records
    ),
    (
        9,
        ProduceRequest(
            None, -1, 30_000, [TopicProduceData("t", [PartitionProduceData(2, b"batch")])]
        ),
        "00"  # no transactional id
        "ffff 00007530"
        "02 02 74"  # one topic, "t": lengths plus one
        "02 00000002"
        "06 6261746368"
        "00 00 00",  # no tagged fields: of the partition, the topic, the request
    ),
    (
        9,
        ProduceResponse(
            [TopicProduceResponse("t", [PartitionProduceResponse(2, 0, 77, -1, 5)])], 0
        ),
        "02 02 74 02"  # one topic, "t", one partition
        "00000002 0000 000000000000004d"  # partition 2, no error, base offset 77
        "ffffffffffffffff 0000000000000005"  # no log append time, log start offset 5
        "01 00 00"  # no record errors, no message, no tagged fields
        "00 00000000 00",  # throttle time 0
    ),
    (
        4,
        FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            topics=[FetchTopic("t", partitions=[FetchPartition(0, -1, 9, -1, -1, 1 << 20)])],
        ),
        "ffffffff 000001f4 00000001 7fffffff 00"  # consumer, wait 500 ms for 1 byte, uncommitted
        "00000001 0001 74 00000001"
        "00000000 0000000000000009 00100000",  # partition 0 from offset 9, at most 1 MiB
    ),
    (
        12,
        FetchResponse(
            responses=[
                FetchableTopicResponse(
                    "t",
                    partitions=[
                        PartitionData(
                            0, 6, -1, current_leader=FetchLeaderIdAndEpoch(3, 4), records=b""
                        )
                    ],
                )
            ]
        ),
        "00000000 0000 00000000"  # throttle time, error and session 0
        "02 02 74 02"
        "00000000 0006 ffffffffffffffff"  # partition 0: not the leader, high watermark -1
        "ffffffffffffffff ffffffffffffffff"  # last stable offset, log start offset
        "00 ffffffff 01"  # null aborted transactions, no preferred replica, empty records
        "01 01 09 00000003 00000004 00"  # one tagged field: tag 1, 9 bytes, leader 3, epoch 4
        "00 00",
    ),
    (
        0,
        MetadataRequest(topics=[]),
        "00000000",  # no topics, which in version 0 means all
    ),
    (
        1,
        MetadataRequest(topics=None),
        "ffffffff",  # null: all topics
    ),
    (
        12,
        MetadataRequest([MetadataRequestTopic(bytes(16), "t")], allow_auto_topic_creation=False),
        f"02 {'00' * 16} 02 74 00"  # one topic by name, its id zero
        "00 00 00",  # no auto creation, no authorized operations, no tagged fields
    ),
    (
        5,
        JoinGroupRequest(
            "g", 10_000, 60_000, "", "i", "consumer", [JoinGroupRequestProtocol("range", b"\0\1")]
        ),
        "0001 67 00002710 0000ea60"  # group "g", session 10 s, rebalance 60 s
        "0000 0001 69 0008 636f6e73756d6572"  # no member id yet, instance "i", "consumer"
        "00000001 0005 72616e6765 00000002 0001",  # one protocol, "range", two bytes
    ),
    (0, ApiVersionsRequest(), ""),
    (3, ApiVersionsRequest("lib", "1.0"), "04 6c6962 04 312e30 00"),
    (
        0,
        ApiVersionsResponse(35, [ApiVersion(18, 0, 4)]),
        "0023 00000001 0012 0000 0004",  # UNSUPPORTED_VERSION, and what to ask instead
    ),
    (
        3,
        ApiVersionsResponse(0, [ApiVersion(18, 0, 4)]),
        "0000 02 0012 0000 0004 00 00000000 00",
    ),
]


@pytest.mark.parametrize(
    ("version", "message", "data"),
    BY_HAND,
    ids=[f"{type(message).__name__} v{version}" for version, message, _ in BY_HAND],
)
def test_messages_have_the_bytes_worked_out_by_hand(version: int, message: Any, data: str) -> None:
    codec = codec_of(type(message).__name__, version)
    assert codec.encode(message) == bytes.fromhex(data)
    assert codec.decode(bytes.fromhex(data)) == message
