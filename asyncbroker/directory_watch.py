"""Notices that a data directory, or a partition's, is not there any more.

Open files outlive their names. Writes to them succeed, and no start will find what they wrote: an
fsync tells, but who asks for acks=1 waits for none. So now and then the names are looked at: the
directory's, and some partitions' each time. A directory that is gone takes everything offline, a
partition's only that partition.

Looking costs a system call a name, in a worker thread, whatever the logs hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from asyncbroker.damaged_log import DamagedLog
from asyncbroker.log.checkpoints import META_PROPERTIES
from asyncbroker.log.files import Files, no_such_file
from asyncbroker.partition import Partition
from asyncbroker.storage import Storage
from asyncbroker.topics import Topics

PARTITIONS_AT_ONCE: Final = 256


class DirectoryWatch:
    """The watch over one data directory. For the event loop's thread."""

    def __init__(self, files: Files, directory: str, topics: Topics, storage: Storage) -> None:
        self._files = files
        self._directory = directory
        self._topics = topics
        self._storage = storage
        self._rest: Iterator[Partition] = iter(())

    async def check(self) -> None:
        """Looks at the directory, and at the next partitions in turn."""
        if self._storage.error is not None or self._storage.is_volatile:
            return
        partitions = [
            each
            for each in self._next_partitions()
            if each.is_readable() and not isinstance(each.log, DamagedLog)
        ]
        names = [f"{self._directory}/{META_PROPERTIES}"]
        names += [each.log.directory for each in partitions]
        is_there, *are_there = await self._storage.workers.run(self._look, names)
        if not is_there:
            self._storage.fail(no_such_file(self._directory))
            return
        for partition, is_partition_there in zip(partitions, are_there, strict=True):
            # One that is being deleted refused everything before its directory was renamed.
            if not is_partition_there and partition.is_readable():
                partition.go_offline(no_such_file(partition.log.directory))

    def _next_partitions(self) -> list[Partition]:
        portion = list(islice(self._rest, PARTITIONS_AT_ONCE))
        if not portion:
            self._rest = (
                partition for topic in list(self._topics) for partition in topic.partitions
            )
            portion = list(islice(self._rest, PARTITIONS_AT_ONCE))
        return portion

    def _look(self, names: Sequence[str]) -> list[bool]:
        """In a worker thread."""
        return [self._files.exists(name) for name in names]
