"""The options of a stream: those of every query, and how much of the log a batch may take.

Names, defaults and refusals are those of Spark's own Kafka connector, but for `commitOffsets`,
which it does not have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from asyncbroker.spark.offset_limits import stream_limits
from asyncbroker.spark.options import ReadOptions, flag, positive

FETCH_ATTEMPTS: Final = 3
RETRY_INTERVAL_MS: Final = 1000
TRIGGER_DELAY_MAX: Final = "15m"

_UNIT_MS: Final = {
    "": 1,
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What a stream was asked to read, and in which portions."""

    read: ReadOptions
    # A batch takes at most so many offsets, and is put off until there are at least so many or
    # the delay has passed since the last one.
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int | None
    trigger_delay_max_ms: float
    # How often the latest offsets are asked for when they have gone backwards, before that counts.
    fetch_attempts: int
    retry_interval_ms: int
    # The group for which a finished batch's offsets are committed, for others to see.
    committing_group: str | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StreamOptions:
        """Reads the options of a stream; raises ValueError with a text for people."""
        read = ReadOptions.between(options, stream_limits)
        given = {name.lower(): value for name, value in options.items()}
        largest = positive(given, "maxOffsetsPerTrigger")
        smallest = positive(given, "minOffsetsPerTrigger")
        if largest is not None and smallest is not None and smallest > largest:
            raise ValueError(
                f"The value of minOffsetsPerTrigger({smallest}) is higher than the "
                f"maxOffsetsPerTrigger({largest})"
            )
        return cls(
            read=read,
            offsets_per_trigger_max=largest,
            offsets_per_trigger_min=smallest,
            trigger_delay_max_ms=_duration_ms(given.get("maxtriggerdelay", TRIGGER_DELAY_MAX)),
            fetch_attempts=positive(given, "fetchOffset.numRetries") or FETCH_ATTEMPTS,
            retry_interval_ms=positive(given, "fetchOffset.retryIntervalMs") or RETRY_INTERVAL_MS,
            committing_group=_committing_group(given),
        )


def _duration_ms(text: str) -> float:
    """Reads a duration as Spark writes them: "15m", "500ms", or a number of milliseconds."""
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _UNIT_MS:
        raise ValueError(f"maxTriggerDelay must be a duration like 15m, not '{text}'")
    return int(found[1]) * _UNIT_MS[found[2]]


def _committing_group(given: Mapping[str, str]) -> str | None:
    if not flag(given, "commitOffsets", False):
        return None
    group = given.get("kafka.group.id", "").strip()
    if not group:
        raise ValueError("commitOffsets needs the option 'kafka.group.id': a group to commit for")
    return group
