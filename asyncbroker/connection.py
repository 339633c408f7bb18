"""One TCP connection: bytes in, frames to dispatch one at a time, responses out in order.

As in Kafka, a connection has one request at a time: the next one is looked at when the last has
been answered and its answer handed to the socket, which gives order and back-pressure at once. As
long as handlers return their responses, all of this happens inside the callback that brought the
bytes, without a task; the responses to requests that came together leave together. A handler that
must wait returns an awaitable, and the requests behind it stay where they are until it is done. A
`Later` needs no task for that either: whoever settles it runs all that follows.

A connection is *busy* while a request waits, a response of parts is being sent, or the peer does
not take what it asked for. Of a busy connection a little more is read, so that its end is noticed
and the next request is at hand; then reading stops.

What a peer can do wrong by being slow is measured in `check`, which the owner of all connections
calls every second: not reading its responses, not finishing a frame, saying nothing for too long.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from asyncbroker.context import Address, RequestContext
from asyncbroker.dispatch import Close, Outcome, Parts, Serving, Waiting
from asyncbroker.later import Later
from asyncbroker.output import Output, ShortRead, UnreadableRange
from asyncbroker.peer_watch import PeerWatch, Sight, TooSlow
from asyncbroker.protocol.framing import FrameReader

if TYPE_CHECKING:
    from asyncbroker.connections import Connections
    from asyncbroker.listeners import SaslRules
    from asyncbroker.log.native import Answer

logger = logging.getLogger(__name__)

# Responses that are ready together are written when they come to this much, so that requests for
# something large, sent all at once, do not pile up their answers.
TOGETHER_BYTES_MAX: Final = 64 * 1024

# So many requests are served in one turn of the event loop, or as many as give this much to write;
# then others have their turn.
TURN_REQUESTS_MAX: Final = 256
TURN_BYTES_MAX: Final = 256 * 1024

# A busy connection stops reading when this much of its next requests is there.
AHEAD_BYTES_MAX: Final = 64 * 1024

# The budget counts waiting requests from this size on.
LARGE_REQUEST_BYTES: Final = 16 * 1024


class Connection(asyncio.BufferedProtocol):
    """One peer. Owned by `Connections`, which knows the limits and all the others."""

    def __init__(
        self,
        owner: Connections,
        connection_id: int,
        listener: Address,
        peer: Address,
        sasl: SaslRules | None = None,
    ) -> None:
        """With `sasl`, the peer has to log in."""
        self.context = RequestContext(
            client_host=peer.host,
            client_port=peer.port,
            listener=listener,
            connection_id=connection_id,
            connection=self,
        )
        self._owner = owner
        self.budget = owner.budget
        self.guard(owner.dispatcher)
        self._reader = FrameReader(owner.limits.frame_bytes_max, owner.landing)
        # Requests that wait behind the one in progress.
        self._queue: deque[bytearray] = deque()
        self._queued_bytes = 0
        self._waiting: Waiting | None = None
        self._waiting_bytes = 0
        # Its answer, which another thread may be about to send.
        self._beside: Answer | None = None
        self._ready = b""
        # What a task or a future is kept alive by.
        self._answer: asyncio.Future[object] | None = None
        self._lost_callbacks: list[Callable[[], object]] = []
        self._sending: asyncio.Task[None] | None = None
        self._next_turn: asyncio.Handle | None = None
        self._transport: asyncio.Transport
        self._output: Output
        self._is_open = False
        self._is_closing = False
        # No further request is taken in; the connection closes when those here are served.
        self._is_ending = False
        self._has_left = False
        self._is_reading_paused = False
        self._waits_for_budget = False
        self._counted_bytes = 0
        self._request_count = 0
        self._watch = PeerWatch(owner.limits, owner.now)
        if sasl is not None:
            self._begin_login(sasl)

    def __str__(self) -> str:
        return str(Address(self.context.client_host, self.context.client_port))

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is ours."""
        # uvloop's transports are like asyncio's, and not derived from them.
        self._transport = transport = cast(asyncio.Transport, transport)
        self._output = Output(
            transport,
            self._owner.workers,
            bytes_max=self._owner.limits.output_bytes_max,
            may_sendfile=self._owner.may_sendfile,
            make_answer=self._owner.make_answer(),
        )
        self._is_open = True
        if self._is_ending:
            # The broker began to stop meanwhile.
            self.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come: serves the requests that they complete."""
        if self._is_closing or self._is_ending:
            return
        frames = self._reader.received(nbytes)
        if frames:
            self._request_count += len(frames)
            if self._queue or self.is_busy():
                self._enqueue(frames)
            else:
                self._serve(frames)
        if self._reader.error is not None and not self._is_closing:
            self._refuse_frames()
        elif self._counted_bytes or self._queue or self._waiting_bytes or self._reader.held_bytes:
            self._account()

    def eof_received(self) -> bool:
        """The peer sends nothing more. Requests that came before are served all the same: they may
        be acks=0 ones, to which it expects no answer (as in Kafka)."""
        self._has_left = self._is_ending = True
        # TLS ends in both directions at once.
        is_tls = self._transport.get_extra_info("sslcontext") is not None
        return bool(self._queue) and not self._is_closing and not is_tls

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone. A request in progress goes on to its end; nobody hears of it."""
        self._is_closing = True
        if self._beside is not None:
            # The socket's number will be that of another one.
            self._beside.end()
            self._beside = None
        self._queue.clear()
        self._queued_bytes = 0
        self._output.lose()
        if self._next_turn is not None:
            self._next_turn.cancel()
        callbacks, self._lost_callbacks = self._lost_callbacks, []
        for callback in callbacks:
            callback()
        self._owner.remove(self, self._counted_bytes)
        self._counted_bytes = 0

    def pause_writing(self) -> None:
        """The peer takes its responses more slowly than it asks for them."""
        self._output.pause()

    def resume_writing(self) -> None:
        """The peer has taken everything."""
        self._output.resume()
        self._go_on()

    # What waiting requests and the owner ask.

    def is_busy(self) -> bool:
        """Whether the next request has to wait."""
        return (
            self._waiting is not None
            or self._sending is not None
            or self._output.is_full
            or self._next_turn is not None
        )

    def has_request(self) -> bool:
        """Whether a request is in progress or its response on the way."""
        return self._waiting is not None or self._sending is not None or bool(self._queue)

    def is_closing(self) -> bool:
        """Whether an answer would find nobody."""
        return self._is_closing or self._has_left

    def call_when_lost(self, callback: Callable[[], object]) -> None:
        """Calls back if the connection is lost before the request at hand is answered."""
        self._lost_callbacks.append(callback)

    def resume_within_budget(self) -> None:
        """Other connections have given back memory."""
        self._waits_for_budget = False
        self._set_reading()

    # What a login asks.

    def _begin_login(self, rules: SaslRules) -> None:
        """Nobody is served before, and a stranger gets little room and time."""
        # Imported here: a broker without such a listener starts without it.
        from asyncbroker.login import Login

        owner, limits = self._owner, self._owner.limits
        self.context.login = login = Login(rules, owner.dispatcher, owner.clock, self)
        self.guard(login)
        self.budget = owner.strangers_budget
        self._reader.frame_bytes_max = min(limits.frame_bytes_max, rules.receive_bytes_max)
        idle_seconds_max = min(limits.idle_seconds_max, limits.unfinished_seconds_max)
        self._watch = PeerWatch(replace(limits, idle_seconds_max=idle_seconds_max), owner.now)

    def guard(self, serving: Serving) -> None:
        """Has requests go through `serving`."""
        self._serving = serving
        self._serve_request = serving.serve

    def admit(self, serving: Serving) -> None:
        """The same, for a peer who is a stranger no more."""
        self.guard(serving)
        limits = self._owner.limits
        if self.budget is not self._owner.budget:
            self.budget.leave(self, self._counted_bytes)
            self.budget = self._owner.budget
            self._counted_bytes = 0
            self._waits_for_budget = False
            self._account()
        if self._reader.frame_bytes_max != limits.frame_bytes_max:
            self._reader.frame_bytes_max = limits.frame_bytes_max
            self._watch = PeerWatch(limits, self._owner.now)

    def end_when_answered(self) -> None:
        """Takes in no further request; closes when the answer to the one in hand has left."""
        self._is_ending = True

    def close(self, reason: str | None, *, level: int = logging.WARNING) -> None:
        """Closes after what was written has left; `reason` is the connection's line in the log."""
        if self._is_closing:
            return
        if reason is not None:
            logger.log(
                level,
                "closed %s: %s",
                self,
                reason,
                extra={
                    "fields": {"peer": str(self), "client_id": self.context.client_id},
                    "subject": reason.partition(":")[0],
                },
            )
        self._is_closing = True
        self._queue.clear()
        self._queued_bytes = 0
        if self._sending is not None:
            self._output.lose()
        self._transport.close()

    def stop(self) -> None:
        """The broker stops: the request in progress is answered, no other is begun."""
        self._queue.clear()
        self._queued_bytes = 0
        self._is_ending = True
        self._watch.hurry()
        if self._is_open and not self.is_busy():
            self.close(None)

    def abort(self) -> None:
        """Drops the connection, with whatever the peer has not taken."""
        self._is_closing = True
        self._output.lose()
        self._transport.abort()

    # Requests.

    def _serve(self, frames: Sequence[bytearray]) -> None:
        """Serves requests in order until one has to wait; the rest is queued."""
        output: list[bytes] = []
        output_bytes = written_bytes = 0
        context = self.context
        for index, frame in enumerate(frames):
            outcome = self._serve_request(frame, context, output)
            if outcome.__class__ is int:
                output_bytes += outcome
                if output_bytes < TOGETHER_BYTES_MAX and index < TURN_REQUESTS_MAX:
                    continue
            # Something other than a small response, or enough of them.
            if output:
                self._output.write(output)
                output = []
                written_bytes += output_bytes
                output_bytes = 0
            self._act(outcome, frame)
            if index >= TURN_REQUESTS_MAX or written_bytes >= TURN_BYTES_MAX:
                self._next_turn = asyncio.get_running_loop().call_soon(self._take_next_turn)
            if self._is_closing:
                return
            if self.is_busy():
                if index + 1 < len(frames):
                    self._enqueue(frames[index + 1 :])
                return
        if output:
            self._output.write(output)
        if self._lost_callbacks:
            self._lost_callbacks.clear()

    def _act(self, outcome: Outcome, frame: bytearray) -> None:
        """Does what the outcome of one request asks for, beyond the bytes already written."""
        if isinstance(outcome, Waiting):
            self._waiting = outcome
            self._waiting_bytes = len(frame) if len(frame) > LARGE_REQUEST_BYTES else 0
            awaitable = outcome.awaitable
            if isinstance(awaitable, Later):
                awaitable.sender = self._leave_beside
                awaitable.when_settled(self._finish)
                return
            # A task for a coroutine, the future itself for a future.
            answer = asyncio.ensure_future(awaitable)
            self._answer = answer
            answer.add_done_callback(self._on_answer)
        elif isinstance(outcome, Parts):
            try:
                rest = self._output.send(outcome.parts)
            except (OSError, ShortRead, UnreadableRange) as error:
                self._fail_sending(error)
                return
            if rest is not None:
                self._sending = asyncio.get_running_loop().create_task(rest)
                self._sending.add_done_callback(self._on_sent)
        elif isinstance(outcome, Close):
            self.close(outcome.reason)

    def _leave_beside(self, ready: bytes) -> Answer | None:
        """The answer to the request in progress, for another thread to send."""
        if self._is_closing:
            return None
        self._ready = ready
        self._beside = self._output.beside(ready)
        return self._beside

    def _on_answer(self, answer: asyncio.Future[object]) -> None:
        """A task or a future has ended."""
        self._answer = None
        if answer.cancelled():
            self.close(f"{self._end_wait().route}: given up")
        else:
            self._finish(answer.exception() or answer.result())

    def _end_wait(self) -> Waiting:
        """The request in progress, which waits no more."""
        waiting, self._waiting = self._waiting, None
        assert waiting is not None
        self._waiting_bytes = 0
        if self._lost_callbacks:
            self._lost_callbacks.clear()
        return waiting

    def _finish(self, response: object) -> None:
        """The request in progress has its response, or has failed with an exception."""
        waiting = self._end_wait()
        output: list[bytes] = []
        outcome = self._serving.finish(waiting, response, self.context, output)
        if self._beside is not None:
            sent = self._beside.end()
            self._beside = None
            if sent:
                # It counts, also if the time for it was over in the same moment.
                output = [self._ready[sent:]] if sent < len(self._ready) else []
                outcome = sent
        if self._is_closing:
            return
        if output:
            self._output.write(output)
        if outcome.__class__ is not int:
            self._act(outcome, bytearray())
        if self._queue or self._is_ending or self._is_reading_paused or self._counted_bytes:
            self._go_on()

    def _on_sent(self, sending: asyncio.Task[None]) -> None:
        """A response of parts has left, or cannot."""
        self._sending = None
        if sending.cancelled():
            return
        error = sending.exception()
        if error is None:
            self._go_on()
        else:
            self._fail_sending(error)

    def _fail_sending(self, error: BaseException) -> None:
        """The peer has half a response, of which the rest cannot be had."""
        if isinstance(error, UnreadableRange):
            if error.part.on_error is not None:
                error.part.on_error(error.error)
            self.close(str(error))
        elif not isinstance(error, ConnectionError):
            self._owner.metrics.internal_errors += 1
            logger.error("sending to %s failed: %s", self, error, exc_info=error)
        self.abort()

    def _take_next_turn(self) -> None:
        self._next_turn = None
        self._go_on()

    def _go_on(self) -> None:
        """Serves what is queued, if nothing is in the way any more."""
        if self._is_closing or self.is_busy():
            return
        if self._queue:
            frames = list(self._queue)
            self._queue.clear()
            self._queued_bytes = 0
            self._serve(frames)
        if self._is_closing:
            return
        if self._is_ending and not self._queue and not self.is_busy():
            self.close(None)
            return
        self._account()

    def _enqueue(self, frames: Sequence[bytearray]) -> None:
        self._queue.extend(frames)
        self._queued_bytes += sum(map(len, frames))

    def _refuse_frames(self) -> None:
        """The peer has sent a size that no frame can have. What came before it is answered."""
        self._owner.metrics.protocol_errors += 1
        self.close(str(self._reader.error))

    # Back-pressure on what comes in.

    def _account(self) -> None:
        """Tells the budget what this connection holds, and reads on or stops."""
        held = self._reader.held_bytes + self._queued_bytes + self._waiting_bytes
        if held != self._counted_bytes:
            before, self._counted_bytes = self._counted_bytes, held
            if not self.budget.change(self, before, held):
                self._waits_for_budget = True
        self._set_reading()

    def _set_reading(self) -> None:
        if self._is_closing or self._is_ending:
            return
        is_ahead = self._queued_bytes > AHEAD_BYTES_MAX and self.is_busy()
        should_pause = self._waits_for_budget or is_ahead
        if should_pause != self._is_reading_paused:
            self._is_reading_paused = should_pause
            if should_pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # Deadlines.

    def check(self, now: float) -> None:
        """Closes the connection if its peer has been too slow for too long."""
        if not self._is_open:
            return
        is_unfinished = not (self._is_reading_paused or self._reader.is_between_frames)
        sight = Sight(
            request_count=self._request_count,
            has_request=self.has_request(),
            has_left=self._has_left or (self._is_reading_paused and self._output.peer_has_left()),
            unsent=self._output.unsent_mark(),
            unfinished_bytes=self._reader.unfinished_bytes if is_unfinished else None,
        )
        verdict = self._watch.look(sight, now)
        if verdict is None or (self._is_closing and verdict is not TooSlow.SLOW_READER):
            return
        if not self._is_closing:
            self._owner.metrics.connections_closed[verdict] += 1
        if verdict is TooSlow.IDLE:
            self.close(verdict.value, level=logging.INFO)
            return
        if verdict is TooSlow.UNFINISHED:
            self.close(f"{verdict.value} after {self._reader.unfinished_bytes} bytes")
        else:
            self.close(verdict.value)
        self.abort()
