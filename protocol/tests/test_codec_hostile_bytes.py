"""Bytes that are not a message of their API and version, or not the one that was sent.

The rule for all of them: ProtocolError, or a message that is no larger than the bytes, but for
U+FFFD in place of what is no UTF-8. Never another exception, never memory for what did not come.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import strategies as st

from asyncbroker.protocol import codec as interpreted
from asyncbroker.protocol.api import APIS, Api
from asyncbroker.protocol.codec import Codec
from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.tests.message_strategies import CASES, IS_LONG, Case, check

POSITIONS_MAX = 500 if IS_LONG else 120
INTERPRETED_EVERY = 4 if IS_LONG else 16
SAMPLE_BYTES_MAX = 1000 if IS_LONG else 200

# What an object may take for a byte of the wire: an empty struct of two bytes is an object with its
# slots, and an entry in a list.
BYTES_PER_BYTE_MAX = 400
BYTES_BESIDES = 16 * 1024

# Lengths and counts that lie, in the classic and in the compact encoding.
LIES = [
    b"\x7f\xff\xff\xff",
    b"\x00\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xfe",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\xff",
    b"\xff\x7f",
    b"\x00",
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_truncation_is_a_protocol_error(case: Case) -> None:
    def refuse(message: Any) -> None:
        data = case.codec.encode(message)
        for size in positions(data):
            with pytest.raises(ProtocolError):
                case.codec.decode(data[:size])
        for size in (0, len(data) // 2, len(data) - 1):
            if 0 <= size < len(data):
                with pytest.raises(ProtocolError):
                    interpreted.parse(case.codec, data[:size])

    check(refuse, case.messages(are_short=True), examples=4)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bytes_left_over_are_a_protocol_error(case: Case) -> None:
    data = case.codec.encode(case.codec.message_class())
    with pytest.raises(ProtocolError, match="left over"):
        case.codec.decode(data + b"\0")
    message, stop = case.codec.decode_prefix(data + b"\0")
    assert (message, stop) == (case.codec.decode(data), len(data))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_changed_bytes_give_a_protocol_error_or_a_message_within_them(case: Case) -> None:
    def survive(message: Any, mask: int) -> None:
        data = case.codec.encode(message)
        for number, damaged in enumerate(damages(data, mask)):
            outcome = decoded(case.codec, damaged)
            if number % INTERPRETED_EVERY == mask % INTERPRETED_EVERY:
                assert is_same(parsed(case.codec, damaged), outcome)

    check(survive, case.messages(are_short=True), st.integers(1, 255), examples=4)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_random_bytes_give_a_protocol_error_or_a_message_within_them(case: Case) -> None:
    def survive(data: bytes) -> None:
        assert is_same(decoded(case.codec, data), parsed(case.codec, data))

    check(survive, st.binary(max_size=60), examples=15)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_lies_about_lengths_take_no_memory(api: Api) -> None:
    samples = [
        (case.codec, data)
        for case in CASES
        if case.api is api
        for data in encoded_samples(case)
        if len(data) < SAMPLE_BYTES_MAX
    ]
    tracemalloc.start()
    try:
        for codec, data in samples:
            for damaged in damages(data, 0xFF):
                before, _ = tracemalloc.get_traced_memory()
                tracemalloc.reset_peak()
                with suppress(ProtocolError):
                    codec.decode(damaged)
                _, peak = tracemalloc.get_traced_memory()
                assert peak - before <= BYTES_BESIDES + BYTES_PER_BYTE_MAX * len(damaged)
    finally:
        tracemalloc.stop()


def encoded_samples(case: Case) -> list[bytes]:
    samples: list[bytes] = []

    def collect(message: Any) -> None:
        samples.append(case.codec.encode(message))
        case.codec.decode(samples[-1])

    check(collect, case.messages(are_short=True), examples=3)
    return samples


def positions(data: bytes) -> range:
    """All positions in short data, evenly spread ones in long data."""
    return range(0, len(data), 1 + len(data) // POSITIONS_MAX)


def damages(data: bytes, mask: int) -> Iterator[bytes]:
    """Copies of `data`, each with one byte changed or one lie written over what was there."""
    for position in positions(data):
        flipped = data[position] ^ mask
        yield data[:position] + bytes([flipped]) + data[position + 1 :]
        lie = LIES[(position + mask) % len(LIES)]
        yield data[:position] + lie + data[position + len(lie) :]
        yield data[:position] + lie + data[position + 1 :]


def decoded(codec: Codec[Any], data: bytes) -> Any:
    """The message, or None after a ProtocolError."""
    try:
        message = codec.decode(data)
    except ProtocolError:
        return None
    encoded = codec.encode(message)
    # A byte that is no UTF-8 has become three.
    assert len(encoded) - 2 * encoded.count("\ufffd".encode()) <= len(data)
    assert is_same(codec.decode(encoded), message)
    return message


def is_same(one: Any, other: Any) -> bool:
    """Whether two messages are equal, where a number that is none (NaN) equals itself."""
    return bool(one == other) or ("nan" in repr(one) and repr(one) == repr(other))


def parsed(codec: Codec[Any], data: bytes) -> Any:
    """The same by interpreted construct."""
    try:
        return interpreted.parse(codec, data)
    except ProtocolError:
        return None
