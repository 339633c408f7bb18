"""Topics and groups of a broker, read and written past the protocol: a test's direct hands.

All functions take the broker and are for its loop's thread; the faces for tests are in
`embedding.py` and `thread.py`. Nothing here is noted among the requests or meets a fault.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.topic_config import check_overrides

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.partition import Partition
    from asyncbroker.protocol.messages.consumer_group_describe import DescribedConsumerGroup
    from asyncbroker.topic import Topic

READ_BYTES = 1024 * 1024

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it stands in the log. `timestamp` is in ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group; `partitions` are (topic, partition) as they were assigned."""

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A group at one moment. An unknown one is "Dead", of generation -1, as in Kafka."""

    group_id: str
    state: str
    generation: int
    members: tuple[Member, ...] = ()
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def describe(self) -> str:
        """As text, a line for the group and one for each member and offset."""
        lines = [f"group {self.group_id}: {self.state}, generation {self.generation}"]
        for member in self.members:
            names = ", ".join(f"{topic}-{index}" for topic, index in member.partitions) or "nothing"
            lines.append(f"  {member.member_id} ({member.client_id}): {names}")
        lines += [
            f"  committed {topic}-{index}: {offset}"
            for (topic, index), offset in self.offsets.items()
        ]
        return "\n".join(lines)


# ---- topics


def topic_names(broker: Broker) -> list[str]:
    """Those of clients, in order."""
    return sorted(topic.name for topic in broker.topics if not topic.is_internal)


def topic_of(broker: Broker, name: str) -> Topic:
    """Raises LookupError, which says what topics there are."""
    topic = broker.topics.get(name)
    if topic is None:
        names = ", ".join(topic_names(broker)) or "none at all"
        raise LookupError(f"there is no topic {name}; there are: {names}")
    return topic


def count_records(broker: Broker, name: str) -> int:
    """How many offsets the topic has from its start to its end; 0 without such a topic."""
    topic = broker.topics.get(name)
    partitions = () if topic is None else topic.partitions
    return sum(partition.high_watermark - partition.log_start_offset for partition in partitions)


def read_records(broker: Broker, name: str, partition: int | None = None) -> list[Record]:
    """All records of a topic, partition by partition. Raises LookupError."""
    topic = topic_of(broker, name)
    chosen = topic.partitions if partition is None else [partition_of(topic, partition)]
    return [record for each in chosen for record in _read(each)]


def _read(partition: Partition) -> Iterator[Record]:
    from asyncbroker.protocol.records import batches, records_of

    partition.check_readable()
    offset = partition.log_start_offset
    end = partition.high_watermark
    while offset < end:
        found = partition.log.locate(offset, READ_BYTES, end_offset=end)
        if found is None:
            return
        for header, batch in batches(found.read()):
            offset = header.next_offset
            if header.is_control:
                continue
            for record in records_of(batch, header):
                if record.offset >= partition.log_start_offset:
                    yield Record(
                        partition.topic,
                        partition.index,
                        record.offset,
                        record.timestamp,
                        record.key,
                        record.value,
                        tuple(record.headers),
                    )


def partition_of(topic: Topic, index: int) -> Partition:
    """Raises LookupError, which says how many partitions there are."""
    if not 0 <= index < len(topic.partitions):
        count = len(topic.partitions)
        raise LookupError(f"topic {topic.name} has {count} partitions, and none with index {index}")
    return topic.partitions[index]


async def create_topic(
    broker: Broker, name: str, partitions: int | None, settings: Mapping[str, str]
) -> None:
    """Raises KafkaError when it cannot be; a topic that is there is one that cannot be."""
    overrides = check_overrides(settings, broker.config)
    count = broker.config.num_partitions if partitions is None else partitions
    if count < 1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{count} partitions are not possible")
    await broker.topics.create(name, count, overrides)


async def append_record(
    broker: Broker,
    name: str,
    value: bytes | str | None,
    *,
    key: bytes | str | None,
    partition: int,
    timestamp: int | None,
    headers: Iterable[Header],
) -> Record:
    """Appends one record, to a new topic if need be; returns it as it stands. Raises LookupError
    for a partition that is not there, KafkaError for a record that is refused."""
    from asyncbroker.protocol import records

    ensured = broker.topics.ensure(name, broker.config.num_partitions, {})
    topic = await ensured if isinstance(ensured, asyncio.Future) else ensured
    target = partition_of(topic, partition)
    record = records.Record(
        offset=0,
        timestamp=broker.clock.wall_ms() if timestamp is None else timestamp,
        key=_bytes_of(key),
        value=_bytes_of(value),
        headers=list(headers),
    )
    batch = records.build_batch([record])
    appended = target.append(batch, records.read_header(batch))
    if isinstance(appended, asyncio.Future):
        appended = await appended
    return Record(
        name,
        partition,
        appended.base_offset,
        record.timestamp if appended.log_append_time_ms < 0 else appended.log_append_time_ms,
        record.key,
        record.value,
        tuple(record.headers),
    )


def _bytes_of(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


# ---- groups


def look_at_group(broker: Broker, group_id: str) -> Group:
    """The group as it is now. Raises KafkaError while groups are being loaded."""
    coordinator = broker.groups.coordinator_of(group_id)
    offsets = {
        (topic, partition): committed.offset
        for topic, partitions in sorted(coordinator.offsets_of(group_id).items())
        for partition, committed in sorted(partitions.items())
    }
    with suppress(KafkaError):
        return _consumer_group(coordinator.describe_consumer_group(group_id), offsets)
    described = coordinator.describe(group_id)
    return Group(
        group_id=group_id,
        state=described.group_state,
        generation=coordinator.generation_of(group_id),
        members=tuple(
            Member(
                member.member_id,
                member.client_id,
                member.client_host.removeprefix("/"),
                member.group_instance_id,
                tuple(_assigned(described.protocol_type, member.member_assignment)),
            )
            for member in described.members
        ),
        offsets=offsets,
    )


def _consumer_group(
    described: DescribedConsumerGroup, offsets: dict[tuple[str, int], int]
) -> Group:
    """A group of the consumer protocol: its generation is the group epoch."""
    return Group(
        group_id=described.group_id,
        state=described.group_state,
        generation=described.group_epoch,
        members=tuple(
            Member(
                member.member_id,
                member.client_id,
                member.client_host.removeprefix("/"),
                member.instance_id,
                tuple(
                    (topic.topic_name, index)
                    for topic in member.assignment.topic_partitions
                    for index in topic.partitions
                ),
            )
            for member in described.members
        ),
        offsets=offsets,
    )


def all_groups(broker: Broker) -> list[Group]:
    """All groups, by name."""
    listed = broker.groups.list_groups((), ())
    return [look_at_group(broker, group_id) for group_id in sorted(g.group_id for g in listed)]


def _assigned(protocol_type: str, assignment: bytes) -> Iterator[tuple[str, int]]:
    """The partitions in an assignment, of a consumer group; other kinds have bytes of their own."""
    from asyncbroker.protocol.consumer_protocol import PROTOCOL_TYPE, decode_assignment

    if protocol_type == PROTOCOL_TYPE and assignment:
        for topic in decode_assignment(assignment).assigned_partitions:
            for index in topic.partitions:
                yield topic.topic, index
