"""The options by which commands trace and record; apart from what they do, which takes imports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def trace_option(command: Decorated) -> Decorated:
    """Adds `--trace`: None without it, the empty choice without a value."""
    return click.option(
        "--trace",
        "trace",
        is_flag=False,
        flag_value="",
        metavar="[CHOICE]",
        help="Show each request and its answer on standard error; CHOICE picks some of them, for "
        'example "api=Produce,Fetch topic=t client=c errors slower-than=10ms", and how: json, '
        "full.",
    )(command)


def recording_option(command: Decorated) -> Decorated:
    """Adds `--record`."""
    return click.option(
        "--record", "record", metavar="FILE", help="Keep all requests and answers in this file."
    )(command)
