"""One topic: its name, its id, its partitions and the settings in force."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from asyncbroker.metadata_store import StoredTopic
from asyncbroker.partition import Partition
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.topic_config import TopicConfig
from asyncbroker.topic_names import INTERNAL_TOPICS

# Ids that Kafka keeps for itself: none at all, and that of its metadata log.
RESERVED_IDS: Final = frozenset({bytes(16), bytes(15) + b"\x01"})


class Topic:
    """One topic. `partitions` is a list by index."""

    __slots__ = (
        "changing",
        "config",
        "is_deleted",
        "is_internal",
        "name",
        "partitions",
        "topic_id",
    )

    def __init__(
        self, name: str, topic_id: bytes, partitions: list[Partition], config: TopicConfig
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions
        self.config = config
        self.is_internal = name in INTERNAL_TOPICS
        self.is_deleted = False
        # Held while the store is told about a change: it is told all there is about the topic.
        self.changing = asyncio.Lock()

    def check_not_deleted(self) -> None:
        """Raises KafkaError for a topic that was deleted while somebody waited to change it."""
        if self.is_deleted:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {self.name} was deleted")

    def configure(self, config: TopicConfig) -> None:
        """Puts other settings in force."""
        self.config = config
        for partition in self.partitions:
            partition.set_config(config.log)

    def stored(self, overrides: Mapping[str, str]) -> StoredTopic:
        """The topic as the metadata store keeps it, with these settings of its own."""
        return StoredTopic(self.name, self.topic_id, len(self.partitions), dict(overrides))


def new_topic_id(random_bytes: Callable[[int], bytes]) -> bytes:
    """An id that no other topic has."""
    topic_id = random_bytes(16)
    while topic_id in RESERVED_IDS:
        topic_id = random_bytes(16)
    return topic_id
