"""The network between clients and the broker's machine, in memory.

The broker's end of a connection is the real `Connection` over `ServerTransport`. The other end is a
`Wire`, which calls its client back. Bytes keep their order in each direction, take some time, and
arrive in pieces that have nothing to do with how they were sent. A connection can be cut, so that
both ends learn of it, or go silent, so that neither does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.context import Address
from asyncbroker.tests.simulation.world import World

if TYPE_CHECKING:
    from asyncbroker.connection import Connection
    from asyncbroker.connections import Connections
    from asyncbroker.tests.simulation.world import VirtualLoop

LISTENER: Final = Address("broker.test", 9092)

# In one of so many deliveries the bytes come in pieces.
PIECES_ONE_IN: Final = 6

Buffer = bytes | bytearray | memoryview


class Server:
    """A process that can be connected to."""

    def __init__(self, connections: Connections, loop: VirtualLoop) -> None:
        self.connections = connections
        self.loop = loop


class Network:
    """All connections there are."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.latency_max = 0.002
        self.server: Server | None = None
        # Nobody can reach the machine.
        self.is_down = False
        self.wires: dict[Wire, None] = {}
        self._port = 40_000

    def latency(self) -> float:
        """The time that the next bytes take."""
        return self.latency_max * self.world.random.random()

    def connect(self, wire: Wire) -> None:
        """Tries to connect; the wire hears of it, one way or the other."""
        self.wires[wire] = None
        self.world.after(self.latency(), self._reach, wire)

    def _reach(self, wire: Wire) -> None:
        server = self.server
        if wire.is_closed:
            return
        if self.is_down or server is None or server.loop.is_dead:
            self._refuse(wire)
            return
        self._port += 1
        peer = Address("client.test", self._port)
        server.loop.call_soon(self._accept, server, wire, peer)

    def _accept(self, server: Server, wire: Wire, peer: Address) -> None:
        """On the server's loop."""
        if server.connections.refusal(peer.host) is not None or wire.is_closed:
            self._refuse(wire)
            return
        connection = server.connections.create(LISTENER, peer)
        transport = ServerTransport(self, server.loop, connection, wire)
        wire.transport = transport
        connection.connection_made(transport)
        self.world.after(self.latency(), wire.connected)

    def _refuse(self, wire: Wire) -> None:
        self.world.after(self.latency(), wire.lost)

    def server_died(self) -> None:
        """The machine's kernel ends the connections of a process that is gone."""
        self.server = None
        for wire in list(self.wires):
            if wire.transport is not None:
                wire.transport.die(drops_output=self.world.chance(0.5))
                if not wire.is_silent:
                    self.world.after(self.latency(), wire.lost)

    def cut(self, wire: Wire) -> None:
        """Both ends learn that the connection is no more; what was on the way is lost."""
        if wire.transport is not None:
            wire.transport.peer_reset()
        wire.lost()

    def silence(self, wire: Wire) -> None:
        """Nothing arrives any more, and nobody is told."""
        wire.is_silent = True


class Wire:
    """A client's end of a connection."""

    def __init__(
        self,
        network: Network,
        *,
        on_connected: Callable[[], object],
        on_data: Callable[[bytes], object],
        on_lost: Callable[[], object],
    ) -> None:
        self._network = network
        self._on_connected = on_connected
        self._on_data = on_data
        self._on_lost = on_lost
        self.transport: ServerTransport | None = None
        self.is_closed = False
        self.is_silent = False
        self._arrival = 0.0

    def send(self, data: bytes) -> None:
        """Sends bytes; they arrive later, or never."""
        transport = self.transport
        if transport is None or self.is_closed:
            return
        network = self._network
        self._arrival = max(self._arrival, network.world.now) + network.latency()
        network.world.at(self._arrival, transport.arrived, data)

    def close(self) -> None:
        """Leaves; the broker learns of it after what was sent."""
        if self.is_closed:
            return
        self.is_closed = True
        self._network.wires.pop(self, None)
        if self.transport is not None and not self.is_silent:
            self._arrival = max(self._arrival, self._network.world.now) + self._network.latency()
            self._network.world.at(self._arrival, self.transport.eof)

    def connected(self) -> None:
        """The broker has accepted."""
        if not self.is_closed:
            self._on_connected()

    def received(self, data: bytes) -> None:
        """Bytes from the broker."""
        if not self.is_closed and not self.is_silent:
            self._on_data(data)

    def lost(self) -> None:
        """The connection is no more, or never was."""
        if not self.is_closed:
            self.is_closed = True
            self._network.wires.pop(self, None)
            self._on_lost()


