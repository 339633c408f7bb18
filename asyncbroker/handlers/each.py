"""For requests about several things, of which each has its own outcome and some may have to wait.

Not a handler: what FindCoordinator, OffsetFetch and DeleteGroups have in common.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from asyncbroker.protocol.errors import KafkaError

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def each(
    items: Iterable[Item],
    serve: Callable[[Item], Outcome | Awaitable[Outcome]],
    failed: Callable[[Item, KafkaError], Outcome],
) -> list[Outcome] | Coroutine[Any, Any, list[Outcome]]:
    """The outcome of `serve` for each item, in order; `failed` makes one of a KafkaError.

    All items are begun before any is waited for. If none has to wait, the list comes back at once.
    """
    begun: list[tuple[Item, Outcome | Awaitable[Outcome]]] = []
    is_waiting = False
    for item in items:
        try:
            outcome = serve(item)
        except KafkaError as error:
            outcome = failed(item, error)
        is_waiting = is_waiting or isinstance(outcome, Awaitable)
        begun.append((item, outcome))
    if is_waiting:
        return _finish(begun, failed)
    return [outcome for _, outcome in begun if not isinstance(outcome, Awaitable)]


async def _finish(
    begun: list[tuple[Item, Outcome | Awaitable[Outcome]]],
    failed: Callable[[Item, KafkaError], Outcome],
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for item, outcome in begun:
        try:
            outcomes.append(await outcome if isinstance(outcome, Awaitable) else outcome)
        except KafkaError as error:
            outcomes.append(failed(item, error))
    return outcomes
