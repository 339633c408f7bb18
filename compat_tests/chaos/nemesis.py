"""A broker process to do harm to, and disks that are small or slow."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from compat_tests import conftest
from compat_tests.chaos.ext4 import Ext4
from compat_tests.conftest import SETTINGS, BrokerProcess

PATIENCE_SECONDS = 60.0

# Small segments, so that rolls, snapshots and checkpoints happen while the process is killed.
CHAOS_SETTINGS = (*SETTINGS, "log.flush.offset.checkpoint.interval.ms=500")

# The process is the real one; only its disk takes CHAOS_FSYNC_SECONDS longer to be done.
SLOW_FSYNC = """
import os, sys, time
# The compiled writer does not ask Python for its fdatasync: workers do it instead.
sys.modules["asyncbroker.log._writer"] = None
from asyncbroker.__main__ import main
seconds = float(os.environ["CHAOS_FSYNC_SECONDS"])
for name in ("fsync", "fdatasync"):
    def slow(descriptor, sync=getattr(os, name)):
        time.sleep(seconds)
        sync(descriptor)
    setattr(os, name, slow)
main()
"""


class ChaosBroker(BrokerProcess):
    """A broker that is killed, paused and started again, always on the same port."""

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def restart(self, starts_killed_after: Iterable[float] = ()) -> None:
        """`kill -9`, and at once a new process on the same directory and port; before that others,
        each of which is killed so many seconds after it has begun to start."""
        self.kill()
        for seconds in starts_killed_after:
            self.begin_start()
            time.sleep(seconds)
            self.kill()
        self.start()

    def resident_bytes(self) -> int:
        """Memory in use, on Linux."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    @contextmanager
    def watching_memory(self) -> Iterator[list[int]]:
        """Collects the resident bytes, ten times a second."""
        seen: list[int] = []
        stopping = threading.Event()

        def watch() -> None:
            while not stopping.wait(0.1):
                seen.append(self.resident_bytes())

        thread = threading.Thread(target=watch, name="memory")
        thread.start()
        try:
            yield seen
        finally:
            stopping.set()
            thread.join()


@contextmanager
def running(
    data: Path, settings: tuple[str, ...] = CHAOS_SETTINGS, kind: type[ChaosBroker] = ChaosBroker
) -> Iterator[ChaosBroker]:
    """A broker on `data` that has ended on leaving: in order, and quickly, if nothing failed."""
    with conftest.running(kind(data, settings)) as broker:
        yield broker


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Looks until it is true; AssertionError after a minute."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:.0f} s: {what}"
        time.sleep(0.02)


@contextmanager
def small_disk(path: Path, size_mb: int) -> Iterator[Path]:
    """An ext4 file system of `size_mb` in a file, mounted at `path`; needs root."""
    disk = Ext4(path.with_suffix(".img"), path, size_mb=size_mb)
    disk.make()
    try:
        yield path
    finally:
        disk.unmount()
        disk.image.unlink()


def fill(path: Path, *, leave_bytes: int = 0) -> None:
    """Takes every byte that the file system has left, or all but some: who goes on writing beside
    this would give up its reserve to it."""
    with path.open("wb", buffering=0) as file:
        if leave_bytes:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(path).free - leave_bytes)
            return
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def flip_bit(path: Path, chance: random.Random, within: range | None = None) -> int:
    """Flips one bit anywhere in a file, or in a part of it; the position of its byte."""
    data = bytearray(path.read_bytes())
    position = chance.choice(within or range(len(data)))
    data[position] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return position
