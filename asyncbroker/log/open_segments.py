"""Bounds what the segments of all logs keep open: descriptors, and indexes read into memory."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncbroker.log.index import SparseIndex
    from asyncbroker.log.segment import Segment


# How many are looked at for each one that is opened: that may be on the event loop.
STEPS_MAX: Final = 64


class OpenSegments:
    """Who has a file or a cached index open; the ones used longest ago are closed, roughly.

    A clock: whoever was used since the last round gets another one. A segment with bytes that are
    not durable keeps its descriptor, because the system reports a failed write to descriptors that
    were open at the time; so many dirty segments can exceed the bound, and `is_crowded` asks for
    them to be made durable. Closing means dropping the reference: a reader that holds the file goes
    on with it.
    """

    def __init__(self, files_max: int = 512, index_bytes_max: int = 64 << 20) -> None:
        self._files_max = files_max
        self._index_bytes_max = index_bytes_max
        # Both in the order of their turn, the next one first.
        self._open: dict[Segment, None] = {}
        self._loaded: dict[SparseIndex, int] = {}
        self._loaded_bytes = 0
        self._lock = threading.Lock()
        # Building an index anew reads a whole segment: one at a time.
        self.rebuild_lock = threading.Lock()

    @property
    def is_crowded(self) -> bool:
        """Whether more files are open than should be."""
        return len(self._open) > self._files_max

    def opened(self, segment: Segment) -> None:
        """A segment opened its file: closes others if there are too many."""
        with self._lock:
            if segment.is_pinned:
                return
            self._open[segment] = None
            for _ in range(min(2 * len(self._open), STEPS_MAX)):
                if len(self._open) <= self._files_max:
                    return
                oldest = next(iter(self._open))
                del self._open[oldest]
                # Not the one that was just opened: it is about to be used, or written to.
                if oldest is segment or oldest.is_dirty or oldest.is_recently_used:
                    oldest.is_recently_used = False
                    self._open[oldest] = None
                else:
                    oldest.file = None

    def pinned(self, segment: Segment) -> None:
        """The segment keeps its file open, whatever is asked of it."""
        with self._lock:
            segment.is_pinned = True
            self._open.pop(segment, None)

    def unpinned(self, segment: Segment) -> None:
        """The segment's file has its final name, by which it is opened when it is needed next."""
        with self._lock:
            segment.is_pinned = False
            segment.file = None

    def synced(self, segments: Iterable[Segment]) -> None:
        """Segments became durable: closes them if there are too many."""
        with self._lock:
            for segment in segments:
                if self.is_crowded and segment in self._open and not segment.is_dirty:
                    del self._open[segment]
                    segment.file = None

    def loaded(self, index: SparseIndex) -> None:
        """An index was read: drops those read longest ago if they are too much."""
        with self._lock:
            self._forget(index)
            self._loaded[index] = index.cached_bytes
            self._loaded_bytes += self._loaded[index]
            while self._loaded_bytes > self._index_bytes_max and len(self._loaded) > 1:
                oldest = next(iter(self._loaded))
                self._forget(oldest)
                oldest.drop_cache()

    def closed(self, segment: Segment) -> None:
        """The segment is not used any more."""
        with self._lock:
            self._open.pop(segment, None)
            segment.file = None
            for index in (segment.offset_index, segment.time_index):
                self._forget(index)
                index.drop_cache()

    def _forget(self, index: SparseIndex) -> None:
        self._loaded_bytes -= self._loaded.pop(index, 0)


def open_files_limit() -> int:
    """Half of what the process may open: the rest is for connections."""
    try:
        import resource
    except ImportError:  # Windows
        return 512
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else max(64, soft // 2)
