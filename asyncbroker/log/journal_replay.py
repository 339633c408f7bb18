"""Replay: after a crash, writes what the journal holds to the files that it belongs to.

It runs before any partition is opened, and changes nothing that is right already, so that a crash
in its middle does no harm: each frame's bytes go to the place in the segment file where they came
from. Passed over are frames of topics that are gone, frames whose records lie below the recorded
recovery point or log start, and frames of the oldest segments that were removed. Files are never
made: the name of a file was durable before its first frame (see the invariants in `journal.py`).

Afterwards the written files are synced, and the end of each partition as far as the journal has
promised it is known: recovery takes it for what a recovery point is, so that damage below is damage
inside promised data, and what lies above is a torn tail.

The last round may be torn: nobody was told that it is durable. Every round before it was durable
when the next one was written, and so damage there is reported loudly; what comes after it is
replayed all the same, and recovery looks at what the files themselves have of the damaged range.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncbroker.log.checkpoints import is_damaged_id
from asyncbroker.log.files import Files
from asyncbroker.log.journal import newest, read_heads
from asyncbroker.log.journal_frames import (
    BLOCK_BYTES,
    RING_BEGIN,
    CorruptJournal,
    Frame,
    Head,
    Round,
    decode_round,
    is_frame_whole,
    table_end,
)
from asyncbroker.log.segment import LOG_SUFFIX, segment_name

if TYPE_CHECKING:
    from asyncbroker.log.batch_scan import Readable
    from asyncbroker.log.checkpoints import TopicPartition
    from asyncbroker.log.log_directory import FoundPartition

logger = logging.getLogger(__name__)

# So much of the journal is held before it is written to the files.
_HELD_BYTES_MAX: Final = 16 << 20
_CHUNK_BYTES: Final = 1 << 20


class Target(NamedTuple):
    """A partition's directory. `known_offset`: frames that end there or before are not needed."""

    directory: str
    known_offset: int


TopicIdPartition = tuple[bytes, int]
# The ids of the topics that there are, by name.
TopicIds = Callable[[], Mapping[str, bytes]]
FindTarget = Callable[[TopicIdPartition], "Target | None"]


def layers(
    partitions: Iterable[FoundPartition], ids: Mapping[str, bytes]
) -> list[dict[TopicIdPartition, TopicPartition]]:
    """By topic id and partition, which directories to replay to, in as many turns as it takes:
    somebody may have copied a directory, with the id in it, and nobody knows yet which is which.
    `ids` are those of the topics that there are, by name: one in a directory may be damaged."""
    found: list[dict[TopicIdPartition, TopicPartition]] = []
    for each in partitions:
        topic_id = each.topic_id
        known = ids.get(each.topic)
        if topic_id is None or (known is not None and is_damaged_id(topic_id, known)):
            topic_id = known
        if topic_id is None:
            continue
        place = (topic_id, each.partition)
        layer = next((layer for layer in found if place not in layer), None)
        if layer is None:
            layer = {}
            found.append(layer)
        layer[place] = (each.topic, each.partition)
    return found


def replay(files: Files, path: str, find_target: FindTarget) -> dict[TopicIdPartition, int]:
    """Writes the frames of the journal at `path` to the files of their partitions, durably; the
    offsets that it has promised. Raises OSError."""
    file = files.open(path)
    head = newest(read_heads(file))
    if head is None:
        logger.error("%s has no head: what only the journal held is lost", path)
        return {}
    rounds = live_rounds(file, head)
    if not rounds:
        return {}
    run = _Replay(files, path, find_target)
    for found in rounds:
        run.take(found, _frames(file, head, found), is_last=found is rounds[-1])
    run.finish()
    logger.warning(
        "%s: replayed %d rounds with %d bytes for %d partitions",
        path,
        len(rounds),
        run.written_bytes,
        len(run.promised),
    )
    return run.promised


def live_rounds(file: Readable, head: Head) -> list[Round]:
    """The rounds that count, in order. Says so if there is a hole between them."""
    found = sorted(_rounds(file, head), key=lambda each: each.position)
    live_from = max((each.live_from for each in found), default=0)
    live = [each for each in found if each.position >= live_from]
    known = {each.position for each in live}
    for each in live:
        if each.previous_position >= live_from and each.previous_position not in known:
            logger.error(
                "%s: the round at %d, which was durable, is damaged: of its records only what the "
                "partitions' files have is left",
                file.path,
                each.previous_position,
            )
    return live


