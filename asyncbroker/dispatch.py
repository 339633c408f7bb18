"""From a request's frame to its response's bytes: header, version gate, decode, handler, encode.

Also the one place that turns exceptions into what the peer sees:

- `ProtocolError`, from the codecs or from a handler that has nothing to answer with (a failed
  Produce with acks=0): the connection is closed, and one line says who and why;
- `KafkaError`: the error as a response where the API has a place for it, otherwise as above;
- a version or an API that is not served: closed as well, since there is no body that the client
  could read. ApiVersions alone answers, in version 0, with its own range (KIP-511);
- anything else is a bug of ours: closed, with the traceback in the log, and counted.

Nothing here waits. A handler that must wait returns an awaitable, and `serve` returns it as a
`Waiting`; the connection awaits it and brings the outcome back to `finish`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Any, Final, Protocol

from asyncbroker.context import RequestContext
from asyncbroker.error_responses import error_response
from asyncbroker.handlers import HANDLERS, Handler
from asyncbroker.metrics import Metrics
from asyncbroker.protocol.api import API_BY_KEY
from asyncbroker.protocol.errors import ErrorCode, KafkaError, ProtocolError
from asyncbroker.protocol.headers import decode_client_id, decode_request_header
from asyncbroker.protocol.schema import SizedPart

logger = logging.getLogger(__name__)

Part = bytes | bytearray | memoryview | SizedPart

API_VERSIONS_KEY: Final = 18
FETCH_KEY: Final = 1
PRODUCE_KEY: Final = 0

# What a request other than Produce may weigh. Their frames become Python objects many times their
# size, and none that a client sends comes near this.
REQUEST_BYTES_MAX: Final = 16 * 1024 * 1024

# How many array items a request may have in all: those of twice as many partitions as a broker has
# unless it is told otherwise. Serving one takes some microseconds, in which nobody else is served.
REQUEST_ITEMS_MAX: Final = 250_000

# Api key and version as one number, correlation id, length of the client id.
_HEAD: Final = Struct(">IIh")
_RESPONSE_HEAD: Final = Struct(">iI")
_FLEXIBLE_RESPONSE_HEAD: Final = Struct(">iIB")
_CORRELATION_ID_AT: Final = 4


class Route:
    """One API in one version, with everything that serving it takes."""

    __slots__ = (
        "api",
        "decode",
        "encode",
        "encode_parts",
        "handle",
        "has_flexible_head",
        "is_flexible",
        "request_bytes_max",
        "request_count",
        "response_class",
        "shortcut",
        "version",
    )

    def __init__(self, handler: Handler, version: int, frame_bytes_max: int) -> None:
        api = handler.api
        self.api = api
        self.version = version
        self.is_flexible = api.is_flexible(version)
        # The client cannot know the version of an ApiVersions response yet, so its header never
        # has tagged fields.
        self.has_flexible_head = self.is_flexible and api.key != API_VERSIONS_KEY
        # Bytes after the request are left alone, as in Kafka: librdkafka leaves three of them in
        # a Metadata v12 that asks for every topic.
        self.decode = api.request_codec(version).decode_prefix
        response_codec = api.response_codec(version)
        self.encode = response_codec.encode
        # Only a fetch carries record batches, which go to the socket without passing through here.
        self.encode_parts = response_codec.encode_parts if api.key == FETCH_KEY else None
        self.response_class = api.response
        self.handle = handler.load()
        self.shortcut = handler.load_shortcut()
        self.request_bytes_max = frame_bytes_max if api.key == PRODUCE_KEY else REQUEST_BYTES_MAX
        self.request_count = 0

    def __str__(self) -> str:
        return f"{self.api.name} v{self.version}"


@dataclass(slots=True)
class Waiting:
    """A request whose handler has not finished; `request` is None if a shortcut took it. `began` is
    for who measures how long it takes."""

    route: Route
    correlation_id: int
    request: Any
    awaitable: Awaitable[Any]
    began: float = 0.0


@dataclass(frozen=True, slots=True)
class Parts:
    """A response that is sent in parts, some of which may be ranges of files."""

    parts: list[Part]


@dataclass(frozen=True, slots=True)
class Close:
    """The connection is to be closed. `reason` goes into its one line in the log; without one,
    what there is to say has been logged."""

    reason: str | None


# A number is how many bytes were appended to the output; zero when there is nothing to answer.
Outcome = int | Waiting | Parts | Close


class Serving(Protocol):
    """What connections ask of whoever serves their requests: a `Dispatcher`, or somebody in front
    of one who looks on."""

    def serve(self, frame: bytearray, context: RequestContext, output: list[bytes]) -> Outcome:
        """See `Dispatcher.serve`."""

    def finish(
        self,
        waiting: Waiting,
        response: Any | BaseException,
        context: RequestContext,
        output: list[bytes],
    ) -> Outcome:
        """See `Dispatcher.finish`."""


class Dispatcher:
    """Serves the requests of all connections. `broker` is whatever the handlers take as such."""

    def __init__(
        self,
        broker: Any,
        metrics: Metrics,
        *,
        frame_bytes_max: int,
        handlers: Mapping[int, Handler] = HANDLERS,
    ) -> None:
        self._broker = broker
        self._metrics = metrics
        self._frame_bytes_max = frame_bytes_max
        self._handlers = handlers
        self._routes: dict[int, Route] = {}

    def serve(self, frame: bytearray, context: RequestContext, output: list[bytes]) -> Outcome:
        """Serves one request; its response is appended to `output`, if it is there already."""
        route = None
        request = None
        correlation_id = 0
        try:
            route_key, correlation_id, client_id_bytes = _HEAD.unpack_from(frame)
            route = self._routes.get(route_key)
            if route is None:
                route = self._open_route(route_key)
                if route is None:
                    return self._refuse_version(frame, route_key, correlation_id, output)
            route.request_count += 1
            # The fast way through the header of a well-formed request without tagged fields; the
            # slow way says what is wrong, or skips the tags.
            position = _HEAD.size + client_id_bytes
            if (
                client_id_bytes < 0
                or position + route.is_flexible > len(frame)
                or (route.is_flexible and frame[position])
            ):
                header, position = decode_request_header(frame)
                context.client_id = header.client_id or ""
            else:
                context.client_id = decode_client_id(frame[_HEAD.size : position])
                position += route.is_flexible
            if len(frame) > route.request_bytes_max:
                raise ProtocolError(f"{len(frame)} bytes (the limit is {route.request_bytes_max})")
            context.api_version = route.version
            if route.shortcut is not None:
                response = route.shortcut(self._broker, context, frame, position, correlation_id)
                if response is not None:
                    if response.__class__ is bytes or response.__class__ is route.response_class:
                        return self._encode(route, correlation_id, response, output)
                    return Waiting(route, correlation_id, None, response)
            request, _ = route.decode(frame, position, items_max=REQUEST_ITEMS_MAX)
            response = route.handle(self._broker, context, request)
            if response.__class__ is route.response_class:
                return self._encode(route, correlation_id, response, output)
            if response is None:
                return 0
            return Waiting(route, correlation_id, request, response)
        except StructError:
            return self._close_for(f"a request of {len(frame)} bytes has no header")
        except Exception as error:
            return self._answer_error(error, route, correlation_id, request, context, output)

    def finish(
        self,
        waiting: Waiting,
        response: Any | BaseException,
        context: RequestContext,
        output: list[bytes],
    ) -> Outcome:
        """Answers a request that had to wait with what its awaitable came to."""
        if response.__class__ is bytes:
            # A shortcut has packed it.
            output.append(response)
            return len(response)
        route, correlation_id = waiting.route, waiting.correlation_id
        try:
            if isinstance(response, BaseException):
                raise response
            if response is None:
                return 0
            return self._encode(route, correlation_id, response, output)
        except Exception as error:
            return self._answer_error(
                error, route, correlation_id, waiting.request, context, output
            )

    def request_counts(self) -> dict[str, int]:
        """How many requests came, by API and version."""
        return {str(route): route.request_count for route in self._routes.values()}

    def _encode(
        self, route: Route, correlation_id: int, response: Any, output: list[bytes]
    ) -> int | Parts:
        if route.encode_parts is not None:
            parts = route.encode_parts(response)
            body_bytes = sum(_size_of(part) for part in parts)
            parts.insert(0, _head(route, correlation_id, body_bytes))
            return Parts(parts)
        if response.__class__ is bytes:
            output.append(response)
            return len(response)
        body = route.encode(response)
        frame = _head(route, correlation_id, len(body)) + body
        output.append(frame)
        return len(frame)

    def _open_route(self, route_key: int) -> Route | None:
        """The route of an API and version when it is used for the first time; None when it is not
        served."""
        api_key, version = _split(route_key)
        handler = self._handlers.get(api_key)
        if handler is None or version not in handler.served:
            return None
        route = self._routes[route_key] = Route(handler, version, self._frame_bytes_max)
        return route

    def _refuse_version(
        self, frame: bytearray, route_key: int, correlation_id: int, output: list[bytes]
    ) -> Outcome:
        self._metrics.unsupported_requests += 1
        api_key, version = _split(route_key)
        handler = self._handlers.get(api_key)
        if api_key != API_VERSIONS_KEY or handler is None:
            api = API_BY_KEY.get(api_key)
            name = f"{api.name} v{version}" if api else f"API key {api_key} v{version}"
            return Close(f"{name} is not served (client id {_client_id(frame)!r})")
        # The body is in a format that we do not know, and is not looked at.
        response = unsupported_api_versions_response(handler)
        body = handler.api.response_codec(0).encode(response)
        data = _RESPONSE_HEAD.pack(_CORRELATION_ID_AT + len(body), correlation_id) + body
        output.append(data)
        return len(data)

    def _answer_error(
        self,
        error: Exception,
        route: Route | None,
        correlation_id: int,
        request: Any,
        context: RequestContext,
        output: list[bytes],
    ) -> Outcome:
        if isinstance(error, ProtocolError):
            client = f"client id {context.client_id!r}"
            return self._close_for(f"{route}: {error} ({client})" if route else str(error))
        if isinstance(error, KafkaError) and route is not None and request is not None:
            response = error_response(route.api, route.version, request, error)
            if response is None:
                return Close(f"{route}: {error} (client id {context.client_id!r})")
            try:
                self._metrics.error_responses += 1
                return self._encode(route, correlation_id, response, output)
            except ValueError as unencodable:
                error = unencodable
        self._metrics.internal_errors += 1
        logger.error(
            "%s from %s (client id %r) failed: %s",
            route or "a request",
            context.client_host,
            context.client_id,
            error,
            exc_info=error,
        )
        return Close(None)

    def _close_for(self, reason: str) -> Close:
        self._metrics.protocol_errors += 1
        return Close(reason)


def unsupported_api_versions_response(handler: Handler) -> Any:
    """What a client gets that asks in a version of ApiVersions that we do not have (KIP-511)."""
    from asyncbroker.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

    served = handler.advertised
    return ApiVersionsResponse(
        error_code=int(ErrorCode.UNSUPPORTED_VERSION),
        api_keys=[ApiVersion(API_VERSIONS_KEY, served.first, served.last)],
    )


def _head(route: Route, correlation_id: int, body_bytes: int) -> bytes:
    if route.has_flexible_head:
        return _FLEXIBLE_RESPONSE_HEAD.pack(5 + body_bytes, correlation_id, 0)
    return _RESPONSE_HEAD.pack(4 + body_bytes, correlation_id)


def _size_of(part: Part) -> int:
    return len(part) if isinstance(part, (bytes, bytearray, memoryview)) else part.size


def _split(route_key: int) -> tuple[int, int]:
    """Api key and version, which are signed 16-bit numbers."""
    api_key, version = route_key >> 16, route_key & 0xFFFF
    return api_key - ((api_key & 0x8000) << 1), version - ((version & 0x8000) << 1)


def _client_id(frame: bytearray) -> str:
    """The client id of a request whose header may be anything, for a line in the log."""
    (length,) = Struct(">h").unpack_from(frame, 8)
    return str(frame[_HEAD.size : _HEAD.size + max(0, min(length, 256))], "utf-8", "replace")
