"""Fetches a range of offsets, as the bytes of whole batches, from the leader of its partition.

While the caller decodes, the next Fetch is under way (`asyncbroker.client.reader`). A hole in the
offsets (compaction, markers, aborted records) is nothing to worry about as long as the log begins
before it; offsets that are not in the log are `OffsetsMissing`, and what that means to the query
is decided in `remaining_range`. So are all offsets of a topic that is gone, whatever another one of
its name may have.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.errors import BrokerError, RequestTimedOut
from asyncbroker.client.partitions import earliest_offsets, latest_offsets
from asyncbroker.client.reader import Fetched, Reader
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.schema import ZERO_UUID
from asyncbroker.spark.options import ReadOptions
from asyncbroker.spark.planner import DataLost, OffsetRange

if TYPE_CHECKING:
    from asyncbroker.spark.write_options import WriteOptions

logger = logging.getLogger(__name__)

TOPIC_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""What is left of these when the client has looked at the metadata again."""


class OffsetsMissing(Exception):
    """The log has no offset `position`, which it had when the query was planned."""

    def __init__(self, position: int, topic_gone: str = "") -> None:
        """`topic_gone` says so if the whole topic is."""
        super().__init__(topic_gone or f"offset {position} is not in the log")
        self.position = position
        self.topic_gone = topic_gone


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
    topic_ids = {partition.topic: wanted.topic_id} if wanted.topic_id != ZERO_UUID else {}
    with Reader(
        cluster,
        {partition: wanted.start},
        end_offsets={partition: wanted.end},
        partition_max_bytes=options.partition_fetch_bytes_max,
        isolation_level=options.isolation_level,
        topic_ids=topic_ids,
    ) as reader:
        position = wanted.start
        last_progress = time.monotonic()
        while not reader.is_done:
            try:
                answers = reader.poll()
                if not answers:
                    _check_progress(options, cluster, partition, position, last_progress)
            except BrokerError as error:
                if error.code in TOPIC_GONE:
                    raise OffsetsMissing(position, str(error)) from error
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                raise OffsetsMissing(position) from error
            for fetched in answers:
                yield fetched
                if fetched.next_offset > position:
                    position, last_progress = fetched.next_offset, time.monotonic()


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
    options: ReadOptions, cluster: Cluster, wanted: OffsetRange, missing: OffsetsMissing
) -> OffsetRange:
    """What can still be read of a range of which offsets are missing; may be empty.

    Raises DataLost if the query is to fail on that.
    """
    partition, position = wanted.partition, missing.position
    reason = (
        f"Could not read records in offset [{position}, {wanted.end}) for topic partition "
        f"{partition}"
    )
    # Without a later start there is nothing to come: the log ends before the range does.
    start = wanted.end
    if missing.topic_gone:
        reason += f": {missing.topic_gone}."
    else:
        earliest = earliest_offsets(cluster, [partition])[partition]
        reason += f", whose log starts at {earliest}."
        if earliest > position:
            start = min(earliest, wanted.end)
    if options.fail_on_data_loss:
        raise DataLost(reason)
    logger.warning("Some data may have been lost. %s", reason)
    return wanted.piece(start, wanted.end)
