"""A broker and its server on the loop that runs, which can be stopped and started again.

What survives a stop lives here: the port, the files and metadata of a broker in memory, the faults
and the noted requests. The port is held by a socket that is bound and never listens: between two
starts nobody else can get it, neither as a server nor as the near end of a connection. (Where the
system does not let two sockets share a port like that, it is only taken again as soon as possible.)

A broker in memory needs no threads: there is nothing that could block.
"""

from __future__ import annotations

import asyncio
import dataclasses
import encodings.idna
import socket
import sys
from typing import TYPE_CHECKING, Final

from asyncbroker.broker import Broker
from asyncbroker.clock import SystemClock
from asyncbroker.handlers import api_versions
from asyncbroker.log.files import MemoryFiles
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol import compiler
from asyncbroker.runner import make_server, stop_in_order
from asyncbroker.testing.faults import Faults
from asyncbroker.testing.loop_thread import NotRunning
from asyncbroker.testing.requests import Requests
from asyncbroker.testing.trace import Trace, make_observer
from asyncbroker.testing.watch import Watch
from asyncbroker.workers import InlineWorkers, ThreadWorkers, Workers

if TYPE_CHECKING:
    from asyncbroker.config import BrokerConfig
    from asyncbroker.context import Address
    from asyncbroker.server import Server

# Otherwise loaded when a name is looked up and when the first request comes: what the first answer
# takes is paid for with this import, and not by the first test.
_NEEDED_AT_ONCE: Final = (encodings.idna, api_versions, compiler)


class Node:
    """One broker of a test. All methods are for the thread of the loop that runs it."""

    def __init__(self, config: BrokerConfig, trace: Trace = False) -> None:
        self.faults = Faults()
        self.requests = Requests()
        self._config = config
        self._watch = Watch(self.faults, self.requests)
        self._observer = make_observer(trace, self.requests.last_faults)
        self._is_in_memory = config.data_directory is None
        self._files = MemoryFiles() if self._is_in_memory else None
        self._metadata = MemoryMetadataStore() if self._is_in_memory else None
        self._port_holder: socket.socket | None = None
        self._address: Address | None = None
        self._broker: Broker | None = None
        self._server: Server | None = None

    @property
    def broker(self) -> Broker:
        """The broker behind the server. Raises NotRunning."""
        if self._broker is None:
            raise NotRunning("the broker does not run")
        return self._broker

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for clients; the same after a restart."""
        if self._address is None:
            raise NotRunning("the broker has not been started: it has no port yet")
        return str(self._address)

    async def start(self) -> None:
        """Returns when the broker answers. Raises CannotListen, DirectoryRefused or OSError."""
        if self._broker is not None:
            raise RuntimeError("the broker runs already")
        self._hold_port()
        loop = asyncio.get_running_loop()
        workers: Workers = (
            InlineWorkers()
            if self._is_in_memory
            else ThreadWorkers(loop, self._config.worker_threads)
        )
        broker = Broker(
            self._config,
            SystemClock(loop),
            workers,
            files=self._files,
            metadata=self._metadata,
            is_volatile=self._is_in_memory,
        )
        server = make_server(broker, handlers=self._watch.handlers(), observer=self._observer)
        try:
            (address,) = server.bind()
            await broker.start()
        except BaseException:
            server.unbind()
            await workers.close()
            self._release_port()
            raise
        self._watch.begin()
        server.start()
        self._address = address
        self._set_port(address.port)
        self._broker, self._server = broker, server

    async def stop(self, *, for_good: bool = True) -> None:
        """Ends everything in order, as SIGTERM does; what is delayed goes on at once. Harmless when
        it does not run."""
        broker, server = self._broker, self._server
        self._broker = self._server = None
        if broker is not None and server is not None:
            self._watch.let_go()
            seconds_max = self._config.stop_timeout_ms / 1000
            status = await stop_in_order(broker, server, seconds_max)
            if status:
                raise RuntimeError(f"the broker did not stop within {seconds_max:g} s")
        if for_good:
            self._release_port()

    async def restart(self, *, down_seconds: float = 0.0) -> None:
        """Stops and starts with the same state and port; in between nobody listens there."""
        await self.stop(for_good=False)
        if down_seconds > 0:
            await asyncio.sleep(down_seconds)
        await self.start()

    def _set_port(self, port: int) -> None:
        (listener,) = self._config.listeners
        listener = dataclasses.replace(listener, port=port)
        self._config = dataclasses.replace(self._config, listeners=(listener,))

    def _hold_port(self) -> None:
        (listener,) = self._config.listeners
        if self._port_holder is not None or not sys.platform.startswith("linux"):
            return
        family, _, _, _, address = socket.getaddrinfo(
            listener.host or "0.0.0.0", listener.port, type=socket.SOCK_STREAM
        )[0]
        holder = socket.socket(family, socket.SOCK_STREAM)
        try:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(address)
        except OSError:
            # Somebody has it; opening the server's own socket will say so, with the address.
            holder.close()
            return
        self._port_holder = holder
        self._set_port(holder.getsockname()[1])

    def _release_port(self) -> None:
        if self._port_holder is not None:
            self._port_holder.close()
            self._port_holder = None
