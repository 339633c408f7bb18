"""Files in memory that come back as any state that a disk could show after a crash.

    files = CrashFiles()
    files.die_in = 17                  # the process ends at its 18th change from now: Died
    ...
    files.killed()                     # what is there after `kill -9`: everything, without locks
    files.crashed(synced_only)         # after a loss of power: only what was synced,
    files.crashed(everything)          # or all of it,
    files.crashed(sampled(random))     # or a mixture that `random` chooses
    files.states(50, random)           # all that a disk could show, or 50 of them

None of them changes `files`, so that many states can be had of one moment; each gives new files, to
which the next life of a process may do what it likes. Copies share what neither side writes.

The model. A file's bytes and size are durable as they were at its last `datasync`, a directory's
names as they were at its last `sync_directory`. Of what came later a crash keeps what it likes:

- of each sector any of the contents that it had since then, whatever its neighbours show; so any
  subset of pages, and pages that are torn
- of the size any that the file had since then, or any number of sectors in between; what was not
  written up to there is zeros
- of the changes of a directory (a name made, removed, renamed) any subset. A rename is one change:
  the file has the old name or the new one. Nothing can be relied on between directories, nor
  between names and contents.

`start_writeback` promises nothing. After a `datasync` that fails the file is never durable again in
this process, whatever a later one says: the system has dropped the pages, or marked them clean. The
next process may read either what the disk has, or, as on ext4 and XFS, what memory still has and no
sync will ever write unless it is written again: `killed` chooses.

What the system is asked goes through `on_call(operation, path)`, as in MemoryFiles, which may raise
an OSError in its place; of a `pwrite` that raises PartialWrite a part is written. The larger calls
of the seam come as what RealFiles makes of them: `write_atomically` is create, pwrite, datasync,
rename, sync_directory. Only CHANGES count for `die_in` and `change_count`: in between nothing
happens to a disk. Once the process is dead every call raises Died and does nothing.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Final

from asyncbroker.log.files import TEMPORARY_SUFFIX, no_such_file
from asyncbroker.log.memory_files import MemoryLock
from asyncbroker.log.system_calls import Buffer
from asyncbroker.log.tests.crash_disk import (
    SECTOR_BYTES,
    Choose,
    Contents,
    Directory,
    Odometer,
    everything,
    sampled,
    synced_only,
)

# The calls that change what a crash can leave. `apply_metadata` is for a metadata store beside the
# files whose commits are atomic.
CHANGES: Final = frozenset(
    {
        "create",
        "pwrite",
        "truncate",
        "datasync",
        "make_directory",
        "rename",
        "remove",
        "remove_directory",
        "sync_directory",
        "apply_metadata",
    }
)


class Died(BaseException):
    """The process ends here. Nobody handles it."""


class PartialWrite(OSError):
    """A `pwrite` fails after it has written the first `part` (0 to 1) of its bytes."""

    def __init__(self, code: int, part: float) -> None:
        super().__init__(code, os.strerror(code))
        self.part = part


class CrashFiles:
    """See the head of this file. `die_in`: after so many changes the process dies; negative: it
    does not. If the next change is a `pwrite`, the first `dying_part` (0 to 1) of its bytes comes
    through, as when a process is killed in the middle of a long one."""

    def __init__(
        self,
        on_call: Callable[[str, str], None] | None = None,
        *,
        sector_bytes: int = SECTOR_BYTES,
    ) -> None:
        self.on_call = on_call
        self.die_in = -1
        self.dying_part = 0.0
        self.is_dead = False
        self.change_count = 0
        self._sector_bytes = sector_bytes
        self._root = Directory()
        self._locks: set[str] = set()
        # Workers and the event loop share all of it.
        self._mutex = threading.RLock()

    # ---- crashes

    def killed(self, choose: Choose = everything) -> CrashFiles:
        """The files after `kill -9`: as they are, and no more durable than they were."""
        with self._mutex:
            return self._with_root(self._root.forked({}, choose))

    def crashed(self, choose: Choose) -> CrashFiles:
        """The files after a loss of power."""
        with self._mutex:
            return self._with_root(self._root.crashed({}, choose))

    def states(self, count_max: int, random: Random) -> list[CrashFiles]:
        """The files after a loss of power in every state, if they are at most `count_max`; else
        what was synced, everything, and others at random."""
        odometer = Odometer()
        every_state = []
        for _ in range(count_max):
            every_state.append(self.crashed(odometer.choose))
            if not odometer.advance():
                return every_state
        choices = [synced_only, everything, *(sampled(random) for _ in range(count_max - 2))]
        return [self.crashed(choose) for choose in choices]

    def contents(self) -> dict[str, bytes]:
        """All files with their paths, for comparisons."""
        return dict(self._root.walk(""))

    def contents_of(self, path: str) -> Contents:
        """One file's bytes and past, for whoever damages it."""
        return self._contents(path)

    def _with_root(self, root: Directory) -> CrashFiles:
        files = CrashFiles(sector_bytes=self._sector_bytes)
        files._root = root
        return files

    # ---- the seam

    def open(self, path: str, *, create: bool = False) -> CrashFile:
        directory, name = self._place(path)
        if create and name not in directory.names:
            self.called("create", path)
            with self._mutex:
                if name not in directory.names:
                    directory.change(None, name, Contents(self._sector_bytes))
        else:
            self.called("open", path)
        return CrashFile(path, self._contents(path), self)

    def exists(self, path: str) -> bool:
        with self._mutex:
            return self._find(path) is not None

    def list_files(self, directory: str) -> dict[str, int]:
        self.called("list_files", directory)
        with self._mutex:
            nodes = self._directory(directory).names.items()
            return {name: len(node.data) for name, node in nodes if isinstance(node, Contents)}

    def list_directories(self, directory: str) -> list[str]:
        self.called("list_directories", directory)
        with self._mutex:
            nodes = self._directory(directory).names.items()
            return sorted(name for name, node in nodes if isinstance(node, Directory))

    def make_directory(self, path: str) -> None:
        made = ""
        for part in _parts(path):
            made = f"{made}/{part}".lstrip("/")
            if not self.exists(made):
                self.called("make_directory", made)
                with self._mutex:
                    directory, name = self._place(made)
                    directory.change(None, name, Directory())

    def rename(self, source: str, target: str) -> None:
        self.called("rename", source)
        with self._mutex:
            directory, name = self._place(source)
            new_directory, new_name = self._place(target)
            if directory is not new_directory:
                raise OSError(errno.EXDEV, "renames within a directory only", source)
            if name not in directory.names:
                raise no_such_file(source)
            directory.change(name, new_name, directory.names[name])

    def remove(self, path: str) -> None:
        self.called("remove", path)
        with self._mutex:
            parent = self._find(os.path.dirname(path))
            name = os.path.basename(path)
            if isinstance(parent, Directory) and name in parent.names:
                parent.change(name, None, parent.names[name])

    def remove_tree(self, path: str) -> None:
        node = self._find(path)
        if not isinstance(node, Directory):
            return
        for name, held in sorted(node.names.items()):
            if isinstance(held, Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        self.called("remove_directory", path)
        with self._mutex:
            directory, name = self._place(path)
            directory.change(name, None, node)

    def read_whole(self, path: str) -> bytes:
        self.called("read_whole", path)
        with self._mutex:
            return bytes(self._contents(path).data)

    def write_whole(self, path: str, data: Buffer) -> None:
        file = self.open(path, create=True)
        if file.size():
            file.truncate(0)
        if len(data):
            file.pwrite(data, 0)

    def write_atomically(self, path: str, data: Buffer) -> None:
        temporary = path + TEMPORARY_SUFFIX
        if self.exists(temporary):
            self.remove(temporary)
        self.write_whole(temporary, data)
        self.open(temporary).datasync()
        self.rename(temporary, path)
        self.sync_directory(os.path.dirname(path))

    def sync_directory(self, path: str) -> None:
        self.called("sync_directory", path)
        with self._mutex:
            self._directory(path).sync()

    def lock(self, path: str) -> MemoryLock:
        with self._mutex:
            if path in self._locks:
                raise BlockingIOError(errno.EAGAIN, "another broker has the lock", path)
            self._locks.add(path)
        return MemoryLock(self._locks, path)

    def called(self, operation: str, path: str) -> None:
        """Lets the process die before the call, or the test look, count, or fail it."""
        if self.is_dead or (self.die_in == 0 and operation in CHANGES):
            self.is_dead = True
            raise Died(f"{operation} {path}")
        if operation in CHANGES:
            self.change_count += 1
            self.die_in -= 1
        if self.on_call is not None:
            self.on_call(operation, path)

    # ---- paths

    def _find(self, path: str) -> Contents | Directory | None:
        node: Contents | Directory | None = self._root
        for part in _parts(path):
            if not isinstance(node, Directory):
                return None
            node = node.names.get(part)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise no_such_file(path)
        return node

    def _contents(self, path: str) -> Contents:
        node = self._find(path)
        if not isinstance(node, Contents):
            raise no_such_file(path)
        return node

    def _place(self, path: str) -> tuple[Directory, str]:
        """The directory that has the name at the end of a path, or could have it."""
        *above, name = _parts(path)
        node: Contents | Directory | None = self._root
        for part in above:
            node = node.names.get(part) if isinstance(node, Directory) else None
        if not isinstance(node, Directory):
            raise no_such_file(os.path.dirname(path))
        return node, name


class CrashFile:
    """An open file. It outlives its name, as on POSIX."""

    __slots__ = ("_contents", "_files", "path")

    def __init__(self, path: str, contents: Contents, files: CrashFiles) -> None:
        self.path = path
        self._contents = contents
        self._files = files

    def pwrite(self, data: Buffer, position: int) -> None:
        was_dead = self._files.is_dead
        try:
            self._files.called("pwrite", self.path)
        except (PartialWrite, Died) as error:
            part = error.part if isinstance(error, PartialWrite) else self._files.dying_part
            if not was_dead:
                data = memoryview(data)[: int(len(data) * part)]
                with self._files._mutex:
                    self._contents.write(data, position)
            raise
        with self._files._mutex:
            self._contents.write(data, position)

    def pread(self, size: int, position: int) -> bytes:
        self._files.called("pread", self.path)
        return bytes(self._contents.data[position : position + size])

    def pread_nowait(self, size: int, position: int) -> bytes | bytearray | None:
        self._files.called("pread_nowait", self.path)
        return self._contents.data[position : position + size]

    def size(self) -> int:
        return len(self._contents.data)

    def truncate(self, size: int) -> None:
        self._files.called("truncate", self.path)
        with self._files._mutex:
            self._contents.truncate(size)

    def datasync(self) -> None:
        try:
            self._files.called("datasync", self.path)
        except OSError:
            self._contents.is_lost = True
            raise
        with self._files._mutex:
            self._contents.sync()

    def start_writeback(self, position: int, size: int) -> None:
        self._files.called("start_writeback", self.path)

    def is_resident(self, position: int, size: int) -> bool:
        return True

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        """Nothing is held."""


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", os.curdir))
