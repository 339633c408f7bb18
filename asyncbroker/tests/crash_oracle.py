"""What a broker has promised its clients, held against what it shows after a crash.

The oracle is told what clients ask and what they are answered, never what the broker does. `check`
methods raise AssertionError. What they hold:

- a record that was acknowledged with acks=all is at its offset, and its batch has the same bytes
- an offset has one value forever, once that was acknowledged; what a crash has lost does not come
  back later; nothing is there that was not sent, and nothing twice
- records lie in the order in which they were sent, without a gap
- where a record was lost that was answered with acks=1, the leader epoch has moved on
- a log begins where it was told to, or between there and where it was being told to; or later if
  a crash took all before that, and nothing of it was acknowledged with acks=all
- a topic that was created is there with all its partitions, one that was deleted is not, and one
  that was made anew shows nothing of the old one
- a committed offset is the last one that was acknowledged, or one sent after it
- in a compacted topic, where there are gaps and batches lose records, whatever is there is at the
  offset that it had, and an acknowledged record is missing only if a later one has its key

Of a request whose answer never came, or was an error, either outcome is right. `copied` gives the
knowledge of this moment, for a crash in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from asyncbroker.protocol.records import Record, batches, records_of

# What a producer may repeat.
BATCHES_KEPT: Final = 5
KEY: Final = b"k"


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A batch as a client sent it; `sequence` is -1 without idempotence."""

    number: int
    values: tuple[bytes, ...]
    sequence: int = -1
    key: bytes = KEY


@dataclass(frozen=True, slots=True)
class Answer:
    """Where a batch is, and of what leader epoch it was told so."""

    offset: int
    leader_epoch: int


