"""Counters, levels and histograms: plain numbers, added up where the thing happens.

Each object has one owner, who adds to it: `Metrics` the edge, `StorageMetrics` the storage, and
`Traffic` a partition. They start at zero with the process and only grow, except what is marked as a
level. Faces for monitoring systems (`metrics_export.py`) read them; nothing here knows of one. What
costs more than some additions, as looking at the time, is left out until somebody asks for it.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, ParamSpec, TypeVar

from asyncbroker.peer_watch import TooSlow

CLOSED: Final = "connections_closed"

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# From a copy into the page cache to a disk that hangs.
SECONDS_BOUNDS: Final = (
    *(0.000_025, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
WAITERS_BOUNDS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


class Histogram:
    """How many values lay where. Added to by `observe` on the event loop's thread, or by `timed`
    and `took` in any, and not by both: only the latter take a lock."""

    __slots__ = ("_lock", "bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS_BOUNDS) -> None:
        """`counts` has the values from one bound up to the next; the last all others."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:
        """Adds one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def timed(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        """The function, with how long it took added to this; also when it fails. Any thread."""
        return functools.partial(self._time, function)

    def _time(
        self,
        function: Callable[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        began = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            self.took(time.perf_counter() - began)

    def took(self, value: float) -> None:
        """Adds one value. Any thread."""
        with self._lock:
            self.observe(value)


@dataclass(slots=True)
class Traffic:
    """What goes into one partition and out of it; `whole` adds up all of them, also of those that
    are gone."""

    bytes_in: int = 0
    records_in: int = 0
    bytes_out: int = 0
    whole: Traffic | None = None

    def appended(self, size: int, record_count: int) -> None:
        """A batch was appended."""
        self.bytes_in += size
        self.records_in += record_count
        if self.whole is not None:
            self.whole.bytes_in += size
            self.whole.records_in += record_count

    def fetched(self, size: int) -> None:
        """Records go out to a reader."""
        self.bytes_out += size
        if self.whole is not None:
            self.whole.bytes_out += size


@dataclass(slots=True)
class StorageMetrics:
    """What happened to the logs of one broker."""

    traffic: Traffic = field(default_factory=Traffic)
    append_seconds: Histogram | None = None  # None: nobody asks for it
    fsync_seconds: Histogram = field(default_factory=Histogram)
    round_waiters: Histogram = field(default_factory=lambda: Histogram(WAITERS_BOUNDS))
    corrupt_reads: int = 0  # answered CORRUPT_MESSAGE
    deleted_segments: int = 0
    deleted_bytes: int = 0
    cleanings: int = 0
    cleanings_failed: int = 0
    cleaner_read_bytes: int = 0
    cleaner_kept_bytes: int = 0
    # Levels, of the last start: what it found of logs beyond what was known to be durable.
    start_seconds: float = 0.0
    is_start_unclean: bool = False
    recovered_partitions: int = 0
    recovered_bytes: int = 0


@dataclass(slots=True)
class Metrics:
    """What happened at the edge since the start."""

    connections_open: int = 0  # a level
    connections_accepted: int = 0
    connections_refused: int = 0
    connections_closed: Counter[TooSlow] = field(default_factory=Counter)
    bytes_in_flight: int = 0  # a level: unfinished and waiting large requests
    bytes_in_flight_waits: int = 0
    protocol_errors: int = 0
    unsupported_requests: int = 0
    error_responses: int = 0
    internal_errors: int = 0

    def snapshot(self) -> dict[str, int]:
        """All of them by name."""
        counts = {name: value for name, value in dataclasses.asdict(self).items() if name != CLOSED}
        for reason in TooSlow:
            counts[f"{CLOSED}_{reason.name.lower()}"] = self.connections_closed[reason]
        return counts
