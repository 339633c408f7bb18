"""A disk that is full or slow: what a test does to the calls of the broker's files.

The broker itself is as it always is. What fails or takes long is the call to the operating system,
so that everything above, from the log to the answer, does what it does on a real bad day. Calls
come from worker threads as well as from the event loop.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from asyncbroker.testing.arguments import Milliseconds, checked

if TYPE_CHECKING:
    from asyncbroker.log.files import File, Files

WRITES: Final = frozenset({"pwrite", "write_whole", "write_atomically"})
SYNCS: Final = frozenset({"datasync", "sync_directory"})
READS: Final = frozenset({"pread"})


@dataclass(slots=True, eq=False)
class DiskFault:
    """What ails the disk until it is removed; `fired` calls have met it."""

    owner: Disk
    name: str
    operations: frozenset[str]
    delay_seconds: float = 0.0
    # Without it nothing fails.
    error_number: int | None = None
    fired: int = 0

    def __str__(self) -> str:
        return self.name

    def remove(self) -> None:
        """The disk is well again."""
        self.owner.remove(self)


class Disk:
    """The faults of one broker's files. `note` is told of each call that meets one."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        # Replaced as a whole: worker threads look at it.
        self._faults: tuple[DiskFault, ...] = ()

    def __len__(self) -> int:
        return len(self._faults)

    def full(self) -> DiskFault:
        """Every write fails with ENOSPC."""
        return self._add(DiskFault(self, "full disk", WRITES, error_number=errno.ENOSPC))

    @checked
    def slow(self, milliseconds: Milliseconds, *, reads: bool) -> DiskFault:
        """Every sync, and with `reads` every read that goes to the disk, takes that much longer."""
        operations = SYNCS | READS if reads else SYNCS
        return self._add(
            DiskFault(
                self,
                f"slow disk, {milliseconds:g} ms",
                operations,
                delay_seconds=milliseconds / 1000,
            )
        )

    def remove(self, fault: DiskFault) -> None:
        """Harmless when it is gone."""
        self._faults = tuple(each for each in self._faults if each is not fault)

    def clear(self) -> None:
        """The disk is well."""
        self._faults = ()

    def called(self, operation: str, path: str) -> None:
        """Before a call: delays it, or raises OSError in its place."""
        for fault in self._faults:
            if operation not in fault.operations:
                continue
            fault.fired += 1
            self._note(f"{fault}: {operation} of {path}")
            if fault.delay_seconds:
                time.sleep(fault.delay_seconds)
            if fault.error_number is not None:
                raise OSError(fault.error_number, os.strerror(fault.error_number), path)

    def _add(self, fault: DiskFault) -> DiskFault:
        self._faults = (*self._faults, fault)
        return fault


def watched_files(files: Files, disk: Disk) -> Files:
    """The operating system's files, with a look at each call that a disk may fail."""
    return cast("Files", _WatchedFiles(files, disk))


class _WatchedFiles:
    """What is not here is as it was."""

    def __init__(self, inner: Files, disk: Disk) -> None:
        self._inner = inner
        self._disk = disk

    def open(self, path: str, *, create: bool = False) -> File:
        return cast("File", _WatchedFile(self._inner.open(path, create=create), self._disk))

    def write_whole(self, path: str, data: Any) -> None:
        self._disk.called("write_whole", path)
        self._inner.write_whole(path, data)

    def write_atomically(self, path: str, data: Any) -> None:
        self._disk.called("write_atomically", path)
        self._inner.write_atomically(path, data)

    def sync_directory(self, path: str) -> None:
        self._disk.called("sync_directory", path)
        self._inner.sync_directory(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _WatchedFile:
    def __init__(self, inner: File, disk: Disk) -> None:
        self.path = inner.path
        self._inner = inner
        self._disk = disk

    def pwrite(self, data: Any, position: int) -> None:
        self._disk.called("pwrite", self.path)
        self._inner.pwrite(data, position)

    def pread(self, size: int, position: int) -> bytes:
        self._disk.called("pread", self.path)
        return self._inner.pread(size, position)

    def datasync(self) -> None:
        self._disk.called("datasync", self.path)
        self._inner.datasync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
