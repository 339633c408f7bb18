"""`asyncbroker consume`: prints the records of a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Final

import click

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.groups import CommittedOffset, commit_offsets, committed_offsets
from asyncbroker.client.partitions import latest_offsets
from asyncbroker.client.reader import Fetched, Reader
from asyncbroker.commands.common import cluster_options, connected
from asyncbroker.commands.positions import resolve
from asyncbroker.commands.record_json import record_to_json
from asyncbroker.protocol.records import CorruptBatch, Record, batches, records_of

FORMATS: Final = ("value", "key-value", "full", "json")


@click.command()
@click.argument("topic")
@click.option(
    "-f",
    "--from",
    "begin",
    metavar="POSITION",
    default="earliest",
    show_default=True,
    help="earliest, latest, an offset, -N (the last N of each partition), or @TIME.",
)
@click.option(
    "-p",
    "--partition",
    "indexes",
    type=click.IntRange(min=0),
    multiple=True,
    help="Default: all; may be repeated.",
)
@click.option("-n", "--count", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option("-e", "--exit", "exits", is_flag=True, help="Stop at what is the end by now.")
@click.option(
    "-o",
    "--format",
    "layout",
    type=click.Choice(FORMATS),
    default="value",
    show_default=True,
    help="What to print of each record.",
)
@click.option("--json", "is_json", is_flag=True, help="The same as --format json.")
@click.option(
    "-g",
    "--group",
    "group_id",
    help="Begin where this group has got to, and commit at the end. The group has no members.",
)
@cluster_options
def consume(
    bootstrap_servers: str,
    timeout_s: float,
    topic: str,
    begin: str,
    indexes: tuple[int, ...],
    count: int | None,
    exits: bool,
    layout: str,
    is_json: bool,
    group_id: str | None,
) -> None:
    """Print the records of TOPIC, and wait for more until Ctrl-C.

    TIME is in milliseconds since 1970, or like 2013-01-31T08:00 (local time unless it says
    otherwise).
    """
    stream = sys.stdout.buffer
    layout = "json" if is_json else layout
    printed = 0
    with connected(bootstrap_servers, timeout_s) as cluster:
        partitions = _chosen(cluster, topic, indexes)
        committed = committed_offsets(cluster, group_id, partitions) if group_id else {}
        rest = [partition for partition in partitions if partition not in committed]
        positions = resolve(cluster, begin, rest) if rest else {}
        positions.update((partition, row.offset) for partition, row in committed.items())
        ends = latest_offsets(cluster, partitions) if exits else None
        done: dict[TopicPartition, int] = {}
        try:
            for partition, record in records(cluster, positions, ends):
                stream.write(formatted(layout, partition, record))
                done[partition] = record.offset + 1
                printed += 1
                if printed == count:
                    break
        except KeyboardInterrupt:
            # The way to end it.
            pass
        stream.flush()
        if group_id and done:
            offsets = {partition: CommittedOffset(offset) for partition, offset in done.items()}
            commit_offsets(cluster, group_id, offsets)
    click.echo(f"{printed} record{'s' * (printed != 1)} read from {topic}", err=True)


def records(
    cluster: Cluster,
    positions: dict[TopicPartition, int],
    ends: dict[TopicPartition, int] | None,
) -> Iterator[tuple[TopicPartition, Record]]:
    """The records from the given positions on, up to the given ends or for ever. Flushes standard
    output whenever it has to wait."""
    with Reader(cluster, positions, end_offsets=ends) as reader:
        while not reader.is_done:
            for fetched in reader.poll():
                end = None if ends is None else ends.get(fetched.partition)
                for record in _records_of(fetched):
                    if end is None or record.offset < end:
                        yield fetched.partition, record
            sys.stdout.buffer.flush()


def formatted(layout: str, partition: TopicPartition, record: Record) -> bytes:
    """One record as one line."""
    if layout == "json":
        return record_to_json(partition, record).encode() + b"\n"
    value = b"null" if record.value is None else record.value
    if layout == "value":
        return value + b"\n"
    key = b"null" if record.key is None else record.key
    if layout == "key-value":
        return key + b"\t" + value + b"\n"
    moment = datetime.fromtimestamp(record.timestamp / 1000, timezone.utc)
    head = f"{partition.partition}\t{record.offset}\t{moment.isoformat(timespec='milliseconds')}\t"
    headers = b",".join(
        name.encode() + b"=" + (b"null" if content is None else content)
        for name, content in record.headers
    )
    return head.encode() + headers + b"\t" + key + b"\t" + value + b"\n"


def _chosen(cluster: Cluster, topic: str, indexes: tuple[int, ...]) -> list[TopicPartition]:
    partitions = cluster.partitions_of(topic)
    if not indexes:
        return partitions
    chosen = [TopicPartition(topic, index) for index in sorted(set(indexes))]
    if missing := [partition for partition in chosen if partition not in partitions]:
        raise click.BadParameter(f"there is no {missing[0]}", param_hint="--partition")
    return chosen


def _records_of(fetched: Fetched) -> Iterator[Record]:
    try:
        for header, batch in batches(fetched.records):
            if header.is_control:
                continue
            for record in records_of(batch, header):
                if record.offset >= fetched.position:
                    yield record
    except CorruptBatch as error:
        raise click.ClickException(
            f"{fetched.partition} holds a damaged batch at or after offset {fetched.position}: "
            f"{error}"
        ) from error
