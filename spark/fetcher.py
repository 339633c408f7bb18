"""Fetches a range of offsets, as the bytes of whole batches, from the leader of its partition.

While the caller decodes, the next Fetch is under way (`asyncbroker.client.reader`). A hole in the
offsets (compaction, markers, aborted records) is nothing to worry about as long as the log begins
before it; offsets that are not in the log are `OffsetsMissing`, and what that means to the query is
decided in `remaining_range`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.errors import BrokerError, RequestTimedOut
from asyncbroker.client.partitions import earliest_offsets, latest_offsets
from asyncbroker.client.reader import Fetched, Reader
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.spark.options import ReadOptions
from asyncbroker.spark.planner import DataLost, OffsetRange

if TYPE_CHECKING:
    from asyncbroker.spark.write_options import WriteOptions

logger = logging.getLogger(__name__)


class OffsetsMissing(Exception):
    """The log has no offset `position`, which it had when the query was planned."""

    def __init__(self, position: int) -> None:
        super().__init__(f"offset {position} is not in the log")
        self.position = position


def open_cluster(options: ReadOptions | WriteOptions) -> Cluster:
    """A client for the brokers of the options; connects when it is first used."""
    return Cluster(
        options.bootstrap_servers,
        client_id=options.client_id,
        timeout_ms=options.request_timeout_ms,
        connect_timeout_ms=options.connect_timeout_ms,
        security=options.security,
    )


def fetch(options: ReadOptions, cluster: Cluster, wanted: OffsetRange) -> Iterator[Fetched]:
    """The responses that hold the range; the first and last batches may reach beyond it.

    Raises OffsetsMissing, ClientError.
    """
    partition = wanted.partition
    with Reader(
        cluster,
        {partition: wanted.start},
        end_offsets={partition: wanted.end},
        partition_max_bytes=options.partition_fetch_bytes_max,
        isolation_level=options.isolation_level,
    ) as reader:
        position = wanted.start
        last_progress = time.monotonic()
        while not reader.is_done:
            try:
                answers = reader.poll()
            except BrokerError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                raise OffsetsMissing(position) from error
            for fetched in answers:
                yield fetched
                if fetched.next_offset > position:
                    position, last_progress = fetched.next_offset, time.monotonic()
            if not answers:
                _check_progress(options, cluster, partition, position, last_progress)


def _check_progress(
    options: ReadOptions,
    cluster: Cluster,
    partition: TopicPartition,
    position: int,
    last_progress: float,
) -> None:
    """Called when a broker had nothing to give, although the plan says that there is something."""
    latest = latest_offsets(cluster, [partition], isolation_level=options.isolation_level)
    if latest[partition] <= position:
        raise OffsetsMissing(position)
    if time.monotonic() - last_progress > options.poll_timeout_ms / 1000:
        raise RequestTimedOut(
            f"Cannot fetch record for offset {position} of {partition} in "
            f"{options.poll_timeout_ms} milliseconds"
        )


def remaining_range(
    options: ReadOptions, cluster: Cluster, wanted: OffsetRange, position: int
) -> OffsetRange:
    """What can still be read of a range whose offset `position` is missing; may be empty.

    Raises DataLost if the query is to fail on that.
    """
    partition = wanted.partition
    earliest = earliest_offsets(cluster, [partition])[partition]
    reason = (
        f"Could not read records in offset [{position}, {wanted.end}) for topic partition "
        f"{partition}, whose log starts at {earliest}."
    )
    if options.fail_on_data_loss:
        raise DataLost(reason)
    logger.warning("Some data may have been lost. %s", reason)
    # Without a later start there is nothing to come: the log ends before the range does.
    start = min(earliest, wanted.end) if earliest > position else wanted.end
    return OffsetRange(partition, start, wanted.end)
