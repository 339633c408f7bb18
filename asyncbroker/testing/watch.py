"""Between the dispatcher and the handlers: notes each request, and carries out its faults.

`Watch.handlers` is a table of handlers with a function in front of each, which is given to the
dispatcher in place of the broker's. A broker outside of tests has the table itself, and pays
nothing for any of this.

What is dropped stays open: a request whose response is dropped waits as a request of Kafka's does
whose answer never comes, until its connection is lost or the broker stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.protocol.errors import ErrorCode, KafkaError, ProtocolError
from asyncbroker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from asyncbroker.testing.corruption import corrupt_request, corrupt_response, with_records
from asyncbroker.testing.faults import (
    FETCH,
    PRODUCE,
    TIMES,
    Fault,
    FaultKind,
    Faults,
)
from asyncbroker.testing.handler_table import Table, wrapped
from asyncbroker.testing.requests import Request, Requests

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext
    from asyncbroker.handlers import Handle
    from asyncbroker.protocol.api import Api

SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Watch:
    """The watcher of one broker, over all its restarts."""

    def __init__(self, faults: Faults, requests: Requests) -> None:
        self.faults = faults
        self.requests = requests
        self._held: set[asyncio.Future[None]] = set()
        # When the next request of a connection, by node and number, may be looked at.
        self._muted: dict[tuple[int, int], float] = {}
        self._is_stopping = False
        # Set when requests may come in again.
        self._arrived: asyncio.Event | None = None

    def handlers(self, table: Table, node_id: int) -> Table:
        """The table for the dispatcher of one node."""

        def wrap(api: Api, handle: Handle) -> Handle:
            return lambda broker, context, message: self.serve(
                api, node_id, handle, broker, context, message
            )

        return wrapped(table, wrap)

    def begin(self) -> None:
        """The broker starts."""
        self._is_stopping = False
        self._muted.clear()

    def let_go(self) -> None:
        """The broker stops: nothing is held up any longer."""
        self._is_stopping = True
        self.let_in()
        for held in list(self._held):
            if not held.done():
                held.set_result(None)

    def keep_out(self) -> None:
        """Requests that come wait before they are looked at, until `let_in`."""
        self._arrived = asyncio.Event()

    def let_in(self) -> None:
        """Ends it."""
        if self._arrived is not None:
            self._arrived.set()
            self._arrived = None

    def serve(
        self,
        api: Api,
        node_id: int,
        handle: Handle,
        broker: Broker,
        context: RequestContext,
        message: Any,
    ) -> Any:
        """Handles one request, as `handle` alone would if there were no faults."""
        if self._arrived is not None:
            return self._serve_after(self._arrived, api, node_id, handle, broker, context, message)
        request = self.requests.begin(api.name, node_id, broker, context, message)
        faults: tuple[Fault, ...] = ()
        if self.faults.has_rules:
            faults = self.faults.of(request)
            request.faults += [str(fault) for fault in faults if not fault.is_done_later(request)]
        muted_until = self._muted.pop((node_id, context.connection_id), 0.0) if self._muted else 0.0
        if faults or muted_until:
            return self._serve_with(faults, muted_until, request, handle, broker, context)
        try:
            response = handle(broker, context, message)
        except Exception as error:
            request.failed(error)
            raise
        if response is None or response.__class__ is api.response:
            request.answered(response)
            return response
        return self._await(request, response)

    async def _serve_after(self, arrived: asyncio.Event, *request: Any) -> Any:
        await arrived.wait()
        response = self.serve(*request)
        return await response if isinstance(response, Awaitable) else response

    async def _await(self, request: Request, awaitable: Awaitable[Any]) -> Any:
        try:
            response = await awaitable
        except BaseException as error:
            request.failed(error)
            raise
        request.answered(response)
        return response

    async def _serve_with(
        self,
        faults: tuple[Fault, ...],
        muted_until: float,
        request: Request,
        handle: Handle,
        broker: Broker,
        context: RequestContext,
    ) -> Any:
        message = request.message
        fault = next((fault for fault in faults if fault.kind not in TIMES), None)
        kind = None if fault is None else fault.kind
        connection = request.node, context.connection_id
        try:
            await self._hold(broker, muted_until - broker.peer_clock.monotonic())
            await self._hold(broker, _milliseconds(faults, FaultKind.DELAY) / 1000)
            if kind is FaultKind.DROP_CONNECTION_BEFORE:
                raise ProtocolError(f"{kind.value}, by a fault that the test has set")
            if fault is not None and kind is FaultKind.CORRUPT and request.api == PRODUCE:
                corrupt_request(message, fault.byte)
            if fault is not None and kind is FaultKind.ERROR:
                response = _error_response(fault, request, broker)
            else:
                response = handle(broker, context, message)
                if isinstance(response, Awaitable):
                    response = await response
            if kind is FaultKind.DROP_CONNECTION_AFTER:
                raise ProtocolError(f"{kind.value}, by a fault that the test has set")
            if kind is FaultKind.DROP_RESPONSE:
                await self._hold_until_lost(context)
                response = None
            if fault is not None and fault.is_done_later(request):
                records = with_records(response)
                if records and fault.fires():
                    request.faults.append(str(fault))
                    corrupt_response(records, fault.byte)
            throttle_ms = _milliseconds(faults, FaultKind.THROTTLE)
            if throttle_ms and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = max(response.throttle_time_ms, int(throttle_ms))
                self._muted[connection] = broker.peer_clock.monotonic() + throttle_ms / 1000
        except BaseException as error:
            request.failed(error)
            if isinstance(error, ProtocolError) and fault is not None:
                request.errors = ()
            raise
        request.answered(response)
        return response

    async def _hold(self, broker: Broker, seconds: float) -> None:
        """Waits, but not for a broker that stops."""
        if seconds <= 0 or self._is_stopping:
            return
        held = self._new_hold()
        clock = broker.peer_clock
        timer = clock.call_at(clock.monotonic() + seconds, _let_go, held)
        try:
            await held
        finally:
            timer.cancel()
            self._held.discard(held)

    async def _hold_until_lost(self, context: RequestContext) -> None:
        if self._is_stopping or context.is_closing():
            return
        held = self._new_hold()
        context.call_when_lost(lambda: _let_go(held))
        try:
            await held
        finally:
            self._held.discard(held)

    def _new_hold(self) -> asyncio.Future[None]:
        held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.add(held)
        return held


def _milliseconds(faults: tuple[Fault, ...], kind: FaultKind) -> float:
    return sum(fault.milliseconds for fault in faults if fault.kind is kind)


def _let_go(held: asyncio.Future[None]) -> None:
    if not held.done():
        held.set_result(None)


def _error_response(fault: Fault, request: Request, broker: Broker) -> Any:
    """Raises what the dispatcher makes a response of, where it can. A fetch is answered here: an
    error at its top is about its session, and one about a partition stands with the partition."""
    error = KafkaError(fault.error_code, "a fault that the test has set")
    if request.api != FETCH or fault.error_code in SESSION_ERRORS:
        raise error
    context = broker.fetch_sessions.open(request.message, request.version)
    answers: list[PartitionData | None] = [
        PartitionData(
            partition_index=fetched.wanted.partition,
            error_code=fault.error_code,
            high_watermark=-1,
        )
        for fetched in context.partitions
    ]
    return FetchResponse(
        session_id=context.session_id,
        responses=[
            FetchableTopicResponse(
                topic=fetched.topic, topic_id=fetched.topic_id, partitions=[answer]
            )
            for fetched, answer in context.select(answers)
        ],
    )
