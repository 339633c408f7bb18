"""How far a stream is behind, out of its progress: Spark takes no metrics from Python sources.

    query.lastProgress -> lag(query.lastProgress)[0].max_offsets_behind
    spark.streams.addListener(LagListener())      # a log line for each batch

The numbers are those that Spark's own Kafka connector reports as `minOffsetsBehindLatest`,
`maxOffsetsBehindLatest` and `avgOffsetsBehindLatest`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from asyncbroker.spark.stream_offsets import from_json

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lag:
    """The offsets that were there and not read when a batch ended, over the partitions."""

    min_offsets_behind: int
    max_offsets_behind: int
    avg_offsets_behind: float
    total_offsets_behind: int


def lag(progress: Mapping[str, Any]) -> list[Lag | None]:
    """The lag of each source of a query by its progress (`query.lastProgress`); None for a source
    that is not this one, or has not said yet what there is."""
    return [
        _of_source(source["endOffset"], source["latestOffset"]) for source in progress["sources"]
    ]


def _of_source(end: object, latest: object) -> Lag | None:
    try:
        ends, newest = _offsets(end), _offsets(latest)
    except ValueError:
        return None
    behind = [max(0, offset - ends.get(partition, 0)) for partition, offset in newest.items()]
    if not behind:
        return None
    return Lag(min(behind), max(behind), sum(behind) / len(behind), sum(behind))


def _offsets(text: object) -> Mapping[Any, int]:
    found = json.loads(text) if isinstance(text, str) else text
    if not isinstance(found, Mapping):
        raise ValueError(f"{text} are no offsets")
    return from_json(found)


class LagListener(StreamingQueryListener):
    """Logs the lag of every query after each of its batches."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch is done."""
        progress = event.progress
        for number, found in enumerate(lag(json.loads(progress.json))):
            if found is not None:
                logger.info(
                    "query '%s', batch %d, source %d: %d offsets behind; by partition %d to %d, "
                    "on average %.1f",
                    progress.name or progress.id,
                    progress.batchId,
                    number,
                    found.total_offsets_behind,
                    found.min_offsets_behind,
                    found.max_offsets_behind,
                    found.avg_offsets_behind,
                )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """There was nothing new."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """It has ended."""
