"""What the commands that trace share: a choice in text becomes a sink, or an observer."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TextIO

import click

from asyncbroker.tracing.choice import BadChoice, Choice, parse_choice
from asyncbroker.tracing.exchange import Exchange
from asyncbroker.tracing.lines import line_printer
from asyncbroker.tracing.observer import Observer
from asyncbroker.tracing.writer import TraceWriter


def choice_of(text: str, option: str = "--trace") -> Choice:
    """A choice in text; what is wrong with it as the command line says it."""
    try:
        return parse_choice(text)
    except BadChoice as error:
        raise click.BadParameter(str(error), param_hint=option) from error


class ChosenLines:
    """A sink that shows the exchanges that are wanted, in a thread of its own."""

    def __init__(self, choice: Choice, stream: TextIO) -> None:
        self._choice = choice
        self._writer = TraceWriter(line_printer(choice, stream))

    def __call__(self, exchange: Exchange) -> None:
        if self._choice.wants(exchange):
            self._writer.put(exchange)

    def close(self) -> None:
        """Shows what waits, and ends the thread."""
        self._writer.close()


class BrokerTrace:
    """The observer of a broker that is being served, for the time of a `with`."""

    def __init__(self, text: str) -> None:
        self._choice = choice_of(text)
        self._open = ExitStack()

    def __enter__(self) -> Observer:
        lines = ChosenLines(self._choice, sys.stderr)
        self._open.callback(lines.close)
        return Observer(lines, is_full=self._choice.is_full)

    def __exit__(self, *exception: object) -> None:
        self._open.close()
