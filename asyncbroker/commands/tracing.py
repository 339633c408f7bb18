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
from asyncbroker.tracing.recording import RecordingWriter
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


def started_recording(stack: ExitStack, path: str | None) -> RecordingWriter | None:
    """The recording that `--record` asks for, which ends with the stack, and says then whether
    it is whole."""
    if path is None:
        return None
    try:
        recorder = RecordingWriter(path)
    except OSError as error:
        raise click.ClickException(f"cannot record to {path}: {error.strerror}") from error

    def end() -> None:
        recorder.close()
        if recorder.error is not None:
            click.echo(f"asyncbroker: {path} is not whole: {recorder.error.strerror}", err=True)

    stack.callback(end)
    return recorder


class BrokerTrace:
    """The observer of a broker that is being served, for the time of a `with`: of a trace in text
    form, of a recording, or of both; None without either."""

    def __init__(self, text: str | None, record: str | None) -> None:
        self._choice = None if text is None else choice_of(text)
        self._record = record
        self._open = ExitStack()

    def __enter__(self) -> Observer | None:
        choice = self._choice
        recorder = started_recording(self._open, self._record)
        if choice is None:
            return None if recorder is None else Observer(recorder=recorder)
        lines = ChosenLines(choice, sys.stderr)
        self._open.callback(lines.close)
        return Observer(lines, is_full=choice.is_full, recorder=recorder)

    def __exit__(self, *exception: object) -> None:
        self._open.close()
