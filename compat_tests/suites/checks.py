"""What a client's program of checks is made of, when it is in Python.

A program is run as `PROGRAM SERVERS FEATURE...`: it tries these features of its client in this
order against the broker, and prints a line of JSON for each when it is done:

    {"feature": "gzip", "outcome": "passed", "note": ""}

Programs in other languages do the same by themselves. The interpreter that runs this may have
nothing installed but the client: only the standard library is imported.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping

Check = Callable[[str], "Awaitable[None] | None"]

WAIT_SECONDS = 40
T0 = 1_600_000_000_000


class Refused(Exception):
    """The broker says that it has no such thing, and the client stops at that: its last words."""


def run(checks: Mapping[str, Check]) -> None:
    """Runs the checks that the command line names."""
    servers, *features = sys.argv[1:]
    for feature in features:
        outcome, note = attempt(checks[feature], servers)
        line = json.dumps({"feature": feature, "outcome": outcome, "note": note})
        print(line, flush=True)
    # A client that left threads behind must not keep the program from ending.
    sys.stdout.flush()
    os._exit(0)


def attempt(check: Check, servers: str) -> tuple[str, str]:
    """What became of one check: passed, refused or failed, and the reason."""
    try:
        waiting = check(servers)
        if inspect.isawaitable(waiting):
            asyncio.run(_awaited(waiting))
    except Refused as refused:
        return "refused", str(refused)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}".strip().split("\n")[0]
    return "passed", ""


async def _awaited(waiting: Awaitable[None]) -> None:
    await waiting


def fresh(kind: str) -> str:
    """A name that nobody has used."""
    return f"{kind}-{uuid.uuid4().hex[:12]}"


def expect(wanted: object, found: object) -> None:
    """Fails with both in words if they differ."""
    if wanted != found:
        raise AssertionError(f"expected {wanted!r}, found {found!r}")


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Waits for threads to get somewhere."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {WAIT_SECONDS} s: {what}")
        time.sleep(0.05)


@contextlib.contextmanager
def refused_by(*errors: type[Exception]) -> Iterator[None]:
    """Turns these errors into a refusal, with their words."""
    try:
        yield
    except errors as error:
        raise Refused(f"{type(error).__name__}: {error}".strip().split("\n")[0]) from error
