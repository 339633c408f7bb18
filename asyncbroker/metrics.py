"""Counters of the edge: plain integers by name, added up where the thing happens.

They start at zero with the process and only grow, except the two that are marked as a level. A face
for a monitoring system reads them with `snapshot()`; nothing here knows of one.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from asyncbroker.peer_watch import TooSlow

CLOSED: Final = "connections_closed"


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
