"""The trace of a broker in a test: each request and its answer as a line, as it happens.

The lines go to whatever standard error is at that moment, which under pytest is the test's own;
they are written at once, so that they stand where they belong among its other output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from asyncbroker.tracing.choice import parse_choice
from asyncbroker.tracing.exchange import Exchange
from asyncbroker.tracing.lines import line_printer
from asyncbroker.tracing.observer import Observer

Trace = bool | str | Callable[[Exchange], object] | Observer
"""Whether to trace; which requests, as `asyncbroker.tracing.choice` has it; or who is told."""


def make_observer(trace: Trace, faults: Callable[[], Sequence[str]]) -> Observer | None:
    """The observer that a trace needs; None for none. Raises BadChoice."""
    if trace is False:
        return None
    if isinstance(trace, Observer):
        trace.faults = faults
        return trace
    if callable(trace):
        return Observer(trace, faults=faults)
    choice = parse_choice("" if trace is True else trace)
    show = line_printer(choice)

    def sink(exchange: Exchange) -> None:
        if choice.wants(exchange):
            show(exchange)

    return Observer(sink, is_full=choice.is_full, faults=faults)
