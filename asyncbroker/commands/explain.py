"""`asyncbroker explain FILE`: says what captured bytes mean."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Final

import click

from asyncbroker.protocol.api import API_BY_NAME
from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.tracing.captured import CAPTURE_MAGICS, bytes_of, frames_of
from asyncbroker.tracing.exchanges import exchanges
from asyncbroker.tracing.frames import (
    Head,
    decode_request,
    decode_response,
    read_head,
)
from asyncbroker.tracing.lines import json_line, plain_line
from asyncbroker.tracing.plain import plain
from asyncbroker.tracing.recording import MAGIC, Entry, Kind, NotARecording, RecordingReader
from asyncbroker.tracing.text import printable, size_text

FILE_BYTES_MAX: Final = 64 * 1024 * 1024


@click.command()
@click.argument("file", type=click.File("rb"))
@click.option(
    "--response-to",
    metavar="API:VERSION",
    help="The bytes are responses to this, for example Fetch:12. [default: requests]",
)
@click.option("--port", type=click.IntRange(1, 65535), help="Of a packet capture, the broker's.")
@click.option("--brief", is_flag=True, help="Of what has answers, a line for each request.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line.")
def explain(
    file: BinaryIO, response_to: str | None, port: int | None, brief: bool, as_json: bool
) -> None:
    """Decode the bytes in FILE: a recording, a packet capture (pcap or pcapng), a stream of frames,
    or a hex dump of one.

    "-" is standard input.
    """
    head = None if response_to is None else _parse_head(response_to)
    beginning = file.read(len(MAGIC))
    if beginning[:4] in CAPTURE_MAGICS:
        _show_capture(_again(file, beginning), port, is_json=as_json, is_full=not brief)
        return
    if beginning and MAGIC.startswith(beginning):
        try:
            reader = RecordingReader(_again(file, beginning))
        except NotARecording as error:
            raise click.ClickException(f"{file.name}: {error}") from error
        _show_exchanges(reader, is_json=as_json, is_full=not brief)
        if reader.torn_bytes:
            click.echo(f"{reader.torn_bytes} bytes at the end are torn", err=True)
        return
    frames, left_over = frames_of(bytes_of(_rest(file, beginning)))
    for frame in frames:
        _show_frame(frame, head, as_json=as_json)
    if left_over:
        click.echo(f"{left_over} bytes of an unfinished frame are left over", err=True)
    if not frames:
        raise click.ClickException("there are no bytes")


def _again(file: BinaryIO, beginning: bytes) -> BinaryIO:
    """The file from its start; a pipe is read into memory, up to a limit."""
    if not file.seekable():
        return io.BytesIO(_rest(file, beginning))
    file.seek(0)
    return file


def _rest(file: BinaryIO, beginning: bytes) -> bytes:
    """All of the file, up to the limit."""
    data = beginning + file.read(FILE_BYTES_MAX - len(beginning))
    if len(data) == FILE_BYTES_MAX and file.read(1):
        click.echo(f"only the first {size_text(FILE_BYTES_MAX)} are looked at", err=True)
    return data


def _show_capture(file: BinaryIO, port: int | None, *, is_json: bool, is_full: bool) -> None:
    try:
        from asyncbroker.tracing.capture import NotACapture, entries_of
    except ImportError as error:
        raise click.ClickException(
            f"packet captures need {error.name}: pip install 'asyncbroker[pcap]'"
        ) from error
    gaps = 0

    def entries() -> Iterator[Entry]:
        nonlocal gaps
        for entry in entries_of(file, port):
            gaps += entry.kind is Kind.GAP
            yield entry

    try:
        _show_exchanges(entries(), is_json=is_json, is_full=is_full)
    except NotACapture as error:
        raise click.ClickException(f"{file.name}: {error}") from error
    if gaps:
        click.echo(f"{gaps} directions of connections end early: bytes are missing", err=True)


def _show_exchanges(entries: Iterable[Entry], *, is_json: bool, is_full: bool) -> None:
    for exchange in exchanges(entries, is_full=is_full):
        click.echo(json_line(exchange) if is_json else plain_line(exchange, is_full=is_full))


def _parse_head(text: str) -> Head:
    name, _, version = text.partition(":")
    api = {api.name.lower(): api for api in API_BY_NAME.values()}.get(name.lower())
    if api is None or not version.isdecimal() or int(version) not in api.versions:
        raise click.BadParameter(
            f"{text!r} is no API and version that can be decoded", param_hint="--response-to"
        )
    return Head(api.key, int(version), -1, "")


def _show_frame(frame: bytes, response_to: Head | None, *, as_json: bool) -> None:
    shown: dict[str, Any] = {"bytes": len(frame)}
    try:
        head = read_head(frame) if response_to is None else response_to
        shown |= {"api": str(head), "correlation_id": head.correlation_id}
        if response_to is None:
            shown["client_id"] = head.client_id
            shown["request"] = plain(decode_request(head, frame))
        else:
            shown["correlation_id"] = int.from_bytes(frame[:4], "big", signed=True)
            shown["response"] = plain(decode_response(head, frame))
    except ProtocolError as error:
        shown["problem"] = printable(str(error))
    click.echo(json.dumps(shown, indent=None if as_json else 2))
