"""Stands in for a log that could not be opened, so that its partition can say so.

The partition over it refuses every append and read with KAFKA_STORAGE_ERROR; what is left is what
metadata answers, shutdown and deletion ask of any log.
"""

from __future__ import annotations

from asyncbroker.log.config import LogConfig


class DamagedLog:
    """An empty log that takes nothing. `reason` is for the log and the client."""

    log_start_offset = 0
    end_offset = 0
    durable_end_offset = 0
    last_stable_offset = 0
    size = 0

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def set_config(self, config: LogConfig) -> None:
        """Has no use for settings."""

    def expire_producers(self, now_ms: int) -> None:
        """Knows no producers."""