class ServerTransport(asyncio.Transport):
    """The broker's end: what asyncio's transport of a socket is, for one `Connection`."""

    def __init__(
        self, network: Network, loop: VirtualLoop, connection: Connection, wire: Wire
    ) -> None:
        super().__init__()
        self._network = network
        self._loop = loop
        self._connection = connection
        self._wire = wire
        self._is_closing = False
        self._is_lost = False
        self._is_reading = True
        self._has_eof = False
        self._incoming: list[bytes] = []
        self._has_delivery = False
        self._unsent_bytes = 0
        self._high, self._low = 65536, 0
        self._is_paused = False
        self._arrival = 0.0
        # The process is gone; and with it perhaps what it has sent last.
        self.is_dead = False
        self._drops_output = False

    def die(self, *, drops_output: bool) -> None:
        """The process is gone."""
        self.is_dead = True
        self._drops_output = drops_output

    # Bytes from the client.

    def arrived(self, data: bytes) -> None:
        """In the machine's kernel."""
        if self.is_dead or self._is_lost or self._wire.is_silent:
            return
        random = self._network.world.random
        if len(data) > 1 and random.randrange(PIECES_ONE_IN) == 0:
            cut = random.randrange(1, len(data))
            self._incoming += (data[:cut], data[cut:])
        else:
            self._incoming.append(data)
        self._deliver_soon()

    def eof(self) -> None:
        """The client has closed."""
        if not self.is_dead and not self._is_lost:
            self._has_eof = True
            self._deliver_soon()

    def peer_reset(self) -> None:
        """The connection was cut."""
        if not self.is_dead and not self._is_lost:
            self._loop.call_soon(self._lose, ConnectionResetError("cut"))

    def _deliver_soon(self) -> None:
        if self._is_reading and not self._has_delivery:
            self._has_delivery = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        """On the server's loop, once a turn: what has come, as much as the buffer takes."""
        self._has_delivery = False
        if not self._is_reading or self._is_closing:
            return
        if self._incoming:
            data = self._incoming.pop(0)
            buffer = self._connection.get_buffer(-1)
            count = min(len(buffer), len(data))
            assert count, "asyncio gives up a connection that has no room for bytes"
            buffer[:count] = data[:count]
            if count < len(data):
                self._incoming.insert(0, data[count:])
            if self._incoming or self._has_eof:
                self._deliver_soon()
            self._connection.buffer_updated(count)
        elif self._has_eof:
            self._has_eof = False
            if not self._connection.eof_received():
                self.close()

    # Bytes to the client.

    def write(self, data: Buffer) -> None:
        """Sends bytes, in order."""
        if self.is_dead or self._is_lost or self._is_closing:
            return
        world = self._network.world
        self._arrival = max(self._arrival, world.now) + self._network.latency()
        self._unsent_bytes += len(data)
        world.at(self._arrival, self._left, bytes(data))
        if self._unsent_bytes > self._high and not self._is_paused:
            self._is_paused = True
            self._connection.pause_writing()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Sends bytes, in order."""
        self.write(b"".join(list_of_data))

    def _left(self, data: bytes) -> None:
        """The client's machine has the bytes."""
        if self._is_lost or self._drops_output:
            return
        self._unsent_bytes -= len(data)
        self._wire.received(data)
        if self.is_dead:
            return
        if self._is_paused and self._unsent_bytes <= self._low:
            self._is_paused = False
            self._loop.call_soon(self._connection.resume_writing)

    # What else a transport is asked.

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high, self._low = high if high is not None else 65536, low or 0

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        if self._incoming or self._has_eof:
            self._deliver_soon()

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Closes when what was written has left."""
        if not self._is_closing:
            self._is_closing = True
            world = self._network.world
            when = max(self._arrival, world.now) + self._network.latency()
            world.at(when, self._closed)

    def abort(self) -> None:
        """Closes at once."""
        self._is_closing = True
        if not self._is_lost:
            self._loop.call_soon(self._lose, None)
            self._network.world.after(self._network.latency(), self._wire.lost)

    def _closed(self) -> None:
        if not self.is_dead and not self._is_lost:
            if not self._wire.is_silent:
                self._wire.lost()
            self._loop.call_soon(self._lose, None)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = self._is_closing = True
            self._connection.connection_lost(error)
