"""What the partitions of one log directory share: clock, threads, limits, and the disk's health.

A directory fails as a whole when its disk does, or is made read-only. After an fsync error, or an
EIO on a write, nobody knows which of the pages written earlier are on the disk, and asking again
would answer "fine" for pages that were dropped. So nothing is retried: the directory is offline
until the process is started again and recovery has looked at the files, while the process stays up
and answers KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

import errno
import logging
import sys
from typing import Final

from asyncbroker.clock import Clock
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.reserve import Reserve
from asyncbroker.metrics import StorageMetrics, Traffic
from asyncbroker.trusted_time import TrustedTime
from asyncbroker.workers import Workers

logger = logging.getLogger(__name__)

# Up to here an append runs on the event loop: handing it to a thread costs more than the copy.
INLINE_APPEND_BYTES_MAX: Final = 256 * 1024

# A partition asks the kernel to write back after each stretch of this many bytes. Left alone it
# lets dirty pages pile up for half a minute, and then stops whoever writes next.
WRITEBACK_BYTES: Final = 8 * 1024 * 1024

# What an operator can mend while the broker runs: these fail the request and nothing else. All of a
# file that may not grow can be read (EFBIG: `ulimit -f`, or the file system's own limit).
PASSING_ERRORS: Final = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EAGAIN,  # no more threads
    }
)


# What an error in writing to one file says about all of them.
DISK_ERRORS: Final = frozenset({errno.EIO, errno.EROFS})


class Storage:
    """One log directory, as its partitions see it. `readers` are the threads that wait for a disk
    on behalf of consumers: however many these are, an fsync finds a thread. `is_volatile`: it is in
    memory and nothing in it is ever durable, so nobody waits for that, and no thread is needed to
    keep off a disk."""

    __slots__ = (
        "_trusted_time",
        "clock",
        "error",
        "inline_append_bytes_max",
        "is_volatile",
        "metrics",
        "readers",
        "reserve",
        "workers",
        "writeback_bytes",
    )

    def __init__(
        self,
        clock: Clock,
        workers: Workers,
        *,
        readers: Workers | None = None,
        inline_append_bytes_max: int = INLINE_APPEND_BYTES_MAX,
        writeback_bytes: int = WRITEBACK_BYTES,
        is_volatile: bool = False,
        reserve: Reserve | None = None,
    ) -> None:
        self.clock = clock
        self.workers = workers
        self.readers = readers or workers
        self.inline_append_bytes_max = sys.maxsize if is_volatile else inline_append_bytes_max
        self.writeback_bytes = sys.maxsize if is_volatile else writeback_bytes
        self.is_volatile = is_volatile
        self.reserve = reserve or Reserve(MemoryFiles(), "", 0)
        self.error: OSError | None = None
        self.metrics = StorageMetrics()
        self._trusted_time = TrustedTime(clock.monotonic(), clock.wall_ms())

    def trust_time(self, last_seen_ms: int) -> None:
        """Begins with the time that was remembered last, by an earlier run or by this start."""
        clock = self.clock
        self._trusted_time = TrustedTime(clock.monotonic(), clock.wall_ms(), last_seen_ms)

    def trusted_now_ms(self) -> int:
        """The wall time to delete by; see `trusted_time.py`."""
        return self._trusted_time.now_ms(self.clock.monotonic(), self.clock.wall_ms())

    def part_of_traffic(self) -> Traffic:
        """What a partition counts with."""
        return Traffic(whole=self.metrics.traffic)

    def fail(self, error: OSError) -> None:
        """Takes the directory offline until the next start."""
        if self.error is None:
            self.error = error
            logger.error("log directory goes offline until a restart: %s", error)
