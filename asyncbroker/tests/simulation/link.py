"""A client's connection: requests in, responses back, by Kafka's protocol and our codecs."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from struct import Struct
from typing import Any, Final

from asyncbroker.protocol.api import API_BY_NAME, Api
from asyncbroker.protocol.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from asyncbroker.tests.simulation.network import Network, Wire
from asyncbroker.tests.simulation.world import VirtualLoop

REQUEST_SECONDS_MAX: Final = 4.0

_SIZE: Final = Struct(">i")


class Lost(Exception):
    """The connection is gone: what was asked may have been done or not."""


class NotSent(Lost):
    """The connection was never there: nothing was asked."""


class _Asked:
    __slots__ = ("api", "correlation_id", "future", "version")

    def __init__(
        self, api: Api, version: int, correlation_id: int, future: asyncio.Future[Any]
    ) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.future = future


class Link:
    """One connection of one client. `sent` counts requests by their names; `complaints` is told
    when the broker breaks the protocol."""

    def __init__(
        self,
        network: Network,
        loop: VirtualLoop,
        client_id: str,
        sent: Counter[str],
        complaints: list[str],
        request_seconds_max: float = REQUEST_SECONDS_MAX,
    ) -> None:
        self._network = network
        self._request_seconds_max = request_seconds_max
        self._loop = loop
        self._client_id = client_id
        self._sent = sent
        self._complaints = complaints
        self._opening: asyncio.Future[None] | None = None
        self._asked: deque[_Asked] = deque()
        self._input = bytearray()
        self._correlation_id = 0
        self._oldest_timer: Any = None
        self.is_lost = False
        self.wire = Wire(
            network, on_connected=self._connected, on_data=self._received, on_lost=self._lost
        )

    async def open(self) -> None:
        """Connects. Raises NotSent."""
        self._opening = self._loop.create_future()
        self._network.connect(self.wire)
        timer = self._loop.call_later(self._request_seconds_max, self.close)
        try:
            await self._opening
        except Lost as error:
            raise NotSent from error
        finally:
            timer.cancel()

    def ask(self, name: str, version: int, request: Any) -> asyncio.Future[Any]:
        """Sends a request; the future has its response, or fails with Lost."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.is_lost:
            future.set_exception(NotSent())
            return future
        api = API_BY_NAME[name]
        self._correlation_id += 1
        self._send(api, version, request)
        self._asked.append(_Asked(api, version, self._correlation_id, future))
        if self._oldest_timer is None:
            self._watch()
        return future

    def tell(self, name: str, version: int, request: Any) -> None:
        """Sends a request that has no response. Raises NotSent."""
        if self.is_lost:
            raise NotSent
        self._correlation_id += 1
        self._send(API_BY_NAME[name], version, request)

    def close(self) -> None:
        """Leaves; what was asked fails."""
        self.wire.close()
        self._lost()

    def _send(self, api: Api, version: int, request: Any) -> None:
        header = RequestHeader(api.key, version, self._correlation_id, self._client_id)
        body = encode_request_header(header) + api.request_codec(version).encode(request)
        self.wire.send(_SIZE.pack(len(body)) + body)
        self._sent[api.name] += 1

    def _watch(self) -> None:
        """Gives up the connection when the oldest request takes too long."""
        oldest = self._asked[0]
        self._oldest_timer = self._loop.call_later(self._request_seconds_max, self._look, oldest)

    def _look(self, oldest: _Asked) -> None:
        self._oldest_timer = None
        if self._asked:
            if self._asked[0] is oldest:
                self.close()
            else:
                self._watch()

    # The wire's side: not on the loop.

    def _connected(self) -> None:
        self._loop.call_soon(self._opened)

    def _opened(self) -> None:
        if self._opening is not None and not self._opening.done():
            self._opening.set_result(None)

    def _lost(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self._loop.call_soon(self._fail_all)

    def _fail_all(self) -> None:
        if self._opening is not None and not self._opening.done():
            self._opening.set_exception(Lost())
        for asked in self._asked:
            if not asked.future.done():
                asked.future.set_exception(Lost())
                # Who asked may be gone.
                asked.future.exception()
        self._asked.clear()
        if self._oldest_timer is not None:
            self._oldest_timer.cancel()

    def _received(self, data: bytes) -> None:
        self._input += data
        while len(self._input) >= 4:
            (size,) = _SIZE.unpack_from(self._input)
            if len(self._input) < 4 + size:
                return
            frame = bytes(self._input[4 : 4 + size])
            del self._input[: 4 + size]
            self._loop.call_soon(self._answered, frame)

    def _answered(self, frame: bytes) -> None:
        """Responses come in the order of the requests, one for each."""
        if not self._asked:
            if not self.is_lost:
                self._complaints.append(
                    f"{self._client_id} got a response that it had not asked for"
                )
            return
        asked = self._asked.popleft()
        correlation_id, position = decode_response_header(asked.api.key, asked.version, frame)
        if correlation_id != asked.correlation_id:
            self._complaints.append(
                f"{self._client_id} got response {correlation_id} for {asked.correlation_id}"
            )
        response = asked.api.response_codec(asked.version).decode(frame, position)
        if not asked.future.done():
            asked.future.set_result(response)
