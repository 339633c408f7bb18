"""An ext4 file system in a file, that loses its power, is copied as it is at a moment, or fails.
Takes root, and Linux."""

from __future__ import annotations

import fcntl
import gc
import os
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from compat_tests.chaos.mounts import Mount, run_command

SIZE_MB: Final = 96
UNMOUNT_SECONDS_MAX: Final = 20.0

# _IOR('X', 125, __u32), and how: not even the journal of ext4 is flushed before.
_SHUTDOWN: Final = 0x8004587D
_FLUSH_NOTHING: Final = struct.pack("=I", 2)
_COPY_TRIES_MAX: Final = 200
# In /sys/block/*/stat: what was written so far, how often it was flushed, and what is under way.
_WRITES, _SECTORS_WRITTEN, _UNDER_WAY, _FLUSHES = 4, 6, 8, 15


@cache
def why_not_mounted() -> str:
    """Why no ext4 can be mounted here, which is tried: root may lack the right to, or a loop
    device. Empty where one can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "mounts a file system, which takes Linux and root"
    with tempfile.TemporaryDirectory() as folder:
        disk = Ext4(Path(folder, "image"), Path(folder, "disk"))
        try:
            disk.make()
        except (AssertionError, OSError) as error:
            return f"mounts a file system, which cannot be done here: {str(error).splitlines()[0]}"
        disk.unmount()
    return ""


@dataclass(slots=True)
class Ext4:
    """An ext4 in `image`, which is mounted at `path` with options, at most until this process
    ends."""

    image: Path
    path: Path
    options: str = "data=ordered"
    size_mb: int = SIZE_MB
    _mount: Mount | None = field(default=None, init=False)

    def make(self) -> None:
        """Makes it, and mounts it."""
        with self.image.open("wb") as file:
            file.truncate(self.size_mb << 20)
        # No blocks kept back for root, or a full disk would not be full for us.
        run_command("mkfs.ext4", "-q", "-m", "0", str(self.image))
        self.path.mkdir(exist_ok=True)
        self.mount()

    def mount(self) -> None:
        """Mounts it; ext4 replays its journal."""
        options = f"loop,errors=remount-ro,{self.options}"
        self._mount = Mount(self.path, "-o", options, str(self.image))

    def unmount(self) -> None:
        """Unmounts it, when the last file in it is closed."""
        assert self._mount is not None
        deadline = time.monotonic() + UNMOUNT_SECONDS_MAX
        while True:
            # Some are closed when the last reference to them goes, and some of these are in cycles.
            gc.collect()
            try:
                self._mount.unmount()
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return

    def lose_power(self) -> float:
        """Loses all that is not on the disk. Every call fails from here on, until it is unmounted
        and mounted again. The moment before."""
        descriptor = os.open(self.path, os.O_RDONLY)
        moment = time.monotonic()
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, _FLUSH_NOTHING)
        finally:
            os.close(descriptor)
        return moment

    def fail(self) -> float:
        """Has ext4 find an error: it becomes read-only. The moment before."""
        trigger = Path("/sys/fs/ext4") / self._device() / "trigger_fs_error"
        moment = time.monotonic()
        trigger.write_text("a test\n")
        return moment

    def copy(self, to: Path) -> float | None:
        """Copies the disk's bytes as they are at one moment, and tells when that began; None if the
        disk is never at rest for so long."""
        statistics = Path("/sys/block") / self._device() / "stat"
        for _ in range(_COPY_TRIES_MAX):
            before = statistics.read_text().split()
            moment = time.monotonic()
            if before[_UNDER_WAY] == "0":
                run_command("cp", "--sparse=always", str(self.image), str(to))
                after = statistics.read_text().split()
                counts = (_WRITES, _SECTORS_WRITTEN, _UNDER_WAY, _FLUSHES)
                if all(before[at] == after[at] for at in counts):
                    return moment
            time.sleep(0.001)
        return None

    def _device(self) -> str:
        command = ["findmnt", "-n", "-o", "SOURCE", str(self.path)]
        found = subprocess.run(command, check=True, capture_output=True, text=True)
        return os.path.basename(found.stdout.strip())
