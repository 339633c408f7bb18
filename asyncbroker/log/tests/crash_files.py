"""Files in memory that know what would survive a loss of power, and a process that can die.

The model: a file's bytes are durable as they were at its last `datasync`, a directory's names as
they were at its last `sync_directory`. Of all that came later a crash keeps what it likes: of each
new, renamed or removed name one state or the other, of each file any size in between, and of each
small page the old bytes or the new ones, or zeros where there were none.
"""

from __future__ import annotations

import os
from random import Random

from asyncbroker.log.files import MemoryFiles
from asyncbroker.log.system_calls import Buffer

PAGE_BYTES = 128


class Died(Exception):
    """The process ends here. Not an OSError: nobody handles it."""


class CrashFiles(MemoryFiles):
    """`die_in` calls from now the process dies; negative: it does not."""

    def __init__(self) -> None:
        super().__init__(self._before)
        self.die_in = -1
        # Contents are known by the bytearray that holds them, which keeps its identity when the
        # file is renamed; names by directory.
        self._synced: dict[int, tuple[bytearray, bytes]] = {}
        self._synced_names: dict[str, dict[str, bytearray]] = {"": {}}
        self._synced_directories: dict[str, set[str]] = {"": set()}

    def _before(self, operation: str, path: str) -> None:
        if self.die_in == 0:
            raise Died(f"{operation} {path}")
        self.die_in -= 1
        directory, name = os.path.split(path)
        data = self._tree.get(directory, {}).get(name)
        if operation == "datasync" and data is not None:
            self._synced[id(data)] = (data, bytes(data))

    def write_atomically(self, path: str, data: Buffer) -> None:
        super().write_atomically(path, data)
        directory, name = os.path.split(path)
        written = self._tree[directory][name]
        self._synced[id(written)] = (written, bytes(written))
        self._sync_names(directory)

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self._sync_names("" if path == os.curdir else path)

    def kill(self) -> CrashFiles:
        """The files after `kill -9`: as they are, without the locks."""
        self.die_in = -1
        self._locks.clear()
        return self

    def crash(self, random: Random) -> CrashFiles:
        """The files after a loss of power."""
        after = CrashFiles()
        self._copy("", after, random)
        return after

    def _sync_names(self, directory: str) -> None:
        self._synced_names[directory] = dict(self._tree[directory])
        self._synced_directories[directory] = set(self._directories[directory])

    def _copy(self, directory: str, after: CrashFiles, random: Random) -> None:
        files = after._tree.setdefault(directory, {})
        directories = after._directories.setdefault(directory, set())
        now, synced = self._tree[directory], self._synced_names.get(directory, {})
        for name in sorted(now.keys() | synced.keys()):
            kept = random.choice([now.get(name), synced.get(name)])
            if kept is not None:
                files[name] = data = self._kept_bytes(kept, random)
                after._synced[id(data)] = (data, bytes(data))
        synced_directories = self._synced_directories.get(directory, set())
        for name in sorted(self._directories[directory]):
            if name in synced_directories or random.random() < 0.5:
                directories.add(name)
                self._copy(f"{directory}/{name}".lstrip("/"), after, random)
        after._sync_names(directory)

    def _kept_bytes(self, data: bytearray, random: Random) -> bytearray:
        _, synced = self._synced.get(id(data), (data, b""))
        now = bytes(data)
        if now == synced:
            return bytearray(now)
        smaller, larger = sorted((len(now), len(synced)))
        size = random.choice([len(now), len(synced), random.randint(smaller, larger)])
        kept = bytearray()
        while len(kept) < size:
            page = slice(len(kept), min(size, len(kept) + PAGE_BYTES))
            kept += random.choice([now, synced])[page].ljust(page.stop - page.start, b"\0")
        return kept
