"""Where to read from, as people write it: an end of the log, an offset, a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import click

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.partitions import earliest_offsets, latest_offsets, list_offsets

EARLIEST_WORDS: Final = ("earliest", "beginning")
LATEST_WORDS: Final = ("latest", "end")
TIME_PREFIX: Final = "@"


def parse_timestamp(text: str) -> int:
    """Milliseconds since 1970, from a number or from a date and time in ISO 8601; local time
    unless it says otherwise. Raises `click.BadParameter`."""
    if text.isdecimal():
        return int(text)
    try:
        # Python 3.10 does not know the Z.
        moment = datetime.fromisoformat(text.removesuffix("Z") + "+00:00" * text.endswith("Z"))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither milliseconds since 1970 nor like 2013-01-31T08:00"
        ) from None
    return round(moment.timestamp() * 1000)


def resolve(
    cluster: Cluster, text: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offset that `text` means in each partition: "earliest", "latest", an offset, -N for the
    last N records, or "@TIME" for the first record that is not older. Raises `click.BadParameter`.
    """
    if text in EARLIEST_WORDS:
        return earliest_offsets(cluster, partitions)
    if text in LATEST_WORDS:
        return latest_offsets(cluster, partitions)
    if text.startswith(TIME_PREFIX):
        timestamp = parse_timestamp(text.removeprefix(TIME_PREFIX))
        found = list_offsets(cluster, dict.fromkeys(partitions, timestamp))
        ends = latest_offsets(cluster, partitions)
        return {p: row.offset if row.offset >= 0 else ends[p] for p, row in found.items()}
    try:
        offset = int(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no position") from None
    if offset >= 0:
        return dict.fromkeys(partitions, offset)
    begins = earliest_offsets(cluster, partitions)
    return {
        partition: max(begins[partition], end + offset)
        for partition, end in latest_offsets(cluster, partitions).items()
    }
