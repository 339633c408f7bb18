"""The system calls behind the real files: Linux's where they exist, portable ones elsewhere.

Linux has calls that Python does not wrap, or that other systems lack: `preadv` with `RWF_NOWAIT`
reads only what is in the page cache, `sync_file_range` starts writing dirty pages without waiting,
`cachestat` (6.5) and `mincore` tell whether a range is in the page cache, `fdatasync` leaves out
metadata that reading does not need. `system_calls(portable=True)` gives the table that any system
can fill: reads may block, nothing is known to be resident, writeback is left to the system.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Buffer = bytes | bytearray | memoryview

PAGE_BYTES: Final = mmap.PAGESIZE

_LARGE_BYTES: Final = 64 << 10
_F_FULLFSYNC: Final = 51  # macOS, where fsync() leaves the data in the drive's cache
_SYNC_FILE_RANGE_WRITE: Final = 2
_SYS_CACHESTAT: Final = 451  # the same number on every architecture
# So many ranges of a file are looked at closely after one that was not in memory.
_DOUBTS: Final = 4096
# What mincore says of a page that is in memory: the lowest bit, the others may be anything.
_RESIDENT: Final = bytes(range(1, 256, 2))
# What a file system or kernel answers that does not know a call: the fallback is used instead.
_UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM})


@dataclass(frozen=True, slots=True)
class SystemCalls:
    """One implementation of each call; positions and sizes are bytes."""

    pread: Callable[[int, int, int], bytes]  # fd, size, position
    pwrite: Callable[[int, Buffer, int], int]  # fd, data, position
    pread_nowait: Callable[[int, int, int], bytes | bytearray | None]
    datasync: Callable[[int], None]
    start_writeback: Callable[[int, int, int], None]  # fd, position, size
    is_resident: Callable[[int, int, int], bool]  # fd, position, size


def system_calls(portable: bool) -> SystemCalls:
    """The best calls of this system, or those that every system has."""
    if not portable and sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        is_resident = _is_resident(libc)
        return SystemCalls(
            pread=os.pread,
            pwrite=os.pwrite,
            pread_nowait=_pread_nowait(is_resident),
            datasync=os.fdatasync,
            start_writeback=_start_writeback(libc),
            is_resident=is_resident,
        )
    pread, pwrite = _seeking_calls() if portable else _positional_calls()
    return SystemCalls(
        pread=pread,
        pwrite=pwrite,
        pread_nowait=pread,
        datasync=_portable_datasync,
        start_writeback=lambda fd, position, size: None,
        is_resident=lambda fd, position, size: False,
    )


def drop_cached(fd: int | None, position: int, size: int) -> None:
    """Lets the system forget clean pages of a file, where it can be told to."""
    if fd is not None and hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, position, size, os.POSIX_FADV_DONTNEED)


# ---- portable


def _positional_calls() -> tuple[
    Callable[[int, int, int], bytes], Callable[[int, Buffer, int], int]
]:
    if hasattr(os, "pread"):
        return os.pread, os.pwrite
    return _seeking_calls()  # Windows


def _seeking_calls() -> tuple[Callable[[int, int, int], bytes], Callable[[int, Buffer, int], int]]:
    """pread and pwrite where there is only a file pointer, which all threads share."""
    lock = threading.Lock()

    def pread(fd: int, size: int, position: int) -> bytes:
        with lock:
            os.lseek(fd, position, os.SEEK_SET)
            return os.read(fd, size)

    def pwrite(fd: int, data: Buffer, position: int) -> int:
        with lock:
            os.lseek(fd, position, os.SEEK_SET)
            return os.write(fd, data)

    return pread, pwrite


def _portable_datasync(fd: int) -> None:
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(fd, _F_FULLFSYNC)
    else:
        os.fsync(fd)


# ---- Linux


def _pread_nowait(
    is_resident: Callable[[int, int, int], bool],
) -> Callable[[int, int, int], bytes | bytearray | None]:
    def pread_nowait(fd: int, size: int, position: int) -> bytes | bytearray | None:
        """The bytes if all of them are in the page cache; they must lie inside the file."""
        if size > _LARGE_BYTES:
            # preadv needs a buffer that Python zeroes first, which takes longer than the read. That
            # a page goes between question and read is possible, and costs one short wait.
            return os.pread(fd, size, position) if is_resident(fd, position, size) else None
        buffer = bytearray(size)
        try:
            count = os.preadv(fd, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            # A file system that refuses the flag (older tmpfs) keeps its data in memory, or must
            # be read inline for want of anything better.
            return os.pread(fd, size, position)
        return buffer if count == size else None

    return pread_nowait


def _start_writeback(libc: ctypes.CDLL) -> Callable[[int, int, int], None]:
    sync_file_range = libc.sync_file_range
    sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]

    def start_writeback(fd: int, position: int, size: int) -> None:
        if sync_file_range(fd, position, size, _SYNC_FILE_RANGE_WRITE) != 0:
            code = ctypes.get_errno()
            # Only a hint: where it is not known, the system writes when it sees fit.
            if code not in _UNSUPPORTED:
                raise OSError(code, os.strerror(code))

    return start_writeback


class _CachestatRange(ctypes.Structure):
    _fields_ = (("position", ctypes.c_uint64), ("size", ctypes.c_uint64))


class _Cachestat(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


def _is_resident(libc: ctypes.CDLL) -> Callable[[int, int, int], bool]:
    """cachestat where the kernel has it (3 us for 1 MB), else mincore (50 us).

    cachestat counts pages that are still being read, and to read these is to wait for the disk.
    A reader's own reads begin with a range that is not there, so after one of those mincore, which
    knows the difference, has to agree for a while. It also has to agree that something is not
    there: one such answer is dear.
    """
    syscall = libc.syscall
    is_known = True
    # By descriptor, so that who reads an old log leaves those of others alone.
    doubts: dict[int, int] = {}

    def is_resident(fd: int, position: int, size: int) -> bool:
        nonlocal is_known
        if size <= 0:
            return True
        if is_known:
            first = position // PAGE_BYTES
            count = (position + size - 1) // PAGE_BYTES - first + 1
            found = _Cachestat()
            status = syscall(
                _SYS_CACHESTAT,
                fd,
                ctypes.byref(_CachestatRange(first * PAGE_BYTES, count * PAGE_BYTES)),
                ctypes.byref(found),
                0,
            )
            if status == 0:
                if found.cached < count:
                    if resident_by_mincore(libc, fd, position, size):
                        return True
                    doubts[fd] = _DOUBTS
                    return False
                left = doubts.get(fd, 0)
                if not left:
                    return True
                doubts[fd] = left - 1
                return resident_by_mincore(libc, fd, position, size)
            # Old kernels do not have it, some sandboxes forbid it: not asked again.
            is_known = False
        return resident_by_mincore(libc, fd, position, size)

    return is_resident


def resident_by_mincore(libc: ctypes.CDLL, fd: int, position: int, size: int) -> bool:
    """Whether all pages of a range are in the page cache, asked through a mapping of the range."""
    start = position // PAGE_BYTES * PAGE_BYTES
    length = position + size - start
    page_count = -(-length // PAGE_BYTES)
    # A private writable mapping is the only kind whose address ctypes gives; nothing is written.
    mapping = mmap.mmap(
        fd, length, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE, offset=start
    )
    first_byte = ctypes.c_char.from_buffer(mapping)
    pages = ctypes.create_string_buffer(page_count)
    try:
        status = libc.mincore(
            ctypes.c_void_p(ctypes.addressof(first_byte)), ctypes.c_size_t(length), pages
        )
    finally:
        del first_byte
        mapping.close()
    return status == 0 and not pages.raw.translate(None, _RESIDENT)
