"""A disk in memory that is full but for the reserve; every call that needs room takes a block."""

from __future__ import annotations

import errno
from typing import Final

from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.reserve import RESERVE

BLOCK_BYTES: Final = 4096
_STEP_BYTES: Final = 64 << 10
_GROWING: Final = frozenset({"pwrite", "write_whole", "write_atomically", "make_directory"})


class FullDisk:
    """Files in `directory`; full, from `fill` to `free`."""

    def __init__(self, directory: str) -> None:
        self.files = MemoryFiles(self)
        self._directory = directory
        self._room: int | None = None

    def fill(self) -> None:
        """Nothing is left but what the reserve has."""
        self._room = self.reserve_size

    def free(self) -> None:
        """There is room again."""
        self._room = None

    @property
    def reserve_size(self) -> int:
        """How large the file is that keeps room back."""
        return self.files.list_files(self._directory).get(RESERVE, 0)

    def __call__(self, operation: str, path: str) -> None:
        """Before each call of the files."""
        if self._room is None or operation not in _GROWING:
            return
        needed = _STEP_BYTES if path.endswith(RESERVE) else BLOCK_BYTES
        if self._room - self.reserve_size < needed:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        if not path.endswith(RESERVE):
            self._room -= BLOCK_BYTES
