"""CreatePartitions (key 37), versions 0 to 3: adds partitions to topics (KIP-195).

v1   on a quota violation the response comes at once and says how long to wait (KIP-219)
v2   flexible (KIP-482)
v3   THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import BOOL, INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class CreatePartitionsAssignment:
    """The brokers of one new partition, the preferred leader first."""

    broker_ids: list[int] = wire(array(INT32))


@dataclass(slots=True)
class CreatePartitionsTopic:
    """A topic, how many partitions it is to have in all, and who gets the new ones (null: the
    cluster decides)."""

    name: str = wire(STRING)
    count: int = wire(INT32)
    assignments: list[CreatePartitionsAssignment] | None = wire(
        array(CreatePartitionsAssignment), nullable="0+"
    )


@dataclass(slots=True)
class CreatePartitionsRequest:
    """The topics that are to grow."""

    topics: list[CreatePartitionsTopic] = wire(array(CreatePartitionsTopic))
    timeout_ms: int = wire(INT32)
    validate_only: bool = wire(BOOL)


@dataclass(slots=True)
class CreatePartitionsTopicResult:
    """The outcome for one topic."""

    name: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)


@dataclass(slots=True)
class CreatePartitionsResponse:
    """An outcome for each topic of the request."""

    throttle_time_ms: int = wire(INT32, ignorable=True)
    results: list[CreatePartitionsTopicResult] = wire(array(CreatePartitionsTopicResult))
