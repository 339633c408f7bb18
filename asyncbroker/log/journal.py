"""The journal: one file in which the newest batches of all partitions become durable together.

A commit round writes what several partitions have appended, each a frame, with one write and one
fdatasync; the same bytes are in the page cache of the partitions' own files, which are synced later
and in the background. Then that stretch of the journal is free. After a crash `journal_replay.py`
writes the frames to where they belong, before anything else is opened. What stands in the file is
in `journal_frames.py`.

The file is a ring, written with zeros once, so that a round changes no metadata of the file system.
Positions count on from lap to lap. Between `live_from` and `head` lies what replay would need;
nothing there is ever written over: without room a round is refused, and its partitions' own files
are synced instead.

Invariants:

1. A frame belongs to a segment file whose name is durable, in a directory whose topic id is, and
   begins at or below the durable size of that file (synced, or by frames before it).
2. `release` comes after the files of all frames below were synced and after that was recorded
   durably in the recovery points; it is durable itself before it frees anything.
3. So replay passes over every frame up to its partition's recorded recovery point, or below the
   recorded log start. Whoever rewrites or renames a segment file that replay might write to must
   first have `LogDirectory.checkpoint_partition` empty the journal of it: the recovery points alone
   are not enough, since that file may be damaged when it is needed. Only the oldest segments of a
   log may be removed. Cutting a log back takes promises back: `LogDirectory.lower_recovery_point`
   empties the journal before it does.
4. Each life of a broker has an id of its own in the journal's head; rounds of another id are
   nothing. The head changes when the journal is empty, and only then.

Methods block and are for worker threads, except where it says otherwise; any thread may call them.
The event loop may begin a round itself and have it written elsewhere (`begin`, `end`). Meanwhile it
holds the journal's lock, so nobody may wait for that with anything in hand that the loop waits for.
Not known here: who waits, how partitions are found, what is in a batch.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

from asyncbroker.log.files import TEMPORARY_SUFFIX, File, Files
from asyncbroker.log.journal_frames import (
    BLOCK_BYTES,
    HEAD_BLOCKS,
    RING_BEGIN,
    CorruptJournal,
    Head,
    decode_head,
    encode_frame,
    encode_head,
    encode_round,
    round_bytes,
)

if TYPE_CHECKING:
    from asyncbroker.log.batch_scan import Readable
    from asyncbroker.log.partition_log import PartitionLog
    from asyncbroker.log.segment import Segment

logger = logging.getLogger(__name__)

JOURNAL: Final = ".asyncbroker_journal"
# Smaller ones would be full all the time.
FILE_BYTES_MIN: Final = 64 << 10

_ZEROS_BYTES: Final = 1 << 20
# What fails a round and not the journal: a file system that copies on write may have no room.
_PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Stretch(NamedTuple):
    """What one log has to make durable: bytes of its newest segment, up to an offset."""

    log: PartitionLog
    partition: int
    segment: Segment
    position: int
    size: int
    end_offset: int

    def read_nowait(self) -> bytes | bytearray | None:
        """The bytes, if they can be had without a wait; for any thread."""
        file = self.segment.file
        try:
            data = None if file is None else file.pread_nowait(self.size, self.position)
        except (OSError, MemoryError):
            # `read` will say what is wrong.
            return None
        return data if data is not None and len(data) == self.size else None

    def read(self) -> bytes | None:
        """The bytes, which were appended a moment ago; None if the file does not give them. That
        says nothing about the journal: the log's own fsync will tell what is wrong with it."""
        try:
            data = self.segment.open_file().pread(self.size, self.position)
        except (OSError, MemoryError) as error:
            logger.warning("%s goes past the journal: %r", self.segment.log_path, error)
            return None
        return data if len(data) == self.size else None


class Begun(NamedTuple):
    """A round that is to be written: `data` to `file_position` of `file`, and synced."""

    file: File
    data: bytes
    file_position: int
    position: int
    stretches: list[Stretch]


