"""The sparse indexes of a segment, in Kafka's files.

Two kinds, which differ only in their columns; both columns of both ascend. Big endian:

    .index      8 bytes an entry    int32 last offset of a batch - base offset of the segment
                                    int32 position of that batch in the log
    .timeindex  12 bytes an entry   int64 largest timestamp so far in the segment
                                    int32 last offset of the batch that has it - base offset

An entry is made for the first batch that begins more than `index.interval.bytes` after the one with
the last entry. Kafka preallocates the files of the newest segment and cuts them when it closes
them; after a crash zeros are left at the end, which are not entries. Nothing is preallocated here.

New entries wait in memory until `persist` appends them to the file; those in the file are read
when they are needed and can be dropped again. One thread appends, another may persist, a third
look up. Indexes are caches without checksums: whoever uses an entry checks that its batch is there.
"""

from __future__ import annotations

import sys
import threading
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from asyncbroker.log.errors import CorruptIndex, WouldBlock
from asyncbroker.log.files import Files
from asyncbroker.log.open_segments import OpenSegments
from asyncbroker.log.system_calls import Buffer


@dataclass(frozen=True, slots=True)
class Layout:
    """The kind of an index: its file's suffix and the array type codes of its two columns."""

    suffix: str
    key_code: str
    value_code: str
    entry_bytes: int


OFFSET_INDEX: Final = Layout(".index", "I", "I", 8)
TIME_INDEX: Final = Layout(".timeindex", "q", "I", 12)


class Entries:
    """Entries in memory: two columns that ascend. The appender adds to the values first, so that a
    reader in another thread finds a value for every key."""

    __slots__ = ("keys", "values")

    def __init__(self, keys: array[int], values: array[int]) -> None:
        self.keys = keys
        self.values = values

    @classmethod
    def empty(cls, layout: Layout) -> Entries:
        return cls(array(layout.key_code), array(layout.value_code))

    @classmethod
    def decode(cls, layout: Layout, data: Buffer) -> Entries:
        """The entries in a file's bytes, up to the zeros of a preallocated end."""
        if len(data) % layout.entry_bytes:
            raise CorruptIndex(f"{len(data)} bytes are not entries of {layout.entry_bytes}")
        keys = _take_column(data, layout.entry_bytes, 0, layout.key_code)
        values = _take_column(data, layout.entry_bytes, keys.itemsize, layout.value_code)
        count = _count_before_zeros(keys, values)
        return cls(keys[:count], values[:count])

    def encode(self, layout: Layout) -> bytearray:
        data = bytearray(len(self.keys) * layout.entry_bytes)
        _put_column(data, layout.entry_bytes, 0, self.keys)
        _put_column(data, layout.entry_bytes, self.keys.itemsize, self.values)
        return data

    def append(self, key: int, value: int) -> None:
        self.values.append(value)
        self.keys.append(key)

    def extend(self, later: Entries) -> None:
        self.values.extend(later.values)
        self.keys.extend(later.keys)

    def part(self, first: int, last: int | None = None) -> Entries:
        return Entries(self.keys[first:last], self.values[first:last])

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, at: int) -> tuple[int, int]:
        return self.keys[at], self.values[at]


