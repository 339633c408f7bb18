"""What `recorder.c` has recorded, and the disk that it makes: of any moment, in any state.

    recording = Recording(path, directory)
    for moment in recording:                  # before each change, in order
        state = recording.crashed(choose)     # a CrashFiles
    write_out(state, directory)               # as real files

The records of a process that was killed may end with a call of which nobody knows whether it was
made. Then the files that the kill has left tell (`after_kill`), which are compared with what the
recording makes of them in any case: a call that the recorder does not know of would be found.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from asyncbroker.log.tests.crash_disk import Choose, Contents, Directory
from asyncbroker.log.tests.crash_files import CrashFiles

SOURCE: Final = Path(__file__).with_name("recorder.c")
LIBRARY: Final = "recorder.so"

_MAGIC: Final = b"RECD"
_HEAD: Final = struct.Struct("@4siiiqqq")
_PAGE_BYTES: Final = 4096
_DIGITS: Final = re.compile("[0-9a-f]{2,}|[0-9]")
_WAL_MAGICS: Final = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")

# How large each file is, and its CRC.
Fingerprint = Mapping[str, tuple[int, int]]


class BadRecording(Exception):
    """The recording is not what happened."""


class Record(NamedTuple):
    """See `recorder.c`. `time` is in seconds, as that of `time.monotonic`."""

    kind: str
    process: int
    descriptor: int
    time: float
    number: int
    data: bytes

    @property
    def paths(self) -> list[str]:
        return [os.fsdecode(path) for path in self.data.split(b"\0")[:-1]]


def can_record() -> bool:
    """Whether there is a compiler, and a system that loads what it makes."""
    return os.name == "posix" and os.uname().sysname == "Linux" and shutil.which("cc") is not None


def compile_recorder(folder: Path) -> Path:
    """Makes the library; its path."""
    library = folder / LIBRARY
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl", "-pthread"]
    subprocess.run(command, check=True)
    return library


def recorded(library: Path, directory: Path, to: Path, sync_us: int) -> dict[str, str]:
    """The environment of a process that is to be recorded."""
    return {
        **os.environ,
        "LD_PRELOAD": str(library),
        "RECORDED_DIRECTORY": str(directory),
        "RECORDED_TO": str(to),
        "RECORDED_SYNC_US": str(sync_us),
    }


def read_records(path: Path) -> Iterator[Record]:
    """The records of a file; what a kill has cut off is passed over."""
    data = path.read_bytes()
    at = 0
    while (at := data.find(_MAGIC, at)) >= 0 and at + _HEAD.size <= len(data):
        _, kind, process, descriptor, time, number, size = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + size
        if size < 0 or data[end : end + 4] != _MAGIC:
            at += 1
            continue
        body = data[at + _HEAD.size : end]
        yield Record(chr(kind), process, descriptor, time / 1e9, number, body)
        at = end + 4


def fingerprint(directory: Path) -> dict[str, tuple[int, int]]:
    """That of the files of a directory that nobody writes to."""
    found: dict[str, tuple[int, int]] = {}
    for base, _, names in os.walk(directory):
        for name in names:
            path = Path(base, name)
            data = path.read_bytes()
            found[str(path.relative_to(directory))] = (len(data), zlib.crc32(data))
    return found


def write_out(files: CrashFiles, directory: Path) -> None:
    """Makes real files of a disk."""
    _write_out(files._root, str(directory))


def _write_out(node: Directory, path: str) -> None:
    os.mkdir(path)
    for name, held in node.names.items():
        if isinstance(held, Directory):
            _write_out(held, f"{path}/{name}")
        else:
            with open(f"{path}/{name}", "wb") as file:
                file.write(held.data)


@dataclass(slots=True)
class Recording:
    """Goes through a recording once. `disk` is first what was there before it; it is changed."""

    path: Path
    directory: Path
    after_kill: Sequence[Fingerprint] = ()
    disk: CrashFiles = field(default_factory=CrashFiles)
    kill_count: int = 0
    # Of the change that comes next, its kind and that of its file.
    what: str = ""
    _paths: dict[tuple[int, int], str] = field(default_factory=dict)
    _open: dict[tuple[int, int], Contents | Directory] = field(default_factory=dict)
    # What a file that SQLite empties was before that.
    _emptied: dict[int, tuple[Contents, bytes]] = field(default_factory=dict)
    _syncs: dict[tuple[int, int], list[Callable[[], None]]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[float]:
        """The time before each change; at that moment `disk` is what all before it have made."""
        process = 0
        pending: Record | None = None
        for record in read_records(self.path):
            if record.process != process:
                if process:
                    self._killed(pending)
                process, pending = record.process, None
            if record.kind == "d":
                if pending is not None and record.descriptor >= 0:
                    if pending.kind not in "co" or pending.number & os.O_CREAT:
                        self._tell(pending)
                        yield pending.time
                    self._apply(pending, record.descriptor)
                pending = None
            elif record.kind in "sS":
                self._tell(record)
                yield record.time
                self._sync(record)
            else:
                pending = record
        if self.kill_count < len(self.after_kill):
            self._killed(pending)

    def _tell(self, record: Record) -> None:
        path = self._paths.get((record.process, record.descriptor), "")
        name = os.path.basename((record.paths or [""])[-1] if record.kind in "orum" else path)
        self.what = f"{record.kind} {_DIGITS.sub('', name)[-24:]}"

    def crashed(self, choose: Choose) -> CrashFiles:
        """What the disk may have if the power goes now."""
        state = self.disk.crashed(choose)
        for path, node in self._walk(self.disk._root, ""):
            before = self._emptied.get(id(node))
            if before is not None and not node.data and path in state.contents() and choose(2) == 0:
                state.contents_of(path).data = bytearray(before[1])
        return state

    # ---- one call

    def _apply(self, record: Record, result: int) -> None:
        key = (record.process, record.descriptor)
        if record.kind == "o":
            self._opened((record.process, result), record)
        elif record.kind == "c":
            self._open.pop(key, None)
        elif record.kind == "w":
            self._contents(key).write(record.data[:result], record.number)
        elif record.kind == "t":
            self._cut(self._contents(key), record.number)
        else:
            self._name(record)

    def _cut(self, node: Contents, size: int) -> None:
        before = bytes(node.data)
        node.truncate(size)
        if not size and before[:4] in _WAL_MAGICS:
            # To SQLite a file that is emptied is as it was, or empty, and nothing in between. (The
            # files of logs may be in any state.)
            node.sync()
            self._emptied[id(node)] = (node, before)

    def _opened(self, key: tuple[int, int], record: Record) -> None:
        directory, name = self._place(record.paths[0])
        self._paths[key] = record.paths[0]
        if not name:
            self._open[key] = directory
            return
        node = directory.names.get(name)
        if node is None:
            node = Contents(512)
            directory.change(None, name, node)
        elif record.number & os.O_TRUNC and isinstance(node, Contents) and node.data:
            node.truncate(0)
        self._open[key] = node

    def _name(self, record: Record) -> None:
        directory, name = self._place(record.paths[0])
        if record.kind == "m":
            directory.change(None, name, Directory())
        elif record.kind == "u":
            directory.change(name, None, directory.names[name])
        elif record.kind == "r":
            into, new_name = self._place(record.paths[1])
            if into is not directory:
                raise BadRecording(f"between directories: {record.paths}")
            directory.change(name, new_name, directory.names[name])
        else:
            raise BadRecording(f"a record of kind {record.kind!r}")

    def _sync(self, record: Record) -> None:
        key = (record.process, record.descriptor)
        if record.kind == "s":
            node = self._open[key]
            if isinstance(node, Directory):
                end = functools.partial(node.end_sync, node.begin_sync())
            else:
                end = functools.partial(node.end_sync, node.begin_sync())
            self._syncs.setdefault(key, []).append(end)
        else:
            # Of several of one descriptor at once the first that ends may be one that began later:
            # then less is taken for durable than is.
            self._syncs[key].pop(0)()

    # ---- kills

    def _killed(self, pending: Record | None) -> None:
        """The end of a process, perhaps in a call."""
        expected = self.after_kill[self.kill_count]
        self.kill_count += 1
        self._syncs.clear()
        if pending is not None and self._differences(expected):
            self._finish(pending, expected)
        if differences := self._differences(expected):
            raise BadRecording(f"after kill {self.kill_count}: {differences[:5]}")

    def _finish(self, pending: Record, expected: Fingerprint) -> None:
        """Makes a call of which only the begin is known, as far as it came."""
        if pending.kind != "w":
            # A descriptor that nobody uses any more.
            self._apply(pending, -1 if pending.kind == "o" else 0)
            return
        node = self._contents((pending.process, pending.descriptor))
        before = bytes(node.data)
        path = next(path for path, held in self._walk(self.disk._root, "") if held is node)
        # A kill ends it between two pages of the file.
        end = pending.number + len(pending.data)
        first = (pending.number // _PAGE_BYTES + 1) * _PAGE_BYTES
        for size in (each - pending.number for each in (end, *range(first, end, _PAGE_BYTES))):
            after = bytearray(before.ljust(pending.number, b"\0"))
            after[pending.number : pending.number + size] = pending.data[:size]
            if expected.get(path) == (len(after), zlib.crc32(after)):
                node.write(pending.data[:size], pending.number)
                return

    def _differences(self, expected: Fingerprint) -> list[str]:
        found = {
            path: (len(node.data), zlib.crc32(node.data))
            for path, node in self._walk(self.disk._root, "")
        }
        return [
            f"{path}: {found.get(path)} recorded, {expected.get(path)} there"
            for path in sorted(found.keys() | expected.keys())
            if found.get(path) != expected.get(path)
        ]

    def _walk(self, node: Directory, path: str) -> Iterator[tuple[str, Contents]]:
        for name, held in node.names.items():
            if isinstance(held, Directory):
                yield from self._walk(held, f"{path}{name}/")
            else:
                yield path + name, held

    # ---- paths

    def _contents(self, key: tuple[int, int]) -> Contents:
        node = self._open[key]
        if not isinstance(node, Contents):
            raise BadRecording(f"descriptor {key} is a directory")
        return node

    def _place(self, path: str) -> tuple[Directory, str]:
        """The directory that has a name, or could have it, and the name."""
        node = self.disk._root
        *parts, name = Path(path).relative_to(self.directory.parent).parts
        for part in parts[1:]:
            below = node.names[part]
            if not isinstance(below, Directory):
                raise BadRecording(f"{path}: {part} is a file")
            node = below
        return node, name if parts else ""
