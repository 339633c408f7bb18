"""Keeps the memory that a worker of Spark's has freed, for what it needs next.

A task takes and frees the same few megabytes again and again: a response, the columns made of it.
The C library gives such pieces back to the system at once, and the system hands them out anew, page
by page, each with a fault and zeroed: a third to a half of all that a task spends. So the library
is told to keep them. What a worker holds then is what it has needed at one time, up to a limit.

Only glibc can be told, and only of workers, as in `collector.py`: the memory of other processes is
somebody else's.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Final

from asyncbroker.spark.collector import SERVES_AGAIN

KEPT_BYTES_MAX: Final = 64 << 20
PIECE_BYTES_MAX: Final = 32 << 20
"""Larger pieces still come from the system, and go back to it; glibc allows no more."""

# Of malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


def keep_freed_memory() -> None:
    """To be called by a task before it begins."""
    if os.environ.get(SERVES_AGAIN):
        _tell_once()


@cache
def _tell_once() -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, PIECE_BYTES_MAX)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES_MAX)
