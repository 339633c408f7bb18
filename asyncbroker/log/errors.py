"""What can go wrong with a log, by blame: the disk, the directory, or only the moment."""

from __future__ import annotations


class CorruptLog(Exception):
    """Bytes of one partition that were promised are damaged or gone; other partitions go on.

    `path` is the file or directory, `position` the byte where it was seen, if there is one.
    """

    def __init__(self, path: str, reason: str, position: int | None = None) -> None:
        where = path if position is None else f"{path} at byte {position}"
        super().__init__(f"{where}: {reason}")
        self.path = path
        self.position = position


class Unchecked(Exception):
    """No batch has the offset that was looked for, and the one before, between the positions
    `begin` and `end` of the file at `path`, is to be checked: damaged, it may cover others."""

    def __init__(self, path: str, begin: int, end: int) -> None:
        super().__init__(f"{path}, bytes {begin} to {end}")
        self.path = path
        self.begin = begin
        self.end = end


class CorruptIndex(Exception):
    """An index contradicts its log. Indexes are caches: it is rebuilt, nothing is lost."""


class DirectoryRefused(Exception):
    """A data directory that this broker may not use; the text is for the person who started it."""


class WouldBlock(Exception):
    """The bytes that were needed are not in memory: ask again from a worker thread."""
