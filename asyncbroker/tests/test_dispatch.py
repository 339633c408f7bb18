"""Dispatch: headers, the version gate, and what the peer sees of each kind of error."""

from __future__ import annotations

import logging
from struct import pack
from typing import Any

import pytest

from asyncbroker.context import RequestContext
from asyncbroker.dispatch import (
    REQUEST_BYTES_MAX,
    REQUEST_ITEMS_MAX,
    Close,
    Dispatcher,
    Parts,
    Waiting,
)
from asyncbroker.error_responses import error_response
from asyncbroker.handlers import HANDLERS
from asyncbroker.metrics import Metrics
from asyncbroker.protocol.api import API_BY_NAME
from asyncbroker.protocol.errors import ErrorCode, KafkaError, ProtocolError
from asyncbroker.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from asyncbroker.protocol.messages.fetch import FetchRequest, FetchResponse
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from asyncbroker.protocol.messages.produce import ProduceRequest
from asyncbroker.protocol.schema import Array, Nested, table_of
from asyncbroker.tests.edge_harness import (
    FRAME_BYTES_MAX,
    decode_response,
    request_frame,
    stand_ins,
)

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class Dispatched:
    """A dispatcher, and what came of serving one frame after the other."""

    def __init__(self, **functions: Any) -> None:
        self.metrics = Metrics()
        self.context = RequestContext()
        self.output: list[bytes] = []
        self.dispatcher = Dispatcher(
            "the broker",
            self.metrics,
            frame_bytes_max=FRAME_BYTES_MAX,
            handlers=stand_ins(**functions),
        )

    def serve(self, framed: bytes) -> Any:
        return self.dispatcher.serve(bytearray(framed[4:]), self.context, self.output)

    def response(self, name: str, version: int) -> Any:
        (data,) = self.output
        assert pack(">i", len(data) - 4) == data[:4]
        return decode_response(name, version, data[4:])


def answer(broker: Any, context: Any, request: Any) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=request.generation_id)


def failing(error: Exception) -> Any:
    def handle(broker: Any, context: Any, request: Any) -> Any:
        raise error

    return handle


# ---- the way through


@pytest.mark.parametrize("version", [0, 3, 4])
@pytest.mark.parametrize("client_id", ["someone", "", None])
def test_a_request_reaches_its_handler_and_comes_back_with_its_correlation_id(
    version: int, client_id: str | None
) -> None:
    seen: list[Any] = []

    def handle(broker: Any, context: Any, request: Any) -> HeartbeatResponse:
        seen.append((broker, context.api_version, context.client_id, request))
        return HeartbeatResponse(error_code=27)

    dispatched = Dispatched(Heartbeat=handle)
    framed = request_frame("Heartbeat", version, HEARTBEAT, -77, client_id)
    assert dispatched.serve(framed) == len(dispatched.output[0])
    assert dispatched.response("Heartbeat", version) == (-77, HeartbeatResponse(error_code=27))
    assert seen == [("the broker", version, client_id or "", HEARTBEAT)]


def test_unknown_tagged_fields_of_a_header_are_passed_over() -> None:
    dispatched = Dispatched(Heartbeat=answer)
    framed = bytearray(request_frame("Heartbeat", 4, HEARTBEAT, client_id="id"))
    tags_at = 4 + 10 + 2
    assert framed[tags_at] == 0
    framed[tags_at : tags_at + 1] = bytes([2, 9, 3, 1, 2, 3, 200, 1, 0])
    dispatched.serve(bytes(framed))
    assert dispatched.response("Heartbeat", 4)[1].error_code == 1
    assert dispatched.context.client_id == "id"


def test_a_request_without_an_answer_leaves_no_bytes() -> None:
    dispatched = Dispatched(Produce=lambda broker, context, request: None)
    assert dispatched.serve(request_frame("Produce", 7, ProduceRequest(acks=0))) == 0
    assert dispatched.output == []


def test_a_fetch_response_comes_in_parts_that_are_not_copied() -> None:
    dispatched = Dispatched(Fetch=lambda broker, context, request: FetchResponse())
    outcome = dispatched.serve(request_frame("Fetch", 11, FetchRequest(max_wait_ms=1, min_bytes=1)))
    assert isinstance(outcome, Parts)
    data = b"".join(outcome.parts)  # type: ignore[arg-type]
    assert decode_response("Fetch", 11, data[4:]) == (1, FetchResponse())


async def test_a_handler_that_must_wait_is_handed_back() -> None:
    async def handle(broker: Any, context: Any, request: Any) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=5)

    dispatched = Dispatched(Heartbeat=handle)
    waiting = dispatched.serve(request_frame("Heartbeat", 4, HEARTBEAT, 12))
    assert isinstance(waiting, Waiting)
    assert dispatched.output == []
    response = await waiting.awaitable
    dispatched.dispatcher.finish(waiting, response, dispatched.context, dispatched.output)
    assert dispatched.response("Heartbeat", 4) == (12, HeartbeatResponse(error_code=5))


