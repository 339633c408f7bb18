"""Topics as the coordinator asks about them, for tests."""

from __future__ import annotations

from asyncbroker.coordinator.consumer.topics import TopicInfo, TopicPartition


class FakeTopics:
    """Topics that a test makes, grows and deletes; ids are never used again."""

    def __init__(self, **partition_counts: int) -> None:
        self.version = 0
        self._topics: dict[str, TopicInfo] = {}
        self._made = 0
        for name, partition_count in partition_counts.items():
            self.create(name, partition_count)

    def create(self, name: str, partition_count: int) -> None:
        """A new topic."""
        self._made += 1
        self._topics[name] = TopicInfo(self._made.to_bytes(16, "big"), name, partition_count)
        self.version += 1

    def grow(self, name: str, partition_count: int) -> None:
        """More partitions."""
        self._topics[name] = self._topics[name]._replace(partition_count=partition_count)
        self.version += 1

    def delete(self, name: str) -> None:
        """No topic of this name any more."""
        del self._topics[name]
        self.version += 1

    def find(self, name: str) -> TopicInfo | None:
        return self._topics.get(name)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        return next((info for info in self._topics.values() if info.topic_id == topic_id), None)

    def names(self) -> list[str]:
        return list(self._topics)

    def partitions(self, *names: str) -> set[TopicPartition]:
        """All partitions of some topics."""
        found = (self._topics[name] for name in names if name in self._topics)
        return {(info.topic_id, index) for info in found for index in range(info.partition_count)}
