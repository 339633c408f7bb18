"""What a disk may hold: files and directories that know what they were at their last sync.

The model and its use are at the head of `crash_files.py`; here is what a crash leaves of one file
and of one directory, by the choices of a `Choose`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from asyncbroker.log.system_calls import Buffer

# What a disk writes whole or not at all. Tests with small batches use smaller ones.
SECTOR_BYTES: Final = 512

# Chooses among `count` states that are possible, of which 0 is the oldest (what was synced) and
# `count - 1` the newest.
Choose = Callable[[int], int]


def synced_only(count: int) -> int:
    """The disk has written nothing that it did not have to."""
    return 0


def everything(count: int) -> int:
    """The disk has written all that it was given."""
    return count - 1


def sampled(random: Random) -> Choose:
    """A disk that has written this and that: how much, and how much at a stretch, differs."""
    newest_share = random.choice([0.2, 0.5, 0.8, 0.95])
    sticky_share = random.choice([0.0, 0.6, 0.9])
    last = random.random() < newest_share

    def choose(count: int) -> int:
        nonlocal last
        if random.random() >= sticky_share:
            last = random.random() < newest_share
            if count > 2 and random.random() < 0.3:
                return random.randrange(count)
        return count - 1 if last else 0

    return choose


class Contents:
    """A file's bytes, with what they were since the last sync."""

    __slots__ = (
        "_before",
        "_forgotten_count",
        "_is_shared",
        "_sector_bytes",
        "_sizes",
        "_stuck",
        "_stuck_size",
        "_sync_count",
        "_writes",
        "data",
        "is_lost",
    )

    def __init__(self, sector_bytes: int, data: bytearray | None = None) -> None:
        self.data = bytearray() if data is None else data
        # Another file may have the same bytearray: it is copied before it is written to.
        self._is_shared = data is not None
        # As many syncs that are under way still look at this bytearray.
        self._sync_count = 0
        self._sector_bytes = sector_bytes
        # Of the sectors that were written to, what the last sync left there; of those that are
        # behind its end, nothing is kept.
        self._before: dict[int, bytes] = {}
        # Begin and bytes of each write; a truncation writes zeros up to the old end.
        self._writes: list[tuple[int, bytes]] = []
        # The size at the last sync and after each change since.
        self._sizes = [len(self.data)]
        # How many changes a sync has made certain.
        self._forgotten_count = 0
        # A sync has failed.
        self.is_lost = False
        # Of the sectors that a sync of an earlier process has failed to write, what the disk has.
        # Memory has them, and takes them for written: until they are written to again, no sync
        # brings them to the disk. And the size there.
        self._stuck: dict[int, bytes] = {}
        self._stuck_size: int | None = None

    def write(self, data: Buffer, position: int) -> None:
        self._own()
        written = bytes(data)
        self._remember(position, written)
        if position > len(self.data):
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(written)] = written
        self._sizes.append(len(self.data))

    def truncate(self, size: int) -> None:
        self._own()
        if size < len(self.data):
            self._remember(size, bytes(len(self.data) - size))
            del self.data[size:]
        else:
            self._writes.append((size, b""))
            self.data.extend(bytes(size - len(self.data)))
        self._sizes.append(size)

    def flip(self, position: int, bits: int) -> None:
        """The disk shows other bits at a position, and nobody has written them."""
        self._own()
        self.data[position] ^= bits

    def sync(self) -> None:
        if not self.is_lost:
            self._synced(self._writes)
            self._forgotten_count += len(self._writes)
            self._before.clear()
            self._writes.clear()
            self._sizes = [len(self.data)]

    def begin_sync(self) -> tuple[int, bytearray]:
        """A sync begins, and takes its time: what is written meanwhile is not in it."""
        self._sync_count += 1
        return self._forgotten_count + len(self._writes), self.data

    def end_sync(self, begun: tuple[int, bytearray]) -> None:
        """It has come to its end."""
        count, data = begun
        count -= self._forgotten_count
        if data is self.data:
            self._sync_count -= 1
        if self.is_lost or count < 0:
            return
        self._synced(self._writes[:count])
        self._forgotten_count += count
        del self._writes[:count]
        self._sizes = [len(data), *self._sizes[count + 1 :]]
        self._before.clear()
        for position, written in self._writes:
            for sector in self._sectors(position, len(written)):
                begin = sector * self._sector_bytes
                self._before[sector] = bytes(data[begin : begin + self._sector_bytes])

    def _synced(self, writes: list[tuple[int, bytes]]) -> None:
        """The disk's size covers whatever has been written since a sync has failed, and synced."""
        if not self._stuck:
            self._stuck_size = None
        if self._stuck_size is not None:
            ends = [position + len(written) for position, written in writes if written]
            self._stuck_size = min(len(self.data), max(self._stuck_size, *ends, 0))

    def forked(self, choose: Choose) -> Contents:
        """The same with the same past."""
        if self.is_lost and not choose(2):
            return self.crashed(choose)
        if self._is_on_disk():
            return self._shared()
        fork = self._shared()
        fork._stuck, fork._stuck_size = dict(self._stuck), self._stuck_size
        if self.is_lost:
            written = (self._sectors(position, len(data)) for position, data in self._writes)
            stuck = dict.fromkeys(itertools.chain(*written), b"") | self._before
            # What was cut off is nobody's: no write will come there, and none is waited for.
            end = -(-len(self.data) // self._sector_bytes)
            fork._stuck.update({at: then for at, then in stuck.items() if at < end})
            fork._stuck_size = min(self._sizes[0], fork._stuck_size or self._sizes[0])
            return fork
        fork._before = dict(self._before)
        fork._writes = list(self._writes)
        fork._sizes = list(self._sizes)
        return fork

    def crashed(self, choose: Choose) -> Contents:
        """What may be left of it."""
        if self._is_on_disk():
            return self._shared()
        sizes = self._possible_sizes()
        if self._stuck_size is not None:
            sizes = [self._stuck_size, *sizes]
        size = sizes[choose(len(sizes))]
        data = self.data[:size].ljust(size, b"\0")
        writes: dict[int, list[tuple[int, bytes]]] = {}
        for position, written in self._writes:
            for sector in self._sectors(position, len(written)):
                writes.setdefault(sector, []).append((position, written))
        for sector in sorted(writes):
            begin = sector * self._sector_bytes
            if begin < size:
                count = choose(len(writes[sector]) + 1)
                if count < len(writes[sector]):
                    then = self._sector_after(sector, writes[sector][:count])
                    data[begin : begin + self._sector_bytes] = then[: size - begin]
        for sector, then in sorted(self._stuck.items()):
            begin = sector * self._sector_bytes
            if begin < size and not choose(2):
                then = then.ljust(self._sector_bytes, b"\0")
                data[begin : begin + self._sector_bytes] = then[: size - begin]
        return Contents(self._sector_bytes, data)

    def _is_on_disk(self) -> bool:
        """Whether there is one state only, as of most files at any moment."""
        return len(self._sizes) == 1 and not self._stuck

    def _shared(self) -> Contents:
        self._is_shared = True
        return Contents(self._sector_bytes, self.data)

    def _own(self) -> None:
        if self._is_shared or self._sync_count:
            self.data = bytearray(self.data)
            self._is_shared = False
            self._sync_count = 0

    def _remember(self, position: int, written: bytes) -> None:
        self._writes.append((position, written))
        sectors = self._sectors(position, len(written))
        if not self._stuck:
            # What is behind the end of the last sync was nothing then.
            synced = -(-self._sizes[0] // self._sector_bytes)
            sectors = range(sectors.start, min(sectors.stop, synced))
        for sector in sectors:
            if (stuck := self._stuck.pop(sector, None)) is not None:
                self._before[sector] = stuck
            elif sector not in self._before:
                begin = sector * self._sector_bytes
                self._before[sector] = bytes(self.data[begin : begin + self._sector_bytes])

    def _sectors(self, position: int, size: int) -> range:
        if not size:
            return range(0)
        return range(
            position // self._sector_bytes, (position + size - 1) // self._sector_bytes + 1
        )

    def _possible_sizes(self) -> list[int]:
        """From the synced one to the present one."""
        sector_bytes = self._sector_bytes
        first = -(-min(self._sizes) // sector_bytes) * sector_bytes
        between = {*self._sizes, *range(first, max(self._sizes), sector_bytes)}
        synced, present = self._sizes[0], self._sizes[-1]
        if synced == present and len(between) == 1:
            return [synced]
        return [synced, *sorted(between - {synced, present}), present]

    def _sector_after(self, sector: int, writes: list[tuple[int, bytes]]) -> bytes:
        begin, sector_bytes = sector * self._sector_bytes, self._sector_bytes
        content = bytearray(self._before.get(sector, b"").ljust(sector_bytes, b"\0"))
        for position, written in writes:
            first, last = max(begin, position), min(begin + sector_bytes, position + len(written))
            content[first - begin : last - begin] = written[first - position : last - position]
        return bytes(content)


class Directory:
    """A directory's names, with their changes since the last sync."""

    __slots__ = ("_changes", "_forgotten_count", "_synced", "names")

    def __init__(self) -> None:
        self.names: dict[str, Contents | Directory] = {}
        self._synced: dict[str, Contents | Directory] = {}
        # How many changes a sync has made certain.
        self._forgotten_count = 0
        # Old name, new name, and what has it: made, removed (no new name) or renamed.
        self._changes: list[tuple[str | None, str | None, Contents | Directory]] = []

    def change(self, old: str | None, new: str | None, node: Contents | Directory) -> None:
        self._changes.append((old, new, node))
        _rename(self.names, old, new, node)

    def sync(self) -> None:
        self.end_sync(self.begin_sync())

    def begin_sync(self) -> int:
        """A sync begins, and takes its time: what is changed meanwhile is not in it."""
        return self._forgotten_count + len(self._changes)

    def end_sync(self, begun: int) -> None:
        """It has come to its end."""
        certain = self._changes[: max(0, begun - self._forgotten_count)]
        for old, new, node in certain:
            _rename(self._synced, old, new, node)
        del self._changes[: len(certain)]
        self._forgotten_count += len(certain)

    def forked(self, made: dict[int, Contents | Directory], choose: Choose) -> Directory:
        """The same with the same past; `made` has the copies so far."""

        def fork(node: Contents | Directory) -> Contents | Directory:
            if id(node) not in made:
                if isinstance(node, Directory):
                    made[id(node)] = node.forked(made, choose)
                else:
                    made[id(node)] = node.forked(choose)
            return made[id(node)]

        copy = Directory()
        copy.names = {name: fork(node) for name, node in self.names.items()}
        copy._synced = {name: fork(node) for name, node in self._synced.items()}
        copy._changes = [(old, new, fork(node)) for old, new, node in self._changes]
        return copy

    def crashed(self, made: dict[int, Contents | Directory], choose: Choose) -> Directory:
        """What may be left of it."""
        names = dict(self._synced)
        for old, new, node in self._changes:
            if choose(2):
                _rename(names, old, new, node)
        left = Directory()
        for name, node in names.items():
            if id(node) not in made:
                if isinstance(node, Directory):
                    made[id(node)] = node.crashed(made, choose)
                else:
                    made[id(node)] = node.crashed(choose)
            left.names[name] = made[id(node)]
        left._synced = dict(left.names)
        return left

    def walk(self, path: str) -> Iterator[tuple[str, bytes]]:
        for name, node in sorted(self.names.items()):
            if isinstance(node, Directory):
                yield from node.walk(f"{path}{name}/")
            else:
                yield path + name, bytes(node.data)


class Odometer:
    """Chooses every combination once: use it up to the end of one crash, then advance."""

    def __init__(self) -> None:
        self._digits: list[tuple[int, int]] = []
        self._at = 0

    def choose(self, count: int) -> int:
        if self._at == len(self._digits):
            self._digits.append((0, count))
        self._at += 1
        return self._digits[self._at - 1][0]

    def advance(self) -> bool:
        """Whether there is another combination."""
        self._at = 0
        while self._digits:
            digit, count = self._digits.pop()
            if digit + 1 < count:
                self._digits.append((digit + 1, count))
                return True
        return False


def _rename(
    names: dict[str, Contents | Directory],
    old: str | None,
    new: str | None,
    node: Contents | Directory,
) -> None:
    if old is not None and names.get(old) is node:
        del names[old]
    if new is not None:
        names[new] = node