class SparseIndex:
    """One index of one segment: `stored_count` entries in its file, then the fresh ones."""

    __slots__ = (
        "_cached",
        "_files",
        "_fresh",
        "_is_dirty",
        "_lock",
        "_open_segments",
        "layout",
        "path",
        "stored_count",
    )

    def __init__(
        self,
        files: Files,
        open_segments: OpenSegments,
        layout: Layout,
        path: str,
        stored_size: int | None,
    ) -> None:
        """`path` is the segment's, without suffix; `stored_size` the file's size, None for none."""
        self._files = files
        self._open_segments = open_segments
        self.layout = layout
        self.path = path + layout.suffix
        # A size that is no number of entries: the end is lost, and with it what the rest means.
        is_whole = stored_size is not None and stored_size % layout.entry_bytes == 0
        self.stored_count = (stored_size or 0) // layout.entry_bytes if is_whole else 0
        self._fresh = Entries.empty(layout)
        self._cached: Entries | None = None
        # Whether the file must be written or made durable even without fresh entries.
        self._is_dirty = not is_whole
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self.stored_count + len(self._fresh)

    def fresh_entries(self) -> Entries:
        return self._fresh.part(0)

    def first_fresh_value(self) -> int | None:
        fresh = self._fresh
        return fresh.values[0] if len(fresh) else None

    @property
    def cached_bytes(self) -> int:
        """The memory that `drop_cache` would free."""
        cached = self._cached
        return 0 if cached is None else len(cached) * self.layout.entry_bytes

    def append(self, key: int, value: int) -> None:
        with self._lock:
            self._fresh.append(key, value)

    def floor_by_key(self, key: int, *, may_block: bool = True) -> tuple[int, int] | None:
        """The last entry whose key is at most `key`. Raises CorruptIndex, WouldBlock."""
        fresh = self._fresh
        at = bisect_right(fresh.keys, key)
        if at:
            return fresh[at - 1]
        if not self.stored_count:
            return None
        stored = self._stored(may_block)
        at = bisect_right(stored.keys, key)
        return stored[at - 1] if at else None

    def floor_by_value(self, value: int, *, may_block: bool = True) -> tuple[int, int] | None:
        """The last entry whose value is at most `value`. Raises CorruptIndex, WouldBlock."""
        fresh = self._fresh
        at = bisect_right(fresh.values, value, 0, len(fresh.keys))
        if at:
            return fresh[at - 1]
        if not self.stored_count:
            return None
        stored = self._stored(may_block)
        at = bisect_right(stored.values, value, 0, len(stored.keys))
        return stored[at - 1] if at else None

    def tail(self, count: int) -> Entries:
        """The last `count` entries, or all if there are fewer; of a file only its end is read."""
        fresh = self._fresh
        missing = min(count - len(fresh), self.stored_count)
        if missing <= 0:
            return fresh.part(max(0, len(fresh) - count))
        if self._cached is None:
            stored = self._read(self.stored_count - missing, missing)
            if len(stored) < missing or (self.stored_count > 1 and stored[-1] == (0, 0)):
                # Zeros at the end: the file was preallocated.
                self._load()
                return self.tail(count)
        else:
            stored = self._cached.part(max(0, len(self._cached) - missing))
        stored.extend(fresh)
        return stored

    def last(self) -> tuple[int, int] | None:
        tail = self.tail(1)
        return tail[0] if len(tail) else None

    def drop_last(self, count: int) -> None:
        """Forgets the last `count` entries."""
        with self._lock:
            keep = max(0, len(self) - count)
            self._fresh = self._fresh.part(0, max(0, keep - self.stored_count))
            if keep < self.stored_count:
                self.stored_count = keep
                self._cached = None
                self._is_dirty = True

    def drop_after_value(self, value: int) -> None:
        """Forgets the entries whose value is above `value`."""
        count = 8  # mostly one or two are to go
        while True:
            tail = self.tail(count)
            dropped = len(tail) - bisect_right(tail.values, value)
            if dropped < count or len(tail) < count:
                return self.drop_last(dropped)
            count *= 8

    def clear(self) -> None:
        self.drop_last(len(self))

    def replace_stored(self, entries: Entries) -> None:
        """Puts rebuilt entries before the fresh ones, in place of those in the file."""
        with self._lock:
            entries.extend(self._fresh)
            self.stored_count = 0
            self._cached = None
            self._fresh = entries
            self._is_dirty = True

    def drop_cache(self) -> None:
        """Frees the memory of stored entries; they are read again when they are needed."""
        self._cached = None

    def persist(self, *, sync: bool) -> None:
        """Appends the fresh entries to the file and cuts whatever else was there; with `sync`
        returns when all of it is durable. One thread at a time."""
        fresh = self._fresh
        count = len(fresh)
        if not count and not self._is_dirty:
            return
        new = fresh.part(0, count)
        entry_bytes = self.layout.entry_bytes
        file = self._files.open(self.path, create=True)
        try:
            if count:
                file.pwrite(new.encode(self.layout), self.stored_count * entry_bytes)
            if file.size() != (self.stored_count + count) * entry_bytes:
                file.truncate((self.stored_count + count) * entry_bytes)
            if sync:
                file.datasync()
        finally:
            file.close()
        with self._lock:
            # In this order, so that a reader finds each entry in one place or in both.
            if self._cached is not None:
                self._cached.extend(new)
            self.stored_count += count
            self._fresh = self._fresh.part(count)
            self._is_dirty = not sync

    def _stored(self, may_block: bool) -> Entries:
        cached = self._cached
        if cached is not None:
            return cached
        if not may_block:
            # Even in the page cache it is megabytes: not for the event loop.
            raise WouldBlock(self.path)
        return self._load()

    def _load(self) -> Entries:
        """Reads the whole file; drops from the count what is zero at its end."""
        count = self.stored_count
        entries = self._read(0, count)
        with self._lock:
            # If more was persisted meanwhile, this reading is only a prefix, good for once.
            if count == self.stored_count:
                if len(entries) < count:
                    self.stored_count = len(entries)
                    self._is_dirty = True
                self._cached = entries
        self._open_segments.loaded(self)
        return entries

    def _read(self, first: int, count: int) -> Entries:
        """Entries from the file, fewer than `count` if it ends with zeros."""
        size, position = count * self.layout.entry_bytes, first * self.layout.entry_bytes
        try:
            file = self._files.open(self.path)
        except FileNotFoundError:
            raise CorruptIndex(f"{self.path} is gone") from None
        try:
            data = file.pread(size, position)
        finally:
            file.close()
        if len(data) < size:
            raise CorruptIndex(f"{self.path} has fewer than {position + size} bytes")
        return Entries.decode(self.layout, data)