# ---- versions


@pytest.mark.parametrize("version", [-1, 5, 127, 32767])
def test_an_unknown_version_of_api_versions_is_told_the_range_in_version_0(version: int) -> None:
    """KIP-511; the body of such a request is not looked at."""
    dispatched = Dispatched(ApiVersions=answer)
    body = pack(">hhih", 18, version, 42, 2) + b"id" + b"a body of the future"
    dispatched.serve(pack(">i", len(body)) + body)
    assert dispatched.response("ApiVersions", 0) == (
        42,
        ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 4)]),
    )


@pytest.mark.parametrize(
    ("api_key", "version", "name"),
    [
        (12, 5, "Heartbeat v5"),
        (12, -1, "Heartbeat v-1"),
        (0, 2, "Produce v2"),
        (3, 0, "Metadata v0"),
        (4, 0, "API key 4 v0"),
        (-1, -1, "API key -1 v-1"),
        (32767, 0, "API key 32767 v0"),
    ],
)
def test_what_is_not_served_closes_and_says_api_version_and_client(
    api_key: int, version: int, name: str
) -> None:
    dispatched = Dispatched(Heartbeat=answer, Produce=answer)
    body = pack(">hhih", api_key, version, 1, 5) + b"rdkaf"
    outcome = dispatched.serve(pack(">i", len(body)) + body)
    assert outcome == Close(f"{name} is not served (client id 'rdkaf')")
    assert dispatched.metrics.unsupported_requests == 1
    assert dispatched.output == []


def test_a_header_of_an_unserved_api_may_be_anything() -> None:
    dispatched = Dispatched()
    for client_id_bytes in (-32768, -1, 0, 30000):
        body = pack(">hhih", 99, 0, 1, client_id_bytes) + b"\xff\xfe"
        assert isinstance(dispatched.serve(pack(">i", len(body)) + body), Close)


# ---- errors


def malformed() -> list[tuple[str, bytes]]:
    good = request_frame("Heartbeat", 4, HEARTBEAT)[4:]
    head = pack(">hhi", 12, 4, 1)
    return [
        ("empty", b""),
        ("half a header", good[:5]),
        ("client id longer than the request", head + pack(">h", 100) + b"short"),
        ("client id of a length below -1", head + pack(">h", -2) + good[10:]),
        ("long client id not in UTF-8", head + pack(">h", 20000) + b"\xff" * 20000 + good[14:]),
        ("no tags", good[:14]),
        ("tags without an end", good[:14] + b"\xff\xff\xff\xff\xff\xff"),
        ("half a body", good[:-3]),
        ("array longer than the request", pack(">hhih", 15, 0, 1, -1) + pack(">i", 2**31 - 1)),
    ]


def test_a_client_id_in_latin_1_is_served_as_by_kafka() -> None:
    dispatched = Dispatched(Heartbeat=answer)
    good = request_frame("Heartbeat", 4, HEARTBEAT)[4:]
    frame = good[:8] + pack(">h", 4) + "Zoë1".encode("latin-1") + good[14:]
    assert isinstance(dispatched.serve(pack(">i", len(frame)) + frame), int)


def test_bytes_after_a_request_are_left_alone_as_librdkafka_needs() -> None:
    dispatched = Dispatched(Heartbeat=answer)
    frame = request_frame("Heartbeat", 4, HEARTBEAT)[4:] + b"\0\0\0"
    assert isinstance(dispatched.serve(pack(">i", len(frame)) + frame), int)


@pytest.mark.parametrize(("what", "frame"), malformed(), ids=[what for what, _ in malformed()])
def test_a_malformed_request_closes_with_a_reason(what: str, frame: bytes) -> None:
    dispatched = Dispatched(Heartbeat=answer, DescribeGroups=answer)
    outcome = dispatched.serve(pack(">i", len(frame)) + frame)
    assert isinstance(outcome, Close)
    assert outcome.reason
    assert dispatched.metrics.protocol_errors == 1
    assert dispatched.metrics.internal_errors == 0


def test_only_produce_may_be_very_large() -> None:
    dispatched = Dispatched(Metadata=answer)
    body = pack(">hhih", 3, 1, 1, -1) + bytes(REQUEST_BYTES_MAX)
    outcome = dispatched.serve(pack(">i", len(body)) + body)
    assert isinstance(outcome, Close)
    assert "the limit is" in str(outcome.reason)


def test_a_request_of_more_items_than_can_be_served_in_a_moment_closes() -> None:
    dispatched = Dispatched(DescribeGroups=answer)
    head = pack(">hhih", 15, 0, 1, -1)
    body = head + pack(">i", REQUEST_ITEMS_MAX + 1) + bytes(2 * (REQUEST_ITEMS_MAX + 1))
    outcome = dispatched.serve(pack(">i", len(body)) + body)
    assert isinstance(outcome, Close)
    assert "too many in all" in str(outcome.reason)


def test_a_protocol_error_of_a_handler_closes() -> None:
    dispatched = Dispatched(Heartbeat=failing(ProtocolError("acks=0 failed")))
    outcome = dispatched.serve(request_frame("Heartbeat", 1, HEARTBEAT))
    assert outcome == Close("Heartbeat v1: acks=0 failed (client id 'test')")


def test_a_kafka_error_becomes_the_error_of_the_response() -> None:
    dispatched = Dispatched(Heartbeat=failing(KafkaError(ErrorCode.ILLEGAL_GENERATION)))
    dispatched.serve(request_frame("Heartbeat", 1, HEARTBEAT))
    assert dispatched.response("Heartbeat", 1)[1] == HeartbeatResponse(error_code=22)


def test_a_kafka_error_without_a_place_in_the_response_closes() -> None:
    dispatched = Dispatched(Produce=failing(KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)))
    outcome = dispatched.serve(request_frame("Produce", 7, ProduceRequest(acks=0)))
    assert outcome == Close("Produce v7: INVALID_REQUIRED_ACKS (client id 'test')")


@pytest.mark.parametrize("wrong", [ZeroDivisionError("oops"), MemoryError(), OSError("disk")])
def test_a_bug_of_ours_closes_with_a_traceback_and_is_counted(
    wrong: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    dispatched = Dispatched(Heartbeat=failing(wrong))
    assert dispatched.serve(request_frame("Heartbeat", 1, HEARTBEAT)) == Close(None)
    assert dispatched.metrics.internal_errors == 1
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert "Heartbeat v1 from 127.0.0.1 (client id 'test') failed" in record.message


def test_a_response_that_cannot_be_encoded_is_a_bug_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dispatched = Dispatched(
        Heartbeat=lambda broker, context, request: HeartbeatResponse(error_code=1 << 20)
    )
    assert dispatched.serve(request_frame("Heartbeat", 1, HEARTBEAT)) == Close(None)
    assert dispatched.metrics.internal_errors == 1


async def test_errors_of_those_that_waited_are_told_in_the_same_way() -> None:
    async def handle(broker: Any, context: Any, request: Any) -> HeartbeatResponse:
        return HeartbeatResponse()

    dispatched = Dispatched(Heartbeat=handle)
    waiting = dispatched.serve(request_frame("Heartbeat", 1, HEARTBEAT))
    await waiting.awaitable
    context, output = dispatched.context, dispatched.output
    error = KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    dispatched.dispatcher.finish(waiting, error, context, output)
    assert dispatched.response("Heartbeat", 1)[1] == HeartbeatResponse(error_code=27)
    outcome = dispatched.dispatcher.finish(waiting, ProtocolError("no"), context, output)
    assert outcome == Close("Heartbeat v1: no (client id 'test')")
    assert dispatched.dispatcher.finish(waiting, KeyError("x"), context, output) == Close(None)


ROUTES = [
    (handler.api.name, version)
    for handler in HANDLERS.values()
    for version in range(handler.served.first, handler.served.last + 1)
]


def sample(message_class: type, version: int) -> Any:
    """A message with one item in each list that the version has."""
    values: dict[str, Any] = {}
    for name, row in table_of(message_class).items():
        if version not in row.versions:
            continue
        if isinstance(row.type, Array):
            item = row.type.item
            one = sample(item.message, version) if isinstance(item, Nested) else item.default
            values[name] = [one]
        elif isinstance(row.type, Nested):
            values[name] = sample(row.type.message, version)
    return message_class(**values)


@pytest.mark.parametrize(("name", "version"), ROUTES, ids=[f"{n}-v{v}" for n, v in ROUTES])
def test_every_api_and_version_can_answer_with_an_error(name: str, version: int) -> None:
    api = API_BY_NAME[name]
    request = sample(api.request, version)
    if name == "Produce":
        request.acks = 1
    error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")
    response = error_response(api, version, request, error)
    codec = api.response_codec(version)
    decoded = codec.decode(codec.encode(response))
    assert "error_code=56" in repr(decoded)


def test_acks_0_has_no_place_for_an_error() -> None:
    error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    request = ProduceRequest(acks=0)
    assert error_response(API_BY_NAME["Produce"], 7, request, error) is None
