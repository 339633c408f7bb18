"""`asyncbroker replay`: a recording against another broker, or as a test."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import BinaryIO

import click

from asyncbroker.client.connection import Address
from asyncbroker.client.errors import ClientError
from asyncbroker.tracing.recording import NotARecording, RecordingReader
from asyncbroker.tracing.replay import Replay, report_lines


@click.command()
@click.argument("file", type=click.File("rb"))
@click.argument("address", metavar="[HOST:PORT]", required=False)
@click.option(
    "--speed",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="X",
    help="1: at the pace of the recording, 2: twice that, ... Default: as fast as answers come.",
)
@click.option(
    "--connection",
    "connections",
    type=int,
    multiple=True,
    metavar="N",
    help="Only this connection of the recording; may be repeated.",
)
@click.option("--check", is_flag=True, help="End with status 1 when an answer differs.")
@click.option("--strict", is_flag=True, help="Compare also what brokers may answer differently.")
@click.option(
    "--timeout", "timeout_s", type=float, default=30.0, show_default=True, metavar="SECONDS"
)
@click.option("--as-test", type=click.Path(dir_okay=False), help="Write a pytest file instead.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line.")
def replay(
    file: BinaryIO,
    address: str | None,
    speed: float,
    connections: tuple[int, ...],
    check: bool,
    strict: bool,
    timeout_s: float,
    as_test: str | None,
    as_json: bool,
) -> None:
    """Send the requests of the recording FILE to the broker at HOST:PORT, and show where its
    answers differ from the recorded ones.

    Ids and offsets that a broker gives out are mapped: member ids, generations, producer ids, topic
    ids, fetch sessions, offsets.
    """
    if (address is None) == (as_test is None):
        raise click.UsageError("give HOST:PORT, or --as-test")
    try:
        reader = RecordingReader(file)
        if as_test is not None:
            from asyncbroker.tracing.as_test import source_of_test

            Path(as_test).write_text(source_of_test(reader, file.name, frozenset(connections)))
            _say([], reader)
            return
        replaying = Replay(
            Address.parse(address or ""),
            timeout_s=timeout_s,
            speed=speed,
            connections=frozenset(connections),
            is_strict=strict,
        )
        differing = 0
        for report in replaying.run(reader):
            differing += 1
            if as_json:
                found = [
                    {"path": d.path, "recorded": d.recorded, "replayed": d.replayed}
                    for d in report.differences
                ]
                head = report.head
                line = {"connection": report.connection, "request": str(head)}
                line_of = {**line, "correlation_id": head.correlation_id, "differences": found}
                click.echo(json.dumps(line_of))
            else:
                click.echo("\n".join(report_lines(report)))
    except (NotARecording, ClientError) as error:
        raise click.ClickException(str(error)) from error
    except BrokenPipeError:
        # Of standard output: whoever read it has seen enough.
        raise
    except OSError as error:
        raise click.ClickException(f"{address or as_test}: {error.strerror or error}") from error
    counts = replaying.counts
    told = [
        f"{counts.requests} requests sent, {counts.compared} answers compared, {differing} differ"
    ]
    if counts.skipped:
        told.append(
            f"{counts.skipped} requests were not recorded whole, or had no connection any more"
        )
    if counts.gaps:
        told.append(f"{counts.gaps} frames are missing in the recording")
    _say(told, reader)
    sys.exit(1 if check and differing else 0)


def _say(told: list[str], reader: RecordingReader) -> None:
    """What there is to say at the end, on standard error."""
    if reader.torn_bytes:
        told.append(f"the recording ends torn ({reader.torn_bytes} bytes)")
    if told:
        click.echo("; ".join(told), err=True)
