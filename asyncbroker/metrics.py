"""Counters of the edge: plain integers by name, added up where the thing happens.

They start at zero with the process and only grow, except the two that are marked as a level. A face
for a monitoring system reads them with `snapshot()`; nothing here knows of one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass


@dataclass(slots=True)
class Metrics:
    """What happened at the edge since the start."""

    connections_open: int = 0  # a level
    connections_accepted: int = 0
    connections_refused: int = 0
    connections_closed_idle: int = 0
    connections_closed_unfinished_frame: int = 0
    connections_closed_slow_reader: int = 0
    bytes_in_flight: int = 0  # a level: unfinished and waiting large requests
    bytes_in_flight_waits: int = 0
    protocol_errors: int = 0
    unsupported_requests: int = 0
    error_responses: int = 0
    internal_errors: int = 0

    def snapshot(self) -> dict[str, int]:
        """All of them by name."""
        return dataclasses.asdict(self)
