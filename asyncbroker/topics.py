"""All topics: by name and by id, their creation, growth, deletion and settings.

What exists is decided by the metadata store. A topic is created by writing it there, then opening
its logs, and only then showing it; it is deleted by marking it there, then hiding it, then moving
its logs out of the way. A crash in between leaves directories without a topic or a topic without
directories, which `reconcile.py` sorts out at the next start. Each change runs as a task of its own
to its end, also when the client that asked for it is gone; of one topic, one at a time.

A name is taken from the moment its creation begins: a second creation fails, and automatic creation
joins the one under way. One that comes while a deleted topic's directories are moved away waits for
that, and until no group has offsets of it. A topic that is created anew has another id, so nothing
of the old one can come back under it.

Not known here: requests and their versions, groups, what is in a log.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from asyncbroker.damaged_log import DamagedLog
from asyncbroker.log.errors import CorruptLog
from asyncbroker.metadata_store import DeleteTopic, ForgetTopic, PutTopic, StoredTopic
from asyncbroker.partition import Partition
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.topic import Topic, new_topic_id
from asyncbroker.topic_config import TopicConfig, TopicConfigs
from asyncbroker.topic_names import check_topic_name, collision_key

if TYPE_CHECKING:
    from asyncbroker.log.log_directory import LogDirectory
    from asyncbroker.log.partition_log import PartitionLog
    from asyncbroker.metadata_writer import MetadataWriter
    from asyncbroker.removals import Removals
    from asyncbroker.storage import Storage

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
# Topics whose logs one thread opens before others may be shown, or the stop of the process heard.
TOPICS_OPENED_AT_ONCE: Final = 64

THREADS_MAKING_LOGS: Final = 2


class Topics:
    """The owner of all topics and partitions. All methods are for the event loop's thread."""

    def __init__(
        self,
        *,
        configs: TopicConfigs,
        metadata: MetadataWriter,
        logs: LogDirectory,
        storage: Storage,
        leader_epoch: int,
        max_partitions: int,
        random_bytes: Callable[[int], bytes],
        removals: Removals,
        on_deleted: Callable[[Iterable[str]], None],
        forget_offsets: Callable[[str], Awaitable[None]],
    ) -> None:
        self.configs = configs
        self.partition_count = 0
        # Another number whenever a topic appears, grows or vanishes.
        self.version = 0
        self._metadata = metadata
        self._logs = logs
        self._storage = storage
        self.leader_epoch = leader_epoch
        self._max_partitions = max_partitions
        self._random_bytes = random_bytes
        self._removals = removals
        self._on_deleted = on_deleted
        self._forget_offsets = forget_offsets
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        # Names in use by collision key, including those of topics that are being created.
        self._names: dict[str, str] = {}
        self._creating: dict[str, asyncio.Task[Topic]] = {}
        self._removing: dict[str, asyncio.Future[None]] = {}
        # Topics that are stored but could not be created, until the store has forgotten them too.
        self._half_made: dict[str, StoredTopic] = {}
        # A storm of creations must leave threads for those who wait for their records.
        self._making_logs = asyncio.Semaphore(THREADS_MAKING_LOGS)
        self._tasks: set[asyncio.Task[Any]] = set()

    # ---- looking up

    def get(self, name: str) -> Topic | None:
        """The topic of this name."""
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        """The topic of this id."""
        return self._by_id.get(topic_id)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    # ---- creating

    def check_new(self, name: str, partition_count: int) -> None:
        """Raises KafkaError when a topic of this name and size cannot be created now. Whether one
        that is being created stands in the way shows when that has come to its end."""
        check_topic_name(name)
        self._check_online()
        if name in self._by_name:
            raise _exists(name)
        if name in self._creating:
            return
        other = self._names.get(collision_key(name))
        if other is not None and other != name:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {name} differs only in . and _ from topic {other}",
            )
        self._check_room(name, partition_count)

    def _check_room(self, name: str, partition_count: int) -> None:
        if self.partition_count + partition_count > self._max_partitions:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {name}: more partitions than asyncbroker.max.partitions="
                f"{self._max_partitions} in all",
            )

    def create(
        self, name: str, partition_count: int, overrides: Mapping[str, str]
    ) -> asyncio.Future[Topic]:
        """Creates a topic whose settings have been checked; raises KafkaError when it cannot be.

        The future is done when the topic is durable and in use, or fails with KafkaError.
        """
        self.check_new(name, partition_count)
        if (other := self._creating.get(name)) is not None:
            return self._run(self._refuse_after(other), f"create topic {name} again")
        self._names[collision_key(name)] = name
        self.partition_count += partition_count
        task = self._run(self._create(name, partition_count, overrides), f"create topic {name}")
        self._creating[name] = task

        def finish(done: asyncio.Task[Topic]) -> None:
            del self._creating[name]
            if done.cancelled() or done.exception() is not None:
                self.partition_count -= partition_count
                self._free_name(name)

        task.add_done_callback(finish)
        return asyncio.shield(task)

    def ensure(
        self, name: str, partition_count: int, overrides: Mapping[str, str]
    ) -> Topic | asyncio.Future[Topic]:
        """The topic of this name, created if it has to be. Any number may ask at the same time."""
        topic = self._by_name.get(name)
        if topic is not None:
            return topic
        creation = self._creating.get(name)
        if creation is not None:
            return asyncio.shield(creation)
        return self.create(name, partition_count, overrides)

    async def _refuse_after(self, creation: asyncio.Task[Topic]) -> Topic:
        """Says that the topic exists once it does: until then its creation may fail, and whoever
        asked again, having lost the first answer, would take it for made."""
        topic = await asyncio.shield(creation)
        raise _exists(topic.name)

    async def _create(self, name: str, partition_count: int, overrides: Mapping[str, str]) -> Topic:
        if (removal := self._removing.get(name)) is not None:
            await asyncio.shield(removal)
        await self._unmake(name)
        await self._forget_offsets(name)
        stored = StoredTopic(name, new_topic_id(self._random_bytes), partition_count, {**overrides})
        config = self.configs.of(stored.configs)
        await self._metadata.write(PutTopic(stored))
        try:
            async with self._making_logs:
                logs = await self._storage.workers.run(self._open_logs, stored, config, 0)
        except (CorruptLog, OSError) as error:
            logger.error("creating the logs of topic %s failed: %s", name, error)
            self._half_made[name] = stored
            await self._unmake(name)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"topic {name}: {error}") from error
        topic = Topic(name, stored.topic_id, self._assemble(stored, logs, 0), config)
        self._add(topic)
        plural = "" if partition_count == 1 else "s"
        logger.info("created topic %s with %d partition%s", name, partition_count, plural)
        return topic

    async def _unmake(self, name: str) -> None:
        """Takes a topic back that could not be created. On a full disk this can fail as well; then
        whoever creates the topic next does it first."""
        half_made = self._half_made.get(name)
        if half_made is not None:
            await self._metadata.write(DeleteTopic(half_made.topic_id))
            del self._half_made[name]
            await self._remove_logs(half_made, 0)

    # ---- growing

    def check_growth(self, topic: Topic, partition_count: int) -> None:
        """Raises KafkaError when the topic cannot have so many partitions, of which some are new:
        there is no way to take partitions away."""
        present = len(topic.partitions)
        if partition_count <= present:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {topic.name} has {present} partitions; {partition_count} would not be more",
            )
        self._check_room(topic.name, partition_count - present)

    def add_partitions(self, topic: Topic, partition_count: int) -> asyncio.Future[None]:
        """Gives the topic `partition_count` partitions in all; those it has stay what they are. The
        future is done when the new ones are durable and in use, or fails with KafkaError."""
        return asyncio.shield(self._run(self._grow(topic, partition_count), f"grow {topic.name}"))

    async def _grow(self, topic: Topic, partition_count: int) -> None:
        async with topic.changing:
            topic.check_not_deleted()
            self.check_growth(topic, partition_count)
            present = len(topic.partitions)
            self.partition_count += partition_count - present
            try:
                added = await self._make_partitions(topic, partition_count)
            except KafkaError:
                self.partition_count -= partition_count - present
                raise
            # Replaced, never changed: others may be going through it.
            topic.partitions = [*topic.partitions, *added]
            self.version += 1
            # The settings may be others than those that the new logs were opened with.
            topic.configure(topic.config)
        logger.info("topic %s has %d partitions now", topic.name, partition_count)

    async def _make_partitions(self, topic: Topic, partition_count: int) -> list[Partition]:
        """Stores the new number of partitions, then makes them; takes both back on failure."""
        before, config = topic.stored(topic.config.overrides), topic.config
        stored = dataclasses.replace(before, partition_count=partition_count)
        await self._metadata.write(PutTopic(stored))
        try:
            async with self._making_logs:
                logs = await self._storage.workers.run(
                    self._open_logs, stored, config, before.partition_count
                )
        except (CorruptLog, OSError) as error:
            logger.error("creating more logs of topic %s failed: %s", topic.name, error)
            await self._remove_logs(stored, before.partition_count)
            await self._metadata.write(PutTopic(before))
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"topic {topic.name}: {error}"
            ) from error
        return self._assemble(stored, logs, before.partition_count)

    # ---- opening

    async def open_all(self, stored_topics: Iterable[StoredTopic], threads: int) -> None:
        """At start: opens the logs of many topics in a few threads, and shows the topics. A log
        that cannot be opened takes its partition offline, and no other."""
        pending = [(stored, self.configs.of(stored.configs)) for stored in stored_topics]
        starts = iter(range(0, len(pending), TOPICS_OPENED_AT_ONCE))

        async def open_portions() -> None:
            for start in starts:
                portion = pending[start : start + TOPICS_OPENED_AT_ONCE]
                opened = await self._storage.workers.run(self._open_portion, portion)
                for (stored, config), logs in zip(portion, opened, strict=True):
                    self.partition_count += stored.partition_count
                    partitions = self._assemble(stored, logs, 0)
                    self._add(Topic(stored.name, stored.topic_id, partitions, config))

        await asyncio.gather(*(open_portions() for _ in range(threads)))

    def _open_portion(
        self, portion: Sequence[tuple[StoredTopic, TopicConfig]]
    ) -> list[list[PartitionLog | DamagedLog]]:
        """In a worker thread: the logs of some topics, damaged ones included."""
        return [
            [
                self._open_or_give_up(stored, index, config)
                for index in range(stored.partition_count)
            ]
            for stored, config in portion
        ]

    def _open_or_give_up(
        self, stored: StoredTopic, index: int, config: TopicConfig
    ) -> PartitionLog | DamagedLog:
        try:
            return self._open_log(stored, index, config)
        except (CorruptLog, OSError) as error:
            logger.error("%s-%d is offline: %s", stored.name, index, error)
            return DamagedLog(str(error))

    def _open_logs(
        self, stored: StoredTopic, config: TopicConfig, first: int
    ) -> list[PartitionLog]:
        """In a worker thread: the logs of new partitions, from the index `first` on."""
        indexes = range(first, stored.partition_count)
        return [self._open_log(stored, index, config, is_new=True) for index in indexes]

    def _open_log(
        self, stored: StoredTopic, index: int, config: TopicConfig, *, is_new: bool = False
    ) -> PartitionLog:
        return self._logs.open_partition(
            stored.name,
            index,
            topic_id=stored.topic_id,
            config=config.log,
            leader_epoch=self.leader_epoch,
            now_ms=self._storage.clock.wall_ms(),
            is_new=is_new,
        )

    def _assemble(
        self, stored: StoredTopic, logs: Sequence[PartitionLog | DamagedLog], first: int
    ) -> list[Partition]:
        """The partitions of logs, whose indexes begin with `first`."""
        partitions = []
        for index, log in enumerate(logs, first):
            partition = Partition(
                stored.name,
                index,
                stored.topic_id,
                cast("PartitionLog", log),
                leader_epoch=self.leader_epoch,
                storage=self._storage,
            )
            if isinstance(log, DamagedLog):
                partition.refuse(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, log.reason))
            partitions.append(partition)
        return partitions

    def highest_logged_epoch(self) -> int:
        """The latest leader epoch that any log has seen."""
        epochs = (
            partition.log.epochs.latest
            for topic in self
            for partition in topic.partitions
            if not isinstance(partition.log, DamagedLog)
        )
        return max(epochs, default=-1)

    def producer_ids_from(self, first: int) -> set[int]:
        """The producer ids from `first` on that any log knows."""
        return {
            producer_id
            for topic in self
            for partition in topic.partitions
            if not isinstance(partition.log, DamagedLog)
            for producer_id, _ in partition.log.producers.producers()
            if producer_id >= first
        }

    def raise_leader_epoch(self, leader_epoch: int) -> None:
        """Puts a later leader epoch in force for all partitions, before any is served."""
        self.leader_epoch = leader_epoch
        for topic in self:
            for partition in topic.partitions:
                partition.leader_epoch = leader_epoch
                if not isinstance(partition.log, DamagedLog):
                    partition.log.leader_epoch = leader_epoch
                    partition.log.epochs.assign(leader_epoch, partition.log.end_offset)

    def _add(self, topic: Topic) -> None:
        """Shows the topic to clients."""
        self.version += 1
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._names[collision_key(topic.name)] = topic.name

    # ---- deleting

    def delete(self, topic: Topic) -> asyncio.Future[None]:
        """Deletes a topic.

        The future is done when the topic is gone for good and its name is free; the files are
        removed after that. It fails with KafkaError when the topic cannot be deleted, or has been
        by somebody else: once that is durable, since until then it may fail.
        """
        self._check_online()
        return asyncio.shield(self._run(self._delete(topic), f"delete topic {topic.name}"))

    async def _delete(self, topic: Topic) -> None:
        async with topic.changing:
            topic.check_not_deleted()
            removed = self._removing[topic.name] = asyncio.get_running_loop().create_future()
            try:
                await self._metadata.write(
                    DeleteTopic(topic.topic_id), then=lambda: self._hide(topic)
                )
                await self._remove(topic)
            finally:
                del self._removing[topic.name]
                removed.set_result(None)

    async def _remove(self, topic: Topic) -> None:
        """Gives the name of a topic that is no more to the next one, without its files."""
        for partition in topic.partitions:
            await partition.drain()
        await self._remove_logs(topic.stored({}), 0)
        self._free_name(topic.name)
        logger.info("deleted topic %s", topic.name)

    async def _remove_logs(self, stored: StoredTopic, first: int) -> None:
        """Frees the names of a topic's directories, from the index `first` on, and has them
        removed in the background."""
        names = [(stored.name, index) for index in range(first, stored.partition_count)]
        try:
            moved = await self._storage.workers.run(self._logs.delete_partitions, names)
        except OSError as error:
            # The store knows that they must go; the next start tries again.
            logger.error("moving away the logs of topic %s failed: %s", stored.name, error)
        else:
            self._removals.add(moved)
            self._run(self._forget(stored), f"forget topic {stored.name}")

    async def _forget(self, stored: StoredTopic) -> None:
        """No directory has the name of the deleted topic any more."""
        try:
            await self._metadata.write(ForgetTopic(stored.topic_id))
        except KafkaError as error:
            logger.error("topic %s is forgotten at the next start: %s", stored.name, error)

    def _hide(self, topic: Topic) -> None:
        """From here on the topic is gone for clients; waiting fetches are told."""
        self.version += 1
        topic.is_deleted = True
        del self._by_name[topic.name]
        del self._by_id[topic.topic_id]
        self.partition_count -= len(topic.partitions)
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} was deleted")
        for partition in topic.partitions:
            partition.refuse(error)
        self._on_deleted([topic.name])

    def _check_online(self) -> None:
        """What is created or deleted in a directory that has failed might not be so for good."""
        if self._storage.error is not None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, "the log directory is offline until a restart"
            )

    def _free_name(self, name: str) -> None:
        key = collision_key(name)
        if self._names.get(key) == name and name not in self._creating:
            del self._names[key]

    # ---- settings

    def set_overrides(self, topic: Topic, overrides: Mapping[str, str]) -> asyncio.Future[None]:
        """Gives the topic these settings of its own, which have been checked, in place of those it
        has. Done when they are durable and in force; fails with KafkaError for a topic that was
        deleted meanwhile."""
        task = self._run(self._set_overrides(topic, overrides), f"configure topic {topic.name}")
        return asyncio.shield(task)

    async def _set_overrides(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        async with topic.changing:
            topic.check_not_deleted()
            config = self.configs.of(overrides)
            await self._metadata.write(
                PutTopic(topic.stored(config.overrides)), then=lambda: topic.configure(config)
            )

    def set_configs(self, configs: TopicConfigs) -> None:
        """Applies other settings of the broker to all topics."""
        self.configs = configs
        for topic in self:
            topic.configure(configs.of(topic.config.overrides))

    # ---- tasks

    def _run(self, work: Coroutine[Any, Any, Result], name: str) -> asyncio.Task[Result]:
        """Starts a change that has to come to its end, whoever waits for it."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self) -> None:
        """Waits for all changes under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)


def _exists(name: str) -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists")
