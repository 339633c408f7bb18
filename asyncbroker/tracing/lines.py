"""One exchange as one line: for a person with colours, for a pipe without, for a machine as JSON.

    09:14:02.118 Produce v9 #17 rdkafka orders-0 (3 records, 214 B) = 12  312 B > 64 B 0.4 ms

is: when, API and version, correlation id, client, each partition (`@` the offset asked for, `=` the
one answered), sizes of request and response, time taken; then errors, faults and problems. `full`
adds the decoded messages below it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TextIO

from asyncbroker.tracing.choice import Choice
from asyncbroker.tracing.exchange import NO_PARTITION, Exchange, PartitionPart
from asyncbroker.tracing.text import printable, size_text

PARTS_SHOWN_MAX: Final = 6

Piece = tuple[str, str]
"""Text, and rich's name of how it looks."""


def pieces(exchange: Exchange) -> list[Piece]:
    """The line in pieces, which a blank stands between."""
    found = [
        (clock_text(exchange.at), "dim"),
        (f"{printable(exchange.api)} v{exchange.version}", "bold cyan"),
        (f"#{exchange.correlation_id}", "dim"),
        (printable(exchange.client_id) or "(no client id)", "green"),
    ]
    found += [(printable(group), "magenta") for group in exchange.groups[:PARTS_SHOWN_MAX]]
    found += [
        (part_text(part), "bold red" if part.error else "yellow")
        for part in exchange.parts[:PARTS_SHOWN_MAX]
    ]
    hidden = max(0, len(exchange.parts) - PARTS_SHOWN_MAX)
    if hidden:
        found.append((f"and {hidden} more", "yellow"))
    if exchange.session:
        found.append((exchange.session, "dim"))
    answered = exchange.response_bytes
    answer = "no answer" if answered is None else size_text(answered)
    found.append((f" {size_text(exchange.request_bytes)} > {answer}", "dim"))
    found.append((f"{exchange.milliseconds:.1f} ms", "bold" if exchange.milliseconds > 100 else ""))
    shown = {part.error for part in exchange.parts[:PARTS_SHOWN_MAX]}
    found += [(error, "bold red") for error in exchange.errors if error not in shown]
    found += [(f"[fault: {printable(fault)}]", "bold yellow") for fault in exchange.faults]
    if exchange.problem:
        found.append((f"({printable(exchange.problem)})", "red"))
    return found


def part_text(part: PartitionPart) -> str:
    """One partition: `orders-0@5 (3 records, 214 B) = 8 ERROR`."""
    text = printable(part.topic)
    if part.partition != NO_PARTITION:
        text += f"-{part.partition}"
    if part.offset is not None:
        text += f"@{part.offset}"
    if part.record_bytes:
        counted = (
            "" if part.records is None else f"{part.records} record{'s' * (part.records != 1)}, "
        )
        text += f" ({counted}{size_text(part.record_bytes)})"
    if part.error:
        text += f" {part.error}"
    elif part.answered_offset is not None:
        text += f" = {part.answered_offset}"
    return text


def clock_text(at: float) -> str:
    """The local time of day, to the millisecond."""
    return f"{time.strftime('%H:%M:%S', time.localtime(at))}.{int(at * 1000) % 1000:03}"


def plain_line(exchange: Exchange, *, is_full: bool = False) -> str:
    """The line without colours."""
    line = " ".join(text for text, _ in pieces(exchange))
    return "\n".join([line, *full_lines(exchange)]) if is_full else line


def full_lines(exchange: Exchange) -> list[str]:
    """The decoded messages, indented. JSON's escapes keep strangers' characters out."""
    lines = []
    for name, message in (("request", exchange.request), ("response", exchange.response)):
        if message is not None:
            text = json.dumps(message, indent=2)
            lines += [f"    {row}" for row in f"{name} {text}".split("\n")]
    return lines


def json_line(exchange: Exchange) -> str:
    """One JSON object on one line, of ASCII characters."""
    return json.dumps(as_json(exchange))


def as_json(exchange: Exchange) -> dict[str, Any]:
    """What the JSON line has: times in seconds since 1970 and milliseconds, sizes in bytes."""
    found: dict[str, Any] = {
        "at": round(exchange.at, 6),
        "connection": exchange.connection,
        "peer": exchange.peer,
        "api": exchange.api,
        "version": exchange.version,
        "correlation_id": exchange.correlation_id,
        "client_id": exchange.client_id,
        "groups": list(exchange.groups),
        "partitions": [
            {
                "topic": part.topic,
                "partition": None if part.partition == NO_PARTITION else part.partition,
                "offset": part.offset,
                "answered_offset": part.answered_offset,
                "record_bytes": part.record_bytes,
                "records": part.records,
                "error": part.error or None,
            }
            for part in exchange.parts
        ],
        "request_bytes": exchange.request_bytes,
        "response_bytes": exchange.response_bytes,
        "milliseconds": round(exchange.milliseconds, 3),
        "errors": list(exchange.errors),
        "faults": list(exchange.faults),
        "problem": exchange.problem or None,
    }
    if exchange.request is not None or exchange.response is not None:
        found |= {"request": exchange.request, "response": exchange.response}
    return found


def line_printer(choice: Choice, stream: TextIO | None = None) -> Callable[[Exchange], None]:
    """A function that prints an exchange as the choice wants it: in colours if it goes to a
    terminal. Without a stream, to whatever standard error is at that moment."""
    if choice.is_json:
        return lambda exchange: print(json_line(exchange), file=stream or sys.stderr, flush=True)
    if (stream or sys.stderr).isatty():
        return _rich_printer(choice, stream or sys.stderr)
    return lambda exchange: print(
        plain_line(exchange, is_full=choice.is_full), file=stream or sys.stderr, flush=True
    )


def _rich_printer(choice: Choice, stream: TextIO) -> Callable[[Exchange], None]:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True)

    def show(exchange: Exchange) -> None:
        # A Text has no markup: what strangers write in brackets stays what it is.
        line = Text(" ").join(Text(text, style) for text, style in pieces(exchange))
        console.print(line)
        if choice.is_full:
            for row in full_lines(exchange):
                console.print(Text(row, "dim"))

    return show
