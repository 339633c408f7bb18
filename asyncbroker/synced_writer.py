"""Writes to files with their fdatasync, for the event loop, and without a thread of Python's.

A job in a thread costs a commit round two turns with the interpreter's lock, which the loop needs
meanwhile: more than the rest of the round. `SyncedWriter` hands the write to the compiled writer
(`log/_writer.c`), and the loop watches a descriptor for its end. There is one only where real files
are written to with this system's own calls, beside real threads: everywhere else, and in tests that
make calls to files fail, a round is a job of the workers.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from asyncbroker.log.files import RealFiles
from asyncbroker.log.native import make_writer
from asyncbroker.workers import ThreadWorkers

if TYPE_CHECKING:
    from asyncbroker.log.files import File, Files
    from asyncbroker.log.native import Answer, Writer
    from asyncbroker.workers import Workers

logger = logging.getLogger(__name__)

# Called on the event loop with what went wrong, and how many seconds it took.
Then = Callable[["OSError | None", float], object]


def make_synced_writer(files: Files, workers: Workers) -> SyncedWriter | None:
    """One for these files, if there may and can be one."""
    if not isinstance(files, RealFiles) or files.is_portable:
        return None
    if not isinstance(workers, ThreadWorkers):
        return None
    writer = make_writer()
    return None if writer is None else SyncedWriter(writer)


class SyncedWriter:
    """One write at a time. All methods are for the event loop's thread."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.make_answer = writer.make_answer
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_refused = False
        # What is being written, with its file: it must stay open.
        self._under_way: tuple[File, Then] | None = None

    def is_ready(self) -> bool:
        """Whether there can be a write; the first time, this starts the thread."""
        if self._thread is None and not self._is_refused:
            # A daemon, so that a second SIGTERM ends the process while a disk hangs.
            thread = threading.Thread(target=self._writer.serve, name="writer", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                logger.warning("rounds go through worker threads: %s", error)
                self._is_refused = True
                return False
            self._thread = thread
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._writer.fileno(), self._written)
        return self._thread is not None and self._under_way is None

    def write(
        self, file: File, data: bytes, position: int, answers: list[Answer], then: Then
    ) -> None:
        """Writes `data` and makes it durable, has `answers` sent if that went well, then calls
        `then`, never before this has returned. Only when `is_ready`."""
        descriptor = file.fileno()
        assert descriptor is not None
        self._writer.submit(descriptor, data, position, answers)
        self._under_way = file, then

    def close(self) -> None:
        """Ends the thread. Nothing may be under way."""
        if self._thread is not None and self._loop is not None:
            self._loop.remove_reader(self._writer.fileno())
            self._writer.end()
            self._thread.join()
        self._thread = None
        self._is_refused = True

    def _written(self) -> None:
        """The descriptor is readable."""
        outcome = self._writer.outcome()
        if outcome is None or self._under_way is None:
            return
        file, then = self._under_way
        self._under_way = None
        code, seconds = outcome
        then(_error(code, file.path) if code else None, seconds)


def _error(code: int, path: str) -> OSError:
    if code == errno.ENOENT:
        # As `RealFile.datasync` says it.
        return FileNotFoundError(code, os.strerror(code), path)
    return OSError(code, os.strerror(code), path)
