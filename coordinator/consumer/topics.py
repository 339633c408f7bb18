"""What the coordinator asks about topics: it assigns their partitions, so it must know them.

The driver answers (`asyncbroker/topic_view.py`). `version` changes whenever a topic appears, grows
or vanishes; until then nothing else does, so that a group looks again only when there is reason to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

TopicPartition = tuple[bytes, int]
"""A partition by its topic's id and its index."""


class TopicInfo(NamedTuple):
    """A topic as it is now."""

    topic_id: bytes
    name: str
    partition_count: int


class TopicView(Protocol):
    """All topics, as they are at the moment of asking."""

    @property
    def version(self) -> int:
        """Another number whenever there are other topics, or other numbers of partitions."""

    def find(self, name: str) -> TopicInfo | None:
        """The topic of this name."""

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """The topic of this id."""

    def names(self) -> Iterable[str]:
        """The names of all topics."""
