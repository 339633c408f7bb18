"""Opens the listeners, takes in connections, and stops them in order.

A listener is one place to bind with one address that clients are told. A host name may stand for
several addresses ("localhost" is 127.0.0.1 and ::1, of which clients try either first), so one
listener may have several sockets, all with the same port. An empty host means all addresses of
both families.

Stopping: no new connections; no further requests on those that are there; the caller then lets the
requests that wait come to an end; the last answers leave; whoever is left is dropped.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from asyncbroker.connection import Connection
from asyncbroker.connections import Connections
from asyncbroker.context import Address
from asyncbroker.listeners import Listener, TlsRules
from asyncbroker.settings import InvalidSetting

if TYPE_CHECKING:
    import ssl

logger = logging.getLogger(__name__)

# Ports to try when a free one is asked for and the second address family has it in use.
FREE_PORT_ATTEMPTS: Final = 10

# So many connections come in before others have a turn.
ACCEPTED_TOGETHER_MAX: Final = 64

# How long accepting pauses when the process has no file descriptor left.
ACCEPT_PAUSE_SECONDS: Final = 1.0

_ANY_HOST: Final = frozenset({"", "::", "0.0.0.0"})
_NO_SUCH_ADDRESS: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class CannotListen(Exception):
    """A listener cannot be opened; the message says which and why."""


class _Entrance(NamedTuple):
    """What a listening socket stands for."""

    advertised: Address
    listener: Listener
    tls: ssl.SSLContext | None


class Server:
    """The sockets that listen. Everything about a connection that is open is `Connections`'."""

    def __init__(
        self,
        connections: Connections,
        listeners: Iterable[Listener],
        *,
        backlog: int,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        handshake_seconds_max: float = 60.0,
    ) -> None:
        self._connections = connections
        self._listeners = tuple(listeners)
        self._backlog = backlog
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._handshake_seconds_max = handshake_seconds_max
        self._sockets: list[socket.socket] = []
        self._entrances: dict[socket.socket, _Entrance] = {}
        self.bound: list[Address] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._opening: set[asyncio.Task[None]] = set()
        # Of these, the ones that may take long.
        self._shaking_hands: set[asyncio.Task[None]] = set()
        self.addresses: list[Address] = []

    def bind(self) -> list[Address]:
        """Opens all listeners, or none (CannotListen). Returns what each advertises. Clients can
        connect from now on, and wait until `start`."""
        opened: dict[socket.socket, _Entrance] = {}
        try:
            for listener in self._listeners:
                tls = None if listener.tls is None else _server_context(listener.tls)
                sockets = open_sockets(listener.host, listener.port, self._backlog)
                advertised = advertised_address(listener, sockets[0].getsockname()[1])
                self.addresses.append(advertised)
                entrance = _Entrance(advertised, listener, tls)
                opened |= dict.fromkeys(sockets, entrance)
        except InvalidSetting as mistake:
            _close_all(opened)
            self.addresses.clear()
            raise CannotListen(f"listener {listener.name}: {mistake}") from mistake
        except (OSError, UnicodeError) as error:
            # A UnicodeError is a name that DNS cannot have.
            _close_all(opened)
            self.addresses.clear()
            where = Address(listener.host, listener.port)
            reason = getattr(error, "strerror", None) or error
            raise CannotListen(f"cannot listen on {where}: {reason}") from error
        self._sockets = list(opened)
        self.bound = [Address(*listening.getsockname()[:2]) for listening in self._sockets]
        self._entrances = opened
        return self.addresses

    def start(self) -> None:
        """Begins to take in connections."""
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            name = f"accept {Address(*listening.getsockname()[:2])}"
            task = loop.create_task(self._accept(listening), name=name)
            # Not before: the event loop watches the socket for the task.
            task.add_done_callback(partial(_close_after, listening))
            self._accepting.append(task)
        self._connections.start()

    def begin_stop(self) -> None:
        """Takes in no connection and no request any more."""
        for task in (*self._accepting, *self._shaking_hands):
            task.cancel()
        self._connections.begin_stop()

    def unbind(self) -> None:
        """Closes the listeners again, when there will be no `start`."""
        for listening in self._sockets:
            listening.close()

    async def finish_stop(self, seconds_max: float) -> None:
        """Waits until the last answers have left, at most this long."""
        await asyncio.gather(*self._accepting, *self._opening, return_exceptions=True)
        await self._connections.finish_stop(seconds_max)

    async def _accept(self, listening: socket.socket) -> None:
        """A task for each listening socket."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, peer = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    logger.error("cannot accept connections for a moment: %s", error.strerror)
                    await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                # Anything else concerns a peer that is gone again.
            else:
                self._take_in(client, peer, listening)
                self._take_in_waiting(listening)
            # Otherwise a flood would keep this loop from anything else.
            await asyncio.sleep(0)

    def _take_in_waiting(self, listening: socket.socket) -> None:
        """Takes in those that wait already, which is cheaper than one in each turn."""
        for _ in range(ACCEPTED_TOGETHER_MAX):
            try:
                client, peer = listening.accept()
            except OSError:
                # There is nobody, or `sock_accept` will meet the same error.
                return
            self._take_in(client, peer, listening)

    def _take_in(self, client: socket.socket, peer: tuple[Any, ...], on: socket.socket) -> None:
        # An IPv4 peer of a socket that serves both families has its address in IPv6's form.
        address = Address(str(peer[0]).removeprefix("::ffff:"), peer[1])
        refusal = self._connections.refusal(address.host)
        if refusal is not None:
            client.close()
            self._connections.metrics.connections_refused += 1
            logger.warning("refused a connection from %s: %s", address.host, refusal)
            return
        entrance = self._entrances[on]
        connection = self._connections.create(entrance.advertised, address, entrance.listener.sasl)
        opening = self._open(client, connection, entrance.tls)
        task = asyncio.get_running_loop().create_task(opening)
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        if entrance.tls is not None:
            self._shaking_hands.add(task)
            task.add_done_callback(self._shaking_hands.discard)

    async def _open(
        self, client: socket.socket, connection: Connection, tls: ssl.SSLContext | None
    ) -> None:
        """Gives an accepted socket to its connection, in TLS after the handshake."""
        loop = asyncio.get_running_loop()
        try:
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._send_buffer_bytes > 0:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
            if self._receive_buffer_bytes > 0:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
            # Not given in plaintext, where it must not be.
            limit = None if tls is None else self._handshake_seconds_max
            await loop.connect_accepted_socket(
                lambda: connection, sock=client, ssl=tls, ssl_handshake_timeout=limit
            )
        except asyncio.CancelledError:
            client.close()
            self._connections.remove(connection)
            raise
        except OSError as error:
            client.close()
            self._connections.remove(connection)
            what = "ended before it began" if tls is None else "did not get through TLS"
            logger.info("a connection from %s %s: %s", connection, what, error)


def _server_context(rules: TlsRules) -> ssl.SSLContext:
    from asyncbroker.tls import server_context  # Only where there is TLS.

    return server_context(rules)


def _close_all(sockets: Iterable[socket.socket]) -> None:
    for listening in sockets:
        listening.close()


def _close_after(listening: socket.socket, task: asyncio.Task[None]) -> None:
    listening.close()
    if not task.cancelled() and task.exception() is not None:
        logger.error("accepting ended: %s", task.exception(), exc_info=task.exception())


def open_sockets(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Listening sockets for every address of `host`, all on the same port. Raises OSError."""
    if host in ("", "::") and socket.has_dualstack_ipv6():
        try:
            both = socket.create_server(
                ("::", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True
            )
        except OSError as error:
            # A machine may have the code for IPv6 and no address of it.
            if error.errno not in _NO_SUCH_ADDRESS:
                raise
        else:
            both.setblocking(False)
            return [both]
    for attempt in range(FREE_PORT_ATTEMPTS):
        try:
            return _open_each(host, port, backlog)
        except OSError as error:
            is_last = attempt == FREE_PORT_ATTEMPTS - 1
            if port != 0 or error.errno != errno.EADDRINUSE or is_last:
                raise
    raise AssertionError("unreachable")


def _open_each(host: str, port: int, backlog: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    unavailable: OSError | None = None
    families = (socket.AF_INET, socket.AF_INET6)
    infos = socket.getaddrinfo(
        host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    places = {(family, address[0]): None for family, _, _, _, address in infos}
    try:
        for family, bind_host in sorted(places, key=lambda place: families.index(place[0])):
            try:
                listening = socket.create_server(
                    (str(bind_host), port), family=family, backlog=backlog
                )
            except OSError as error:
                if error.errno not in _NO_SUCH_ADDRESS:
                    raise
                unavailable = error
                continue
            listening.setblocking(False)
            sockets.append(listening)
            port = listening.getsockname()[1]
    except OSError:
        for listening in sockets:
            listening.close()
        raise
    if not sockets and unavailable is not None:
        raise unavailable
    return sockets


def advertised_address(listener: Listener, bound_port: int) -> Address:
    """What clients are told: as configured, otherwise where the listener was bound."""
    host = listener.advertised_host or listener.host
    if host in _ANY_HOST:
        host = _own_name()
    return Address(host, listener.advertised_port or bound_port)


def _own_name() -> str:
    """A name of this machine that can be resolved, at least here."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        logger.warning(
            "the host name %r has no address: clients are told to use localhost "
            "(advertised.listeners says otherwise)",
            name,
        )
        return "localhost"
    return name
