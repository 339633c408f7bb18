"""Measures requests: how many of each API, how long they took, which errors they were answered.

It stands in front of the dispatcher and of the handlers, as a trace does; a broker without metrics
has nothing there. Time is from the whole frame to the response that is ready to leave, so it has
the waits of a fetch, a join and a commit round in it. Errors are counted by what the answers say:
one for each `error_code` in them that is not 0, so a Produce to three partitions may count three.
"""

from __future__ import annotations

import dataclasses
import functools
import time
import typing
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from asyncbroker.context import RequestContext
from asyncbroker.dispatch import Outcome, Serving, Waiting
from asyncbroker.handlers import Handle, Handler, Shortcut
from asyncbroker.metrics import Histogram
from asyncbroker.protocol.api import API_BY_KEY, Api
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.schema import Versions

UNKNOWN: Final = "unknown"


@dataclass(slots=True)
class ApiMetrics:
    """The requests of one API."""

    seconds: Histogram = field(default_factory=Histogram)
    errors: Counter[int] = field(default_factory=Counter)

    @property
    def are_any(self) -> bool:
        return any(self.seconds.counts)


class RequestMetrics:
    """The requests of one broker, by API. `RequestObserver` of the runner."""

    def __init__(self) -> None:
        self._by_key: dict[int, ApiMetrics] = {}
        self._unknown = ApiMetrics()

    def items(self) -> list[tuple[str, ApiMetrics]]:
        """Those that came, by the API's name."""
        named = [(API_BY_KEY[key].name, each) for key, each in self._by_key.items()]
        return [(name, each) for name, each in [*named, (UNKNOWN, self._unknown)] if each.are_any]

    def of(self, key: int) -> ApiMetrics:
        """An API's; keys that no API has are one, or a stranger could make any number of them."""
        found = self._by_key.get(key)
        if found is None:
            if key not in API_BY_KEY:
                return self._unknown
            found = self._by_key[key] = ApiMetrics()
        return found

    def handlers(self, table: Mapping[int, Handler]) -> Mapping[int, Handler]:
        """The handlers, with a look at each answer."""
        return {
            key: cast(
                Handler,
                _Measured(each.api, each.advertised, each.served, each, self.of(key).errors),
            )
            for key, each in table.items()
        }

    def dispatcher(self, inner: Serving) -> Serving:
        """The dispatcher, with a look at the time."""
        return _Timed(inner, self)


@dataclass(frozen=True, slots=True)
class _Measured:
    """What `Handler` is to the dispatcher."""

    api: Api
    advertised: Versions
    served: Versions
    inner: Handler
    errors: Counter[int]

    def load(self) -> Handle:
        """The function in front of the handler's."""
        handle, response_class, errors = self.inner.load(), self.api.response, self.errors

        def measured(broker: Any, context: RequestContext, message: Any) -> Any:
            try:
                response = handle(broker, context, message)
            except KafkaError as error:
                errors[error.code] += 1
                raise
            if response.__class__ is response_class:
                count_errors(response, errors)
            return response

        return measured

    def load_shortcut(self) -> Shortcut | None:
        """The same of its shortcut, whose answers are successes or messages."""
        shortcut, response_class, errors = (
            self.inner.load_shortcut(),
            self.api.response,
            self.errors,
        )
        if shortcut is None:
            return None

        def measured(
            broker: Any, context: RequestContext, frame: bytearray, position: int, number: int
        ) -> Any:
            response = shortcut(broker, context, frame, position, number)
            if response.__class__ is response_class:
                count_errors(response, errors)
            return response

        return measured


@dataclass(frozen=True, slots=True)
class _Timed:
    """What `Dispatcher` is to the connections."""

    inner: Serving
    metrics: RequestMetrics

    def serve(self, frame: bytearray, context: RequestContext, output: list[bytes]) -> Outcome:
        """Serves one request, as `inner` does."""
        began = time.perf_counter()
        outcome = self.inner.serve(frame, context, output)
        if isinstance(outcome, Waiting):
            outcome.began = began
            return outcome
        key = int.from_bytes(frame[:2], "big", signed=True)
        self.metrics.of(key).seconds.observe(time.perf_counter() - began)
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
        found = self.metrics.of(waiting.route.api.key)
        found.seconds.observe(time.perf_counter() - waiting.began)
        if isinstance(response, KafkaError):
            found.errors[response.code] += 1
        elif response.__class__ is waiting.route.response_class:
            count_errors(response, found.errors)
        return outcome


# ---- the error codes of an answer


@dataclass(frozen=True, slots=True)
class _Places:
    """Where a message has error codes: in itself, and in the lists and parts of it by name."""

    is_here: bool
    below: tuple[tuple[str, _Places], ...]

    @property
    def are_any(self) -> bool:
        return self.is_here or bool(self.below)


@functools.cache
def _places(message_class: type) -> _Places:
    hints = typing.get_type_hints(message_class)
    below: list[tuple[str, _Places]] = []
    for each in dataclasses.fields(message_class):
        part = _message_in(hints[each.name])
        if part is not None and (places := _places(part)).are_any:
            below.append((each.name, places))
    return _Places("error_code" in hints, tuple(below))


def _message_in(hint: Any) -> type | None:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint
    for argument in typing.get_args(hint):
        if (found := _message_in(argument)) is not None:
            return found
    return None


def count_errors(response: Any, errors: Counter[int]) -> None:
    """Adds the error codes of a response."""
    _count(response, _places(response.__class__), errors)


def _count(message: Any, places: _Places, errors: Counter[int]) -> None:
    if places.is_here and message.error_code:
        errors[message.error_code] += 1
    for name, inner in places.below:
        parts = getattr(message, name)
        if isinstance(parts, list):
            for part in parts:
                _count(part, inner, errors)
        elif parts is not None:
            _count(parts, inner, errors)


def error_name(code: int) -> str:
    """An error's name; codes that we have none for share one."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return UNKNOWN
