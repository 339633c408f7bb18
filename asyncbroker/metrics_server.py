"""`--metrics`: GET /metrics over HTTP, for Prometheus; and how late the event loop is.

The broker's loop collects the figures, in slices; a worker thread of its own makes text of them.
One scrape runs at a time. A peer gets a connection for one request, a head of some kilobytes and
some seconds; what is odd is answered with a status that says so, and no more than a few are there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from prometheus_client import CONTENT_TYPE_LATEST

from asyncbroker.context import Address
from asyncbroker.metrics import Histogram
from asyncbroker.metrics_export import collect, render
from asyncbroker.metrics_requests import RequestMetrics
from asyncbroker.server import CannotListen, open_sockets

if TYPE_CHECKING:
    import socket

    from asyncbroker.broker import Broker
    from asyncbroker.dispatch import Serving
    from asyncbroker.handlers import Handler
    from asyncbroker.runner import RequestObserver

logger = logging.getLogger(__name__)

HEAD_BYTES_MAX: Final = 8192
PEERS_MAX: Final = 16
PEER_SECONDS_MAX: Final = 10.0
LAG_CHECK_SECONDS: Final = 0.25
PATH: Final = "/metrics"


class MetricsServer:
    """The port, and who asks there. Of one broker."""

    def __init__(self, host: str, port: int) -> None:
        self._where = Address(host, port)
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._peers: set[asyncio.Task[None]] = set()
        self._scraping = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "metrics")
        self._lag_timer: asyncio.TimerHandle | None = None
        self._broker: Broker | None = None
        self.observer = RequestMetrics()
        self.lag_seconds = Histogram()
        self.addresses: list[Address] = []

    def observer_and(self, other: RequestObserver | None) -> RequestObserver:
        """Both of them, as one."""
        if other is None:
            return self.observer
        return _Both(self.observer, other)

    # ---- start and stop

    def bind(self, broker: Broker) -> None:
        """Takes the port. Raises CannotListen."""
        try:
            self._sockets = open_sockets(self._where.host, self._where.port, PEERS_MAX)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CannotListen(f"cannot listen on {self._where} (--metrics): {reason}") from error
        self.addresses = [Address(*each.getsockname()[:2]) for each in self._sockets]
        self._broker = broker
        broker.storage.metrics.append_seconds = Histogram()

    async def start(self) -> None:
        """Begins to answer, and to look how late the loop is."""
        for listening in self._sockets:
            server = await asyncio.start_server(self._meet, sock=listening, limit=HEAD_BYTES_MAX)
            self._servers.append(server)
        where = ", ".join(f"http://{address}{PATH}" for address in self.addresses)
        logger.info("metrics at %s", where)
        self._expect()

    async def stop(self) -> None:
        """Closes the port; who is being answered gets no more."""
        if self._lag_timer is not None:
            self._lag_timer.cancel()
        for server in self._servers:
            server.close()
        for listening in self._sockets:
            listening.close()
        for peer in self._peers:
            peer.cancel()
        await asyncio.gather(*self._peers, return_exceptions=True)
        self._thread.shutdown(wait=False)

    def _expect(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + LAG_CHECK_SECONDS
        self._lag_timer = loop.call_at(due, self._late, due)

    def _late(self, due: float) -> None:
        self.lag_seconds.observe(max(0.0, asyncio.get_running_loop().time() - due))
        self._expect()

    # ---- a peer

    def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._peers) >= PEERS_MAX:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer), name="metrics")
        self._peers.add(task)
        task.add_done_callback(self._peers.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.wait_for(self._answer(reader, writer), PEER_SECONDS_MAX)
        except (asyncio.TimeoutError, OSError):
            # It is slow, or gone. What it gets is not worth more of anybody's time.
            pass
        except Exception:
            logger.exception("answering a scrape failed")
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        except asyncio.LimitOverrunError:
            status, body, is_head = "431 Request Header Fields Too Large", b"", False
        else:
            status, body, is_head = await self._respond(head)
        kind = CONTENT_TYPE_LATEST if status == "200 OK" else "text/plain; charset=utf-8"
        body = body or f"{status}\n".encode()
        lines = [
            f"HTTP/1.1 {status}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "Connection: close",
            *(["Allow: GET, HEAD"] if status.startswith("405") else []),
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode() + (b"" if is_head else body))
        await writer.drain()
        writer.write_eof()
        # Who still sends would lose the answer if the connection were closed on unread bytes.
        while await reader.read(HEAD_BYTES_MAX):
            pass

    async def _respond(self, head: bytes) -> tuple[str, bytes, bool]:
        """Status, body (empty: the status), and whether only the head of it is wanted."""
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return "400 Bad Request", b"", False
        method, target, _ = words
        is_head = method == b"HEAD"
        if method not in (b"GET", b"HEAD"):
            return "405 Method Not Allowed", b"", False
        if target.split(b"?", 1)[0] != PATH.encode():
            return "404 Not Found", b"", is_head
        return "200 OK", await self.scrape(), is_head

    async def scrape(self) -> bytes:
        """The figures as text."""
        assert self._broker is not None
        async with self._scraping:
            figures = await collect(self._broker, self.observer, self.lag_seconds)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, render, figures)


class _Both:
    """Two observers, of which `first` is nearer to the broker."""

    def __init__(self, first: RequestObserver, second: RequestObserver) -> None:
        self._first = first
        self._second = second

    def handlers(self, table: Mapping[int, Handler]) -> Mapping[int, Handler]:
        """The handlers, with both looks."""
        return self._second.handlers(self._first.handlers(table))

    def dispatcher(self, inner: Serving) -> Serving:
        """The dispatcher, with both looks."""
        return self._second.dispatcher(self._first.dispatcher(inner))
