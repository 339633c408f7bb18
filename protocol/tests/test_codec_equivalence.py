"""Every message of every API and version, against three other ways to encode and decode it."""

from __future__ import annotations

from typing import Any

import pytest

from asyncbroker.protocol import codec as interpreted
from asyncbroker.protocol.tests.codec_oracles import (
    HAS_KIO,
    kafka_python_decode,
    kafka_python_encode,
    kafka_python_knows,
    kafka_python_plain,
    kio_class,
    kio_decode,
    kio_encode,
    kio_plain,
    plain,
)
from asyncbroker.protocol.tests.message_strategies import CASES, Case, check

# Kafka 4 has dropped these versions, and kio has only what Kafka 4 has.
UNKNOWN_TO_KIO = {
    ("CreateTopics", 0),
    ("CreateTopics", 1),
    ("DeleteTopics", 0),
    ("DescribeConfigs", 0),
}


UNKNOWN_TO_KAFKA_PYTHON = {"ConsumerGroupHeartbeat", "ConsumerGroupDescribe"}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_codec_loses_nothing_and_equals_construct_kio_and_kafka_python(case: Case) -> None:
    assert kafka_python_knows(case) == (case.api.name not in UNKNOWN_TO_KAFKA_PYTHON)
    if HAS_KIO:
        assert (kio_class(case) is None) == ((case.api.name, case.version) in UNKNOWN_TO_KIO)

    def agree(message: Any) -> None:
        data = case.codec.encode(message)
        assert case.codec.decode(data) == message
        parts: list[Any] = case.codec.encode_parts(message)
        assert b"".join(parts) == data
        equals_construct(case, message, data)
        if kio_class(case) is not None:
            equals_kio(case, message, data)
        if kafka_python_knows(case):
            equals_kafka_python(case, message, data)

    check(agree, case.messages(), examples=15)


def equals_construct(case: Case, message: Any, data: bytes) -> None:
    assert interpreted.build(case.codec, message) == data
    assert interpreted.parse(case.codec, data) == message


def equals_kio(case: Case, message: Any, data: bytes) -> None:
    theirs = kio_decode(kio_class(case), data)
    assert kio_plain(theirs) == plain(message, case.version)
    assert kio_encode(theirs) == data


def equals_kafka_python(case: Case, message: Any, data: bytes) -> None:
    if str(case).startswith("ApiVersionsResponse") and message.error_code:
        return  # which it decodes as version 0 whatever the version was
    theirs = kafka_python_decode(case, data)
    assert kafka_python_plain(theirs, case.version) == plain(message, case.version)
    assert kafka_python_encode(case, theirs) == data
