"""A response that comes later, for a request that keeps no task waiting meanwhile.

A handler returns a `Later` where a callback knows when there is something to answer, and the
connection asks to be told. There is no task, no future and no turn of the event loop in between, so
that what ends many waits at once, a commit round, answers all of them in its own callback. Whoever
stands between the two and wants to look at the response may await it instead, as any awaitable.
Only one can be told.

Where the response is known beforehand and only has to become true, it may be `ready`, packed. Then
the connection may leave an answer beside (`leave_beside`), for whoever learns that it is true, on
another thread, to send at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from asyncbroker.log.native import Answer

Response = TypeVar("Response")


class Later(Generic[Response]):
    """Settled once, with a response or with the exception that the request failed with."""

    __slots__ = ("_callback", "_outcome", "is_settled", "ready", "sender")

    def __init__(self, ready: bytes | None = None) -> None:
        self.ready = ready
        # Of whoever was asked to be told: has its answer made for another thread.
        self.sender: Callable[[bytes], Answer | None] | None = None
        self.is_settled = False
        self._outcome: Response | BaseException | None = None
        self._callback: Callable[[Response | BaseException | None], object] | None = None

    def settle(self, outcome: Response | BaseException | None) -> None:
        """Tells whoever asked; before that, it is kept for him. Only the first time counts."""
        if self.is_settled:
            return
        self.is_settled = True
        callback = self._callback
        if callback is None:
            self._outcome = outcome
        else:
            self._callback = None
            callback(outcome)

    def leave_beside(self) -> Answer | None:
        """What another thread may send when `ready` has become true; None if it must not, or nobody
        knows what. To be asked for once."""
        if self.ready is None or self.sender is None or self.is_settled:
            return None
        return self.sender(self.ready)

    def when_settled(self, callback: Callable[[Response | BaseException | None], object]) -> None:
        """Has `callback` told the outcome, never before this has returned."""
        if self.is_settled:
            asyncio.get_running_loop().call_soon(callback, self._outcome)
        else:
            self._callback = callback

    def __await__(self) -> Generator[Any, None, Response | None]:
        future: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()

        def tell(outcome: Response | BaseException | None) -> None:
            if future.done():
                return
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self.when_settled(tell)
        return future.__await__()
