"""All file IO of the broker goes through this seam: `Files` (a file system) and `File` (one file).

`RealFiles` is the operating system. `MemoryFiles` keeps everything in memory: it is the
memory-only broker, and in tests it fails the call that the test chooses. Everything here is
synchronous and may block, except what is called `nowait`. Paths are strings, with "/" between
directories in `MemoryFiles`. Errors are `OSError`s, unchanged.

Nothing is durable before its `datasync`, and no name (of a new or renamed file) before its
directory's `sync_directory`.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from asyncbroker.log.system_calls import Buffer, SystemCalls, system_calls

PORTABLE_VARIABLE: Final = "ASYNCBROKER_PORTABLE"
TEMPORARY_SUFFIX: Final = ".tmp"

_OPEN_FLAGS: Final = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class File(Protocol):
    """An open file. It closes itself when the last reference goes, so that whoever caches files
    may drop one while a reader still sends from it."""

    @property
    def path(self) -> str: ...

    def pwrite(self, data: Buffer, position: int) -> None:
        """Writes all of `data`, or raises; then any part of it may have been written."""

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes, fewer only at the end of the file."""

    def pread_nowait(self, size: int, position: int) -> bytes | bytearray | None:
        """Exactly `size` bytes that lie inside the file, or None if reading them may block."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def datasync(self) -> None:
        """Returns when what was written is durable. After an error it must not be asked again:
        the system may have marked the lost pages clean."""

    def start_writeback(self, position: int, size: int) -> None:
        """Asks for a range to be written soon, as far as the system knows how."""

    def is_resident(self, position: int, size: int) -> bool:
        """Whether a range inside the file is surely in memory; False where nobody can tell."""

    def fileno(self) -> int | None:
        """The descriptor for `sendfile` and for `native.Writer`, or None."""

    def close(self) -> None: ...


class Lock(Protocol):
    """The right to a path, held until released or until the process ends."""

    def release(self) -> None: ...


class Files(Protocol):
    """A file system, as far as a broker needs one."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def list_files(self, directory: str) -> dict[str, int]:
        """The regular files in a directory, by name, with their sizes."""

    def list_directories(self, directory: str) -> list[str]:
        """The names of the directories in a directory."""

    def make_directory(self, path: str) -> None:
        """Makes a directory, with its parents; it may be there already."""

    def rename(self, source: str, target: str) -> None:
        """Renames a file (over an older one) or a directory."""

    def remove(self, path: str) -> None:
        """Removes a file, if it is there."""

    def remove_tree(self, path: str) -> None:
        """Removes a directory with all that is in it, if it is there."""

    def read_whole(self, path: str) -> bytes: ...

    def write_whole(self, path: str, data: Buffer) -> None:
        """Writes a file anew, neither atomically nor durably: for what can be lost."""

    def write_atomically(self, path: str, data: Buffer) -> None:
        """Replaces a file durably: whatever happens, the old or the new one is there, whole."""

    def sync_directory(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock:
        """Takes the lock at `path`; raises BlockingIOError if another broker has it."""


# ---- the operating system


class RealFiles:
    """The operating system's files, with its best calls or (`portable`) with everybody's.

    Without the argument the environment variable ASYNCBROKER_PORTABLE=1 chooses portable calls.
    """

    __slots__ = ("_calls", "is_portable")

    def __init__(self, *, portable: bool | None = None) -> None:
        if portable is None:
            portable = os.environ.get(PORTABLE_VARIABLE, "") not in ("", "0")
        self.is_portable = portable
        self._calls = system_calls(portable)

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = _OPEN_FLAGS | os.O_CREAT if create else _OPEN_FLAGS
        return RealFile(path, os.open(path, flags, 0o644), self._calls)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list_files(self, directory: str) -> dict[str, int]:
        with os.scandir(directory) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}

    def list_directories(self, directory: str) -> list[str]:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        if os.path.islink(path):
            os.unlink(path)  # somebody keeps a partition elsewhere
        elif os.path.lexists(path):
            import shutil  # Takes a while, and only deletion needs it.

            shutil.rmtree(path)

    def read_whole(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_whole(self, path: str, data: Buffer) -> None:
        with open(path, "wb") as file:
            file.write(data)

    def write_atomically(self, path: str, data: Buffer) -> None:
        temporary = path + TEMPORARY_SUFFIX
        # One that was left may have a failed fsync behind it, and a good one proves nothing then.
        self.remove(temporary)
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            self._calls.datasync(file.fileno())
        os.replace(temporary, path)
        self.sync_directory(os.path.dirname(path))

    def sync_directory(self, path: str) -> None:
        if sys.platform == "win32":
            return  # directories cannot be opened there; NTFS journals its names
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> Lock:
        return _RealLock(path)


class RealFile:
    """A file of the operating system."""

    __slots__ = ("_calls", "_fd", "path")

    def __init__(self, path: str, fd: int, calls: SystemCalls) -> None:
        self.path = path
        self._fd = fd
        self._calls = calls

    def pwrite(self, data: Buffer, position: int) -> None:
        written = self._calls.pwrite(self._fd, data, position)
        if written != len(data):
            self._write_rest(memoryview(data)[written:], position + written)

    def _write_rest(self, rest: memoryview, position: int) -> None:
        """A disk that fills up takes a part first and only then says so."""
        while rest:
            written = self._calls.pwrite(self._fd, rest, position)
            if not written:
                raise OSError(errno.EIO, "the system writes nothing and names no error", self.path)
            rest = rest[written:]
            position += written

    def pread(self, size: int, position: int) -> bytes:
        data = self._calls.pread(self._fd, size, position)
        if len(data) < size:
            return self._read_rest(data, size, position)
        return data

    def _read_rest(self, data: bytes, size: int, position: int) -> bytes:
        """A read may stop early (2 GiB, a signal); only an empty one means the end of the file."""
        parts = [data]
        count = len(data)
        while count < size and parts[-1]:
            parts.append(self._calls.pread(self._fd, size - count, position + count))
            count += len(parts[-1])
        return b"".join(parts)

    def pread_nowait(self, size: int, position: int) -> bytes | bytearray | None:
        return self._calls.pread_nowait(self._fd, size, position)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def datasync(self) -> None:
        self._calls.datasync(self._fd)
        if os.fstat(self._fd).st_nlink == 0:  # somebody has removed it: no start will find it
            raise _no_such_file(self.path)

    def start_writeback(self, position: int, size: int) -> None:
        self._calls.start_writeback(self._fd, position, size)

    def is_resident(self, position: int, size: int) -> bool:
        return self._calls.is_resident(self._fd, position, size)

    def fileno(self) -> int | None:
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class _RealLock:
    """An exclusive lock on a file, which the system releases when the process ends."""

    __slots__ = ("_fd",)

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, _OPEN_FLAGS | os.O_CREAT, 0o644)
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(self._fd, msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                # flock holds off another broker of ours, in this process too; Apache Kafka's Java
                # takes a record lock, which flock does not see.
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                raise BlockingIOError(errno.EAGAIN, "another process has the lock", path) from error
            raise

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


# ---- memory


class MemoryFiles:
    """A file system in memory, for `--memory` and for tests. `on_call(operation, path)`, if given,
    runs before every operation that touches the "disk", and may raise an OSError in its place."""

    def __init__(self, on_call: Callable[[str, str], None] | None = None) -> None:
        self.on_call = on_call
        # Directory -> name -> contents, and directory -> names of the directories in it.
        self._tree: dict[str, dict[str, bytearray]] = {"": {}}
        self._directories: dict[str, set[str]] = {"": set()}
        self._locks: set[str] = set()
        # Workers and the event loop share the tree; the contents of a file are under the GIL.
        self._lock = threading.Lock()

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self.called("open", path)
        directory, name = os.path.split(path)
        with self._lock:
            files = self._files_of(directory)
            if create:
                data = files.setdefault(name, bytearray())
            elif name in files:
                data = files[name]
            else:
                raise _no_such_file(path)
        return MemoryFile(path, data, self)

    def exists(self, path: str) -> bool:
        directory, name = os.path.split(path)
        return path.rstrip("/") in self._tree or name in self._tree.get(directory.rstrip("/"), {})

    def list_files(self, directory: str) -> dict[str, int]:
        self.called("list_files", directory)
        with self._lock:
            return {name: len(data) for name, data in self._files_of(directory).items()}

    def list_directories(self, directory: str) -> list[str]:
        self.called("list_directories", directory)
        with self._lock:
            self._files_of(directory)
            return sorted(self._directories[directory.rstrip("/")])

    def make_directory(self, path: str) -> None:
        self.called("make_directory", path)
        with self._lock:
            self._make(path.rstrip("/"))

    def rename(self, source: str, target: str) -> None:
        self.called("rename", source)
        directory, name = os.path.split(source)
        with self._lock:
            files = self._tree.get(directory.rstrip("/"), {})
            if name in files:
                new_directory, new_name = os.path.split(target)
                self._files_of(new_directory)[new_name] = files.pop(name)
                return
            self._files_of(source)
            self._make(os.path.dirname(target).rstrip("/"))
            self._move(source.rstrip("/"), target.rstrip("/"))
            self._directories[directory.rstrip("/")].discard(name)
            parent, new_name = os.path.split(target.rstrip("/"))
            self._directories[parent.rstrip("/")].add(new_name)

    def remove(self, path: str) -> None:
        self.called("remove", path)
        directory, name = os.path.split(path)
        with self._lock:
            self._tree.get(directory.rstrip("/"), {}).pop(name, None)

    def remove_tree(self, path: str) -> None:
        self.called("remove_tree", path)
        parent, name = os.path.split(path.rstrip("/"))
        with self._lock:
            if path.rstrip("/") in self._tree:
                self._drop(path.rstrip("/"))
                self._directories[parent.rstrip("/")].discard(name)

    def read_whole(self, path: str) -> bytes:
        self.called("read_whole", path)
        directory, name = os.path.split(path)
        with self._lock:
            files = self._files_of(directory)
            if name not in files:
                raise _no_such_file(path)
            return bytes(files[name])

    def write_whole(self, path: str, data: Buffer) -> None:
        self.called("write_whole", path)
        self._replace(path, data)

    def write_atomically(self, path: str, data: Buffer) -> None:
        self.called("write_atomically", path)
        self._replace(path, data)

    def sync_directory(self, path: str) -> None:
        self.called("sync_directory", path)

    def lock(self, path: str) -> Lock:
        with self._lock:
            if path in self._locks:
                raise BlockingIOError(errno.EAGAIN, "another broker has the lock", path)
            self._locks.add(path)
        return _MemoryLock(self._locks, path)

    def called(self, operation: str, path: str) -> None:
        """Lets the test look, count, or fail the call."""
        if self.on_call is not None:
            self.on_call(operation, path)

    def _make(self, path: str) -> None:
        if path not in self._tree:
            self._tree[path] = {}
            self._directories[path] = set()
            parent, name = os.path.split(path)
            self._make(parent.rstrip("/"))
            self._directories[parent.rstrip("/")].add(name)

    def _move(self, source: str, target: str) -> None:
        """Renames a directory and all below it, but for its parents' lists."""
        self._tree[target] = self._tree.pop(source)
        self._directories[target] = names = self._directories.pop(source)
        for name in names:
            self._move(f"{source}/{name}", f"{target}/{name}")

    def _drop(self, path: str) -> None:
        del self._tree[path]
        for name in self._directories.pop(path):
            self._drop(f"{path}/{name}")

    def _replace(self, path: str, data: Buffer) -> None:
        directory, name = os.path.split(path)
        with self._lock:
            self._files_of(directory)[name] = bytearray(data)

    def _files_of(self, directory: str) -> dict[str, bytearray]:
        files = self._tree.get(directory.rstrip("/"))
        if files is None:
            raise _no_such_file(directory)
        return files


class MemoryFile:
    """A file in memory. It outlives its name, as on POSIX."""

    __slots__ = ("_data", "_files", "path")

    def __init__(self, path: str, data: bytearray, files: MemoryFiles) -> None:
        self.path = path
        self._data = data
        self._files = files

    def pwrite(self, data: Buffer, position: int) -> None:
        self._files.called("pwrite", self.path)
        if position > len(self._data):
            self._data.extend(bytes(position - len(self._data)))
        self._data[position : position + len(data)] = data

    def pread(self, size: int, position: int) -> bytes:
        self._files.called("pread", self.path)
        # Two copies, but no view that would keep another thread's append from growing the array.
        return bytes(self._data[position : position + size])

    def pread_nowait(self, size: int, position: int) -> bytes | bytearray | None:
        self._files.called("pread_nowait", self.path)
        return self._data[position : position + size]

    def size(self) -> int:
        return len(self._data)

    def truncate(self, size: int) -> None:
        self._files.called("truncate", self.path)
        if size > len(self._data):
            self._data.extend(bytes(size - len(self._data)))
        else:
            del self._data[size:]

    def datasync(self) -> None:
        self._files.called("datasync", self.path)

    def start_writeback(self, position: int, size: int) -> None:
        self._files.called("start_writeback", self.path)

    def is_resident(self, position: int, size: int) -> bool:
        return True

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        """Nothing is held."""


class _MemoryLock:
    __slots__ = ("_locks", "_path")

    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.discard(self._path)


def _no_such_file(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
