"""Topics that requests about offsets name by their ids: the coordinator knows them by name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from asyncbroker.protocol.messages.offset_commit import OffsetCommitRequestTopic
from asyncbroker.protocol.messages.offset_fetch import OffsetFetchRequestTopics

if TYPE_CHECKING:
    from asyncbroker.broker import Broker

Topic = TypeVar("Topic", OffsetCommitRequestTopic, OffsetFetchRequestTopics)


def with_names(broker: Broker, topics: list[Topic]) -> list[Topic]:
    """The topics with their names; those that there are not, without."""
    found = ((broker.topics.by_id(topic.topic_id), topic) for topic in topics)
    return [replace(topic, name=known.name if known is not None else "") for known, topic in found]
