"""One request and what came of it, as far as somebody who watches wants to know.

Small and without references to the frames: a trace may keep many. Text in here is what the peers
sent; whoever prints it makes it printable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

NO_PARTITION: Final = -1


@dataclass(frozen=True, slots=True)
class PartitionPart:
    """What an exchange says about one partition; a partition of -1 is the whole topic.

    `offset` is what was asked for, `answered_offset` what came back (for Produce where the batch
    went, for Fetch the high watermark). `records` is None where they were not counted.
    """

    topic: str
    partition: int
    offset: int | None = None
    answered_offset: int | None = None
    record_bytes: int = 0
    records: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request of one connection. Sizes are of whole frames without their length fields.

    `response_bytes` is None when nothing was answered; `problem` says what was wrong with the
    bytes, or why the connection was closed. `request` and `response` are the decoded messages as
    plain values (`plain.py`), where that was asked for.
    """

    at: float
    connection: int
    peer: str
    api: str
    version: int
    correlation_id: int
    client_id: str
    request_bytes: int
    response_bytes: int | None
    milliseconds: float
    parts: tuple[PartitionPart, ...] = ()
    groups: tuple[str, ...] = ()
    session: str = ""
    errors: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    problem: str = ""
    request: Any = None
    response: Any = None
