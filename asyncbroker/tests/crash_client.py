"""Clients of a broker that may crash: each request is told to the oracle, and so is its answer.

A method is one request, or a few at once, as a client library would make them: a producer with
idempotence sends again what was not answered before it sends anything new. An answer that is an
error leaves the outcome open; `errors` has them. `check` asks the broker for everything and holds
it against the oracle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from asyncbroker.group_shard import LOAD_AGAIN_SECONDS
from asyncbroker.log.tests.crash_files import CrashFiles
from asyncbroker.partition import Partition
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from asyncbroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from asyncbroker.protocol.records import Record, batches, build_batch
from asyncbroker.tests.crash_oracle import KEY, Answer, Oracle, PartitionOracle, SentBatch
from asyncbroker.tests.data_path_harness import UnderTest, settle
from asyncbroker.tests.group_requests import commit_request
from asyncbroker.topic import Topic

# Kafka's housekeeping has a checkpoint each minute.
CHECKPOINT_SECONDS: Final = 60.0
PRODUCER_ID: Final = 7
# How often a coordinator that loads is asked again.
LOADS_MAX: Final = 5


class Client:
    """See the head of this file."""

    def __init__(self, test: UnderTest, oracle: Oracle, files: CrashFiles) -> None:
        self.test = test
        self._files = files
        self.oracle = oracle
        self.errors: list[ErrorCode] = []

    # ---- topics

    async def create(
        self, name: str, partition_count: int = 1, settings: dict[str, str] | None = None
    ) -> None:
        settings = settings or {}
        is_compacted = "compact" in settings.get("cleanup_policy", "")
        self.oracle.creating(name, partition_count, is_compacted=is_compacted)
        try:
            topic = await self.test.topic(name, partition_count, **settings)
        except KafkaError as error:
            self.errors.append(error.code)
        else:
            self.oracle.created(name, topic.topic_id)

    async def delete(self, name: str) -> None:
        self.oracle.deleting(name)
        try:
            await self.test.broker.topics.delete(self._topic(name))
        except KafkaError as error:
            self.errors.append(error.code)
        else:
            self.oracle.deleted(name)

    async def grow(self, name: str, partition_count: int) -> None:
        self.oracle.growing(name, partition_count)
        try:
            await self.test.broker.topics.add_partitions(self._topic(name), partition_count)
        except KafkaError as error:
            self.errors.append(error.code)
        else:
            self.oracle.topics[name].partition_count = partition_count

    def _topic(self, name: str) -> Topic:
        """Raises KafkaError for a topic that could not be created."""
        topic = self.test.broker.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    def partition(self, name: str, index: int = 0) -> Partition:
        return self._topic(name).partitions[index]

    # ---- records

    async def produce(
        self,
        name: str,
        index: int = 0,
        *,
        count: int = 1,
        size: int = 20,
        acks: int = -1,
        key: bytes = KEY,
    ) -> None:
        """A batch without idempotence; all its records have the key."""
        known = self.oracle.topics[name].partitions[index]
        await self._send(name, index, known, self.oracle.new_batch(count, size, -1, key), acks)

    async def produce_once(
        self, name: str, index: int = 0, *, count: int = 1, size: int = 20, key: bytes = KEY
    ) -> None:
        """A batch of an idempotent producer, after those that it has to send again."""
        known = self.oracle.topics[name].partitions[index]
        for batch in known.unanswered():
            if not await self._send(name, index, known, batch, -1):
                return
        batch = self.oracle.new_batch(count, size, known.next_sequence, key)
        await self._send(name, index, known, batch, -1)

    async def produce_everywhere(self, name: str) -> None:
        """A batch to each partition, at the same time: they share a commit round."""
        indexes = range(self.oracle.topics[name].partition_count)
        await asyncio.gather(*(self.produce_once(name, index) for index in indexes))

    async def _send(
        self, name: str, index: int, known: PartitionOracle, batch: SentBatch, acks: int
    ) -> bool:
        """Whether it was taken."""
        known.sending(batch)
        records = [Record(0, self.test.clock.wall_ms(), batch.key, value) for value in batch.values]
        is_idempotent = batch.sequence >= 0
        data = build_batch(
            records,
            producer_id=PRODUCER_ID if is_idempotent else -1,
            producer_epoch=0 if is_idempotent else -1,
            base_sequence=batch.sequence,
        )
        outcome = await self.test.produce(data, topic=name, index=index, acks=acks)
        if outcome.error_code:
            self.errors.append(ErrorCode(outcome.error_code))
            return False
        partition = self.partition(name, index)
        known.answered(batch, Answer(outcome.base_offset, partition.leader_epoch))
        if acks == -1 and batch.number not in known.durable:
            is_there = outcome.base_offset >= partition.log_start_offset
            written = self._read(_batch_at, partition, outcome.base_offset) if is_there else None
            known.acknowledged(batch, written)
        return True

    async def delete_records(self, name: str, offset: int, index: int = 0) -> None:
        known = self.oracle.topics[name].partitions[index]
        known.starting(offset)
        request = DeleteRecordsRequest(
            [DeleteRecordsTopic(name, [DeleteRecordsPartition(index, offset)])], 1000
        )
        response = await self.test.ask(request, 2)
        (result,) = response.topics[0].partitions
        if result.error_code:
            self.errors.append(ErrorCode(result.error_code))
        else:
            assert result.low_watermark == max(offset, known.start_offset)
            known.started(offset)

    def expect_deletion(self, name: str) -> None:
        """Retention may delete all that is there now."""
        known = self.oracle.topics[name]
        for partition, held in zip(self._topic(name).partitions, known.partitions, strict=True):
            held.starting(partition.high_watermark)

    # ---- groups

    async def commit(self, group: str, offset: int, topic: str = "flights") -> None:
        self.oracle.committing(group, offset)
        response = await self._ask_coordinator(
            commit_request(group, offsets={0: offset}, topic=topic), 8
        )
        (partition,) = response.topics[0].partitions
        if partition.error_code:
            self.errors.append(ErrorCode(partition.error_code))
        else:
            self.oracle.committed(group, offset)

    async def _ask_coordinator(self, request: Any, version: int) -> Any:
        """Asks again while it loads, as all clients do: a load that met a passing error is put off
        for a while."""
        for _ in range(LOADS_MAX):
            try:
                return await self.test.ask(request, version)
            except KafkaError as error:
                if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    raise
            await self.wait(LOAD_AGAIN_SECONDS)
        return await self.test.ask(request, version)

    async def commit_together(self, offsets: dict[str, int], topic: str = "flights") -> None:
        """Commits of several groups that share a round."""
        await asyncio.gather(*(self.commit(*item, topic) for item in offsets.items()))

    # ---- time

    async def wait(self, seconds: float) -> None:
        """Lets time pass, and what is due be done."""
        self.test.clock.advance(seconds)
        await settle()

    async def checkpoint(self) -> None:
        await self.wait(CHECKPOINT_SECONDS)

    async def stop(self) -> None:
        """Stops the broker in order."""
        await self.test.broker.stop()

    # ---- the oracle's questions

    async def check(self) -> None:
        """Holds everything that the broker shows against what it has promised."""
        await settle()
        shown = {topic.name: topic for topic in self.test.broker.topics if not topic.is_internal}
        self.oracle.check_topics(
            {name: (topic.topic_id, len(topic.partitions)) for name, topic in shown.items()}
        )
        for name, known in self.oracle.topics.items():
            for partition, held in zip(shown[name].partitions, known.partitions, strict=True):
                _check_order(partition)
                held.check(
                    partition.log_start_offset,
                    partition.high_watermark,
                    partition.leader_epoch,
                    self._read(_bytes_of, partition),
                )
                await self._check_producer(name, partition, held)
        await self._check_groups()

    def _read(self, read: Callable[..., bytes], *args: Any) -> bytes:
        """Reads for the oracle, whose reading is not what fails."""
        on_call, self._files.on_call = self._files.on_call, None
        try:
            return read(*args)
        finally:
            self._files.on_call = on_call

    def check_readable(self) -> None:
        """Holds what can be read now against what was promised; the oracle learns nothing."""
        for name, known in self.oracle.copied().topics.items():
            topic = self.test.broker.topics.get(name)
            for partition, held in zip(
                topic.partitions if topic else (), known.partitions, strict=False
            ):
                if partition.is_readable():
                    _check_order(partition)
                    held.check(
                        partition.log_start_offset,
                        partition.high_watermark,
                        partition.leader_epoch,
                        self._read(_bytes_of, partition),
                    )

    async def _check_producer(self, name: str, partition: Partition, held: PartitionOracle) -> None:
        """The last batches of the producer are known, and what comes next is taken."""
        end_offset = partition.high_watermark
        for batch, offset in held.repeatable():
            if offset >= held.start_offset and (
                not held.is_compacted or batch.number in held.durable
            ):
                await self._send(name, partition.index, held, batch, -1)
        assert partition.high_watermark == end_offset, "a batch was taken twice"
        for batch in held.unanswered():
            await self._send(name, partition.index, held, batch, -1)

    async def _check_groups(self) -> None:
        if not self.oracle.commits:
            return
        groups = [OffsetFetchRequestGroup(group, topics=None) for group in self.oracle.commits]
        response = await self.test.ask(OffsetFetchRequest(groups=groups), 8)
        for answer in response.groups:
            assert not answer.error_code, answer
            found = [held.committed_offset for topic in answer.topics for held in topic.partitions]
            self.oracle.check_commit(answer.group_id, found[0] if found else -1)


def _check_order(partition: Partition) -> None:
    """The offsets of a log that readers are told of lie in their order."""
    log = partition.log
    offsets = (
        log.log_start_offset,
        log.last_stable_offset,
        partition.high_watermark,
        log.end_offset,
    )
    assert offsets == tuple(sorted(offsets)), f"{partition.name}: {offsets}"
    assert log.durable_end_offset <= log.end_offset, partition.name


def _bytes_of(partition: Partition) -> bytes:
    """Everything in a partition's log."""
    parts = []
    offset, end_offset = partition.log_start_offset, partition.high_watermark
    while (found := partition.log.locate(offset, 1 << 20, end_offset=end_offset)) is not None:
        parts.append(bytes(found.read()))
        offset = [header for header, _ in batches(parts[-1])][-1].next_offset
    return b"".join(parts)


def _batch_at(partition: Partition, offset: int) -> bytes:
    """The bytes of the batch with this base offset."""
    found = partition.log.locate(offset, 1, end_offset=partition.high_watermark)
    assert found is not None
    return bytes(found.read())
