"""Bounds what the segments of all logs keep open: descriptors, and indexes read into memory."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncbroker.log.index import SparseIndex
    from asyncbroker.log.segment import Segment


class OpenSegments:
    """Who has a file or a cached index open; the ones used longest ago are closed, roughly.

    A clock: whoever was used since the last round gets another one. A segment with bytes that are
    not durable keeps its descriptor, because the system reports a failed write to descriptors that
    were open at the time; so many dirty segments can exceed the bound. Closing means dropping the
    reference: a reader that holds the file goes on with it.
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

    def opened(self, segment: Segment) -> None:
        """A segment opened its file: closes others if there are too many."""
        with self._lock:
            self._open[segment] = None
            for _ in range(2 * len(self._open)):
                if len(self._open) <= self._files_max:
                    return
                oldest = next(iter(self._open))
                del self._open[oldest]
                if oldest.is_dirty or oldest.is_recently_used:
                    oldest.is_recently_used = False
                    self._open[oldest] = None
                else:
                    oldest.file = None

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
