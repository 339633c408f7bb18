"""`asyncbroker produce`: writes lines from standard input to a topic.

Lines are gathered into batches while more input is at hand, and sent as soon as it runs dry: a file
goes in large batches, what a person types or a log spits out goes at once.
"""

from __future__ import annotations

import io
import select
import sys
from collections.abc import Iterator
from typing import BinaryIO, Final, Protocol

import click

from asyncbroker.client.producer import Producer
from asyncbroker.commands.common import assignments, cluster_options, connected
from asyncbroker.commands.record_json import RecordToProduce, record_from_json
from asyncbroker.protocol.records import Compression

CHUNK_BYTES: Final = 256 * 1024

ACKS: Final = {"0": 0, "1": 1, "all": -1}


@click.command()
@click.argument("topic")
@click.option("-K", "--key-separator", metavar="TEXT", help="What ends the key in each line.")
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="For every record."
)
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Default: by the key.")
@click.option("--null", "null_text", metavar="TEXT", help="A value of this text is null.")
@click.option("--json", "is_json", is_flag=True, help="Lines are JSON, as consume prints it.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice([codec.name.lower() for codec in Compression]),
    default="none",
    show_default=True,
)
@click.option("-a", "--acks", type=click.Choice(list(ACKS)), default="all", show_default=True)
@cluster_options
def produce(
    bootstrap_servers: str,
    timeout_s: float,
    topic: str,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    null_text: str | None,
    is_json: bool,
    compression: str,
    acks: str,
) -> None:
    """Write lines from standard input to TOPIC, each as one record."""
    if is_json and key_separator is not None:
        raise click.UsageError("--json and --key-separator exclude each other")
    all_headers = [(name, value.encode()) for name, value in assignments(headers, "-H").items()]
    separator = None if key_separator is None else key_separator.encode()
    null_value = None if null_text is None else null_text.encode()
    count = 0
    with connected(bootstrap_servers, timeout_s) as cluster:
        opened = Producer(
            cluster, topic, acks=ACKS[acks], compression=Compression[compression.upper()]
        )
        with opened as producer:
            try:
                for line in lines_of(sys.stdin.buffer, producer):
                    count += 1
                    record = _record(line, count, is_json, separator)
                    producer.send(
                        None if record.value == null_value else record.value,
                        key=record.key,
                        headers=[*record.headers, *all_headers],
                        timestamp_ms=record.timestamp_ms,
                        partition=record.partition if partition is None else partition,
                    )
            except KeyboardInterrupt:
                # What was read is still written, as at the end of the input.
                pass
            except click.ClickException:
                # So are the lines before the one that is wrong.
                producer.flush()
                raise
            producer.flush()
    click.echo(f"{count} record{'s' * (count != 1)} written to {topic}", err=True)


class Flushable(Protocol):
    """What `lines_of` needs of a producer."""

    def flush(self) -> None: ...


def lines_of(stream: BinaryIO, producer: Flushable) -> Iterator[bytes]:
    """The lines of a stream without their ends; flushes the producer before it waits for more."""
    rest = b""
    while True:
        if not _has_input(stream):
            producer.flush()
        chunk = _read_some(stream)
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line.removesuffix(b"\r") for line in lines)
    if rest:
        yield rest


def _has_input(stream: BinaryIO) -> bool:
    try:
        descriptor = stream.fileno()
    except (OSError, io.UnsupportedOperation):
        return True
    return bool(select.select([descriptor], [], [], 0)[0])


def _read_some(stream: BinaryIO) -> bytes:
    """What there is, after waiting for something; empty at the end."""
    if isinstance(stream, (io.BufferedReader, io.BytesIO)):
        return stream.read1(CHUNK_BYTES)
    return stream.read(CHUNK_BYTES)


def _record(line: bytes, number: int, is_json: bool, separator: bytes | None) -> RecordToProduce:
    if is_json:
        try:
            return record_from_json(line)
        except ValueError as error:
            raise click.ClickException(f"line {number}: {error}") from error
    if separator is None:
        return RecordToProduce(line)
    key, found, value = line.partition(separator)
    if not found:
        raise click.ClickException(f"line {number} has no key separator {separator.decode()!r}")
    return RecordToProduce(value, key)
