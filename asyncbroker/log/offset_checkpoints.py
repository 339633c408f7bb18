"""What a data directory has recorded of each partition, an offset in a file for each kind:

    recovery-point-offset-checkpoint    up to where it is durable in its own files
    log-start-offset-checkpoint         where it begins
    cleaner-offset-checkpoint           up to where it is compacted

They are Kafka's files, with `checkpoint_sums.py` beside them: of one that is damaged the copy is
used, if there is one. The owner changes the offsets and has them written, under a lock of its own;
what is written is known too, since only that holds after a crash.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import TypeVar

from asyncbroker.log.checkpoint_sums import CHECKSUMS, CheckpointSums
from asyncbroker.log.checkpoints import (
    CLEANER_OFFSETS,
    LOG_STARTS,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    TopicPartition,
    encode_offsets,
)
from asyncbroker.log.files import Files
from asyncbroker.log.reserve import Reserve

logger = logging.getLogger(__name__)

Decoded = TypeVar("Decoded")


class OffsetCheckpoints:
    """The three files. Their offsets are what they will say when they are written next."""

    __slots__ = (
        "_damaged",
        "_directory",
        "_files",
        "_reserve",
        "_sums",
        "_written",
        "are_points_damaged",
        "cleaner_offsets",
        "log_starts",
        "recovery_points",
    )

    def __init__(self, files: Files, directory: str, reserve: Reserve) -> None:
        """Empty: see `read`. `reserve`: what gives room to write them on a full disk."""
        self._files = files
        self._directory = directory
        self._reserve = reserve
        self._sums = CheckpointSums(files, directory, {})
        self._written: dict[str, dict[TopicPartition, int]] = {}
        # Of which files the copy was used.
        self._damaged: set[str] = set()
        # Whether nobody knows any more what was promised.
        self.are_points_damaged = False
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.cleaner_offsets: dict[TopicPartition, int] = {}

    def read(self, names: dict[str, int]) -> None:
        """Takes what the files say; `names` are those in the directory, with their sizes."""
        self._sums = CheckpointSums(self._files, self._directory, names)
        for name, offsets in self._all():
            path = f"{self._directory}/{name}"
            decode = functools.partial(self._sums.decode, name)
            found = read_small(self._files, path, names, decode)
            if found is not None or name not in names:
                self._written[name] = dict(found or {})
            elif (found := self._sums.decode_copy(name)) is not None:
                logger.warning("%s: its copy in %s is used", path, CHECKSUMS)
                self._written[name] = dict(found)
                self._damaged.add(name)
            elif name == RECOVERY_POINTS:
                self.are_points_damaged = names[name] > 0
            offsets.update(found or {})

    def write(self) -> None:
        """Writes the files that would say something new, or are damaged. A partition at 0 needs no
        line."""
        for name, offsets in self._all():
            current = {key: offset for key, offset in offsets.items() if offset > 0}
            if current != self._written.get(name) or name in self._damaged:
                data = encode_offsets(current)
                self._reserve.with_room(functools.partial(self._sums.write, name, data))
                self._written[name] = current
                self._damaged.discard(name)

    def raise_recovery_point(self, key: TopicPartition, offset: int) -> None:
        """Others may have recorded more meanwhile."""
        self.recovery_points[key] = max(offset, self.recovery_points.get(key, 0))

    def lower_recovery_point(self, key: TopicPartition, offset: int) -> None:
        """Takes back what was promised beyond an offset."""
        for offsets in (self.recovery_points, self.cleaner_offsets):
            if offsets.get(key, 0) > offset:
                offsets[key] = offset

    def promised(self, key: TopicPartition, *, is_compacted: bool) -> int:
        """Up to where a partition is durable. What was compacted is, and has gaps that would look
        like losses to whoever did not know of the promise. Where the recovery points are damaged, a
        compaction may have been under way: then all but the newest segment counts."""
        known = max(self.recovery_points.get(key, 0), self.cleaner_offsets.get(key, 0))
        if not self.are_points_damaged or not is_compacted:
            return known
        path = f"{self._directory}/{key[0]}-{key[1]}"
        names = self._files.list_files(path) if self._files.exists(path) else ()
        logs = [name for name in names if name.endswith(".log") and name[:-4].isdigit()]
        return max([known, *(int(name[:-4]) for name in logs)])

    def raise_log_start(self, key: TopicPartition, offset: int) -> None:
        """Others may have recorded more meanwhile."""
        self.log_starts[key] = max(offset, self.log_starts.get(key, 0))

    def forget(self, key: TopicPartition) -> None:
        """Takes back all that was recorded of a partition."""
        for _, offsets in self._all():
            offsets.pop(key, None)

    def has_old_promise(self, key: TopicPartition) -> bool:
        """Whether the files still have what was written of a partition that is forgotten."""
        return any(
            key in self._written.get(name, {}) and key not in offsets
            for name, offsets in self._all()
        )

    def _all(self) -> tuple[tuple[str, dict[TopicPartition, int]], ...]:
        return (
            (RECOVERY_POINTS, self.recovery_points),
            (LOG_STARTS, self.log_starts),
            (CLEANER_OFFSETS, self.cleaner_offsets),
        )


def read_small(
    files: Files, path: str, names: dict[str, int], decode: Callable[[bytes], Decoded]
) -> Decoded | None:
    """What a small file says, or None if it is not there or damaged: then recovery reads all there
    is, and deleted records may be seen again."""
    # Kafka makes its checkpoints empty, and fills them when there is something to say.
    if not names.get(path.rpartition("/")[2]):
        return None
    try:
        return decode(files.read_whole(path))
    except CorruptCheckpoint as damage:
        logger.error("%s is damaged and is not used: %s", path, damage)
        return None
