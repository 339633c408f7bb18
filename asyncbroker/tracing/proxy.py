"""A proxy in front of any broker that shows what passes: clients need only its address.

Each broker that an answer names (Metadata, FindCoordinator, DescribeCluster, the endpoints of newer
Produce and Fetch) gets a listener of its own here, and the answer is rewritten to name that, so
that clients stay on the proxy. ApiVersions is narrowed to the versions that can be decoded here.
APIs that are not known at all pass as they are, and everything else byte for byte too.

A frame is held until it is whole, then forwarded; a larger one than can be decoded is passed on as
it comes. What does not look like Kafka's protocol (TLS, for one) is passed on without being looked
at. A slow side slows the other one down, as without a proxy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from asyncbroker.context import Address
from asyncbroker.protocol.api import API_BY_KEY
from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.headers import decode_response_header
from asyncbroker.tracing.describe import learn_names, summarise
from asyncbroker.tracing.exchange import Exchange
from asyncbroker.tracing.frames import (
    API_VERSIONS_KEY,
    FRAME_BYTES_MAX,
    Head,
    decode_request,
    decode_response,
    expects_response,
    read_head,
)
from asyncbroker.tracing.recording import RecordingWriter
from asyncbroker.tracing.unanswered import Unanswered

# Larger sizes are no Kafka: TLS's first bytes would be one of 350 MB.
SIZE_MAX: Final = 300 * 1024 * 1024

# An answer that names brokers has to be rewritten, however large.
ADDRESSES_BYTES_MAX: Final = 128 * 1024 * 1024

PIECE_BYTES: Final = 256 * 1024
# So much of a frame that is too large is looked at, for its head.
BEGINNING_BYTES: Final = 4096
# Requests on the way are kept decoded up to this much on one connection.
PENDING_BYTES_MAX: Final = 32 * 1024 * 1024
PENDING_MAX: Final = 10_000
BROKERS_MAX: Final = 1000

_SIZE: Final = Struct(">i")
_ADDRESS_APIS: Final = frozenset({0, 1, 3, 10, 60})
_ALWAYS_REWRITTEN: Final = frozenset({3, 10, 60, API_VERSIONS_KEY})
_ADDRESS_ROWS: Final = ("brokers", "coordinators", "node_endpoints")


class CannotTrace(Exception):
    """The proxy cannot listen; the message is for the user."""


@dataclass(slots=True)
class _Pending:
    """A request that waits for its answer."""

    head: Head
    request: Any
    size: int
    at: float
    began: float
    problem: str


class Proxy:
    """The proxy of one cluster. `sink` gets each exchange; `say` is told of what goes wrong."""

    def __init__(
        self,
        upstream: Address,
        *,
        sink: Callable[[Exchange], object],
        say: Callable[[str], object],
        is_full: bool = False,
        recorder: RecordingWriter | None = None,
    ) -> None:
        self.sink = sink
        self.say = say
        self.is_full = is_full
        self.recorder = recorder
        self.names: dict[bytes, str] = {}
        self._upstream = upstream
        self._host = ""
        self._servers: dict[Address, asyncio.Server] = {}
        self._links: set[asyncio.Task[None]] = set()
        self._last_id = 0

    async def start(self, host: str, port: int) -> Address:
        """Listens for the cluster's first address; returns where. Raises CannotTrace."""
        self._host = host
        try:
            return Address(host, await self._listen(self._upstream, port))
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CannotTrace(f"cannot listen on {Address(host, port)}: {reason}") from error

    async def stop(self) -> None:
        """Drops all connections."""
        for server in self._servers.values():
            server.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def port_for(self, upstream: Address) -> int | None:
        """The port here that leads to a broker; None when it cannot have one."""
        if upstream not in self._servers:
            if len(self._servers) >= BROKERS_MAX:
                return None
            try:
                return await self._listen(upstream, 0)
            except OSError as error:
                self.say(f"cannot listen for {upstream}: {error.strerror}; clients will go there")
                return None
        return _port_of(self._servers[upstream])

    async def _listen(self, upstream: Address, port: int) -> int:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._last_id += 1
            link = _Link(self, self._last_id, upstream, reader, writer)
            task = asyncio.ensure_future(link.run())
            self._links.add(task)
            task.add_done_callback(self._links.discard)

        server = await asyncio.start_server(accept, self._host, port, limit=PIECE_BYTES)
        self._servers[upstream] = server
        return _port_of(server)


