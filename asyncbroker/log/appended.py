"""What whoever appends is told."""

from __future__ import annotations

from typing import NamedTuple


class Appended(NamedTuple):
    """Where a batch is in the log. `log_append_time_ms` is -1 if the records keep their times."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool
