"""Which bytes of a file may be sent without a look at their CRCs.

A fetch sends bytes as they lie in the file. What this process wrote itself, or has checked since it
started, is trusted as long as it stays in memory; what comes from the disk is checked before it is
sent, and so is what another process wrote.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

FOREVER: Final = 1 << 63
# Of readers that jump about: what one segment remembers as checked.
_TRUSTED_MAX: Final = 64


class Trusted:
    """Which bytes of one file are trusted: disjoint ranges, in order. Replaced at each change, so
    that any thread can ask."""

    __slots__ = ("_ranges",)

    def __init__(self, written_from: int) -> None:
        """All from `written_from` on is, or will be, this process's own."""
        self._ranges: tuple[tuple[int, int], ...] = ((written_from, FOREVER),)

    def covers(self, begin: int, end: int) -> bool:
        """Whether all of a range is trusted."""
        ranges = self._ranges
        at = bisect_right(ranges, (begin, FOREVER)) - 1
        return at >= 0 and ranges[at][1] >= end

    def add(self, begin: int, end: int) -> None:
        """A range was checked."""
        apart = []
        for range_begin, range_end in self._ranges:
            if range_end < begin or range_begin > end:
                apart.append((range_begin, range_end))
            else:
                begin, end = min(begin, range_begin), max(end, range_end)
        # The last one is what this process writes.
        self._ranges = tuple(sorted([*apart, (begin, end)])[-_TRUSTED_MAX:])
