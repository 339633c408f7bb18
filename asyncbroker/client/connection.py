"""One blocking connection to one broker.

Requests are answered in the order in which they were sent, so sending and receiving are two steps:
a caller may send the next request before it has worked off the response to the last.

    connection = Connection.open(Address("localhost", 9092), client_id="me", timeout_s=10)
    connection.send(MetadataRequest(topics=None), deadline)
    response = connection.receive(MetadataResponse, deadline)

On opening it asks the broker for its versions, and then speaks the newest version of each API that
both sides know. A connection that failed in any way is closed, since nobody knows where in the
stream it stands. What TLS and SASL need is in `security.py`; a login that ends after a time is
made again before a request, when no response is awaited.
"""

from __future__ import annotations

import math
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from asyncbroker.client.errors import (
    BrokerError,
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    RequestTimedOut,
    UnsupportedVersion,
)
from asyncbroker.client.security import PLAINTEXT, Security
from asyncbroker.protocol.api import API_BY_KEY, API_BY_NAME, Api
from asyncbroker.protocol.errors import ErrorCode, ProtocolError
from asyncbroker.protocol.framing import FrameReader
from asyncbroker.protocol.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from asyncbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from asyncbroker.protocol.schema import Versions

DEFAULT_PORT: Final = 9092

FRAME_BYTES_MAX: Final = 256 * 1024 * 1024
"""More than a broker sends when it is asked for less: a first batch comes whole, however large."""

PROVEN_BYTES_MAX: Final = 16 * 1024 * 1024
"""What a broker that has sent so much gets for its next response before that has come. It is one of
few, and answers what it was asked."""

SOFTWARE_NAME: Final = "asyncbroker"

_CORRELATION_ID_MODULUS: Final = 2**31

_BROKER_SHARE: Final = 0.8

# A request of so many bytes is worth it to be sent from where its parts lie; so many at most, which
# every system takes.
_GATHERED_BYTES_MIN: Final = 64 << 10
_GATHERED_MAX: Final = 64

_TIMEOUT_S_MIN: Final = 0.001
"""A timeout of 0 would make the socket non-blocking."""

Response = TypeVar("Response")

# Later versions of these name topics by ids, which have to be looked up first.
NEWEST_WITH_NAMES: Final = {"OffsetCommit": 9, "OffsetFetch": 9}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Reads "host:port", "host" or "[::1]:port"; raises `ClientError`."""
        host, separator, port = text.strip().rpartition(":")
        if not separator or text.strip().endswith("]"):
            host, port = text.strip(), str(DEFAULT_PORT)
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        if not host or not port.isdecimal() or int(port) > 65535:
            raise ClientError(f"{text!r} is not an address like host:port")
        return cls(host, int(port))


class Deadline:
    """The moment until which something may take, on the monotonic clock."""

    __slots__ = ("_ends", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends = time.monotonic() + seconds

    @property
    def remaining_s(self) -> float:
        return max(0.0, self._ends - time.monotonic())

    @property
    def for_broker_ms(self) -> int:
        """What to give the broker, when a request says how long it may take: less than is left, so
        that its answer, be it REQUEST_TIMED_OUT, comes before we give up."""
        return round(self.remaining_s * _BROKER_SHARE * 1000)

    @property
    def has_passed(self) -> bool:
        return time.monotonic() >= self._ends


Connect = Callable[[Address, float], socket.socket]
"""Makes a connected socket within so many seconds; raises `OSError`. For other ways than TCP."""

_LOGIN_SHARE: Final = 0.8
"""After so much of its time a login is made again."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request that waits for its response."""

    correlation_id: int
    api: Api
    version: int


