"""DeleteTopics (key 20), versions 0 to 6: deletes topics (KIP-4).

v1   the throttle time (KIP-124)
v2   on a quota violation the response comes at once and says how long to wait (KIP-219)
v3   TOPIC_DELETION_DISABLED may be answered (KIP-322)
v4   flexible (KIP-482)
v5   an error message; THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599)
v6   by name or by id (KIP-516)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT16, INT32, STRING, UUID, array, wire


@dataclass(slots=True)
class DeleteTopicState:
    """A topic by its name, or by its id and a null name."""

    name: str | None = wire(STRING, nullable="0+", default=None)
    topic_id: bytes = wire(UUID)


@dataclass(slots=True)
class DeleteTopicsRequest:
    """The topics to delete: `topic_names` up to v5, `topics` from v6 on."""

    topics: list[DeleteTopicState] = wire(array(DeleteTopicState), "6+")
    topic_names: list[str] = wire(array(STRING), "0-5", ignorable=True)
    timeout_ms: int = wire(INT32)


@dataclass(slots=True)
class DeletableTopicResult:
    """The outcome for one topic."""

    name: str | None = wire(STRING, nullable="6+")
    topic_id: bytes = wire(UUID, "6+", ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, "5+", nullable="0+", default=None, ignorable=True)


@dataclass(slots=True)
class DeleteTopicsResponse:
    """An outcome for each topic of the request."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    responses: list[DeletableTopicResult] = wire(array(DeletableTopicResult))
