"""What the disk itself can do, measured between the loads: the yardstick of whatever waits for it.

Two figures. The rate of writing a growing file in order, each few MB followed by an fdatasync: as
much as four connections have under way that send 1 MB each. And the time of one small write in
place with its fdatasync, in a file that has all its blocks: what a commit round asks of the disk.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

CHUNK_BYTES = 1 << 20
CHUNKS_A_SYNC = 4
# A file is begun anew before it fills the disk.
FILE_BYTES_MAX = 1 << 30
BLOCK_BYTES = 4096
BLOCKS = 4096


def measure(directory: Path, seconds: float) -> dict[str, float]:
    """MB a second in order (10^6 bytes); p50 and p99 of one small durable write, ms. In a process
    of its own, for what is preloaded to make the disk slower to hold there as well."""
    command = [sys.executable, __file__, str(directory), str(seconds)]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(result.stdout)
    return figures


def _measure(directory: Path, seconds: float) -> dict[str, float]:
    path = directory / "disk"
    try:
        rate = _sequential(path, seconds / 2)
        times = _in_place(path, seconds / 2)
    finally:
        path.unlink(missing_ok=True)
    return {
        "mb_per_s": rate,
        "fsync_p50_ms": statistics.median(times) * 1e3,
        "fsync_p99_ms": sorted(times)[int(len(times) * 0.99)] * 1e3,
    }


def _sequential(path: Path, seconds: float) -> float:
    chunk = os.urandom(CHUNK_BYTES)
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    try:
        position = written = 0
        start = time.monotonic()
        while (elapsed := time.monotonic() - start) < seconds:
            if position >= FILE_BYTES_MAX:
                os.ftruncate(fd, 0)
                position = 0
            for _ in range(CHUNKS_A_SYNC):
                os.pwrite(fd, chunk, position)
                position += CHUNK_BYTES
            os.fdatasync(fd)
            written += CHUNKS_A_SYNC * CHUNK_BYTES
    finally:
        os.close(fd)
    return written / elapsed / 1e6


def _in_place(path: Path, seconds: float) -> list[float]:
    block = os.urandom(BLOCK_BYTES)
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    try:
        os.pwrite(fd, block * BLOCKS, 0)
        os.fdatasync(fd)
        times: list[float] = []
        start = time.monotonic()
        while time.monotonic() - start < seconds or not times:
            began = time.monotonic()
            os.pwrite(fd, block, len(times) % BLOCKS * BLOCK_BYTES)
            os.fdatasync(fd)
            times.append(time.monotonic() - began)
    finally:
        os.close(fd)
    return times


if __name__ == "__main__":
    print(json.dumps(_measure(Path(sys.argv[1]), float(sys.argv[2]))))
