"""`asyncbroker trace ADDR`: shows what clients and a broker, any broker, say to each other."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import sys
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import click

from asyncbroker.client.connection import Address
from asyncbroker.client.errors import ClientError
from asyncbroker.commands.trace_options import recording_option
from asyncbroker.commands.tracing import ChosenLines, started_recording
from asyncbroker.tracing.choice import BadChoice, Choice, check_apis, parse_duration_ms

if TYPE_CHECKING:
    from asyncbroker.tracing.recording import RecordingWriter


@click.command()
@click.argument("address", metavar="HOST:PORT")
@click.option(
    "--listen",
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    help="Where clients connect to; port 0 takes a free one.",
)
@click.option("--api", "apis", multiple=True, metavar="NAME,...", help="Only these APIs.")
@click.option("--topic", "topics", multiple=True, help="Only what is about this topic.")
@click.option("--group", "groups", multiple=True, help="Only what is about this group.")
@click.option("--client", "clients", multiple=True, help="Only what this client id asks.")
@click.option("--errors", is_flag=True, help="Only what failed.")
@click.option("--slower-than", metavar="TIME", default="0ms", help="Only what took so long: 10ms.")
@click.option("--full", is_flag=True, help="Show the decoded messages too.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line.")
@recording_option
def trace(
    address: str,
    listen: str,
    apis: tuple[str, ...],
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    clients: tuple[str, ...],
    errors: bool,
    slower_than: str,
    full: bool,
    as_json: bool,
    record: str | None,
) -> None:
    """Stand between clients and the broker at HOST:PORT, and show each request and its answer.

    Clients connect to the address that is printed. The addresses of the cluster's brokers are
    rewritten in what they are told, so that they stay here. Plain connections only, no TLS.
    """
    try:
        choice = Choice(
            apis=check_apis([name for text in apis for name in text.split(",")]),
            topics=frozenset(topics),
            groups=frozenset(groups),
            clients=frozenset(clients),
            has_errors=errors,
            slower_than_ms=parse_duration_ms(slower_than),
            is_json=as_json,
            is_full=full,
        )
        upstream, own = Address.parse(address), Address.parse(listen)
    except (BadChoice, ClientError) as error:
        raise click.UsageError(str(error)) from error
    with ExitStack() as stack:
        recorder = started_recording(stack, record)
        lines = ChosenLines(choice, sys.stdout)
        stack.callback(lines.close)
        asyncio.run(_run(upstream, own, choice, lines, recorder))


async def _run(
    upstream: Address,
    own: Address,
    choice: Choice,
    lines: ChosenLines,
    recorder: RecordingWriter | None,
) -> None:
    from asyncbroker.context import Address as BrokerAddress
    from asyncbroker.tracing.proxy import CannotTrace, Proxy

    def say(text: str) -> None:
        click.echo(f"asyncbroker: {text}", err=True)

    proxy = Proxy(
        BrokerAddress(*dataclasses.astuple(upstream)),
        sink=lines,
        say=say,
        is_full=choice.is_full,
        recorder=recorder,
    )
    try:
        bound = await proxy.start(own.host, own.port)
    except CannotTrace as error:
        raise click.ClickException(str(error)) from error
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, ended.set)
    click.echo(f"asyncbroker trace ready {bound} for {upstream}", err=True)
    try:
        await ended.wait()
    finally:
        await proxy.stop()