class _Link:
    """One client's connection, and the one to the broker behind it."""

    def __init__(
        self,
        proxy: Proxy,
        number: int,
        upstream: Address,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._proxy = proxy
        self._number = number
        self._upstream = upstream
        self._client = (reader, writer)
        self._peer = str(Address(*writer.get_extra_info("peername")[:2]))
        self._own_host: str = writer.get_extra_info("sockname")[0]
        self._pending: Unanswered[_Pending] = Unanswered()
        self._pending_bytes = 0

    async def run(self) -> None:
        """From the first byte to the last."""
        reader, writer = self._client
        try:
            try:
                broker_reader, broker_writer = await asyncio.open_connection(
                    *self._upstream, limit=PIECE_BYTES
                )
            except OSError as error:
                self._proxy.say(f"cannot reach {self._upstream}: {error.strerror or error}")
                return
            try:
                await self._run_both(reader, writer, broker_reader, broker_writer)
            finally:
                broker_writer.close()
        finally:
            writer.close()
            if self._proxy.recorder is not None:
                self._proxy.recorder.closed(self._number)
            for pending in self._pending.all():
                self._tell(pending, None, None, "the connection was closed")

    async def _run_both(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        broker_reader: asyncio.StreamReader,
        broker_writer: asyncio.StreamWriter,
    ) -> None:
        requests = asyncio.ensure_future(self._pass_requests(reader, broker_writer))
        responses = asyncio.ensure_future(self._pass_responses(broker_reader, writer))
        try:
            # A client that has sent everything may still wait for answers.
            await asyncio.wait([requests, responses], return_when=asyncio.FIRST_COMPLETED)
            if requests.done() and not requests.exception() and not responses.done():
                await asyncio.wait([responses])
        finally:
            for task in (requests, responses):
                task.cancel()
            outcomes = await asyncio.gather(requests, responses, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, OSError):
                raise outcome

    async def _pass_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while (size := await self._next_size(reader, writer)) is not None:
            if size <= FRAME_BYTES_MAX:
                frame = await _exactly(reader, size)
                self._note_request(frame, size)
                writer.writelines((_SIZE.pack(size), frame))
                await writer.drain()
            else:
                beginning = await _exactly(reader, BEGINNING_BYTES)
                self._note_request(beginning, size)
                await _pass_rest(reader, writer, size, beginning)
        with suppress(OSError):
            writer.write_eof()

    async def _pass_responses(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while (size := await self._next_size(reader, writer)) is not None:
            beginning = await _exactly(reader, min(size, 4))
            pending = self._take_pending(beginning)
            is_needed = pending is not None and pending.head.api_key in _ALWAYS_REWRITTEN
            if size > (ADDRESSES_BYTES_MAX if is_needed else FRAME_BYTES_MAX):
                await _pass_rest(reader, writer, size, beginning)
                if pending is not None:
                    if self._proxy.recorder is not None:
                        self._proxy.recorder.cut_response(self._number, size, beginning)
                    self._tell(pending, None, size, "answer not decoded: too large")
                continue
            frame = beginning + await _exactly(reader, size - len(beginning))
            if pending is not None:
                frame = await self._answered(pending, frame)
            writer.writelines((_SIZE.pack(len(frame)), frame))
            await writer.drain()

    async def _next_size(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> int | None:
        """The size of the next frame; None when there is none. What is no Kafka is passed on to its
        end here."""
        try:
            prefix = await reader.readexactly(_SIZE.size)
        except asyncio.IncompleteReadError as error:
            writer.write(error.partial)
            return None
        (size,) = _SIZE.unpack(prefix)
        if 0 <= size <= SIZE_MAX:
            return int(size)
        self._proxy.say(
            f"{self._peer}: what it sends or gets is not Kafka's plain protocol (TLS?), and is "
            "passed on without being looked at"
        )
        writer.write(prefix)
        while data := await reader.read(PIECE_BYTES):
            writer.write(data)
            await writer.drain()
        return None

    def _note_request(self, frame: bytes, size: int) -> None:
        """Takes note of a request, or of the beginning of a large one, before it is sent on."""
        at, began = time.time(), time.perf_counter()
        try:
            head = read_head(frame)
        except ProtocolError as error:
            # What follows a SaslHandshake of version 0 is secret: not even its size is of use.
            nothing = Head(-1, -1, -1, "")
            self._tell(_Pending(nothing, None, size, at, began, ""), None, None, str(error))
            return
        request, problem = self._decode(head, frame, size)
        recorder = self._proxy.recorder
        if recorder is not None and size > len(frame):
            recorder.cut_request(self._number, size, frame[:10])
        elif recorder is not None:
            recorder.request(self._number, self._peer, frame)
        pending = _Pending(head, request, size, at, began, problem)
        if expects_response(head, request):
            if len(self._pending) == PENDING_MAX and (oldest := self._pending.oldest()):
                self._pending_bytes -= oldest.size
                self._tell(oldest, None, None, oldest.problem)
            self._pending.add(head.correlation_id, pending)
            self._pending_bytes += size
        else:
            self._tell(pending, None, None, problem)

    def _decode(self, head: Head, frame: bytes, size: int) -> tuple[Any, str]:
        if size > len(frame):
            return None, "not decoded: too large"
        if self._pending_bytes + size > PENDING_BYTES_MAX:
            return None, "not decoded: too much is on the way"
        try:
            return decode_request(head, frame), ""
        except ProtocolError as error:
            return None, str(error)

    def _take_pending(self, beginning: bytes) -> _Pending | None:
        """The request that a response belongs to; tells of those that will have none."""
        if len(beginning) < 4:
            return None
        passed, pending = self._pending.answered(beginning)
        for each in passed:
            self._pending_bytes -= each.size
            self._tell(each, None, None, each.problem)
        if pending is not None:
            self._pending_bytes -= pending.size
        return pending

    async def _answered(self, pending: _Pending, frame: bytes) -> bytes:
        """Tells of an exchange; returns the frame that the client is to get."""
        head = pending.head
        recorder = self._proxy.recorder
        if recorder is not None:
            recorder.response(self._number, head.api_key, (bytes(4), frame))
        try:
            response = decode_response(head, frame)
        except ProtocolError as error:
            self._tell(pending, None, len(frame), pending.problem or str(error))
            return frame
        learn_names(self._proxy.names, response)
        self._tell(pending, response, len(frame), pending.problem)
        is_changed = (
            _narrow_versions(response)
            if head.api_key == API_VERSIONS_KEY
            else head.api_key in _ADDRESS_APIS and await self._move_addresses(response)
        )
        if not is_changed:
            return frame
        _, position = decode_response_header(head.api_key, head.version, frame)
        codec = API_BY_KEY[head.api_key].response_codec(head.version)
        return frame[:position] + codec.encode(response)

    async def _move_addresses(self, response: Any) -> bool:
        """Puts addresses of the proxy in the place of brokers'; whether there were any."""
        is_changed = False
        for row in _address_rows(response):
            port = await self._proxy.port_for(Address(row.host, row.port))
            if port is not None:
                row.host, row.port = self._own_host, port
                is_changed = True
        return is_changed

    def _tell(
        self, pending: _Pending, response: Any, response_bytes: int | None, problem: str
    ) -> None:
        self._proxy.sink(
            summarise(
                pending.head,
                pending.request,
                response,
                self._proxy.names.get,
                at=pending.at,
                milliseconds=(time.perf_counter() - pending.began) * 1000,
                connection=self._number,
                peer=self._peer,
                request_bytes=pending.size,
                response_bytes=response_bytes,
                problem=problem,
                is_full=self._proxy.is_full,
            )
        )


def _address_rows(response: Any) -> Iterator[Any]:
    """Everything in a response that has the address of a broker."""
    rows = [response]
    for name in _ADDRESS_ROWS:
        rows += getattr(response, name, None) or ()
    for row in rows:
        if getattr(row, "host", "") and row.port > 0:
            yield row


def _narrow_versions(response: Any) -> bool:
    """Takes the versions out of an ApiVersions answer that are newer than our schemas."""
    is_changed = False
    if response.error_code:
        # In another version than was asked for; it has only what helps to ask again.
        return False
    for row in response.api_keys:
        api = API_BY_KEY.get(row.api_key)
        if api is not None and row.max_version > api.versions.last >= row.min_version:
            row.max_version = api.versions.last
            is_changed = True
    return is_changed


def _port_of(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


async def _exactly(reader: asyncio.StreamReader, size: int) -> bytes:
    """So many bytes; ConnectionResetError when the peer ends before. The buffer grows with what
    arrives, whatever the size claims."""
    try:
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        raise ConnectionResetError("ended within a frame") from None


async def _pass_rest(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int, beginning: bytes
) -> None:
    """Forwards a frame of which the beginning has been read, as it comes."""
    writer.writelines((_SIZE.pack(size), beginning))
    left = size - len(beginning)
    while left:
        data = await reader.read(min(PIECE_BYTES, left))
        if not data:
            raise ConnectionResetError("ended within a frame")
        left -= len(data)
        writer.write(data)
        await writer.drain()