def _rounds(file: Readable, head: Head) -> Iterator[Round]:
    """Every round of this life whose header is whole, also of a lap before the last, in the order
    of the file. Bytes of frames are not taken for rounds."""
    begin = RING_BEGIN
    while begin < head.file_bytes:
        chunk = file.pread(min(_CHUNK_BYTES, head.file_bytes - begin), begin)
        at = 0
        while at < len(chunk):
            found = _round_at(file, head, begin + at, chunk[at : at + BLOCK_BYTES])
            if found is not None:
                yield found
            at += BLOCK_BYTES if found is None else found.size
        begin += max(at, BLOCK_BYTES)


def _round_at(file: Readable, head: Head, begin: int, block: bytes) -> Round | None:
    end = table_end(block, head.journal_id)
    if end is None:
        return None
    size_max = head.file_bytes - begin
    try:
        data = block if end <= len(block) else file.pread(min(end, size_max), begin)
        found = decode_round(data, size_max)
    except CorruptJournal as damage:
        logger.warning("%s at byte %d: %s", file.path, begin, damage)
        return None
    return found if found.position % head.ring_bytes == begin - RING_BEGIN else None


def _frames(file: Readable, head: Head, found: Round) -> Iterator[tuple[Frame, bytes]]:
    begin = RING_BEGIN + found.position % head.ring_bytes
    data = file.pread(found.size, begin)
    at = found.frames_at
    for frame in found.frames:
        yield frame, data[at : at + frame.size]
        at += frame.size


@dataclass(slots=True)
class _Replay:
    """One replay: what is on its way to which file."""

    files: Files
    path: str
    find_target: FindTarget
    promised: dict[TopicIdPartition, int] = field(default_factory=dict)
    written_bytes: int = 0
    _targets: dict[TopicIdPartition, Target | None] = field(default_factory=dict)
    _names: dict[str, dict[str, int]] = field(default_factory=dict)
    # By file: pieces with their positions, in the order in which they were appended.
    _held: dict[str, list[tuple[int, bytearray]]] = field(default_factory=dict)
    _held_bytes: int = 0
    _written: dict[str, None] = field(default_factory=dict)

    def take(self, found: Round, frames: Iterator[tuple[Frame, bytes]], *, is_last: bool) -> None:
        """Takes one round's frames; those of the last round may be torn."""
        for frame, data in frames:
            key = (frame.topic_id, frame.partition)
            if key not in self._targets:
                self._targets[key] = self.find_target(key)
            target = self._targets[key]
            if target is None or frame.end_offset <= target.known_offset:
                continue
            path = self._path_of(frame, target)
            if path is None:
                continue
            is_whole = is_frame_whole(frame, data)
            if is_whole:
                self._hold(path, frame.segment_position, data)
            elif is_last:
                continue
            else:
                logger.error(
                    "%s: in the round at %d the frame of %s up to offset %d, which was durable, is "
                    "damaged: what the file itself has there stays",
                    self.path,
                    found.position,
                    path,
                    frame.end_offset,
                )
            self.promised[key] = max(frame.end_offset, self.promised.get(key, 0))
        if self._held_bytes > _HELD_BYTES_MAX:
            self._write()

    def finish(self) -> None:
        """Makes durable all that was taken."""
        self._write()
        for path in self._written:
            file = self.files.open(path)
            file.datasync()
            file.close()

    def _path_of(self, frame: Frame, target: Target) -> str | None:
        """The file that a frame belongs to, or None if that is gone."""
        directory = target.directory
        if directory not in self._names:
            self._names[directory] = self.files.list_files(directory)
        name = segment_name(frame.segment_base_offset) + LOG_SUFFIX
        if name in self._names[directory]:
            return f"{directory}/{name}"
        if not any(other.endswith(LOG_SUFFIX) and other > name for other in self._names[directory]):
            # Only the oldest segments may have been removed: this one is missing.
            logger.error("%s/%s is not there, but was durable", directory, name)
            key = (frame.topic_id, frame.partition)
            self.promised[key] = max(frame.end_offset, self.promised.get(key, 0))
        return None

    def _hold(self, path: str, position: int, data: bytes) -> None:
        pieces = self._held.setdefault(path, [])
        if pieces and pieces[-1][0] + len(pieces[-1][1]) == position:
            pieces[-1][1].extend(data)
        else:
            pieces.append((position, bytearray(data)))
        self._held_bytes += len(data)

    def _write(self) -> None:
        for path, pieces in self._held.items():
            file = self.files.open(path)
            for position, data in pieces:
                file.pwrite(data, position)
                self.written_bytes += len(data)
            file.start_writeback(pieces[0][0], sum(len(data) for _, data in pieces))
            file.close()
            self._written[path] = None
        self._held.clear()
        self._held_bytes = 0


def remove_journal(files: Files, path: str) -> None:
    """For a broker without one. Durably, or an old journal could come back beside a new life."""
    files.remove(path)
    files.sync_directory(os.path.dirname(path))
