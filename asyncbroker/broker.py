"""The broker: puts its parts together, starts them in order, and stops them in reverse.

It is all that handlers see, and it needs no socket: a test makes one with a clock, files and
workers of its own, calls `start`, and gives requests to the handlers.

Start: take the data directory, read the metadata, sort out what a crash has left, open the logs,
load the groups. Stop: whoever waits is answered, groups and metadata become durable, logs are
flushed and closed; then the directory is marked as left in order.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.cleaner import Cleaner
from asyncbroker.clock import Clock, SystemClock
from asyncbroker.commits import Commits
from asyncbroker.config import BrokerConfig
from asyncbroker.deadlines import Deadlines
from asyncbroker.directory_watch import DirectoryWatch
from asyncbroker.fetch_sessions import FetchSessions
from asyncbroker.fetch_waits import FetchWaits
from asyncbroker.group_settings import GroupSettings
from asyncbroker.housekeeping import Housekeeping
from asyncbroker.log.checkpoints import META_PROPERTIES, encode_uuid
from asyncbroker.log.errors import DirectoryRefused
from asyncbroker.log.files import RealFiles
from asyncbroker.log.log_directory import LogDirectory
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.reserve import Reserve
from asyncbroker.log_starts import LogStarts
from asyncbroker.metadata_store import (
    Change,
    MemoryMetadataStore,
    MetadataStore,
    SetBrokerConfigs,
    SetValue,
    StoredState,
)
from asyncbroker.metadata_writer import MetadataWriter
from asyncbroker.metrics import Metrics
from asyncbroker.producer_ids import NEXT_PRODUCER_ID, ProducerIds
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.reconcile import Plan, reconcile
from asyncbroker.removals import Removals
from asyncbroker.retention import LAST_SEEN, Retention
from asyncbroker.scrubber import Scrubber
from asyncbroker.settings import InvalidSetting, broker_setting
from asyncbroker.sqlite_metadata import FILE_NAME, SqliteMetadataStore
from asyncbroker.storage import Storage
from asyncbroker.synced_writer import make_synced_writer
from asyncbroker.topic import new_topic_id
from asyncbroker.topic_config import TopicConfigs, automatic_topic
from asyncbroker.topic_names import GROUP_METADATA_TOPIC
from asyncbroker.topics import Topics
from asyncbroker.users import DECOY_KEY, DECOY_KEY_BYTES, Users
from asyncbroker.workers import ThreadWorkers, Workers

if TYPE_CHECKING:
    from asyncbroker.groups import Groups
    from asyncbroker.log.files import Files
    from asyncbroker.log.journal import Journal

logger = logging.getLogger(__name__)

# Where a broker without a data directory keeps its logs, in files that are in memory.
MEMORY_DIRECTORY: Final = "memory"

LEADER_EPOCH: Final = "leader.epoch"

LOGS_CLOSED_AT_ONCE: Final = 16


class Broker:
    """One broker. Made on a running event loop; all methods are for its thread."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock | None = None,
        workers: Workers | None = None,
        *,
        peer_clock: Clock | None = None,
        readers: Workers | None = None,
        files: Files | None = None,
        metadata: MetadataStore | None = None,
        is_volatile: bool | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`peer_clock` is the time of those who wait for answers, which a test that moves `clock`
        leaves alone. `readers` are threads for cold reads alone; without them the workers do these
        too. Without `files`, those of the operating system if the configuration names a data
        directory, otherwise files in memory; without `metadata`, a store of the same kind.
        `is_volatile`: nobody need wait for durability; without it, so are files made here."""
        loop = asyncio.get_running_loop()
        is_in_memory = config.data_directory is None
        self.config = config
        self.node_id = config.node_id
        self.clock: Clock = clock or SystemClock(loop)
        self.peer_clock: Clock = peer_clock or self.clock
        self.workers: Workers = workers or ThreadWorkers(loop, config.worker_threads)
        self._directory = config.data_directory or MEMORY_DIRECTORY
        self._files: Files = files or (MemoryFiles() if is_in_memory else RealFiles())
        reserve_bytes = 0 if is_in_memory else config.reserve_bytes
        self._reserve = Reserve(self._files, self._directory, reserve_bytes)
        self.storage = Storage(
            self.clock,
            self.workers,
            readers=readers,
            inline_append_bytes_max=config.append_inline_max_bytes,
            writeback_bytes=config.writeback_bytes,
            is_volatile=is_in_memory and files is None if is_volatile is None else is_volatile,
            reserve=self._reserve,
        )
        self.metrics = Metrics()
        self.commits = Commits(self.storage)
        self.produce_deadlines = Deadlines(self.peer_clock)
        self.fetch_sessions = FetchSessions(
            self.peer_clock,
            slots_max=config.max_incremental_fetch_session_cache_slots,
            random_below=lambda limit: int.from_bytes(random_bytes(8), "big") % limit,
        )
        self.fetch_waits = FetchWaits(self.peer_clock, count_max=config.max_waiting_fetches)
        # Held while settings are changed: the new ones follow from the present ones.
        self.altering = asyncio.Lock()
        self._random_bytes = random_bytes
        self._store: MetadataStore = metadata or (
            MemoryMetadataStore()
            if is_in_memory
            else SqliteMetadataStore(os.path.join(self._directory, FILE_NAME))
        )
        # What is in it, if somebody has asked before it is its turn.
        self._state: StoredState | None = None
        self._groups: Groups | None = None
        self._stopping_groups: asyncio.Task[None] | None = None

    # Set by `start`.
    cluster_id: str
    topics: Topics
    log_starts: LogStarts
    producer_ids: ProducerIds
    users: Users
    group_settings: GroupSettings
    cleaner: Cleaner
    scrubber: Scrubber
    _logs: LogDirectory
    _metadata: MetadataWriter
    _removals: Removals
    _housekeeping: Housekeeping

    # ---- start

    async def start(self) -> None:
        """Takes the data directory and opens what is in it. Raises DirectoryRefused, or OSError."""
        began = self.clock.monotonic()
        run = self.workers.run
        try:
            self._logs = await run(self._open_directory)
        except (DirectoryRefused, OSError):
            await run(self._store.close)
            raise
        try:
            state, self._state = self._state, None
            if state is None:
                state = await run(self._store.open)
            plan = self._plan(state)
            await run(self._prepare, state, plan)
        except (DirectoryRefused, OSError):
            await run(self._store.close)
            await run(lambda: self._logs.close(clean=False))
            raise
        self._put_together(state)
        await self.topics.open_all(plan.topics, self.config.num_recovery_threads_per_data_dir)
        await self._pass_leader_epochs()
        self._pass_producer_ids()
        if self.topics.get(GROUP_METADATA_TOPIC) is not None:
            self._groups = self._make_groups()
        self._housekeeping.start()
        self._removals.add(await run(self._logs.half_deleted))
        self._note_start(self.clock.monotonic() - began)

    def _note_start(self, seconds: float) -> None:
        """For the metrics; before anything is appended."""
        recovered = [
            sum(max(0, each.recovered_size - each.flushed_size) for each in log.segments)
            for log in self._logs.logs.values()
        ]
        metrics = self.storage.metrics
        metrics.start_seconds = seconds
        metrics.is_start_unclean = not self._logs.was_clean
        metrics.recovered_partitions = sum(size > 0 for size in recovered)
        metrics.recovered_bytes = sum(recovered)

    def _open_directory(self) -> LogDirectory:
        """In a worker thread. The cluster's id is kept where Kafka keeps it, and nowhere else."""
        is_new = not self._files.exists(f"{self._directory}/{META_PROPERTIES}")
        logs = LogDirectory.open(
            self._files,
            self._directory,
            cluster_id=encode_uuid(new_topic_id(self._random_bytes)) if is_new else None,
            node_id=self.node_id,
            open_files_max=self.config.max_open_files or None,
            random_bytes=self._random_bytes,
            reserve=self._reserve,
            journal_bytes=self.config.log_journal_bytes,
            topic_ids=self._topic_ids,
        )
        if logs.cluster_id is None:
            logs.close(clean=False)
            raise DirectoryRefused(f"{self._directory}/{META_PROPERTIES} has no cluster.id")
        self.cluster_id = logs.cluster_id
        return logs

    def _topic_ids(self) -> dict[str, bytes]:
        """In a worker thread, only after a crash: the ids of all topics by their names."""
        state = self._state = self._store.open()
        return {topic.name: topic.topic_id for topic in state.topics.values()}

    def _plan(self, state: StoredState) -> Plan:
        """What to do about the differences between the store and the directories."""
        plan = reconcile(
            state,
            self._logs.partitions(),
            new_id=lambda: new_topic_id(self._random_bytes),
            configs_of=lambda name: automatic_topic(name, self.config)[1],
            partitions_max=self.config.max_partitions,
        )
        for note in plan.notes:
            logger.warning("%s", note)
        epoch = int(state.values.get(LEADER_EPOCH, "0"))
        if not self._logs.was_clean:
            # What was not durable may be gone: clients that have seen it learn so by the epoch.
            epoch += 1
            # Without a disk nobody has crashed: the files are a copy of those of a running broker.
            level = logging.INFO if self.storage.is_volatile else logging.WARNING
            logger.log(
                level, "the broker was not stopped in order: recovering, leader epoch %d", epoch
            )
        plan.changes.append(SetValue(LEADER_EPOCH, str(epoch)))
        wall_ms, last_seen = self.clock.wall_ms(), state.values.get(LAST_SEEN)
        if last_seen is None or int(last_seen) > wall_ms:
            # Or a start after a jump of the clock would have nothing to tell it by. A clock that
            # went back is believed: by the old time nobody could tell that it jumps ahead again.
            plan.changes.append(SetValue(LAST_SEEN, str(wall_ms)))
        if DECOY_KEY not in state.values:
            key = self._random_bytes(DECOY_KEY_BYTES).hex()
            plan.changes.append(SetValue(DECOY_KEY, key))
        return plan

    def _prepare(self, state: StoredState, plan: Plan) -> None:
        """In a worker thread: carries out the plan, before anything is opened."""
        self._apply(plan.changes)
        for change in plan.changes:
            change.apply_to(state)
        doomed = [(found.topic, found.partition) for found in plan.to_delete]
        if doomed:
            self._logs.delete_partitions(doomed)
        if plan.strays:
            self._logs.put_aside((found.topic, found.partition) for found in plan.strays)
        if plan.after_deletion:
            self._apply(plan.after_deletion)

    def _apply(self, changes: list[Change]) -> None:
        self._reserve.with_room(lambda: self._store.apply(changes))

    def _put_together(self, state: StoredState) -> None:
        self.config = self.config.with_dynamic(
            dynamic=state.broker_configs.get(str(self.node_id), {}),
            dynamic_default=state.broker_configs.get("", {}),
        )
        self._metadata = MetadataWriter(self._store, self.workers, self._reserve)
        self._removals = Removals(self._logs, self.storage)
        self.producer_ids = ProducerIds(
            self._metadata, int(state.values.get(NEXT_PRODUCER_ID, "0"))
        )
        self.users = Users(
            state.scram_credentials,
            self._metadata,
            self.workers,
            decoy_key=bytes.fromhex(state.values[DECOY_KEY]),
            random_bytes=self._random_bytes,
        )
        self.group_settings = GroupSettings(
            state.group_configs, self._metadata, self._on_group_settings
        )
        self.topics = Topics(
            configs=TopicConfigs(self.config),
            metadata=self._metadata,
            logs=self._logs,
            storage=self.storage,
            leader_epoch=int(state.values[LEADER_EPOCH]),
            max_partitions=self.config.max_partitions,
            random_bytes=self._random_bytes,
            removals=self._removals,
            on_deleted=self._on_topics_deleted,
            forget_offsets=self._forget_offsets,
        )
        self.log_starts = LogStarts(self._logs, self.storage, self._removals)
        self.storage.trust_time(int(state.values[LAST_SEEN]))
        self.commits.use_journal(
            self._logs,
            self.config.log_journal_stretch_max_bytes,
            make_synced_writer(self._files, self.workers),
        )
        cleaner = self.cleaner = Cleaner(lambda: self.config, self.storage, self.topics, self._logs)
        scrubber = self.scrubber = Scrubber(
            lambda: self.config, self.storage, self.topics, self._random_bytes
        )
        retention = Retention(self.topics, self.log_starts, self.storage, self._metadata)
        self._housekeeping = Housekeeping(
            lambda: self.config,
            self.storage,
            self.topics,
            self._logs,
            cleaner,
            scrubber,
            retention,
            DirectoryWatch(self._files, self._directory, self.topics, self.storage),
        )

    async def _pass_leader_epochs(self) -> None:
        """A log that has moved in may have seen more leaders than this broker has."""
        highest = self.topics.highest_logged_epoch()
        if highest > self.topics.leader_epoch:
            await self._metadata.write(SetValue(LEADER_EPOCH, str(highest + 1)))
            self.topics.raise_leader_epoch(highest + 1)

    def _pass_producer_ids(self) -> None:
        """Nor may a producer be taken for one that such a log knows."""
        ids = self.topics.producer_ids_from(self.producer_ids.first_free)
        if ids:
            logger.warning("logs know %d producers that this broker does not", len(ids))
            self.producer_ids.pass_over(ids)

    def _on_topics_deleted(self, names: Iterable[str]) -> None:
        if self._groups is not None:
            self._groups.on_topics_deleted(names)

    async def _forget_offsets(self, name: str) -> None:
        if self._groups is not None:
            await self._groups.forget_topic(name)

    def _on_group_settings(self, group_id: str) -> None:
        if self._groups is not None:
            self._groups.use_settings_of(group_id)

    @property
    def journal(self) -> Journal | None:
        """The journal of the data directory; None without one."""
        return self._logs.journal

    # ---- groups

    @property
    def groups(self) -> Groups:
        """The groups; made when they are first asked for, or at start if there may be any."""
        if self._groups is None:
            self._groups = self._make_groups()
        return self._groups

    def groups_by_state(self) -> Mapping[str, int]:
        """How many groups there are in each state."""
        return {} if self._groups is None else self._groups.count_by_state()

    def _make_groups(self) -> Groups:
        # Imported here: coordinator and messages would be a third of the start of a new broker.
        from asyncbroker.groups import Groups

        groups = Groups(
            config=self.config,
            settings=self.group_settings,
            topics=self.topics,
            commits=self.commits,
            clock=self.clock,
            trusted_now_ms=self.storage.trusted_now_ms,
            random_bytes=self._random_bytes,
        )
        groups.start()
        return groups

    # ---- for who moves the clock

    def hurry(self) -> None:
        """Has done now, or due now, what the broker does now and then."""
        self._housekeeping.hurry()
        if self._groups is not None:
            self._groups.expire_offsets()

    def pace(self, seconds_min: float) -> None:
        """Leaves at least so much time between two turns of a chore."""
        self._housekeeping.pause_seconds_min = seconds_min

    def at_work(self) -> list[asyncio.Task[Any]]:
        """What the broker is doing by itself, and ends without the clock."""
        return [
            *self._housekeeping.at_work(),
            *self.log_starts.at_work(),
            *self._removals.at_work(),
            *(() if self._groups is None else self._groups.at_work()),
        ]

    # ---- settings

    async def set_dynamic_settings(
        self, resource: str, settings: Mapping[str, str], *, validate_only: bool
    ) -> None:
        """Replaces the dynamic settings of this broker (its id) or of all brokers (""). Raises
        KafkaError for one that cannot be; otherwise they are durable and in force."""
        for name, text in settings.items():
            setting = broker_setting(name)
            if setting is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}: there is no such setting")
            try:
                setting.parse(text)
            except InvalidSetting as mistake:
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(mistake)) from mistake
        try:
            config = self.config.with_dynamic(
                dynamic=settings if resource else self.config.dynamic,
                dynamic_default=self.config.dynamic_default if resource else settings,
            )
        except InvalidSetting as mistake:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(mistake)) from mistake
        if not validate_only:
            change = SetBrokerConfigs(resource, dict(settings))
            await self._metadata.write(change, then=lambda: self._reconfigure(config))

    def _reconfigure(self, config: BrokerConfig) -> None:
        self.config = config
        self.topics.set_configs(TopicConfigs(config))

    # ---- stop

    def end_waits(self) -> None:
        """Begins the stop: fetches and members that wait are answered, so that their connections
        can be closed. Nothing new may be asked after this."""
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping")
        for topic in self.topics:
            # Groups still write what they have promised.
            if not topic.is_internal:
                for partition in topic.partitions:
                    partition.refuse(error)
        if self._groups is not None and self._stopping_groups is None:
            self._stopping_groups = asyncio.create_task(self._groups.stop(), name="stop groups")

    async def _close_logs(self) -> None:
        """Closes the logs in several threads: each that was written to needs some fsyncs, and those
        of several take little longer than those of one."""
        logs = self._logs
        keys = iter(list(logs.logs))

        async def close_portions() -> None:
            while portion := list(itertools.islice(keys, LOGS_CLOSED_AT_ONCE)):
                await self.workers.run(logs.close_some, portion)

        await asyncio.gather(*(close_portions() for _ in range(self.config.worker_threads)))

    async def stop(self) -> None:
        """Ends everything in order. The directory counts as clean if every log could be closed."""
        self.end_waits()
        if self._stopping_groups is not None:
            await self._stopping_groups
        await self._housekeeping.stop()
        await self.topics.finish()
        await self.log_starts.finish()
        await self._removals.stop()
        await self.commits.close()
        self.produce_deadlines.close()
        for topic in self.topics:
            for partition in topic.partitions:
                await partition.drain()
        await self._metadata.close()
        if self.storage.error is None:
            await self._close_logs()
        try:
            await self.workers.run(lambda: self._logs.close(clean=self.storage.error is None))
        except OSError as error:
            logger.error("the log directory could not be closed in order: %s", error)
        await self.storage.readers.close()
        await self.workers.close()
