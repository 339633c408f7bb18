"""Asks a broker, ours or Apache Kafka, and keeps what it answers in a form that can be compared.

An answer is a label and a response as JSON. Member ids are random, so they are numbered in the
order in which they are first heard of; lists are sorted, as their order means nothing here; what
depends on the machine (addresses, messages for people) is left out.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import sys
from collections.abc import Callable, Coroutine
from struct import pack, unpack
from typing import Any, Protocol

from asyncbroker.protocol.api import API_BY_NAME
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from asyncbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from asyncbroker.protocol.schema import ZERO_UUID
from asyncbroker.tests.group_requests import join_request

LEFT_OUT = frozenset({"throttle_time_ms", "host", "port", "error_message"})
MEMBER_ID = re.compile(r"(app|ia|ib)-[0-9A-Za-z_-]{20,}")


class Peer(Protocol):
    """One connection to the broker that is asked."""

    async def send(self, request: Any, version: int) -> None:
        """Sends a request whose answer may take a while."""

    async def receive(self) -> Any:
        """The answer to the request that was sent."""

    async def ask(self, request: Any, version: int) -> Any:
        """Sends a request and waits for the answer."""


class Asked:
    """The broker that is asked, and its answers so far. `connect` opens a connection, `pause` lets
    the broker get to what was sent without waiting for an answer."""

    def __init__(
        self, connect: Callable[[], Coroutine[Any, Any, Peer]], pause: Callable[[], Any]
    ) -> None:
        self.connect = connect
        self.pause = pause
        self.answers: dict[str, str] = {}
        self._peer: Peer | None = None
        self._numbers: dict[str, str] = {}
        # What a round of questions makes of a value that is plain already.
        self.simplify: Callable[[Any], Any] = lambda plain: plain

    async def peer(self) -> Peer:
        """The connection of those who need none of their own."""
        if self._peer is None:
            self._peer = await self.connect()
        return self._peer

    def note(self, label: str, response: Any) -> Any:
        """Keeps an answer."""
        assert label not in self.answers, label
        self.answers[label] = json.dumps(self._plain(response), sort_keys=True)
        return response

    async def ask(self, label: str, request: Any, version: int, peer: Peer | None = None) -> Any:
        """Asks, and keeps the answer."""
        return self.note(label, await (peer or await self.peer()).ask(request, version))

    async def send(self, request: Any, version: int) -> Any:
        """Asks, and does not keep the answer."""
        return await (await self.peer()).ask(request, version)

    async def join(self, group: str, **fields: Any) -> tuple[Peer, Any]:
        """A new member of a group that is empty or alone, and what it was told."""
        peer = await self.connect()
        joined = await peer.ask(join_request(group, **fields), fields.get("version", 9))
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request = join_request(group, member_id=joined.member_id, **fields)
            joined = await peer.ask(request, fields.get("version", 9))
        return peer, joined

    def _plain(self, value: Any) -> Any:
        return self.simplify(self._as_json(value))

    def _as_json(self, value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
            # Versions that go by names have no ids.
            if fields.get("topic_id") == ZERO_UUID:
                del fields["topic_id"]
            return {n: self._plain(field) for n, field in fields.items() if n not in LEFT_OUT}
        if isinstance(value, list):
            return sorted((self._plain(item) for item in value), key=json.dumps)
        if isinstance(value, (bytes, memoryview)):
            return bytes(value).hex()
        if isinstance(value, str) and MEMBER_ID.fullmatch(value):
            return self._numbers.setdefault(value, f"{value.split('-')[0]}-{len(self._numbers)}")
        return int(value) if isinstance(value, ErrorCode) else value


class SocketPeer:
    """A connection to a real broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sent = 0
        self._last: tuple[str, int] = ("", 0)

    async def send(self, request: Any, version: int) -> None:
        self._last = type(request).__name__.removesuffix("Request"), version
        self._sent += 1
        api = API_BY_NAME[self._last[0]]
        header = RequestHeader(api.key, version, self._sent, "app")
        body = encode_request_header(header) + api.request_codec(version).encode(request)
        self._writer.write(pack(">i", len(body)) + body)

    async def receive(self) -> Any:
        name, version = self._last
        (size,) = unpack(">i", await self._reader.readexactly(4))
        body = await self._reader.readexactly(size)
        api = API_BY_NAME[name]
        correlation_id, position = decode_response_header(api.key, version, body)
        assert correlation_id == self._sent
        return api.response_codec(version).decode(body, position)

    async def ask(self, request: Any, version: int) -> Any:
        await self.send(request, version)
        return await self.receive()


async def ask_over_sockets(address: str, questions: Callable[[Asked], Any]) -> dict[str, str]:
    """The answers of the broker at HOST:PORT."""
    host, _, port = address.rpartition(":")

    async def connect() -> Peer:
        return SocketPeer(*await asyncio.open_connection(host, int(port)))

    # Kafka creates the coordinators' topic now, and loads its partitions when it has answered.
    peer = await connect()
    for _ in range(2):
        await peer.ask(FindCoordinatorRequest(key="g"), 3)
        await asyncio.sleep(5)
    asked = Asked(connect, lambda: asyncio.sleep(0.5))
    await questions(asked)
    return asked.answers


def print_answers(questions: Callable[[Asked], Any]) -> None:
    """What the broker at the address on the command line answers, a line each."""
    for question, answer in asyncio.run(ask_over_sockets(sys.argv[1], questions)).items():
        print(f"{question}\t{answer}")