class Connection:
    """One connection; see the head of this file."""

    __slots__ = (
        "_client_id",
        "_correlation_id",
        "_frames",
        "_log_in_again_at",
        "_reader",
        "_security",
        "_sent",
        "_socket",
        "_versions",
        "address",
    )

    def __init__(
        self,
        connected: socket.socket,
        address: Address,
        *,
        client_id: str,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        security: Security = PLAINTEXT,
    ) -> None:
        self.address = address
        self._security = security
        self._log_in_again_at = math.inf
        self._client_id = client_id
        self._socket: socket.socket | None = connected
        self._reader = FrameReader(frame_bytes_max, proven_bytes_max=PROVEN_BYTES_MAX)
        self._frames: deque[bytearray] = deque()
        self._sent: deque[_Sent] = deque()
        self._correlation_id = 0
        self._versions: dict[int, Versions] = {}

    @classmethod
    def open(
        cls,
        address: Address,
        *,
        client_id: str,
        timeout_s: float,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        security: Security = PLAINTEXT,
        connect: Connect | None = None,
    ) -> Connection:
        """Connects, asks for the broker's versions, logs in; raises `ClientError`."""
        deadline = Deadline(timeout_s)
        try:
            connected = (connect or security.connect)(address, max(timeout_s, _TIMEOUT_S_MIN))
        except OSError as error:
            raise BrokerUnreachable(f"cannot connect to {address}: {_reason(error)}") from error
        connection = cls(
            connected,
            address,
            client_id=client_id,
            frame_bytes_max=frame_bytes_max,
            security=security,
        )
        try:
            connection._negotiate(deadline)
            if security.has_login:
                connection._log_in(deadline)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_closed(self) -> bool:
        return self._socket is None

    @property
    def awaited_count(self) -> int:
        """The number of requests that were sent and not answered yet."""
        return len(self._sent)

    @property
    def has_bytes(self) -> bool:
        """Whether there is something to receive that `select` cannot see: TLS hands out what it
        has in whole records."""
        pending = getattr(self._socket, "pending", None)
        return bool(self._frames) or (pending is not None and pending() > 0)

    def fileno(self) -> int:
        """The socket's descriptor, for `select`."""
        return self._open_socket().fileno()

    def close(self) -> None:
        """Closes the socket; may be called again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def version_of(self, request: type, *, with_topic_ids: bool = False) -> int:
        """The version in which requests of this class are sent; raises `UnsupportedVersion`. Only
        `with_topic_ids` it is one in which topics go by their ids."""
        api = _api_of(request)
        theirs = self._versions.get(api.key)
        if theirs is None:
            raise UnsupportedVersion(f"broker {self.address} does not serve {api.name}")
        newest = api.versions.last
        if not with_topic_ids:
            newest = NEWEST_WITH_NAMES.get(api.name, newest)
        version = min(newest, theirs.last)
        if version < max(api.versions.first, theirs.first):
            raise UnsupportedVersion(
                f"broker {self.address} serves {api.name} in versions {theirs.first} to "
                f"{theirs.last}, and this client knows {api.versions.first} to {newest}"
            )
        return version

    def supports(self, request: type) -> bool:
        """Whether there is a version of this API that both sides know."""
        try:
            self.version_of(request)
        except UnsupportedVersion:
            return False
        return True

    def request(self, message: object, response: type[Response], deadline: Deadline) -> Response:
        """Sends a request and waits for its response."""
        self.send(message, deadline)
        return self.receive(response, deadline)

    def send(
        self,
        message: object,
        deadline: Deadline,
        *,
        version: int | None = None,
        is_answered: bool = True,
    ) -> None:
        """Sends a request. Produce with acks=0 has no response, so it is not `is_answered`."""
        api = _api_of(type(message))
        if time.monotonic() >= self._log_in_again_at and not self._sent:
            self._log_in(deadline)
        if version is None:
            version = self.version_of(type(message))
        self._correlation_id = (self._correlation_id + 1) % _CORRELATION_ID_MODULUS
        header = RequestHeader(api.key, version, self._correlation_id, self._client_id)
        head = encode_request_header(header)
        try:
            body: list[Any] = [*api.request_codec(version).encode_parts(message)]
        except ValueError as error:
            # Above all a field that is set and that this version does not have.
            raise UnsupportedVersion(
                f"{api.name} cannot be sent to broker {self.address} in version {version}: {error}"
            ) from error
        size = (len(head) + sum(map(len, body))).to_bytes(4, "big")
        connected = self._open_socket()
        try:
            connected.settimeout(max(deadline.remaining_s, _TIMEOUT_S_MIN))
            _send_all(connected, [size, head, *body], deadline)
        except TimeoutError as error:
            raise self._timed_out(api, deadline) from error
        except OSError as error:
            raise self._lost(f"while sending {api.name}: {_reason(error)}") from error
        if is_answered:
            self._sent.append(_Sent(self._correlation_id, api, version))

    def receive(self, response: type[Response], deadline: Deadline) -> Response:
        """Waits for the response to the oldest request that is not answered yet."""
        sent = self._sent.popleft()
        frame = self._next_frame(sent.api, deadline)
        try:
            message = self._decode(sent, frame)
        except ProtocolError as error:
            self.close()
            raise ClientError(
                f"broker {self.address} answered {sent.api.name} v{sent.version} with bytes that "
                f"are no such response: {error}"
            ) from error
        # What of it is left are views.
        self._reader.reuse(frame)
        if not isinstance(message, response):
            raise TypeError(f"the oldest request was {sent.api.name}, not for {response.__name__}")
        return message

    def _decode(self, sent: _Sent, frame: bytearray) -> Any:
        correlation_id, position = decode_response_header(sent.api.key, sent.version, frame)
        if correlation_id != sent.correlation_id:
            raise ProtocolError(f"correlation id {correlation_id}, not {sent.correlation_id}")
        version = sent.version
        if sent.api.request is ApiVersionsRequest and _is_unsupported_version(frame, position):
            # Written in version 0, whatever was asked for (KIP-511).
            version = 0
        return sent.api.response_codec(version).decode(frame, position)

    def _next_frame(self, api: Api, deadline: Deadline) -> bytearray:
        while not self._frames:
            connected = self._open_socket()
            try:
                connected.settimeout(max(deadline.remaining_s, _TIMEOUT_S_MIN))
                count = connected.recv_into(self._reader.buffer())
            except TimeoutError as error:
                raise self._timed_out(api, deadline) from error
            except OSError as error:
                raise self._lost(f"while waiting for {api.name}: {_reason(error)}") from error
            if count == 0:
                raise self._lost(f"by the broker, while waiting for {api.name}")
            self._frames.extend(self._reader.received(count))
            if self._reader.error is not None and not self._frames:
                self.close()
                raise ClientError(
                    f"what {self.address} sends is not Kafka's protocol: {self._reader.error}"
                )
        return self._frames.popleft()

    def _negotiate(self, deadline: Deadline) -> None:
        """Learns the broker's versions (KIP-35), going down to one of ApiVersions it knows."""
        from asyncbroker import __version__

        api = _api_of(ApiVersionsRequest)
        request = ApiVersionsRequest(SOFTWARE_NAME, __version__)
        self.send(request, deadline, version=api.versions.last)
        response = self.receive(ApiVersionsResponse, deadline)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            newest = {row.api_key: row.max_version for row in response.api_keys}.get(api.key, 0)
            self.send(request, deadline, version=min(newest, api.versions.last))
            response = self.receive(ApiVersionsResponse, deadline)
        if response.error_code != ErrorCode.NONE:
            raise BrokerError(response.error_code, api=api.name, broker=str(self.address))
        self._versions = {
            row.api_key: Versions(row.min_version, row.max_version)
            for row in response.api_keys
            if row.api_key in API_BY_KEY
        }

    def _log_in(self, deadline: Deadline) -> None:
        # The requests of the login itself must not begin another one.
        self._log_in_again_at = math.inf
        try:
            lifetime_ms = self._security.log_in(self, deadline)
        except ClientError:
            self.close()
            raise
        if lifetime_ms > 0:
            self._log_in_again_at = time.monotonic() + lifetime_ms / 1000 * _LOGIN_SHARE

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionLost(f"the connection to broker {self.address} is closed")
        return self._socket

    def _lost(self, how: str) -> ConnectionLost:
        self.close()
        return ConnectionLost(f"the connection to broker {self.address} was closed {how}")

    def _timed_out(self, api: Api, deadline: Deadline) -> RequestTimedOut:
        self.close()
        return RequestTimedOut(
            f"broker {self.address} did not answer {api.name} within {deadline.seconds:g} s"
        )