@dataclass(slots=True)
class PartitionOracle:
    """One partition of one topic."""

    sent: dict[int, SentBatch] = field(default_factory=dict)
    # By the number of the batch; and those that were answered as durable, with their bytes.
    answers: dict[int, Answer] = field(default_factory=dict)
    durable: dict[int, bytes | None] = field(default_factory=dict)
    # Sent, and missing when the broker was back.
    gone: set[int] = field(default_factory=set)
    # Where the log begins: what was answered, and what was asked at most.
    start_offset: int = 0
    asked_start_offset: int = 0
    is_compacted: bool = False

    def copied(self) -> PartitionOracle:
        return replace(
            self,
            sent=dict(self.sent),
            answers=dict(self.answers),
            durable=dict(self.durable),
            gone=set(self.gone),
        )

    # ---- what happens

    def sending(self, batch: SentBatch) -> None:
        """A batch is sent, or sent again."""
        self.sent[batch.number] = batch
        self.gone.discard(batch.number)

    def answered(self, batch: SentBatch, answer: Answer) -> None:
        known = self.answers.setdefault(batch.number, answer)
        assert known.offset == answer.offset, f"{batch} was at {known}, and now is at {answer}"

    def acknowledged(self, batch: SentBatch, data: bytes | None) -> None:
        """It was answered with acks=all; `data` are its bytes in the log, if it is there still."""
        self.durable.setdefault(batch.number, data)

    def starting(self, offset: int) -> None:
        """The log is asked to begin at `offset`."""
        self.asked_start_offset = max(self.asked_start_offset, offset)

    def started(self, offset: int) -> None:
        """It says that it does, for good."""
        self.start_offset = max(self.start_offset, offset)

    # ---- what is found

    def unanswered(self) -> list[SentBatch]:
        """The producer's batches that it has to send again."""
        return [
            batch
            for number, batch in self.sent.items()
            if batch.sequence >= 0 and number not in self.durable
        ]

    def repeatable(self) -> list[tuple[SentBatch, int]]:
        """The producer's last batches that are in the log, and where; compaction may leave one."""
        produced = [
            (batch, self.answers[number].offset)
            for number, batch in self.sent.items()
            if batch.sequence >= 0 and number in self.answers
        ]
        return produced[-1 if self.is_compacted else -BATCHES_KEPT :]

    @property
    def next_sequence(self) -> int:
        last = max(self.sent.values(), key=lambda batch: batch.sequence, default=None)
        return 0 if last is None or last.sequence < 0 else last.sequence + len(last.values)

    def check(self, log_start_offset: int, end_offset: int, leader_epoch: int, log: bytes) -> None:
        """Holds the log, all of it, against what is known, and takes over what is found."""
        assert self.start_offset <= log_start_offset <= end_offset, (
            f"begins at {log_start_offset}, ends at {end_offset}; told to begin at "
            f"{self.start_offset}, asked {self.asked_start_offset} at most"
        )
        if self.is_compacted:
            self._check_compacted(end_offset, leader_epoch, log)
        else:
            self._check_whole(log_start_offset, end_offset, leader_epoch, log)
        # A crash that took a whole first segment lets the log begin later; see `_check_lost`.
        self.asked_start_offset = max(self.asked_start_offset, log_start_offset)

    def _check_whole(
        self, log_start_offset: int, end_offset: int, leader_epoch: int, log: bytes
    ) -> None:
        found = self._found(log)
        # The first batch may begin before the log does.
        expected = min(found[0][0], log_start_offset) if found else log_start_offset
        for offset, record_count, batch, _ in found:
            assert offset == expected, f"offset {offset} follows {expected - 1}: {batch}"
            expected += record_count
            assert expected > log_start_offset, f"it begins at {log_start_offset}: {batch}"
        assert expected == end_offset, f"{expected}, not {end_offset}"
        numbers = [batch.number for _, _, batch, _ in found]
        # A batch that a producer sends again may come after others that are not its own.
        for is_idempotent in (False, True):
            some = [
                batch.number for *_, batch, _ in found if (batch.sequence >= 0) == is_idempotent
            ]
            assert some == sorted(set(some)), f"out of order, or twice: {some}"
        for offset, _, batch, data in found:
            assert batch.number not in self.gone, f"was lost, and is back: {batch}"
            answer = self.answers.setdefault(batch.number, Answer(offset, leader_epoch))
            assert answer.offset == offset, f"{batch} was at {answer}, is at {offset}"
            assert self.durable.get(batch.number) in (None, data), f"other bytes: {batch}"
        self._check_lost({*numbers}, log_start_offset, leader_epoch)

    def _found(self, log: bytes) -> list[tuple[int, int, SentBatch, bytes]]:
        """Base offset, count of records, batch and bytes of all that is in a log."""
        by_value = {value: batch for batch in self.sent.values() for value in batch.values}
        found = []
        for header, data in batches(log):
            records = list(records_of(data, header))
            batch = by_value.get(records[0].value or b"")
            assert batch is not None, f"never sent: {records[0]}"
            assert _values(records) == batch.values, f"not all of {batch}: {records}"
            assert header.base_sequence == batch.sequence, f"{header} of {batch}"
            found.append((header.base_offset, len(records), batch, bytes(data)))
        return found

    def _check_lost(self, found: set[int], log_start_offset: int, leader_epoch: int) -> None:
        deleted = min(log_start_offset, self.asked_start_offset)
        for number, batch in self.sent.items():
            if number in found:
                continue
            answer = self.answers.get(number)
            if answer is not None and answer.offset + len(batch.values) <= deleted:
                continue  # deleted, as was asked
            assert number not in self.durable, f"acknowledged, and lost: {batch} at {answer}"
            self._lost(batch, leader_epoch)

    def _lost(self, batch: SentBatch, leader_epoch: int) -> None:
        self.gone.add(batch.number)
        answer = self.answers.pop(batch.number, None)
        if answer is not None:
            assert leader_epoch > answer.leader_epoch, f"lost in its own epoch: {batch}"

    def _check_compacted(self, end_offset: int, leader_epoch: int, log: bytes) -> None:
        by_value = {
            value: (batch, at)
            for batch in self.sent.values()
            for at, value in enumerate(batch.values)
        }
        found: set[int] = set()
        last_by_key: dict[bytes, int] = {}
        last_offset = -1
        for header, data in batches(log):
            for record in records_of(data, header):
                batch, at = by_value[record.value or b""]
                answer = self.answers.setdefault(
                    batch.number, Answer(record.offset - at, leader_epoch)
                )
                assert last_offset < record.offset == answer.offset + at, f"{batch}: {record}"
                last_offset = last_by_key[batch.key] = record.offset
                found.add(record.offset)
        assert last_offset < end_offset
        for number, batch in self.sent.items():
            if number not in self.answers:
                self.gone.add(number)
                continue
            offsets = range(
                self.answers[number].offset, self.answers[number].offset + len(batch.values)
            )
            is_superseded = last_by_key.get(batch.key, -1) > offsets[-1]
            is_there = offsets[-1] in found
            if number in self.durable:
                assert is_there or is_superseded, f"acknowledged, and lost: {batch} at {offsets}"
                assert offsets[-1] < end_offset
            elif not is_there and not is_superseded:
                self._lost(batch, leader_epoch)


