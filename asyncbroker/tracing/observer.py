"""In front of a broker's dispatcher: sees each request and its answer, and tells a sink.

`Observer.dispatcher` stands in the place of the dispatcher, and `Observer.handlers` in that of the
table of handlers; the first sees frames, sizes, times and closed connections, the second the
decoded messages, so that nothing is decoded twice and no record is read for being shown. Both are
chosen when the broker starts: one without an observer pays nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from asyncbroker.context import Address, RequestContext
from asyncbroker.dispatch import Close, Outcome, Parts, Serving, Waiting
from asyncbroker.handlers import Handle, Handler
from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.tracing.describe import summarise
from asyncbroker.tracing.exchange import Exchange
from asyncbroker.tracing.frames import FRAME_BYTES_MAX, Head, decode_response, read_head

if TYPE_CHECKING:
    from asyncbroker.protocol.api import Api
    from asyncbroker.protocol.schema import Versions

logger = logging.getLogger(__name__)

Sink = Callable[[Exchange], object]


class Recorder(Protocol):
    """Keeps frames (`recording.py`)."""

    def request(self, connection: int, peer: str, frame: bytes | bytearray) -> None: ...

    def response(self, connection: int, api_key: int, parts: Sequence[Any]) -> None: ...


@dataclass(slots=True)
class _Current:
    """A request in hand."""

    at: float
    began: float
    head: Head
    request_bytes: int
    broker: Any = None
    request: Any = None
    response: Any = None
    faults: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ObservedHandler:
    """What `Handler` is to the dispatcher."""

    api: Api
    advertised: Versions
    served: Versions
    inner: Handler
    observer: Observer

    def load(self) -> Handle:
        """The function in front of the handler's."""
        handle, observer, response_class = self.inner.load(), self.observer, self.api.response
        return lambda broker, context, message: observer.handle(
            handle, response_class, broker, context, message
        )

    def load_shortcut(self) -> None:
        """None: what is to be seen are messages."""


@dataclass(slots=True)
class Observer:
    """`sink` gets each exchange, in the broker's thread; with the messages when `is_full`.
    `faults` gives the list of the faults of the request that was handled last."""

    sink: Sink | None = None
    is_full: bool = False
    recorder: Recorder | None = None
    faults: Callable[[], Sequence[str]] | None = None
    current: _Current | None = None
    waiting: dict[int, _Current] = field(default_factory=dict)

    def handlers(self, table: Mapping[int, Handler]) -> Mapping[int, Handler]:
        """The table for the dispatcher."""
        return {
            key: cast(
                Handler,
                ObservedHandler(handler.api, handler.advertised, handler.served, handler, self),
            )
            for key, handler in table.items()
        }

    def dispatcher(self, inner: Serving) -> Serving:
        """What takes the dispatcher's place."""
        return ObservedDispatcher(inner, self)

    def handle(
        self,
        handle: Handle,
        response_class: type,
        broker: Any,
        context: RequestContext,
        message: Any,
    ) -> Any:
        """Handles one request, and takes note of it and of a response that is there at once."""
        current = self.current
        if current is None:
            return handle(broker, context, message)
        current.broker, current.request = broker, message
        try:
            response = handle(broker, context, message)
        finally:
            if self.faults is not None:
                current.faults = self.faults()
        if response.__class__ is response_class:
            current.response = response
        return response

    def begin(self, frame: bytearray, context: RequestContext) -> None:
        """A request has come."""
        try:
            head = read_head(frame)
        except ProtocolError:
            head = Head(-1, -1, -1, "")
        self.current = _Current(time.time(), time.perf_counter(), head, len(frame))
        if self.recorder is not None:
            # Now: a batch gets its offset written into the frame.
            self.recorder.request(context.connection_id, _peer(context), frame)

    def end(
        self, current: _Current, outcome: Outcome, context: RequestContext, output: list[bytes]
    ) -> None:
        """It has been answered, or never will be."""
        parts: Sequence[Any] = ()
        if isinstance(outcome, Parts):
            parts = outcome.parts
        elif isinstance(outcome, int) and outcome:
            parts = output[-1:]
        if self.recorder is not None and parts:
            self.recorder.response(context.connection_id, current.head.api_key, parts)
        if self.sink is not None:
            problem = (outcome.reason or "closed") if isinstance(outcome, Close) else ""
            self.sink(_exchange(current, context, parts, problem, is_full=self.is_full))


@dataclass(frozen=True, slots=True)
class ObservedDispatcher:
    """What `Dispatcher` is to the connections."""

    inner: Serving
    observer: Observer

    def serve(self, frame: bytearray, context: RequestContext, output: list[bytes]) -> Outcome:
        """Serves one request, as `inner` does."""
        observer = self.observer
        observer.begin(frame, context)
        current = observer.current
        outcome = self.inner.serve(frame, context, output)
        observer.current = None
        if current is not None:
            if isinstance(outcome, Waiting):
                observer.waiting[context.connection_id] = current
            else:
                self._end(current, outcome, context, output)
        return outcome

    def finish(
        self,
        waiting: Waiting,
        response: Any | BaseException,
        context: RequestContext,
        output: list[bytes],
    ) -> Outcome:
        """Answers a request that had to wait, as `inner` does."""
        outcome = self.inner.finish(waiting, response, context, output)
        current = self.observer.waiting.pop(context.connection_id, None)
        if current is not None:
            if not isinstance(response, BaseException):
                current.response = response
            self._end(current, outcome, context, output)
        return outcome

    def _end(
        self, current: _Current, outcome: Outcome, context: RequestContext, output: list[bytes]
    ) -> None:
        try:
            self.observer.end(current, outcome, context, output)
        except Exception:
            # Whoever looks on must not be able to break the service.
            logger.exception("tracing %s failed", current.head)


def _exchange(
    current: _Current,
    context: RequestContext,
    parts: Sequence[Any],
    problem: str,
    *,
    is_full: bool,
) -> Exchange:
    head, request, response = current.head, current.request, current.response
    size = sum(len(p) if isinstance(p, (bytes, bytearray, memoryview)) else p.size for p in parts)
    if response is None and parts and size <= FRAME_BYTES_MAX:
        # An error that dispatch has made a response of: always in memory.
        try:
            response = decode_response(head, b"".join(parts)[4:])
        except ProtocolError as error:
            problem = problem or str(error)
    topics = getattr(current.broker, "topics", None)

    def topic_name(topic_id: bytes) -> str | None:
        found = None if topics is None else topics.by_id(topic_id)
        return None if found is None else str(found.name)

    return summarise(
        head,
        request,
        response,
        topic_name,
        at=current.at,
        milliseconds=(time.perf_counter() - current.began) * 1000,
        connection=context.connection_id,
        peer=_peer(context),
        request_bytes=current.request_bytes,
        response_bytes=size - 4 if parts else None,
        faults=current.faults,
        problem=problem,
        is_full=is_full,
    )


def _peer(context: RequestContext) -> str:
    return str(Address(context.client_host, context.client_port))