def next_to_answer(connections: Sequence[Connection], deadline: Deadline) -> Connection:
    """One that has an answer, out of some on which one is awaited: waits until there is one. After
    the deadline the first of them, which is as good as any to report the timeout for."""
    if len(connections) == 1:
        return connections[0]
    for connection in connections:
        if connection.has_bytes:
            return connection
    ready, _, _ = select.select(connections, [], [], deadline.remaining_s)
    answering: Connection = ready[0] if ready else connections[0]
    return answering


def _api_of(request: type) -> Api:
    return API_BY_NAME[request.__name__.removesuffix("Request")]


def _send_all(connected: socket.socket, parts: list[Any], deadline: Deadline) -> None:
    """Sends all parts. Large ones, which are those of records, are not copied into one for it,
    unless they are encrypted then, or the system cannot."""
    # One with TLS is of a class of its own.
    gathers = hasattr(connected, "sendmsg") and connected.__class__ is socket.socket
    size = sum(map(len, parts))
    if size < _GATHERED_BYTES_MIN or len(parts) > _GATHERED_MAX or not gathers:
        connected.sendall(b"".join(parts))
        return
    sent = connected.sendmsg(parts)
    for part in parts:
        if sent < len(part):
            connected.settimeout(max(deadline.remaining_s, _TIMEOUT_S_MIN))
            connected.sendall(memoryview(part)[sent:])
        sent = max(0, sent - len(part))


def _is_unsupported_version(frame: bytearray, position: int) -> bool:
    code = int.from_bytes(frame[position : position + 2], "big", signed=True)
    return code == ErrorCode.UNSUPPORTED_VERSION


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
