"""Which offset each key has last, in the part of a log that was not compacted yet; bounded.

A dict from keys to offsets. Keys are exact, so no two of them are ever taken for one; a long key is
stood in for by its BLAKE2b digest of 48 bytes, longer than any key that is stored as it is. What an
entry costs is estimated from above, the growing of the dict included, and no entry is made that
would not fit: then the map covers the log up to some offset, and so does the compaction.

Of the part that is mapped the map itself tells what stays: the offsets in it, and no others. So
that part need not be decoded twice: `survivors` are those offsets.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Sequence, Set
from typing import Final, cast

from asyncbroker.log import cleaner_runs
from asyncbroker.log.cleaner_runs import Run, Taken

# A UUID in text has 36 bytes.
_EXACT_BYTES_MAX: Final = 40
_DIGEST_BYTES: Final = 48

# What CPython allocates: an object's memory comes in steps of 16 bytes; a bytes object has 33 bytes
# around its contents, an offset 32. A dict that has just grown has up to 60 bytes for an entry, and
# 30 more while the entries move from its old table. Then 16 for an offset among the survivors; that
# is less than what has moved by then.
_BYTES_OBJECT: Final = 33
_OFFSET_BYTES: Final = 32
_SLOT_BYTES: Final = 90

_SORTED_AT_ONCE: Final = 4096


class KeyOffsets:
    """The last offset of each key. Filled in the order of the log, then asked."""

    __slots__ = (
        "_bytes_left",
        "_offsets",
        "_survivors",
        "_with_tombstones",
        "end_offset",
        "start_offset",
    )

    def __init__(self, bytes_max: int, start_offset: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._bytes_left = bytes_max
        self._survivors: array[int] | None = None
        # The base offsets of mapped batches in which some value is null.
        self._with_tombstones: set[int] = set()
        self.start_offset = start_offset
        # All batches from the start on and below this offset are in it.
        self.end_offset = start_offset

    def __len__(self) -> int:
        return len(self._offsets)

    def add(
        self, keys: Sequence[bytes | None], offset_deltas: Sequence[int], base_offset: int
    ) -> bool:
        """Takes the records of a batch, up to the first key for which there is no room; whether all
        of them are in. `end_offset` is the caller's to move."""
        named = _short(keys)
        if named is None:
            # Rare: looked at one by one.
            pairs = [
                (_stand_in(key), delta)
                for key, delta in zip(keys, offset_deltas, strict=True)
                if key is not None
            ]
            named, offset_deltas = [key for key, _ in pairs], [delta for _, delta in pairs]
        offsets = self._offsets
        cost = _cost(max(map(len, named), default=0))
        if len(named) * cost <= self._bytes_left:
            count = len(offsets)
            offsets.update(zip(named, map(base_offset.__add__, offset_deltas), strict=True))
            self._bytes_left -= (len(offsets) - count) * cost
            return True
        for key, delta in zip(named, offset_deltas, strict=True):
            if key not in offsets:
                cost = _cost(len(key))
                if cost > self._bytes_left:
                    return False
                self._bytes_left -= cost
            offsets[key] = base_offset + delta
        return True

    def add_run(self, run: Run) -> Taken:
        """Takes the records of a run, as far as it goes and there is surely room for them; as with
        `add`."""
        offsets = self._offsets
        count = len(offsets)
        entries_max = self._bytes_left // _cost(_EXACT_BYTES_MAX)
        taken, longest = cleaner_runs.enter(offsets, run, _EXACT_BYTES_MAX, entries_max)
        self._bytes_left -= (len(offsets) - count) * _cost(longest)
        return taken

    def note_tombstones(self, base_offset: int) -> bool:
        """The batch that begins there, which is added next, has records without a value; whether
        there was room to remember that."""
        if base_offset not in self._with_tombstones:
            if self._bytes_left < _SLOT_BYTES + _OFFSET_BYTES:
                return False
            self._bytes_left -= _SLOT_BYTES + _OFFSET_BYTES
            self._with_tombstones.add(base_offset)
        return True

    def survivors(self, base_offset: int, last_offset: int) -> array[int] | None:
        """The offsets of the records that stay of a batch, when all is mapped; None if that is not
        for the map alone to say: not all of the batch is in it, or there are tombstones."""
        if (
            base_offset < self.start_offset
            or last_offset >= self.end_offset
            or base_offset in self._with_tombstones
        ):
            return None
        survivors = self.all_survivors()
        begin = bisect_left(survivors, base_offset)
        return survivors[begin : bisect_left(survivors, last_offset + 1, begin)]

    def all_survivors(self) -> array[int]:
        """Of all that is mapped the offsets of the records that stay, when all is mapped."""
        if self._survivors is None:
            self._survivors = self._sorted()
        return self._survivors

    @property
    def with_tombstones(self) -> Set[int]:
        """The base offsets of mapped batches of which the map alone cannot tell what stays."""
        return self._with_tombstones

    def survivors_of_run(self, run: Run) -> tuple[Taken, bytes]:
        """The offsets, int64, of the records of a run that stay, as far as it goes; by a look at
        each key, as of what is before the map."""
        return cleaner_runs.ask(self._offsets, run, _EXACT_BYTES_MAX)

    def _sorted(self) -> array[int]:
        """All offsets in order. Of one call that sorts a million the event loop would hear: it
        keeps the interpreter to itself."""
        width = (self.end_offset - self.start_offset) * _SORTED_AT_ONCE // max(1, len(self))
        width = max(1, width)
        stretches: dict[int, list[int]] = {}
        for offset in self._offsets.values():
            stretches.setdefault((offset - self.start_offset) // width, []).append(offset)
        found: array[int] = array("q")
        for number in range(max(stretches, default=-1) + 1):
            found.extend(sorted(stretches.pop(number, ())))
        return found

    def latest(self, keys: Sequence[bytes | None]) -> list[int | None]:
        """The last offset of each key, None for those that are not in it."""
        get = self._offsets.get
        named = _short(keys)
        if named is None:
            return [None if key is None else get(_stand_in(key)) for key in keys]
        return list(map(get, named))


def _short(keys: Sequence[bytes | None]) -> Sequence[bytes] | None:
    """The keys, if all of them stand for themselves."""
    if None in keys:
        return None
    named = cast("Sequence[bytes]", keys)
    return named if max(map(len, named), default=0) <= _EXACT_BYTES_MAX else None


def _stand_in(key: bytes) -> bytes:
    """The key itself if it is short."""
    if len(key) <= _EXACT_BYTES_MAX:
        return key
    return hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()


def _cost(key_bytes: int) -> int:
    return (_BYTES_OBJECT + key_bytes + 15 & ~15) + _OFFSET_BYTES + _SLOT_BYTES
