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
import ssl
import sys
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace

Check = Callable[[str], "Awaitable[None] | None"]
LoginUse = Callable[["Login"], "Awaitable[None] | None"]

WAIT_SECONDS = 40
T0 = 1_600_000_000_000
CODECS = ("gzip", "snappy", "lz4", "zstd")
EVERY_PARTITION = {0, 1, 2, 3}


class Refused(Exception):
    """The broker says that it has no such thing, and the client stops at that: its last words."""


class Skipped(Exception):
    """There is nothing to try at this broker, as the client's own test finds: its words."""


def by_name(*checks: Check) -> dict[str, Check]:
    """Checks with the names of their features."""
    return {check.__name__.replace("_", "-"): check for check in checks}


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
    except Skipped as skipped:
        return "absent", str(skipped)
    except Exception as error:
        return "failed", in_a_line(error)
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
        raise Refused(in_a_line(error)) from error


def in_a_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().split("\n")[0]


@dataclass(frozen=True)
class Login:
    """How a client is to connect to the broker where users log in; without a mechanism by TLS
    alone."""

    protocol: str
    mechanism: str
    servers: str
    user: str
    password: str
    authority: str

    def settings(self) -> dict[str, object]:
        """As aiokafka and kafka-python have them."""
        settings: dict[str, object] = {
            "bootstrap_servers": self.servers,
            "security_protocol": self.protocol,
        }
        if self.protocol.endswith("SSL"):
            settings["ssl_context"] = ssl.create_default_context(cafile=self.authority)
        if self.mechanism:
            settings["sasl_mechanism"] = self.mechanism
            settings["sasl_plain_username"] = self.user
            settings["sasl_plain_password"] = self.password
        return settings

    def properties(self) -> dict[str, str]:
        """As librdkafka has them."""
        settings = {"bootstrap.servers": self.servers, "security.protocol": self.protocol}
        settings["ssl.ca.location"] = self.authority
        if self.mechanism:
            settings["sasl.mechanism"] = self.mechanism
            settings["sasl.username"] = self.user
            settings["sasl.password"] = self.password
        return settings


MECHANISMS = {
    "tls": "",
    "plain": "PLAIN",
    "scram-256": "SCRAM-SHA-256",
    "scram-512": "SCRAM-SHA-512",
}


def logins(mechanism: str) -> Iterator[Login]:
    """The ways to connect by a mechanism, of which the environment tells."""
    user, password = os.environ["LOGIN_USER"], os.environ["LOGIN_PASSWORD"]
    authority = os.environ["LOGIN_CA"]
    for protocol in ("SASL_PLAINTEXT", "SASL_SSL") if mechanism else ("SSL",):
        servers = os.environ[f"LOGIN_{protocol}"]
        yield Login(protocol, mechanism, servers, user, password, authority)


def login_checks(use: LoginUse, expect_refusal: LoginUse) -> dict[str, Check]:
    """Uses a client in each way with the right password, and has it refused with a wrong one."""

    async def try_each(mechanism: str) -> None:
        for login in logins(mechanism):
            await _if_needed(use(login))
            if mechanism:
                await _if_needed(expect_refusal(replace(login, password=login.password + "?")))

    def check_of(mechanism: str) -> Check:
        return lambda _servers: try_each(mechanism)

    return {feature: check_of(mechanism) for feature, mechanism in MECHANISMS.items()}


async def _if_needed(waiting: Awaitable[None] | None) -> None:
    if waiting is not None:
        await waiting


class Member:
    """A member of a group in a thread of its own: there `live` polls until the member is to leave,
    and keeps here what it reads and which partitions it has."""

    def __init__(self, live: Callable[[Member], Awaitable[None] | None]) -> None:
        self.values: list[int] = []
        self.assigned: set[int] = set()
        self._leaving = threading.Event()
        self._outcome = ("failed", "it does not end")
        self._thread = threading.Thread(target=self._run, args=(live,), daemon=True)
        self._thread.start()

    def _run(self, live: Callable[[Member], Awaitable[None] | None]) -> None:
        self._outcome = attempt(lambda _servers: live(self), "")

    def is_leaving(self) -> bool:
        return self._leaving.is_set()

    def leave(self) -> None:
        """Waits for its end, which must be a good one."""
        self._leaving.set()
        self._thread.join(WAIT_SECONDS)
        expect(("passed", ""), self._outcome)


def members_come_and_leave(join: Callable[[], Member], send: Callable[[], object]) -> None:
    """Two members of a group share a topic of four partitions, to which `send` brings the numbers
    from 0 to 39; then the second one leaves."""
    first = join()
    wait_until(lambda: first.assigned == EVERY_PARTITION, "one member has all partitions")
    second = join()
    wait_until(
        lambda: (
            len(first.assigned) == len(second.assigned) == 2
            and first.assigned | second.assigned == EVERY_PARTITION
        ),
        "two members share the partitions",
    )
    send()
    wait_until(lambda: len(first.values + second.values) >= 40, "all records are read")
    second.leave()
    wait_until(lambda: first.assigned == EVERY_PARTITION, "the first has all partitions again")
    first.leave()
    expect(list(range(40)), sorted(first.values + second.values))


def static_member_returns(join: Callable[[str], Member]) -> None:
    """Of two members with an instance id, which share two partitions, one is started again."""
    first, second = join("one"), join("two")
    wait_until(lambda: len(first.assigned) == len(second.assigned) == 1, "both have one")
    kept = first.assigned
    first.leave()
    again = join("one")
    wait_until(lambda: bool(again.assigned), "the member is back")
    expect(kept, again.assigned)
    again.leave()
    second.leave()
