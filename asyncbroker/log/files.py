"""All file IO of the broker goes through this seam: `Files` (a file system) and `File` (one file).

`RealFiles`, here, is the operating system; `MemoryFiles`, in `memory_files.py`, the memory-only
broker. Everything is synchronous and may block, except what is called `nowait`. Paths are strings,
with "/" between directories in `MemoryFiles`. Errors are `OSError`s, unchanged.

Nothing is durable before its `datasync`, and no name (of a new or renamed file) before its
directory's `sync_directory`.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from contextlib import suppress
from typing import Final, Protocol

from asyncbroker.log.system_calls import Buffer, SystemCalls, system_calls

PORTABLE_VARIABLE: Final = "ASYNCBROKER_PORTABLE"
TEMPORARY_SUFFIX: Final = ".tmp"

_OPEN_FLAGS: Final = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# C's `struct flock`: type, whence, start, length (0: to the end), process.
_FLOCK: Final = struct.Struct("@hhqqi0q")


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


class RealFiles:
    """The operating system's files, with its best calls or (`portable`) with everybody's.

    Without the argument the environment variable ASYNCBROKER_PORTABLE=1 chooses portable calls.
    """

    __slots__ = ("_calls", "is_portable")

    def __init__(self, *, portable: bool | None = None) -> None:
        if portable is None:
            portable = is_portable_forced()
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
            raise no_such_file(self.path)

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
                _lock_record(self._fd)
        except OSError as error:
            os.close(self._fd)
            if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                raise BlockingIOError(errno.EAGAIN, "another process has the lock", path) from error
            raise

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _lock_record(fd: int) -> None:
    """Takes a record lock on a whole file; of the descriptor, where the system has such. The usual
    one is the process's, and a second broker in it, refused, would take it away in closing."""
    import fcntl

    set_lock = getattr(fcntl, "F_OFD_SETLK", None)
    if set_lock is not None and sys.platform == "linux":
        try:
            fcntl.fcntl(fd, set_lock, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError as error:
            if error.errno != errno.EINVAL:  # an emulated system that does not know of it
                raise
        else:
            return
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_portable_forced() -> bool:
    """Whether ASYNCBROKER_PORTABLE=1 asks for the fallbacks that work everywhere."""
    return os.environ.get(PORTABLE_VARIABLE, "") not in ("", "0")


def no_such_file(path: str) -> FileNotFoundError:
    """The error of a file that is not there."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
