"""The topics as the group coordinator asks about them (`coordinator/consumer/topics.py`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from asyncbroker.coordinator.consumer.topics import TopicInfo

if TYPE_CHECKING:
    from asyncbroker.topic import Topic
    from asyncbroker.topics import Topics


class TopicView:
    """All topics, as they are at the moment of asking."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    @property
    def version(self) -> int:
        """Another number whenever there are other topics, or other numbers of partitions."""
        return self._topics.version

    def find(self, name: str) -> TopicInfo | None:
        """The topic of this name."""
        return _info(self._topics.get(name))

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """The topic of this id."""
        return _info(self._topics.by_id(topic_id))

    def names(self) -> Iterable[str]:
        """The names of all topics."""
        return [topic.name for topic in self._topics]


def _info(topic: Topic | None) -> TopicInfo | None:
    if topic is None:
        return None
    return TopicInfo(topic.topic_id, topic.name, len(topic.partitions))