class Journal:
    """See the head of this file. Nothing is read or written before `prepare`."""

    def __init__(
        self,
        files: Files,
        directory: str,
        file_bytes: int,
        *,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`file_bytes`: its size on the disk, at least FILE_BYTES_MIN."""
        self._files = files
        self._directory = directory
        self.path = f"{directory}/{JOURNAL}"
        self._file_bytes = max(file_bytes, FILE_BYTES_MIN) // BLOCK_BYTES * BLOCK_BYTES
        self._ring_bytes = self._file_bytes - RING_BEGIN
        self._random_bytes = random_bytes
        self._file: File | None = None
        self._journal_id = b""
        self._failure: OSError | None = None
        # Positions; the first lap is lap 1.
        self._head = self._live_from = self._ring_bytes
        self._previous = 0
        # Where the last release has left it with nothing in it.
        self._empty_at = self._head
        self._lock = threading.Lock()
        # Somebody waits for it: the event loop, which never does, would be there first each time.
        self._is_wanted = False
        self.round_count = 0
        """Rounds that were written since the start, those that only free something aside."""

    # ---- what anyone may ask at any time

    @property
    def is_ready(self) -> bool:
        """Whether rounds can be written."""
        return self._file is not None

    @property
    def round_bytes_max(self) -> int:
        """The most that the frames of one round may have in all."""
        return self._ring_bytes // 4

    @property
    def used_bytes(self) -> int:
        """What replay would need."""
        return self._head - self._live_from

    @property
    def free_bytes(self) -> int:
        """The rest of it."""
        return self._ring_bytes - self.used_bytes

    @property
    def is_filling(self) -> bool:
        """Whether it is time to free some of it."""
        return self.used_bytes > self._ring_bytes // 2

    # ---- its file

    def prepare(self) -> None:
        """Makes the file if it is not there in the right size, and begins a new life of it. Only
        when nothing in it is needed. An OSError leaves nothing behind, and may be tried again."""
        with self._lock:
            if self._file is not None:
                return
            found = self._found()
            generation = 1 if found is None else found.generation + 1
            head = Head(generation, self._random_bytes(16), self._file_bytes)
            if found is None or found.file_bytes != self._file_bytes:
                self._make_file(head)
                file = self._files.open(self.path)
            else:
                file = self._files.open(self.path)
                write_heads(file, head)
            self._journal_id = head.journal_id
            self._file = file

    def _found(self) -> Head | None:
        """The head of what is in the directory, if anything is."""
        if not self._files.exists(self.path):
            return None
        return newest(read_heads(self._files.open(self.path)))

    def _make_file(self, head: Head) -> None:
        temporary = self.path + TEMPORARY_SUFFIX
        self._files.remove(temporary)
        is_made = False
        try:
            file = self._files.open(temporary, create=True)
            zeros = bytes(_ZEROS_BYTES)
            for position in range(0, self._file_bytes, _ZEROS_BYTES):
                file.pwrite(zeros[: self._file_bytes - position], position)
            write_heads(file, head)
            self._files.rename(temporary, self.path)
            self._files.sync_directory(self._directory)
            is_made = True
        finally:
            if not is_made:
                self._files.remove(temporary)

    def empty(self) -> None:
        """Ends this life, and one that was found: nothing in the journal is needed any more."""
        with self._lock:
            self._file = None
            found = self._found()
            if found is not None and self._failure is None:
                head = Head(found.generation + 1, self._random_bytes(16), found.file_bytes)
                write_heads(self._files.open(self.path), head)

    def close(self) -> None:
        """Ends all use, and leaves the rounds to the next start."""
        with self._lock:
            self._file = None

    # ---- rounds

    @property
    def head(self) -> int:
        """Where the next round goes: all before it is durable, and noted by its logs. Waits for the
        round that is under way."""
        self._is_wanted = True
        with self._lock:
            self._is_wanted = False
            return self._head

    def append(
        self, wanted: Sequence[Stretch], read: Sequence[bytes | bytearray | None] = ()
    ) -> list[Stretch]:
        """Makes stretches durable as one round and tells their logs so; those that are now. Left
        out are those that cannot be read, and all of them without room. `read`: the bytes of each,
        where somebody has read them already.

        Raises OSError when the disk does not take it. Unless that was for lack of space, the
        journal is of no use any more then.
        """
        # Before anything is written: a file that cannot be read is no trouble of the others.
        held = [
            (stretch, data)
            for stretch, known in zip_longest(wanted, read)
            if (data := stretch.read() if known is None else known) is not None
        ]
        if not held:
            return []
        with self._lock:
            # What its file has for sure by now may be compacted next: no replay may write it.
            new = [each for each in held if each[0].log.flushed_end_offset < each[0].end_offset]
            if new:
                begun = self._begin(new)
                if begun is None:
                    return []
                self._write(begun)
                self._ended(begun)
        return [stretch for stretch, _ in held]

    def begin(
        self, stretches: Sequence[Stretch], read: Sequence[bytes | bytearray]
    ) -> Begun | None:
        """For the event loop, and without a wait: a round of stretches whose bytes were read. It is
        the caller's to write, and nobody else comes to the journal until `end`. None if that is
        for `append` to do, since somebody is or wants to be there, or something is not as usual."""
        if self._is_wanted or not self._lock.acquire(blocking=False):
            return None
        begun: Begun | None = None
        try:
            if self._file is not None and self._failure is None:
                new = [
                    (stretch, data)
                    for stretch, data in zip(stretches, read, strict=True)
                    if stretch.log.flushed_end_offset < stretch.end_offset
                ]
                begun = self._begin(new) if new else None
        finally:
            if begun is None:
                self._lock.release()
        return begun

    def end(self, begun: Begun, error: OSError | None) -> None:
        """For the event loop: what `begin` gave was written, or could not be; then it raises that,
        as `append` would."""
        try:
            if error is not None:
                self._note(error)
                raise error
            self._ended(begun)
        finally:
            self._lock.release()

    def release(self, position: int) -> None:
        """Frees everything below a `head` that was read before the files were synced. The recovery
        points must be recorded."""
        self._is_wanted = True
        with self._lock:
            self._is_wanted = False
            if self._file is None or position <= self._live_from or self._head == self._empty_at:
                return
            is_empty = position == self._head
            begun = self._encoded(self._head, position, [], [], [])
            self._write(begun)
            self._advance(begun)
            self._live_from = position
            if is_empty:
                self._empty_at = self._head

    def _begin(self, held: Sequence[tuple[Stretch, bytes | bytearray]]) -> Begun | None:
        """The next round; None if there is no room for it."""
        stretches = [stretch for stretch, _ in held]
        frames = [
            encode_frame(
                stretch.log.topic_id,
                stretch.partition,
                stretch.segment.base_offset,
                stretch.position,
                stretch.end_offset,
                data,
            )
            for stretch, data in held
        ]
        size = round_bytes(len(frames), sum([stretch.size for stretch in stretches]))
        position = self._head
        in_ring = position % self._ring_bytes
        if in_ring + size > self._ring_bytes:
            position += self._ring_bytes - in_ring
        # A block stays free for the next release.
        if position + size + BLOCK_BYTES > self._live_from + self._ring_bytes:
            return None
        return self._encoded(
            position, self._live_from, frames, [data for _, data in held], stretches
        )

    def _encoded(
        self,
        position: int,
        live_from: int,
        frames: list[bytes],
        payloads: list[bytes | bytearray],
        stretches: list[Stretch],
    ) -> Begun:
        if self._file is None or self._failure is not None:
            code = None if self._failure is None else self._failure.errno
            raise OSError(code, f"{self.path} is offline: {self._failure}")
        data = encode_round(self._journal_id, position, self._previous, live_from, frames, payloads)
        file_position = RING_BEGIN + position % self._ring_bytes
        return Begun(self._file, data, file_position, position, stretches)

    def _write(self, begun: Begun) -> None:
        try:
            begun.file.pwrite(begun.data, begun.file_position)
            begun.file.datasync()
        except OSError as error:
            self._note(error)
            raise

    def _note(self, error: OSError) -> None:
        """A round could not be written."""
        if error.errno not in _PASSING:
            self._failure = error

    def _ended(self, begun: Begun) -> None:
        """A round is durable."""
        for stretch in begun.stretches:
            stretch.log.journaled(stretch)
        self._advance(begun)
        self.round_count += 1

    def _advance(self, begun: Begun) -> None:
        self._previous = begun.position
        self._head = begun.position + len(begun.data)


def read_heads(file: Readable) -> list[Head]:
    """The heads that are whole."""
    heads: list[Head] = []
    for block in range(HEAD_BLOCKS):
        try:
            heads.append(decode_head(file.pread(BLOCK_BYTES, block * BLOCK_BYTES)))
        except CorruptJournal as damage:
            logger.error("%s, block %d: %s", file.path, block, damage)
    return heads


def newest(heads: list[Head]) -> Head | None:
    """The head that counts: a lower one is left of a change that did not come to its end."""
    return max(heads, key=lambda head: head.generation, default=None)


def write_heads(file: File, head: Head) -> None:
    """Replaces the heads, one after the other, durably."""
    for block in range(HEAD_BLOCKS):
        file.pwrite(encode_head(head), block * BLOCK_BYTES)
        file.datasync()
