"""`MemoryFiles`: all files of a broker in memory, for `--memory`; tests have the calls that they
choose fail."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable

from asyncbroker.log.files import Lock, no_such_file
from asyncbroker.log.system_calls import Buffer


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
                raise no_such_file(path)
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
                raise no_such_file(path)
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
        return MemoryLock(self._locks, path)

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
            raise no_such_file(directory)
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


class MemoryLock:
    """A lock, gone with its process."""

    __slots__ = ("_locks", "_path")

    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.discard(self._path)
