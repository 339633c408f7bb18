"""A data directory: whose it is, whether it was left in order, and the partitions in it.

    .lock                               held while a broker uses the directory
    .asyncbroker_format                 version of the directory's layout; a newer one is refused
    .asyncbroker_journal                the newest batches of all partitions: see `journal.py`
    meta.properties                     cluster id, node id, directory id
    .kafka_cleanshutdown                there only between a clean stop and the next start
    recovery-point-offset-checkpoint    up to where each partition is durable
    log-start-offset-checkpoint         where each partition begins
    .asyncbroker_checksums              what these may be: they have no checksums of their own
    cleaner-offset-checkpoint           up to where each partition is compacted
    .asyncbroker_reserve                room for what must work on a full disk
    <topic>-<partition>/                one directory a partition
    <topic>-<partition>.<uuid>-delete/  a partition that is being removed
    <topic>-<partition>.<uuid>-stray/   one that nobody knows; kept for whoever put it there

All methods block and are for worker threads; `checkpoint` may run beside the others. Topics and
their ids are known elsewhere (the metadata store); here are only directories.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncbroker.log.checkpoints import (
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    PARTITION_METADATA,
    CorruptCheckpoint,
    TopicPartition,
    decode_partition_metadata,
    encode_clean_shutdown,
)
from asyncbroker.log.config import LogConfig
from asyncbroker.log.directory_format import FORMAT, check_format
from asyncbroker.log.directory_owner import check_owner, node_id_in
from asyncbroker.log.errors import DirectoryRefused
from asyncbroker.log.files import Files, Lock
from asyncbroker.log.journal import JOURNAL, Journal
from asyncbroker.log.made_directory import make_directory
from asyncbroker.log.offset_checkpoints import OffsetCheckpoints
from asyncbroker.log.open_segments import OpenSegments, open_files_limit
from asyncbroker.log.removal import remove_some
from asyncbroker.log.reserve import Reserve

if TYPE_CHECKING:
    from asyncbroker.log.journal_replay import TopicIds
    from asyncbroker.log.partition_log import PartitionLog
    from asyncbroker.log.segment import Segment

logger = logging.getLogger(__name__)

LOCK: Final = ".lock"
DELETED_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"

_NAME_BYTES_MAX: Final = 255
_PARTITION_NAME: Final = re.compile(r"([a-zA-Z0-9._-]+)-(0|[1-9][0-9]*)")
# Somebody has changed what may be done in one partition's directory, or taken it away.
_OWN_ERRORS: Final = frozenset({errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR})
_LOG_NAME: Final = re.compile(r"[0-9]{20}\.log")
# Apache Kafka's own metadata, in a directory that was its.
_FOREIGN_TOPICS: Final = frozenset({"__cluster_metadata"})


class FoundPartition(NamedTuple):
    """A partition's directory. `topic_id` is None where its file is missing or damaged; `has_log`
    is false if there is no segment either."""

    topic: str
    partition: int
    topic_id: bytes | None
    has_log: bool = True


class LogDirectory:
    """One data directory, in use by one broker. Open it with `open`."""

    def __init__(
        self,
        files: Files,
        path: str,
        lock: Lock,
        open_segments: OpenSegments,
        random_bytes: Callable[[int], bytes],
        reserve: Reserve,
        journal_bytes: int,
    ) -> None:
        self._files = files
        self._reserve = reserve
        self._random_bytes = random_bytes
        self._lock = lock
        self._open_segments = open_segments
        self.path = path
        self.was_clean = False
        self.properties: dict[str, str] = {}
        self.logs: dict[TopicPartition, PartitionLog] = {}
        # Those that could not be opened: nobody knows yet what a crash has left of them.
        self._unopened: set[TopicPartition] = set()
        # The first that one had that could not be closed in order.
        self._close_error: OSError | None = None
        self._offsets = OffsetCheckpoints(files, path, reserve)
        self._mutex = threading.Lock()  # several workers may be in here
        self.journal: Journal | None = None
        if journal_bytes:
            self.journal = Journal(files, path, journal_bytes, random_bytes=random_bytes)

    @classmethod
    def open(
        cls,
        files: Files,
        path: str,
        *,
        cluster_id: str | None = None,
        node_id: int | None = None,
        open_files_max: int | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
        reserve: Reserve | None = None,
        journal_bytes: int = 0,
        topic_ids: TopicIds = dict,
    ) -> LogDirectory:
        """Takes the directory, making it if needed.

        `cluster_id` and `node_id` are compared with what the directory says, and written to a new
        one. `was_clean` tells whether it was left in order; from here on it counts as not. A
        journal that a crash has left is replayed; `journal_bytes` is the size of the one that
        commit rounds may use, 0 for none. `topic_ids`: of all topics. Raises DirectoryRefused.
        """
        make_directory(files, path)
        try:
            lock = files.lock(f"{path}/{LOCK}")
        except BlockingIOError as error:
            raise DirectoryRefused(f"{path} is in use by another broker") from error
        open_segments = OpenSegments(files_max=open_files_max or open_files_limit())
        reserve = reserve or Reserve(files, path, 0)
        directory = cls(files, path, lock, open_segments, random_bytes, reserve, journal_bytes)
        is_taken = False
        try:
            directory._take_over(cluster_id, node_id, topic_ids)
            is_taken = True
        finally:
            if not is_taken:
                lock.release()
        return directory

    def _take_over(self, cluster_id: str | None, node_id: int | None, ids: TopicIds) -> None:
        names = self._files.list_files(self.path)
        check_format(self._files, self.path, names)
        self.properties = check_owner(
            self._files,
            self.path,
            names,
            cluster_id=cluster_id,
            node_id=node_id,
            random_bytes=self._random_bytes,
        )
        self._offsets.read(names)
        # A crash takes neither of these; partitions without them were put there by somebody, whole.
        is_new = FORMAT not in names and (META_PROPERTIES not in names or not self.partitions())
        self.was_clean = CLEAN_SHUTDOWN in names or is_new
        if JOURNAL in names:
            self._take_over_journal(ids)
        # Before the first append: a crash from now on must be seen as one.
        self._files.remove(f"{self.path}/{CLEAN_SHUTDOWN}")
        self._files.sync_directory(self.path)

    def _take_over_journal(self, ids: TopicIds) -> None:
        """Brings to the files what only the journal has. After a clean stop that is nothing, and
        is emptied before that is forgotten: Kafka may have used the directory since."""
        # Imported here: a new directory needs no log's code.
        from asyncbroker.log.journal_replay import Target, layers, remove_journal, replay

        path = f"{self.path}/{JOURNAL}"
        if not self.was_clean:
            points, starts = self._offsets.recovery_points, self._offsets.log_starts
            # What the journal has for one that cannot be looked into would be lost.
            for keys in layers(self.partitions(are_all_needed=True), ids()):
                targets = {
                    place: Target(self._path_of(*key), max(points.get(key, 0), starts.get(key, 0)))
                    for place, key in keys.items()
                }
                run = functools.partial(replay, self._files, path, targets.get)
                promised = self._reserve.with_room(run)
                points.update({keys[place]: offset for place, offset in promised.items()})
            self._offsets.write()
        # Only now: until here the next start would replay it again.
        left = Journal(self._files, self.path, 0, random_bytes=self._random_bytes)
        self._reserve.with_room(left.empty)
        if self.journal is None:
            remove_journal(self._files, path)

    # ---- who and what

    @property
    def cluster_id(self) -> str | None:
        return self.properties.get("cluster.id")

    @property
    def node_id(self) -> int | None:
        return node_id_in(self.properties)

    def partitions(self, *, are_all_needed: bool = False) -> list[FoundPartition]:
        """The partitions whose directories are here, in order of name. One that cannot be looked
        into has no id that is known; with `are_all_needed` that is an OSError."""
        found: list[FoundPartition] = []
        for name in self._files.list_directories(self.path):
            match = _PARTITION_NAME.fullmatch(name)
            if match is not None and match[1] not in _FOREIGN_TOPICS:
                topic_id, has_log = None, True
                try:
                    topic_id = self._topic_id(name)
                    names = () if topic_id else self._files.list_files(f"{self.path}/{name}")
                    has_log = bool(topic_id) or any(map(_LOG_NAME.fullmatch, names))
                except OSError as error:
                    if are_all_needed:
                        raise
                    logger.error("%s/%s cannot be looked into: %s", self.path, name, error)
                found.append(FoundPartition(match[1], int(match[2]), topic_id, has_log))
        return found

    # ---- partitions

    def open_partition(
        self,
        topic: str,
        partition: int,
        *,
        topic_id: bytes,
        config: LogConfig,
        leader_epoch: int,
        now_ms: int,
        is_new: bool = False,
    ) -> PartitionLog:
        """Opens a partition, or makes it: see `PartitionLog.open`. What was recorded of its name
        does not apply to one that is new."""
        # Imported here: a new broker starts without logs, and in half the time without their code.
        from asyncbroker.log.partition_log import PartitionLog

        key = (topic, partition)
        with self._mutex:
            self._unopened.add(key)
            if is_new:
                self._offsets.forget(key)
            if self._offsets.has_old_promise(key):
                self._offsets.write()
        open_log = functools.partial(
            PartitionLog.open,
            self._files,
            self._path_of(topic, partition),
            topic_id=topic_id,
            config=config,
            leader_epoch=leader_epoch,
            is_clean=self.was_clean,
            recovery_point=self._offsets.promised(key, is_compacted=config.is_compacted),
            log_start_offset=self._offsets.log_starts.get(key, 0),
            now_ms=now_ms,
            open_segments=self._open_segments,
        )
        # Another opening after a failed one is what follows a crash. New logs are not to take all
        # room, and a log that is there needs little.
        log = self._reserve.with_room(open_log, is_vital=False)
        with self._mutex:
            self._unopened.discard(key)
            self.logs[key] = log
        return log

    def delete_partitions(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """Closes partitions for good and takes their names away, durably; gives the directories
        for `remove_some`, or `half_deleted` of a later run. Readers keep what they hold."""
        return self._take_names(partitions, DELETED_SUFFIX)

    def put_aside(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """Takes their names away from directories that nobody knows, and keeps them as strays."""
        return self._take_names(partitions, STRAY_SUFFIX)

    def _take_names(self, partitions: Iterable[TopicPartition], suffix: str) -> list[str]:
        keys = list(partitions)
        with self._mutex:
            logs = [self.logs.pop(key) for key in keys if key in self.logs]
            # First of all, or the next partition of this name would be held to old promises.
            for key in keys:
                self._unopened.discard(key)
                self._offsets.forget(key)
            try:
                self._offsets.write()
            except OSError as error:
                # A full disk must not keep what would empty it. Until this is written no partition
                # of these names can be made: see `open_partition`.
                logger.error("the promises of deleted partitions stay written: %s", error)
        for log in logs:
            log.close(clean=False)
        renamed: list[str] = []
        for topic, partition in keys:
            path = self._path_of(topic, partition)
            if self._files.exists(path):
                renamed.append(self._aside(topic, partition, suffix))
                self._reserve.with_room(functools.partial(self._files.rename, path, renamed[-1]))
        self._files.sync_directory(self.path)
        return renamed

    def delete_segments(self, log: PartitionLog, segments: list[Segment]) -> list[str]:
        """As `PartitionLog.delete_segments`, with the room that it takes on a full disk."""
        return self._reserve.with_room(functools.partial(log.delete_segments, segments))

    def half_deleted(self) -> list[str]:
        """What `delete_partitions` and `delete_segments` gave in an earlier run."""
        names = self._files.list_directories(self.path)
        directories = [f"{self.path}/{name}" for name in names if name.endswith(DELETED_SUFFIX)]
        return directories + [path for log in list(self.logs.values()) for path in log.half_deleted]

    def remove_some(self, path: str) -> bool:
        """Removes a file, or a part of a directory that `delete_partitions` gave; tells whether
        something is left. As slow as the file system."""
        if path.endswith(DELETED_SUFFIX):
            return remove_some(self._files, path)
        self._files.remove(path)
        return False

    def lower_recovery_point(self, topic: str, partition: int, offset: int) -> None:
        """Takes back, durably, the promise beyond `offset`: before a log is truncated to it. Until
        then nobody may append to it."""
        self.free_journal()
        with self._mutex:
            self._offsets.lower_recovery_point((topic, partition), offset)
            self._offsets.write()

    # ---- durability

    def record_log_starts(self, partitions: Iterable[TopicPartition]) -> None:
        """Records durably where partitions begin now: what was before must not come back."""
        with self._mutex:
            logs = {key: self.logs[key] for key in partitions if key in self.logs}
        starts = {key: log.durable_start() for key, log in logs.items()}
        with self._mutex:
            for key, start in starts.items():
                if self.logs.get(key) is logs[key]:
                    self._offsets.raise_log_start(key, start)
            self._offsets.write()

    def checkpoint(self) -> None:
        """Records how far every partition is durable and where it begins, and frees the journal. A
        partition whose disk fails stays at what was recorded of it, and the others' are recorded;
        then OSError, as if the records cannot be written."""
        position = 0 if self.journal is None else self.journal.head
        with self._mutex:
            logs = dict(self.logs)
        self._checkpoint(logs, position)

    def free_journal(self) -> None:
        """Makes the files durable for which something is in the journal, and frees it. OSError if
        that cannot be."""
        journal = self.journal
        if journal is None or not journal.is_ready:
            return
        # First, and with nothing in hand (see `journal.py`): what comes into it later stays there.
        position = journal.head
        with self._mutex:
            logs = {key: log for key, log in self.logs.items() if log.is_journal_needed}
        self._checkpoint(logs, position)

    def _checkpoint(self, logs: dict[TopicPartition, PartitionLog], position: int) -> None:
        """Checkpoints these logs, and frees the journal up to a position. OSError, with nothing
        freed, if one of them could not be; unless that is its own trouble, and it is durable."""
        for log in logs.values():
            if log.is_journal_needed:
                # All of them at once, so that the fsyncs one by one have little left to do. What
                # is wrong, they will tell.
                with contextlib.suppress(OSError):
                    log.start_writeback()
        points: dict[TopicPartition, int] = {}
        starts: dict[TopicPartition, int] = {}
        failed: OSError | None = None
        for key, log in logs.items():
            try:
                points[key], starts[key] = log.checkpoint(), log.durable_start()
            except OSError as error:
                if self.logs.get(key) is log:  # it was not deleted meanwhile
                    logger.error("no checkpoint of %s-%d: %s", *key, error)
                    if log.failure or error.errno not in _OWN_ERRORS or log.is_journal_needed:
                        failed = log.failure or failed or error
        with self._mutex:
            for key, point in points.items():
                if self.logs.get(key) is logs[key]:
                    self._offsets.raise_recovery_point(key, point)
                    self._offsets.raise_log_start(key, starts[key])
            self._offsets.write()
        if failed is not None:
            raise failed
        if self.journal is not None:
            self.journal.release(position)

    def checkpoint_partition(self, topic: str, partition: int) -> int:
        """Makes all of one partition durable, records that, and frees the journal, so that no
        replay writes to what is older than its newest segment, even where the record is lost; the
        recovery point. OSError if it cannot be."""
        key = (topic, partition)
        if (log := self.logs.get(key)) is None:
            return 0  # it was deleted
        log.flush()
        point = log.checkpoint()
        with self._mutex:
            if self.logs.get(key) is log:
                self._offsets.raise_recovery_point(key, point)
                self._offsets.write()
        self.free_journal()
        return point

    def cleaner_offset(self, topic: str, partition: int) -> int | None:
        """Up to where a partition was compacted; None for never."""
        return self._offsets.cleaner_offsets.get((topic, partition))

    def record_cleaned(self, topic: str, partition: int, offset: int) -> None:
        """Records up to where a partition is compacted."""
        key = (topic, partition)
        with self._mutex:
            if key in self.logs:
                self._offsets.cleaner_offsets[key] = offset
                self._offsets.write()

    @property
    def failure(self) -> OSError | None:
        """The fsync that failed, whatever for: nobody knows what the disk has then."""
        # The event loop asks, and the mutex is held while files are written.
        return next((log.failure for log in list(self.logs.values()) if log.failure), None)

    @property
    def is_crowded(self) -> bool:
        """Whether so many partitions have bytes that are not durable, and thus an open file, that
        descriptors may run out: a checkpoint helps."""
        return self._open_segments.is_crowded

    def close(self, clean: bool = True) -> None:
        """Closes all partitions and gives the directory back; in order, if `clean` and if every
        partition can be, and was opened. Raises the first OSError, with the directory closed all
        the same: the next start recovers."""
        try:
            self._close(list(self.logs), clean=clean)
            first_error = self._close_error
            if clean and first_error is None:
                self._offsets.write()
                if self.journal is not None and self.journal.is_ready:
                    self._reserve.with_room(self.journal.empty)
            if clean and first_error is None and not self._unopened:
                path, data = f"{self.path}/{CLEAN_SHUTDOWN}", encode_clean_shutdown()
                self._reserve.with_room(lambda: self._files.write_atomically(path, data))
        finally:
            self.logs = {}
            if self.journal is not None:
                self.journal.close()
            self._lock.release()
        if first_error is not None:
            raise first_error

    def close_some(self, partitions: Iterable[TopicPartition]) -> None:
        """Closes a part of the partitions in order, ahead of `close`, which tells what goes wrong:
        in several threads, fsyncs are one another's company."""
        self._close(partitions, clean=True)

    def _close(self, partitions: Iterable[TopicPartition], *, clean: bool) -> None:
        for key in partitions:
            with self._mutex:
                log = self.logs.pop(key)
            try:
                log.close(clean=clean, reserve=self._reserve)
            except OSError as error:
                logger.error("%s-%d could not be closed in order: %s", *key, error)
                with self._mutex:
                    self._close_error = self._close_error or error
            else:
                with self._mutex:
                    self._offsets.recovery_points[key] = log.flushed_end_offset
                    self._offsets.log_starts[key] = log.log_start_offset

    # ---- helpers

    def _topic_id(self, name: str) -> bytes | None:
        path = f"{self.path}/{name}/{PARTITION_METADATA}"
        if not self._files.exists(path):
            return None
        try:
            return decode_partition_metadata(self._files.read_whole(path))
        except CorruptCheckpoint as damage:
            logger.warning("%s: %s", path, damage)
            return None

    def _path_of(self, topic: str, partition: int) -> str:
        return f"{self.path}/{topic}-{partition}"

    def _aside(self, topic: str, partition: int, suffix: str) -> str:
        """A path for a partition that gives up its name; file systems limit the length."""
        ending = f"-{partition}.{self._random_bytes(16).hex()}{suffix}"
        return f"{self.path}/{topic[: _NAME_BYTES_MAX - len(ending)]}{ending}"
