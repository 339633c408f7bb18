"""What a broker gives out and another one gives out differently: the map of a replay.

Learned from pairs of answers, the recorded one and that of the broker at hand to the same request:

    member ids, generations    JoinGroup; of the consumer protocol ConsumerGroupHeartbeat
    producer ids and epochs    InitProducerId (also in the batches that are produced)
    topic ids                  Metadata and CreateTopics, by the topics' names
    fetch session ids          Fetch
    offsets                    Produce, and ListOffsets for the end: a constant difference for each
                               partition, from the first pair

and put into later requests. Correlation ids, group ids, instance ids, topics and partitions stay.
Transactions' epochs beyond InitProducerId, and delegation tokens, are not mapped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from struct import Struct
from typing import Any, Final

from asyncbroker.protocol.compression import CorruptBatch
from asyncbroker.protocol.records import batches, stamp_crc
from asyncbroker.tracing.describe import topic_ids

LATEST: Final = -1

# In a batch: producer id and epoch.
_PRODUCER_AT: Final = 43
_PRODUCER: Final = Struct(">qh")

_MEMBER_FIELDS: Final = frozenset({"member_id", "leader"})
_GENERATION_FIELDS: Final = frozenset(
    {"generation_id", "generation_id_or_member_epoch", "member_epoch"}
)
_OFFSET_FIELDS: Final = frozenset({"fetch_offset", "committed_offset"})

TopicPartition = tuple[str, int]


class IdMap:
    """What is known so far, recorded to replayed."""

    def __init__(self) -> None:
        self.members: dict[str, str] = {}
        self.generations: dict[tuple[str, int], int] = {}
        self.producers: dict[tuple[int, int], tuple[int, int]] = {}
        self.topic_ids: dict[bytes, bytes] = {}
        self.sessions: dict[int, int] = {}
        self.offsets: dict[TopicPartition, int] = {}
        # Of the recorded broker, since newer requests leave the names out.
        self.topic_names: dict[bytes, str] = {}

    def learn(self, request: Any, recorded: Any, replayed: Any) -> None:
        """Takes note of two answers to one request (the recorded one)."""
        kind = type(request).__name__
        if kind == "JoinGroupRequest":
            if recorded.member_id and replayed.member_id:
                self.members[recorded.member_id] = replayed.member_id
            self.generations[request.group_id, recorded.generation_id] = replayed.generation_id
        elif kind == "ConsumerGroupHeartbeatRequest":
            if recorded.member_id and replayed.member_id:
                self.members[recorded.member_id] = replayed.member_id
            # Others say that a member joins or leaves, and are what they are.
            if recorded.member_epoch > 0 and replayed.member_epoch > 0:
                self.generations[request.group_id, recorded.member_epoch] = replayed.member_epoch
        elif kind == "InitProducerIdRequest":
            self.producers[recorded.producer_id, recorded.producer_epoch] = (
                replayed.producer_id,
                replayed.producer_epoch,
            )
        elif kind == "FetchRequest" and recorded.session_id and replayed.session_id:
            self.sessions[recorded.session_id] = replayed.session_id
        elif kind == "ProduceRequest":
            self._learn_offsets(recorded, replayed, "base_offset", lambda _: True)
        elif kind == "ListOffsetsRequest":
            ends = {
                (topic.name, row.partition_index)
                for topic in request.topics
                for row in topic.partitions
                if row.timestamp == LATEST
            }
            self._learn_offsets(recorded, replayed, "offset", ends.__contains__)
        self._learn_topic_ids(recorded, replayed)

    def put_into(self, message: Any, group_id: str = "", topic: str = "") -> None:
        """Replaces in a request what the broker at hand calls differently."""
        group_id = getattr(message, "group_id", "") or group_id
        topic = getattr(message, "topic", "") or getattr(message, "name", "") or topic
        topic_id = getattr(message, "topic_id", None)
        if topic_id is not None and any(topic_id):
            topic = self.topic_names.get(topic_id, topic)
        index = getattr(message, "partition", getattr(message, "partition_index", -1))
        for field in dataclasses.fields(message):
            value = getattr(message, field.name)
            if isinstance(value, list):
                for item in value:
                    if dataclasses.is_dataclass(item):
                        self.put_into(item, group_id, topic)
            elif field.name in _MEMBER_FIELDS and isinstance(value, str):
                setattr(message, field.name, self.members.get(value, value))
            elif field.name in _GENERATION_FIELDS:
                setattr(message, field.name, self.generations.get((group_id, value), value))
            elif field.name == "topic_id":
                message.topic_id = self.topic_ids.get(value, value)
            elif field.name == "session_id":
                message.session_id = self.sessions.get(value, value)
            elif field.name in _OFFSET_FIELDS and value >= 0:
                setattr(message, field.name, max(0, value + self.offsets.get((topic, index), 0)))
            elif field.name == "records" and value is not None:
                message.records = self._with_producers(value)
        if hasattr(message, "producer_id") and hasattr(message, "producer_epoch"):
            old = (message.producer_id, message.producer_epoch)
            message.producer_id, message.producer_epoch = self.producers.get(old, old)

    def offset(self, topic: str, partition: int, recorded: int) -> int:
        """Where a recorded offset is now."""
        return recorded + self.offsets.get((topic, partition), 0) if recorded >= 0 else recorded

    def _with_producers(self, records: Any) -> bytes:
        data = bytearray(records)
        position = 0
        try:
            for header, _ in batches(bytes(data)):
                old = (header.producer_id, header.producer_epoch)
                if old in self.producers:
                    _PRODUCER.pack_into(data, position + _PRODUCER_AT, *self.producers[old])
                    stamp_crc(memoryview(data)[position : position + header.size])
                position += header.size
        except CorruptBatch:
            # Sent as it was: that it is damaged is what was recorded.
            return bytes(records)
        return bytes(data)

    def _learn_topic_ids(self, recorded: Any, replayed: Any) -> None:
        now = dict(topic_ids(replayed))
        for name, topic_id in topic_ids(recorded):
            self.topic_names[topic_id] = name
            if name in now:
                self.topic_ids[topic_id] = now[name]

    def _learn_offsets(self, recorded: Any, replayed: Any, field: str, fits: Any) -> None:
        now = dict(_offsets(replayed, field))
        for partition, offset in _offsets(recorded, field):
            if offset >= 0 and now.get(partition, -1) >= 0 and fits(partition):
                self.offsets.setdefault(partition, now[partition] - offset)


def _offsets(response: Any, field: str) -> Iterator[tuple[TopicPartition, int]]:
    topics: list[Any] = getattr(response, "responses", []) or getattr(response, "topics", [])
    for topic in topics:
        rows: Any = getattr(topic, "partition_responses", None)
        if rows is None:
            rows = getattr(topic, "partitions", ())
        for row in rows:
            index = getattr(row, "index", getattr(row, "partition_index", -1))
            yield (topic.name, index), getattr(row, field)
