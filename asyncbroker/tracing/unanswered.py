"""Which request a response answers: told by its correlation id, among those that still wait.

A broker answers a connection's requests in their order. What stands before the one that is answered
will have no answer (a Produce with acks=0 whose body nobody could look into); a response that
nobody here has asked for (what is seen begins in the middle of a connection) takes nothing away.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

Asked = TypeVar("Asked")


class Unanswered(Generic[Asked]):
    """The requests of one connection without answers, oldest first."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: deque[tuple[int, Asked]] = deque()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, correlation_id: int, asked: Asked) -> None:
        """A request was sent."""
        self._rows.append((correlation_id, asked))

    def answered(self, response: bytes | bytearray) -> tuple[list[Asked], Asked | None]:
        """Takes out the request that a response (or its beginning) answers, and those before it.
        Of one that is withheld to its last byte it is the oldest."""
        if len(response) < 4:
            return [], self.oldest()
        correlation_id = int.from_bytes(response[:4], "big", signed=True)
        if all(row_id != correlation_id for row_id, _ in self._rows):
            return [], None
        passed: list[Asked] = []
        while True:
            row_id, asked = self._rows.popleft()
            if row_id == correlation_id:
                return passed, asked
            passed.append(asked)

    def oldest(self) -> Asked | None:
        """Takes out the one that has waited longest; None without any."""
        return self._rows.popleft()[1] if self._rows else None

    def all(self) -> list[Asked]:
        """Takes out all of them."""
        asked = [asked for _, asked in self._rows]
        self._rows.clear()
        return asked