class Existence(Enum):
    """Whether a topic is there. Between request and answer it may be or not."""

    BEING_CREATED = auto()
    THERE = auto()
    BEING_DELETED = auto()


@dataclass(slots=True)
class TopicOracle:
    """One topic. One more partition than was answered may be there while it is asked for."""

    partitions: list[PartitionOracle]
    existence: Existence
    topic_id: bytes | None = None
    partition_count: int = 0

    def copied(self) -> TopicOracle:
        return replace(self, partitions=[held.copied() for held in self.partitions])


@dataclass(slots=True)
class Oracle:
    """All that clients know of one broker. Committed offsets are by group: the acknowledged one
    and those sent after it, in order."""

    topics: dict[str, TopicOracle] = field(default_factory=dict)
    commits: dict[str, list[int]] = field(default_factory=dict)
    # Of topics that are gone for good.
    dead_ids: set[bytes] = field(default_factory=set)
    batches_sent: int = 0
    starts: int = 0

    def copied(self) -> Oracle:
        return Oracle(
            {name: topic.copied() for name, topic in self.topics.items()},
            {group: list(offsets) for group, offsets in self.commits.items()},
            set(self.dead_ids),
            self.batches_sent,
            self.starts,
        )

    def new_batch(self, count: int, size: int, sequence: int, key: bytes) -> SentBatch:
        """A batch with values that no other has."""
        self.batches_sent += 1
        values = (f"{self.batches_sent}.{at} ".encode().ljust(size, b"x") for at in range(count))
        return SentBatch(self.batches_sent, tuple(values), sequence, key)

    # ---- topics

    def creating(self, name: str, partition_count: int, *, is_compacted: bool = False) -> None:
        if name not in self.topics:  # else an earlier attempt may have made it
            partitions = [
                PartitionOracle(is_compacted=is_compacted) for _ in range(partition_count)
            ]
            self.topics[name] = TopicOracle(partitions, Existence.BEING_CREATED)

    def created(self, name: str, topic_id: bytes) -> None:
        topic = self.topics[name]
        topic.existence, topic.topic_id = Existence.THERE, topic_id
        topic.partition_count = len(topic.partitions)

    def deleting(self, name: str) -> None:
        self.topics[name].existence = Existence.BEING_DELETED

    def deleted(self, name: str) -> None:
        topic_id = self.topics.pop(name).topic_id
        if topic_id is not None:
            self.dead_ids.add(topic_id)

    def growing(self, name: str, partition_count: int) -> None:
        topic = self.topics[name]
        while len(topic.partitions) < partition_count:
            topic.partitions.append(PartitionOracle(is_compacted=topic.partitions[0].is_compacted))

    def check_topics(self, found: dict[str, tuple[bytes, int]]) -> None:
        """Holds names, ids and counts of partitions against what is known."""
        assert found.keys() <= self.topics.keys(), f"{sorted(found)} are there"
        for name, topic in list(self.topics.items()):
            if name not in found:
                assert topic.existence is not Existence.THERE, f"topic {name} is lost"
                self.deleted(name)
                continue
            topic_id, partition_count = found[name]
            assert topic_id not in self.dead_ids, f"topic {name} is the one that was deleted"
            assert topic.topic_id in (None, topic_id), f"topic {name} has another id"
            assert topic.partition_count <= partition_count <= len(topic.partitions)
            del topic.partitions[partition_count:]
            self.created(name, topic_id)

    # ---- groups

    def committing(self, group: str, offset: int) -> None:
        self.commits.setdefault(group, [-1]).append(offset)

    def committed(self, group: str, offset: int) -> None:
        self.commits[group] = [offset]

    def check_commit(self, group: str, offset: int) -> None:
        possible = self.commits[group]
        assert offset in possible, f"group {group} is at {offset}, not one of {possible}"
        # What was sent later is lost, and must not come back.
        del possible[possible.index(offset) + 1 :]


def _values(records: Sequence[Record]) -> tuple[bytes, ...]:
    return tuple(record.value or b"" for record in records)
