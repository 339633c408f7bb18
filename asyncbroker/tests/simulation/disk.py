"""The disk of a simulated machine: files that take time, fail, fill up, and lose what was not
synced when the power goes.

What a crash leaves is `crash_files.py`'s business. Here a call takes time, in which others run: an
fsync makes durable what was written before it began, and what is written meanwhile may be lost.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from asyncbroker.log.memory_files import MemoryLock
from asyncbroker.log.tests.crash_disk import sampled
from asyncbroker.log.tests.crash_files import (
    CHANGES,
    CrashFile,
    CrashFiles,
    Died,
    PartialWrite,
)
from asyncbroker.metadata_store import Change, MemoryMetadataStore, StoredState
from asyncbroker.tests.simulation.jobs import current_job
from asyncbroker.tests.simulation.world import World

READS: Final = frozenset({"pread", "pread_nowait", "read_whole"})
SYNCS: Final = frozenset({"datasync", "sync_directory"})

# A commit of the metadata store, which is all or nothing.
COMMITS: Final = frozenset({"apply_metadata"})

# What needs room on the disk.
GROWS: Final = frozenset({"create", "pwrite", "make_directory"})

# What fails with EIO, by the names of the faults.
FAILING: Final = (("read", READS), ("write", GROWS), ("sync", SYNCS), ("metadata", COMMITS))

CALL_SECONDS: Final = 30e-6

# Small, so that small batches lie in several; a real disk's are 512 and more.
SECTOR_BYTES: Final = 64


@dataclass(slots=True)
class DiskSpeed:
    """How long an fsync takes, in seconds."""

    sync_min: float = 0.0005
    sync_max: float = 0.004


class Disk:
    """What outlives the processes of a machine, and what is wrong with it at the moment."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.speed = DiskSpeed()
        self.is_full = False
        # How many of the next calls of a kind fail with EIO.
        self.failing: Counter[str] = Counter()
        self.failed_calls: list[str] = []
        # A failed commit loses nothing that was promised; but what asked for it may give up.
        self.has_failed_commit = False
        # The process dies in the n-th change from now; negative: it does not.
        self.die_in = -1
        self.on_death: Callable[[], None] = lambda: None
        self.files = SimulatedFiles(self, CrashFiles(sector_bytes=SECTOR_BYTES))

    def start_process(self) -> SimulatedFiles:
        """The files for a new process."""
        self.die_in = -1
        return self.files

    def end_process(self, *, power: bool) -> None:
        """The process that uses the files is gone, and perhaps what was not on the disk."""
        self.die_in = -1
        dead = self.files
        dead.is_dead = True
        choose = sampled(self.world.random)
        self.files = SimulatedFiles(self, dead.crashed(choose) if power else dead.killed(choose))

    def heal(self) -> None:
        """Nothing is wrong any more."""
        self.speed = DiskSpeed()
        self.is_full = False
        self.failing.clear()
        self.die_in = -1


class SimulatedFiles(CrashFiles):
    """The files of one process."""

    def __init__(self, disk: Disk, found: CrashFiles) -> None:
        super().__init__(sector_bytes=SECTOR_BYTES)
        self._root = found._root
        self._disk = disk
        self._world = disk.world

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        file = super().open(path, create=create)
        return SimulatedFile(file.path, file._contents, self)

    def exists(self, path: str) -> bool:
        self._live()
        return super().exists(path)

    def lock(self, path: str) -> MemoryLock:
        self._live()
        return super().lock(path)

    def remove(self, path: str) -> None:
        # What a dead process has left half done tidies up when it is unwound, or when Python
        # collects it, whoever's turn that is: nobody could be told that this has no effect.
        if not self.is_dead:
            super().remove(path)

    def called(self, operation: str, path: str) -> None:
        """Every call comes through here, before it has an effect."""
        self._live()
        disk = self._disk
        if disk.die_in >= 0 and operation in CHANGES:
            if disk.die_in == 0:
                self._world.note("dies in", operation, path)
                disk.on_death()
                raise Died
            disk.die_in -= 1
        self.take_time(operation)
        if disk.failing or disk.is_full:
            self._fail(operation, path)

    def take_time(self, operation: str) -> None:
        """Lets others run, if a job calls: the event loop waits for nobody."""
        running = current_job()
        if running is None:
            return
        job, workers = running
        seconds = CALL_SECONDS * self._world.random.random()
        if operation in SYNCS or operation in COMMITS:
            seconds += self._world.between(self._disk.speed.sync_min, self._disk.speed.sync_max)
        workers.pause(job, seconds)
        self._live()

    def _live(self) -> None:
        if self.is_dead:
            raise Died

    def _fail(self, operation: str, path: str) -> None:
        disk = self._disk
        is_commit = operation in COMMITS
        code = errno.ENOSPC if disk.is_full and (is_commit or operation in GROWS) else 0
        for kind, calls in FAILING:
            if disk.failing[kind] > 0 and operation in calls:
                disk.failing[kind] -= 1
                code = errno.EIO
        if code:
            if is_commit:
                disk.has_failed_commit = True
            else:
                disk.failed_calls.append(operation)
            self._world.note("fails", operation, path, errno.errorcode[code])
            if operation == "pwrite":
                raise PartialWrite(code, self._world.random.random())
            raise OSError(code, os.strerror(code), path)


class SimulatedStore:
    """The metadata store of a machine: a commit takes time, may fail, and the process may die
    before it, after it, and in between, where it is done and nobody has been told."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._store = MemoryMetadataStore()

    def open(self) -> StoredState:
        return self._store.open()

    def apply(self, changes: Sequence[Change]) -> None:
        files = self._disk.files
        files.called("apply_metadata", "metadata")
        self._store.apply(changes)
        files.take_time("apply_metadata")

    def close(self) -> None:
        self._store.close()


class SimulatedFile(CrashFile):
    """An open file of a process."""

    __slots__ = ()

    _files: SimulatedFiles

    def size(self) -> int:
        self._files._live()
        return super().size()

    def datasync(self) -> None:
        begun = self._contents.begin_sync()
        try:
            self._files.called("datasync", self.path)
        except OSError:
            self._contents.is_lost = True
            raise
        self._contents.end_sync(begun)
