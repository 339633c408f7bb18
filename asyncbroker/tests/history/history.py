"""What clients did and saw: a history of operations, in the manner of Jepsen.

An operation begins, and ends in one of three ways: `OK`, it has happened; `FAIL`, it surely has
not and never will; `INFO`, nobody knows. One that never ended is `INFO` as well. Clients record
their own operations, by the one clock that all of them share; whoever runs the broker records what
was done to it. `checker.py` then says what should not have been possible.

A *place* is one partition of one topic, by any name that does not stand for another one later. A
*value* is what a producer sends; no two records of a history have the same.

Pure: no broker and no client is known here.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

FOREVER: Final = math.inf
ALL: Final = -1


class Outcome(enum.Enum):
    """How an operation ended."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class End(enum.Enum):
    """How the broker ended."""

    STOP = "stop"  # in order: everything that was acknowledged is on the disk
    KILL = "kill"  # kill -9: what was written is still there
    # With the machine, or after its disk had failed: what was not synced may be lost.
    POWER = "power"


@dataclass(slots=True)
class Send:
    """One record for a place. `offset` is where the broker says it is, -1 if it does not say.

    `number` orders the sends of one process to one place. `is_ordered`: the producer sees to it
    that the order is kept (idempotent, or one request at a time). `attempts` counts how often it
    was sent.
    """

    process: str
    place: str
    value: bytes
    key: bytes | None
    acks: int
    number: int
    is_idempotent: bool
    is_ordered: bool
    started: float
    ended: float = FOREVER
    outcome: Outcome = Outcome.INFO
    offset: int = -1
    attempts: int = 1
    error: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """A record that a consumer got. `epoch` is its batch's leader epoch, -1 if not known."""

    offset: int
    value: bytes | None
    key: bytes | None = None
    epoch: int = -1


@dataclass(slots=True)
class Poll:
    """What one place answered to a fetch from `position`; numbers are -1 when not told."""

    process: str
    place: str
    position: int
    started: float
    ended: float
    records: list[Seen]
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start: int = -1


@dataclass(slots=True)
class Commit:
    """A group's next offset in a place, from a member, or (generation -1) from nobody."""

    process: str
    group: str
    place: str
    offset: int
    started: float
    member: str = ""
    generation: int = -1
    ended: float = FOREVER
    outcome: Outcome = Outcome.INFO
    error: str = ""


@dataclass(slots=True)
class Committed:
    """What a group's offset in a place was said to be; -1: none."""

    process: str
    group: str
    place: str
    offset: int
    started: float
    ended: float


@dataclass(slots=True)
class Joined:
    """A member was let into a generation."""

    process: str
    group: str
    generation: int
    member: str
    instance: str | None
    started: float
    ended: float


@dataclass(slots=True)
class Assigned:
    """A member was told its places in a generation. A static one has an `instance`."""

    process: str
    group: str
    generation: int
    member: str
    instance: str | None
    places: frozenset[str]
    started: float
    ended: float


@dataclass(slots=True)
class Trim:
    """DeleteRecords: a place is to begin at `offset`; -1 is its end."""

    process: str
    place: str
    offset: int
    started: float
    ended: float = FOREVER
    outcome: Outcome = Outcome.INFO
    low_watermark: int = -1


@dataclass(slots=True)
class Removal:
    """The topics of these places are to be deleted."""

    process: str
    places: frozenset[str]
    started: float
    ended: float = FOREVER
    outcome: Outcome = Outcome.INFO


@dataclass(slots=True)
class Ended:
    """The broker was ended at this time, and later started again."""

    how: End
    time: float


@dataclass(slots=True)
class FinalRead:
    """Everything in a place when all faults were over and everybody was done."""

    place: str
    log_start: int
    end_offset: int
    records: list[Seen]


Operation = Send | Poll | Commit | Committed | Joined | Assigned | Trim | Removal | Ended


@dataclass(slots=True)
class History:
    """All of it. `operations` is in the order in which they began."""

    operations: list[Operation] = field(default_factory=list)
    final: dict[str, FinalRead] = field(default_factory=dict)

    # Places that are compacted, or of which the broker itself may delete the beginning.
    compacted: set[str] = field(default_factory=set)
    expiring: set[str] = field(default_factory=set)

    # Offsets of places, from the first up to the second, whose bytes were damaged on the disk: they
    # may be refused from then on, and must not be read as anything else.
    damaged: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    # Who did not come to an end though nothing was in the way any more.
    stuck: list[str] = field(default_factory=list)

    # Whether there is a final read of every place that has not been deleted.
    is_complete: bool = True

    def add(self, operation: Operation) -> None:
        """Records an operation when it begins (or when it is over, if it changes nothing)."""
        self.operations.append(operation)

    def is_damaged(self, place: str, offset: int) -> bool:
        """Whether the record at an offset may be refused."""
        return any(first <= offset < end for first, end in self.damaged.get(place, ()))

    def sends(self) -> Iterable[Send]:
        return (each for each in self.operations if isinstance(each, Send))

    def polls(self) -> Iterable[Poll]:
        return (each for each in self.operations if isinstance(each, Poll))

    def ends(self, how: End) -> list[float]:
        """When the broker was ended in this way."""
        return [
            each.time for each in self.operations if isinstance(each, Ended) and each.how is how
        ]
