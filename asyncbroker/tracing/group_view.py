"""A consumer group at one moment, as any broker tells it, and what has moved since another moment.

State, members and their assignments come from DescribeGroups or ConsumerGroupDescribe, how far the
group is from OffsetFetch and ListOffsets. The generation of a classic group is in no answer:
brokers write it into `__consumer_offsets`, which is followed from a little before its end, where
that is allowed; until a record of the group comes along it is not known. Consumer groups have none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.errors import ClientError
from asyncbroker.client.groups import committed_offsets, describe_group
from asyncbroker.client.partitions import earliest_offsets, latest_offsets
from asyncbroker.client.reader import Reader
from asyncbroker.coordinator.records import GroupMetadataRecord, decode_record
from asyncbroker.groups import partition_of
from asyncbroker.protocol.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from asyncbroker.protocol.records import CorruptBatch, batches, records_of

OFFSETS_TOPIC: Final = "__consumer_offsets"
RECORDS_BACK: Final = 5000
POLLS_MAX: Final = 20
POLL_MS: Final = 20


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member, and what it reads."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionView:
    """How far a group is in one partition; None where it has not committed, or nothing is there."""

    partition: TopicPartition
    committed: int | None
    end: int | None
    member: MemberView | None

    @property
    def lag(self) -> int | None:
        """Records that the group has before it."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class GroupView:
    """The group as it was at `at` (seconds since 1970)."""

    at: float
    group_id: str
    state: str
    protocol: str
    generation: int | None
    members: tuple[MemberView, ...]
    partitions: tuple[PartitionView, ...]

    @property
    def lag(self) -> int:
        """Of all partitions together."""
        return sum(row.lag or 0 for row in self.partitions)


def take_view(cluster: Cluster, group_id: str, generation: int | None = None) -> GroupView:
    """Asks for all there is to know. Raises ClientError."""
    group = describe_group(cluster, group_id)
    offsets = committed_offsets(cluster, group_id)
    owners = owners_of(group)
    partitions = sorted({*offsets, *owners})
    ends = latest_offsets(cluster, existing_partitions(cluster, partitions))
    members = {
        member.member_id: MemberView(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host.removeprefix("/"),
            tuple(sorted(p for p, owner in owners.items() if owner is member)),
        )
        for member in sorted(group.members, key=lambda row: (row.client_id, row.member_id))
    }
    rows = []
    for partition in partitions:
        committed, owner = offsets.get(partition), owners.get(partition)
        rows.append(
            PartitionView(
                partition,
                None if committed is None else committed.offset,
                ends.get(partition),
                None if owner is None else members[owner.member_id],
            )
        )
    return GroupView(
        time.time(),
        group_id,
        group.group_state,
        group.protocol_data or "",
        generation,
        tuple(members.values()),
        tuple(rows),
    )


def moves(before: GroupView, after: GroupView) -> Iterator[str]:
    """What is not as it was, a sentence each. Names are as the peers sent them."""
    if before.state != after.state:
        yield f"{before.state} -> {after.state}"
    if after.generation is not None and before.generation != after.generation:
        yield f"generation {after.generation}"
    old = {member.member_id: member for member in before.members}
    new = {member.member_id: member for member in after.members}
    for member_id, member in new.items():
        if member_id not in old:
            yield f"{member.client_id} ({member.host}) has joined"
    for member_id, member in old.items():
        if member_id not in new:
            yield f"{member.client_id} ({member.host}) is gone"
    owned = {row.partition: row.member for row in before.partitions}
    for row in after.partitions:
        previous = owned.get(row.partition)
        names = [m.client_id if m else "nobody" for m in (previous, row.member)]
        ids = [m.member_id if m else "" for m in (previous, row.member)]
        if ids[0] != ids[1]:
            yield f"{row.partition}: {names[0]} -> {names[1]}"


def as_json(view: GroupView) -> dict[str, Any]:
    """The view as JSON has it."""
    return {
        "at": round(view.at, 3),
        "group": view.group_id,
        "state": view.state,
        "generation": view.generation,
        "protocol": view.protocol or None,
        "lag": view.lag,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.host,
                "partitions": [str(partition) for partition in member.partitions],
            }
            for member in view.members
        ],
        "partitions": [
            {
                "topic": row.partition.topic,
                "partition": row.partition.partition,
                "committed": row.committed,
                "end": row.end,
                "lag": row.lag,
                "member_id": None if row.member is None else row.member.member_id,
            }
            for row in view.partitions
        ],
    }


@dataclass(slots=True)
class GenerationWatch:
    """Follows the generation of one group in `__consumer_offsets`."""

    cluster: Cluster
    group_id: str
    latest: int | None = None
    _reader: Reader | None = field(default=None, init=False)

    def look(self) -> int | None:
        """The generation, as far as it is known by now."""
        try:
            if self._reader is None:
                self._reader = self._open()
            for _ in range(POLLS_MAX):
                fetched = self._reader.poll()
                if not fetched:
                    break
                for part in fetched:
                    self._take(part.records)
        except (ClientError, CorruptBatch):
            # It may not be there yet, or not for us to read; the rest of the view needs none of it.
            self.close()
        return self.latest

    def close(self) -> None:
        """Closes the connections; another look opens new ones."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _open(self) -> Reader:
        partitions = self.cluster.partitions_of(OFFSETS_TOPIC)
        partition = partitions[partition_of(self.group_id, len(partitions))]
        end = latest_offsets(self.cluster, [partition])[partition]
        begin = earliest_offsets(self.cluster, [partition])[partition]
        start = max(begin, end - RECORDS_BACK)
        return Reader(self.cluster, {partition: start}, max_wait_ms=POLL_MS)

    def _take(self, data: memoryview) -> None:
        for header, batch in batches(data):
            if header.is_control:
                continue
            for record in records_of(batch, header):
                if record.key is None:
                    continue
                try:
                    decoded = decode_record(record.key, record.value)
                except ProtocolError:
                    continue
                if isinstance(decoded, GroupMetadataRecord) and decoded.key.group == self.group_id:
                    value = decoded.value
                    self.latest = None if value is None else value.generation


def owners_of(group: DescribedGroup) -> dict[TopicPartition, DescribedGroupMember]:
    """Who reads what; nothing for groups whose members are no consumers (Connect, for one), or
    speak a protocol of their own."""
    owners: dict[TopicPartition, DescribedGroupMember] = {}
    if group.protocol_type != PROTOCOL_TYPE:
        return owners
    for member in group.members:
        try:
            assignment = decode_assignment(member.member_assignment)
        except ProtocolError:
            continue
        for topic in assignment.assigned_partitions:
            for index in topic.partitions:
                owners[TopicPartition(topic.topic, index)] = member
    return owners


def existing_partitions(cluster: Cluster, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """The partitions that are still there: offsets may outlive their topic for a while."""
    there = {
        TopicPartition(topic.name or "", row.partition_index)
        for topic in cluster.topics()
        for row in topic.partitions
    }
    return [partition for partition in partitions if partition in there]
