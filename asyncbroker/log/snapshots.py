"""The snapshot files of a partition's producers: which there are, which is good, which may go.

What stands in them is in `producers.py`. Most need no fsync, since each tells by its checksum
whether it is whole, and an older one with more of the log to replay does as well: until that part
of the log is deleted, see `secure`. That of a clean stop does: nobody looks for an older one after
it.
"""

from __future__ import annotations

import errno
import logging
from bisect import insort
from collections.abc import Iterable, Sequence
from typing import Final

from asyncbroker.log.files import Files
from asyncbroker.log.producers import (
    SIDECAR_SUFFIX,
    SNAPSHOT_SUFFIX,
    CorruptSnapshot,
    ProducerState,
    Snapshot,
)
from asyncbroker.log.segment import segment_name

logger = logging.getLogger(__name__)

# Besides those at the beginnings of segments, which Kafka keeps too.
_KEPT: Final = 2


class SnapshotFiles:
    """The snapshots in a partition's directory, by offset, and those that wait to be written.

    Whoever appends adds; one thread at a time writes.
    """

    __slots__ = ("_directory", "_files", "_offsets", "_secured", "_waiting")

    def __init__(self, files: Files, directory: str, offsets: list[int]) -> None:
        """`offsets` are those of the files that are there, in order."""
        self._files = files
        self._directory = directory
        self._offsets = offsets
        self._waiting: list[Snapshot] = []
        # The last beginning that `secure` was asked for, and the snapshot that is good for it.
        self._secured: tuple[int, int | None] | None = None

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def add(self, producers: ProducerState) -> None:
        """Takes a snapshot, to be written later."""
        self._waiting.append(producers.snapshot())

    def read(self, end_offset: int, *, beginning: int, is_clean: bool) -> ProducerState:
        """The state of the newest snapshot that is good and not beyond `end_offset`; without one
        that of an empty log.

        A crash can take a snapshot's sidecar and leave the snapshot. Then an older one that has
        its own is better, as long as the log, which begins at `beginning`, holds what followed; or
        none at all, if it holds everything. Where nothing has a sidecar and the stop was clean,
        Kafka wrote it.
        """
        newest: ProducerState | None = None
        for offset in reversed(self._offsets):
            if offset > end_offset:
                continue
            try:
                state = self._load(offset)
            except CorruptSnapshot as damage:
                path = self._path(offset) + SNAPSHOT_SUFFIX
                logger.warning("%s: %s; taking an older one", path, damage)
                continue
            if state.is_whole and (newest is None or offset >= beginning):
                return state
            if newest is None:
                newest = state
        is_kafkas = is_clean and not any(map(self._has_sidecar, self._offsets))
        if newest is None or (beginning == 0 and not is_kafkas):
            return ProducerState()
        return newest

    def _load(self, offset: int) -> ProducerState:
        path = self._path(offset)
        kafka = self._files.read_whole(path + SNAPSHOT_SUFFIX)
        sidecar = None
        if self._has_sidecar(offset):
            sidecar = self._files.read_whole(path + SIDECAR_SUFFIX)
        return ProducerState.load(offset, kafka, sidecar)

    def _has_sidecar(self, offset: int) -> bool:
        return self._files.exists(self._path(offset) + SIDECAR_SUFFIX)

    def waiting_to(self, offset: int) -> list[Snapshot]:
        """Those that wait and tell of nothing beyond `offset`. What they tell of is in the log when
        they are; whoever writes them makes that durable before."""
        return [snapshot for snapshot in self._waiting if snapshot.offset <= offset]

    def write(
        self, snapshots: Sequence[Snapshot], base_offsets: Iterable[int], *, sync: bool = False
    ) -> None:
        """Writes some that wait, durably with `sync` if there are producers; then removes what is
        not needed any more, given where the segments begin."""
        for snapshot in snapshots:
            if snapshot.offset in self._offsets:
                continue
            path = self._path(snapshot.offset)
            write = self._files.write_whole
            if sync and snapshot.producer_count:
                write = self._files.write_atomically
            if snapshot.producer_count:
                write(path + SIDECAR_SUFFIX, snapshot.sidecar)
            write(path + SNAPSHOT_SUFFIX, snapshot.kafka)
            insort(self._offsets, snapshot.offset)
        # Others come meanwhile, behind these.
        del self._waiting[: len(snapshots)]
        self._remove(self._unneeded(base_offsets))

    def _unneeded(self, base_offsets: Iterable[int]) -> list[int]:
        bases = set(base_offsets)
        return [offset for offset in self._offsets if offset not in bases][:-_KEPT]

    def tidy(self, base_offsets: Iterable[int]) -> None:
        """Removes what is not needed any more; what cannot be removed now goes another time."""
        try:
            self._remove(self._unneeded(base_offsets))
        except OSError as error:
            logger.warning("%s: old snapshots stay for now: %s", self._directory, error)

    def rewrite(self, producers: ProducerState) -> None:
        """Writes a snapshot at once, also in place of one that a crash may have damaged; later, if
        the disk is full. One that is there already stays as it is: it may be durable, and all that
        is left of what it tells."""
        snapshot = producers.snapshot()
        is_there = snapshot.offset in self._offsets
        if is_there and self._is_written(snapshot):
            return
        if is_there:
            self._offsets.remove(snapshot.offset)
        self._secured = None
        self._waiting.append(snapshot)
        try:
            self.write(self._waiting[:], self._offsets, sync=is_there)
        except OSError as error:
            logger.warning("%s: a snapshot has to wait: %s", self._directory, error)

    def _is_written(self, snapshot: Snapshot) -> bool:
        path = self._path(snapshot.offset)
        wanted = {path + SNAPSHOT_SUFFIX: snapshot.kafka}
        if snapshot.producer_count:
            wanted[path + SIDECAR_SUFFIX] = snapshot.sidecar
        read = self._files.read_whole
        return all(self._files.exists(name) and read(name) == wanted[name] for name in wanted)

    def secure(self, beginning: int) -> None:
        """Makes durable the snapshot that knows the producers of all before `beginning`, where
        the log is about to begin: recovery could not replay that any more."""
        offset = self._first_from(beginning)
        if offset is not None:
            for suffix in (SIDECAR_SUFFIX, SNAPSHOT_SUFFIX):
                path = self._path(offset) + suffix
                if self._files.exists(path):
                    file = self._files.open(path)
                    try:
                        file.datasync()
                    except OSError as error:
                        # Whatever it says, it does not pass: a sync is not tried again.
                        raise OSError(errno.EIO, f"{path} is not durable: {error}") from error
                    finally:
                        file.close()
            self._files.sync_directory(self._directory)
        self._secured = beginning, offset

    def is_secured(self, beginning: int) -> bool:
        """Whether `secure` has done its work, and nothing has come or gone since that would have it
        do more."""
        is_waiting = any(snapshot.offset <= beginning for snapshot in self._waiting)
        return not is_waiting and self._secured == (beginning, self._first_from(beginning))

    def _first_from(self, beginning: int) -> int | None:
        return next((offset for offset in self._offsets if offset >= beginning), None)

    def drop_after(self, end_offset: int) -> None:
        """Removes those of a log that was longer."""
        self._remove([offset for offset in self._offsets if offset > end_offset])

    def _remove(self, offsets: list[int]) -> None:
        for offset in offsets:
            for suffix in (SIDECAR_SUFFIX, SNAPSHOT_SUFFIX):
                self._files.remove(self._path(offset) + suffix)
            self._offsets.remove(offset)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{segment_name(offset)}"
