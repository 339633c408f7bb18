"""What is appended, and what whoever appends is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from asyncbroker.protocol.batches import BatchHeader


class Sent(Protocol):
    """A batch that was checked, with its header."""

    @property
    def batch(self) -> bytearray | memoryview: ...

    @property
    def header(self) -> BatchHeader: ...


class Appended(NamedTuple):
    """Where a batch is in the log. `log_append_time_ms` is -1 if the records keep their times."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool
