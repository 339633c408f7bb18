"""A port that stays this broker's while nobody listens on it.

It is held by a socket that is bound and never listens: between two starts nobody else can get it,
neither as a server nor as the near end of a connection. Where the system does not let two sockets
share a port like that, it is only taken again as soon as possible.
"""

from __future__ import annotations

import dataclasses
import socket
import sys

from asyncbroker.listeners import Listener


class HeldPort:
    """The place of one listener; its port is known once it has been held or bound."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self._holder: socket.socket | None = None

    def hold(self) -> None:
        """Takes the port, if the system can; harmless when it is held."""
        if self._holder is not None or not sys.platform.startswith("linux"):
            return
        family, _, _, _, address = socket.getaddrinfo(
            self.listener.host or "0.0.0.0", self.listener.port, type=socket.SOCK_STREAM
        )[0]
        holder = socket.socket(family, socket.SOCK_STREAM)
        try:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(address)
        except OSError:
            # Somebody has it; opening the server's own socket will say so, with the address.
            holder.close()
            return
        self._holder = holder
        self.set_port(holder.getsockname()[1])

    def set_port(self, port: int) -> None:
        """From now on it is this one."""
        self.listener = dataclasses.replace(self.listener, port=port)

    def release(self) -> None:
        """Lets others have it."""
        if self._holder is not None:
            self._holder.close()
            self._holder = None
