"""Room that is kept back on the disk, for what must still work when the disk is full.

A file of the data directory takes the room while there is some; it is written in full and synced,
so that the blocks are there, also where files may have holes. When the disk is full, whoever must
not fail (`with_room`) gives its blocks back, does its work, and the file takes again what is left.
So what deletes, and thereby makes room, can always be recorded: in the metadata, in checkpoints, in
names. Others may only use half of it, group commits and new topics: as many as there may be, they
leave room for deletions.

From the first use until the file is whole again `is_short` is true, and records of clients are to
be refused: they would take the room that the work was given. Whoever keeps the house calls `refill`
again and again.

Blocking, but for `is_short` and `is_whole`; any thread may call.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from asyncbroker.log.files import File, Files

logger = logging.getLogger(__name__)

RESERVE: Final = ".asyncbroker_reserve"

FULL_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

# What is written at once; a full disk takes a part of it.
_STEP_BYTES: Final = 64 << 10

Result = TypeVar("Result")


class Reserve:
    """The reserve of one data directory. See the head of this file."""

    def __init__(self, files: Files, directory: str, size: int) -> None:
        """Of `size` bytes; 0 for none. Nothing is written before `refill`."""
        self._files = files
        self._path = f"{directory}/{RESERVE}"
        self._size = size
        self._lock = threading.Lock()
        # Works under way that were given room.
        self._users = 0
        self.is_whole = size == 0
        self.is_short = False

    def with_room(self, work: Callable[[], Result], *, is_vital: bool = True) -> Result:
        """Does `work`, and once more with the room of the reserve if the disk is full. It must be
        possible to do it again after a failure. If it is not vital it gets half of the room."""
        try:
            return work()
        except OSError as error:
            if error.errno not in FULL_ERRORS or not self._give_room(is_vital):
                raise
        try:
            return work()
        finally:
            self._take_back()

    def refill(self) -> None:
        """Takes what room there is, until the file is whole; nothing to do if it is."""
        if self.is_whole:
            return
        with self._lock:
            if not self._users:
                self._fill()

    def _give_room(self, is_vital: bool) -> bool:
        """Shrinks the file; False if there is none."""
        kept = 0 if is_vital else self._size // 2
        with self._lock:
            if not self._size:
                return False
            if self._files.exists(self._path):
                self._shrink(kept)
            elif not self._users:
                return False
            self._users += 1
        return True

    def _shrink(self, kept: int) -> None:
        self.is_whole = False
        self._note_short(True)
        file = self._files.open(self._path)
        try:
            if file.size() > kept:
                file.truncate(kept)
                # Some file systems have the blocks for others only after this.
                file.datasync()
        finally:
            file.close()
        if not kept:
            # It may be files that there can be no more of: what is written in place of another one
            # gives one back.
            self._files.remove(self._path)

    def _take_back(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                try:
                    self._fill()
                except OSError as error:
                    logger.error("%s could not be made again: %s", self._path, error)

    def _fill(self) -> None:
        is_full = False
        try:
            file = self._files.open(self._path, create=True)
            try:
                is_full = not _fill(file, self._size)
            finally:
                file.close()
        except OSError as error:
            if error.errno not in FULL_ERRORS:
                raise
            is_full = True
        self.is_whole = not is_full
        self._note_short(is_full)

    def _note_short(self, is_short: bool) -> None:
        if is_short and not self.is_short:
            logger.error("the disk is full: records are refused until there is room again")
        elif self.is_short and not is_short:
            logger.warning("the disk has room again: records are taken")
        self.is_short = is_short


def disk_full() -> OSError:
    """What the system says of a full disk."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _fill(file: File, size: int) -> bool:
    """Makes a file `size` bytes long; False if the disk is full before that."""
    import random  # Takes a while: not before there is something to fill.

    before = at = file.size()
    if at > size:
        file.truncate(size)
        return True
    try:
        while at < size:
            # Nothing that a file system could store in less.
            file.pwrite(random.Random(at).randbytes(min(_STEP_BYTES, size - at)), at)
            at += min(_STEP_BYTES, size - at)
    except OSError as error:
        if error.errno not in FULL_ERRORS:
            raise
    if file.size() > before:
        file.datasync()
    return at >= size
