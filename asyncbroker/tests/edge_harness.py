"""A broker's edge without a broker: real sockets, real frames, handlers made up by the test."""

from __future__ import annotations

import asyncio
import functools
import inspect
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from struct import pack, unpack
from typing import Any

import pytest

from asyncbroker.clock import ManualClock
from asyncbroker.connections import AcceptLimits, Connections
from asyncbroker.context import Address
from asyncbroker.dispatch import Dispatcher
from asyncbroker.handlers import HANDLERS
from asyncbroker.listeners import Listener, SaslRules, TlsRules
from asyncbroker.log.native import MakeAnswer
from asyncbroker.metrics import Metrics
from asyncbroker.peer_watch import ConnectionLimits
from asyncbroker.protocol.api import API_BY_NAME, Api
from asyncbroker.protocol.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from asyncbroker.protocol.schema import Versions
from asyncbroker.server import Server
from asyncbroker.workers import ThreadWorkers

FRAME_BYTES_MAX = 4 * 1024 * 1024
PATIENCE_SECONDS = 10.0

Handle = Callable[[Any, Any, Any], Any]


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs an async test on asyncio's own event loop and on uvloop."""

    @functools.wraps(test)
    def run(loop_name: str, **arguments: Any) -> None:
        if loop_name == "uvloop":
            loop = pytest.importorskip("uvloop").new_event_loop()
        else:
            loop = asyncio.SelectorEventLoop()
        try:
            loop.run_until_complete(test(**arguments))
        finally:
            loop.close()

    own = inspect.Parameter("loop_name", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(test).parameters.values()
    run.__signature__ = inspect.Signature([own, *parameters])  # type: ignore[attr-defined]
    both: Callable[..., None] = pytest.mark.parametrize("loop_name", ["asyncio", "uvloop"])(run)
    return both


@dataclass(frozen=True)
class StandIn:
    """What `handlers.Handler` is for the broker, with the test's own function."""

    api: Api
    function: Handle
    advertised: Versions
    served: Versions

    def load(self) -> Handle:
        return self.function

    def load_shortcut(self) -> None:
        return None


def stand_ins(**functions: Handle) -> Mapping[int, Any]:
    """Handlers by API name: `stand_ins(Heartbeat=...)`."""
    table = {}
    for name, function in functions.items():
        api = API_BY_NAME[name]
        row = HANDLERS[api.key]
        table[api.key] = StandIn(api, function, row.advertised, row.served)
    return table


def request_frame(
    name: str,
    version: int,
    request: Any,
    correlation_id: int = 1,
    client_id: str | None = "test",
) -> bytes:
    """A request as it goes over the wire, size first."""
    api = API_BY_NAME[name]
    header = RequestHeader(api.key, version, correlation_id, client_id)
    body = encode_request_header(header) + api.request_codec(version).encode(request)
    return pack(">i", len(body)) + body


def decode_response(name: str, version: int, frame: bytes) -> tuple[int, Any]:
    """The correlation id and the body of a response without its size."""
    api = API_BY_NAME[name]
    correlation_id, position = decode_response_header(api.key, version, frame)
    return correlation_id, api.response_codec(version).decode(frame, position)


@dataclass
class Peer:
    """A client that sends what it is told to."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive(self) -> bytes:
        """The next response, without its size."""
        (size,) = unpack(">i", await patiently(self.reader.readexactly(4)))
        frame: bytes = await patiently(self.reader.readexactly(size))
        return frame

    async def receive_response(self, name: str, version: int) -> tuple[int, Any]:
        return decode_response(name, version, await self.receive())

    async def is_closed(self) -> bool:
        """Waits for the broker to close, and says whether nothing came before that."""
        try:
            return not await patiently(self.reader.read(1))
        except ConnectionError:
            return True

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Leaves without a farewell."""
        self.writer.transport.abort()


@dataclass
class Edge:
    """One listener with its connections, on a clock that the test moves."""

    server: Server
    connections: Connections
    dispatcher: Dispatcher
    metrics: Metrics
    clock: ManualClock
    address: Address
    peers: list[Peer] = field(default_factory=list)

    async def connect(self, receive_buffer_bytes: int | None = None) -> Peer:
        client = socket.socket()
        client.setblocking(False)
        if receive_buffer_bytes is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        try:
            await asyncio.get_running_loop().sock_connect(client, tuple(self.address))
        except ConnectionError:
            client.close()
            raise
        reader, writer = await asyncio.open_connection(sock=client, limit=1024)
        peer = Peer(reader, writer)
        self.peers.append(peer)
        return peer

    def advance(self, seconds: float) -> None:
        """Moves the clock; deadlines on the way are looked at each second."""
        self.clock.advance(seconds)


@asynccontextmanager
async def edge(
    handlers: Mapping[int, Any],
    *,
    limits: ConnectionLimits | None = None,
    accept_limits: AcceptLimits | None = None,
    bytes_in_flight_max: int = 1 << 30,
    may_sendfile: bool = True,
    make_answer: MakeAnswer | None = None,
    send_buffer_bytes: int = -1,
    broker: Any = "the broker",
    sasl: SaslRules | None = None,
    tls: TlsRules | None = None,
    handshake_seconds_max: float = 60.0,
) -> AsyncIterator[Edge]:
    """Serves `handlers` on a free port."""
    clock = ManualClock()
    metrics = Metrics()
    workers = ThreadWorkers(asyncio.get_running_loop(), 2)
    dispatcher = Dispatcher(broker, metrics, frame_bytes_max=FRAME_BYTES_MAX, handlers=handlers)
    connections = Connections(
        dispatcher,
        clock=clock,
        workers=workers,
        metrics=metrics,
        limits=limits or ConnectionLimits(frame_bytes_max=FRAME_BYTES_MAX),
        accept_limits=lambda: accept_limits or AcceptLimits(1000, 1000, {}),
        bytes_in_flight_max=bytes_in_flight_max,
        may_sendfile=may_sendfile,
        make_answer=lambda: make_answer,
    )
    server = Server(
        connections,
        [Listener("PLAINTEXT", "127.0.0.1", 0, sasl=sasl, tls=tls)],
        backlog=100,
        send_buffer_bytes=send_buffer_bytes,
        handshake_seconds_max=handshake_seconds_max,
    )
    (address,) = server.bind()
    server.start()
    running = Edge(server, connections, dispatcher, metrics, clock, address)
    try:
        yield running
    finally:
        server.begin_stop()
        for peer in running.peers:
            peer.reset()
        stopping = asyncio.ensure_future(server.finish_stop(1.0))
        for _ in range(50):
            await asyncio.sleep(0)
        clock.advance(2.0)
        await patiently(stopping)
        await workers.close()


async def patiently(awaitable: Any) -> Any:
    """Waits for what must come; a test that would wait forever fails instead."""
    return await asyncio.wait_for(awaitable, PATIENCE_SECONDS)


async def until(condition: Callable[[], bool]) -> None:
    """Lets the loop run until something is the case."""

    async def poll() -> None:
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)

    await patiently(poll())