class RecentBatches:
    """Where the newest batches of the active segment begin: answers tailing reads from memory.

    The appender adds; a reader in another thread takes `columns` once and works on that pair.
    """

    COUNT_MAX: Final = 128

    __slots__ = ("columns",)

    def __init__(self) -> None:
        # Base offsets, positions.
        self.columns: tuple[array[int], array[int]] = (array("q"), array("q"))

    def append(self, base_offset: int, position: int) -> None:
        offsets, positions = self.columns
        if len(offsets) == self.COUNT_MAX:
            half = self.COUNT_MAX // 2
            offsets, positions = offsets[half:], positions[half:]
            self.columns = (offsets, positions)
        positions.append(position)
        offsets.append(base_offset)


def _count_before_zeros(keys: array[int], values: array[int]) -> int:
    """How many entries come before those that are all zero.

    Columns ascend, so only the first real entry can be zero (timestamp 0, or a batch at the very
    start): it is taken for one when nothing follows it, or something that is not zero.
    """
    low, high = 1, len(keys)
    if high < 2:
        return high
    while low < high:
        middle = (low + high) // 2
        if keys[middle] == 0 and values[middle] == 0:
            high = middle
        else:
            low = middle + 1
    return 0 if low == 1 and keys[0] == 0 and values[0] == 0 else low


def _take_column(data: Buffer, entry_bytes: int, at: int, code: str) -> array[int]:
    """One field of all entries, as an array in this machine's byte order."""
    column: array[int] = array(code)
    raw = bytearray(len(data) // entry_bytes * column.itemsize)
    for byte in range(column.itemsize):
        raw[byte :: column.itemsize] = data[at + byte :: entry_bytes]
    column.frombytes(raw)
    if sys.byteorder == "little":
        column.byteswap()
    return column


def _put_column(data: bytearray, entry_bytes: int, at: int, column: array[int]) -> None:
    """The inverse of `_take_column`."""
    swapped = column[:]
    if sys.byteorder == "little":
        swapped.byteswap()
    raw = swapped.tobytes()
    for byte in range(column.itemsize):
        data[at + byte :: entry_bytes] = raw[byte :: column.itemsize]
