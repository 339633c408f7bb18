"""`asyncbroker test-broker -- CMD`: any command, in any language, with a broker of its own.

The broker lives in this process, in memory and on a free port, and ends when the command ends. The
command finds it by its environment. It is this process's child in the same process group: what a
terminal sends (Ctrl-C) reaches it by itself, what is sent to this process alone is passed on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from asyncbroker.commands.common import BOOTSTRAP_SERVERS_VARIABLE, assignments
from asyncbroker.commands.trace_options import recording_option, trace_option

if TYPE_CHECKING:
    from asyncbroker.testing import BrokerThread

VARIABLES: Final = (BOOTSTRAP_SERVERS_VARIABLE, "BOOTSTRAP_SERVERS")

# As shells have it.
NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
BY_SIGNAL: Final = 128

_PASSED_ON: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")


@click.command("test-broker")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD ARGS...]")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME[:PARTITIONS]",
    help="A topic to create before the command starts. May be given several times.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting by Kafka's name. May be given several times.",
)
@click.option("--data", "data", metavar="DIR", help="Keep topics and records in this directory.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Where to listen. [default: any free]"
)
@click.option(
    "--old-broker",
    "release",
    metavar="RELEASE",
    help='Advertise the versions that this release of Kafka had, for example "2.8".',
)
@trace_option
@recording_option
@click.option(
    "--trace-on-failure",
    is_flag=True,
    help="When the command fails, print the last requests to standard error.",
)
def run_with_broker(
    command: tuple[str, ...],
    topics: tuple[str, ...],
    settings: tuple[str, ...],
    data: str | None,
    port: int,
    release: str | None,
    trace: str | None,
    record: str | None,
    trace_on_failure: bool,
) -> None:
    """Run CMD against a fresh broker, and end with its exit status.

    CMD finds the broker in KAFKA_BOOTSTRAP_SERVERS (and BOOTSTRAP_SERVERS). Without CMD the address
    is printed, and the broker stays until Ctrl-C.
    """
    from asyncbroker.commands.tracing import BrokerTrace
    from asyncbroker.config import ConfigError
    from asyncbroker.log.errors import DirectoryRefused
    from asyncbroker.protocol.errors import KafkaError
    from asyncbroker.server import CannotListen
    from asyncbroker.testing import BrokerThread

    wanted = [_parse_topic(text) for text in topics]
    if data == "":
        raise click.UsageError("--data needs a directory")
    with ExitStack() as stack:
        observer = stack.enter_context(BrokerTrace(trace, record))
        try:
            broker = BrokerThread(
                assignments(settings, "--set"), directory=data, port=port, trace=observer or False
            )
            stack.enter_context(broker)
            if release is not None:
                _become(broker, release)
            for name, partitions in wanted:
                if name not in broker.topics:
                    broker.topic(name).create(partitions)
        except (ConfigError, CannotListen, DirectoryRefused, KafkaError, OSError) as error:
            raise click.ClickException(str(error)) from error
        if command:
            status = _run(command, broker.bootstrap_servers)
            if status and trace_on_failure:
                _print_requests(broker)
        else:
            status = _wait(broker.bootstrap_servers)
    sys.exit(status)


def _become(broker: BrokerThread, release: str) -> None:
    try:
        broker.scenarios.old_broker(release)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--old-broker") from error


def _parse_topic(text: str) -> tuple[str, int | None]:
    name, colon, partitions = text.partition(":")
    if not name or (colon and not partitions.isdecimal()):
        raise click.BadParameter(f"{text!r} is not NAME or NAME:PARTITIONS", param_hint="--topic")
    return name, int(partitions) if colon else None


def _run(command: tuple[str, ...], servers: str) -> int:
    """Runs the command to its end; returns the exit status that a shell would have for it."""
    environment = {**os.environ, **dict.fromkeys(VARIABLES, servers)}
    with _signals_passed_on() as receiver:
        try:
            child = subprocess.Popen(command, env=environment)
        except OSError as error:
            click.echo(f"asyncbroker: {command[0]}: {error.strerror}", err=True)
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        receiver.start(child)
        status = child.wait()
    return BY_SIGNAL - status if status < 0 else status


class _Receiver:
    """Passes signals on to the child; those that come before it is there wait for it."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def start(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        for number in self._early:
            child.send_signal(number)

    def receive(self, number: int, _: FrameType | None) -> None:
        """The handler."""
        if number == signal.SIGINT and _is_in_foreground():
            # From the terminal, which has sent it to the child as well.
            return
        if self._child is None:
            self._early.append(number)
        else:
            self._child.send_signal(number)


@contextmanager
def _signals_passed_on() -> Iterator[_Receiver]:
    receiver = _Receiver()
    before: Mapping[int, object] = {
        number: signal.signal(number, receiver.receive)
        for number in (getattr(signal, name, None) for name in _PASSED_ON)
        # What our caller wants ignored stays ignored, by the command too.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield receiver
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]


def _is_in_foreground() -> bool:
    """Whether a terminal sends its signals to our process group."""
    try:
        return os.tcgetpgrp(sys.__stdin__.fileno()) == os.getpgrp()  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):
        return False


def _wait(servers: str) -> int:
    """Stays until somebody ends it."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    print(f"asyncbroker ready {servers}", flush=True)
    ended.wait()
    return 0


def _print_requests(broker: BrokerThread) -> None:
    text = broker.requests.describe() or "(there were none)"
    click.echo(f"asyncbroker: the last requests:\n{text}", err=True)
