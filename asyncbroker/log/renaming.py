"""The steps in which compacted files take the place of others, one after the other.

An error ends them where they are, which is no harm while the log is in use: all segments keep their
files open until the last step. Who changes the log's files next does the rest first. What is left
at the end of the process is for the next open (`recovery.finish_leftovers`).

A directory that could not be synced is not synced again, as in `durability.py`: what was renamed
may be gone from memory and not be on the disk, and the next step would remove the other copy.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterable

from asyncbroker.log.durability import NOT_THE_DISK
from asyncbroker.log.files import Files


class Renaming:
    """What is left to do in one log's directory. Under the lock of `durability.py`."""

    __slots__ = ("_directory", "_failure", "_files", "_steps")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._steps: deque[Callable[[], object]] = deque()
        self._failure = ""

    def add(self, steps: Iterable[Callable[[], object]]) -> None:
        """Puts steps behind those that are left. Each can be done again if it fails."""
        self._steps.extend(steps)

    def finish(self) -> None:
        """Does what is left. OSError, if that cannot be; EIO, if it never can be."""
        while self._steps:
            if self._failure:
                raise OSError(errno.EIO, self._failure, self._directory)
            self._steps[0]()
            self._steps.popleft()

    def sync(self) -> None:
        """A step: what was renamed and removed is so for good."""
        try:
            self._files.sync_directory(self._directory)
        except OSError as error:
            if error.errno in NOT_THE_DISK:
                raise
            self._failure = f"names may not be durable: {error.strerror or error}"
            raise OSError(errno.EIO, self._failure, self._directory) from error
