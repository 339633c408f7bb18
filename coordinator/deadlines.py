"""Named deadlines: what is due, and when to look next.

A member's session deadline moves with each heartbeat, thousands of times before it is ever due. So
moving one later costs one dictionary write: the heap keeps the old entry, and only when that comes
up is it pushed again at its true time. `next_deadline` may therefore be early, never late; the
driver wakes up, finds nothing due, and asks again.
"""

from __future__ import annotations

import heapq
from enum import IntEnum
from typing import Final, NamedTuple


class DeadlineKind(IntEnum):
    """What happens when the deadline passes. A number, which is hashed without a call in Python."""

    JOIN = 1  # the join phase of a rebalance ends with whoever is there
    SYNC = 2  # members that have not synced are removed
    SESSION = 3  # a silent member, or one that never used its new id, is removed
    REVOCATION = 4  # a member that has not given up what it was told to is fenced
    REJOIN = 5  # of a consumer group: a classic member that was told to join again
    MEMBER_SYNC = 6  # of a consumer group: a classic member that has not synced
    RETENTION = 7  # expired offsets and forgotten groups are removed


class DeadlineKey(NamedTuple):
    """A deadline's name; setting it again moves it."""

    kind: DeadlineKind
    group_id: str = ""
    member_id: str = ""


RETENTION: Final = DeadlineKey(DeadlineKind.RETENTION)


def join_deadline(group_id: str) -> DeadlineKey:
    """The end of the group's join phase."""
    return DeadlineKey(DeadlineKind.JOIN, group_id)


def sync_deadline(group_id: str) -> DeadlineKey:
    """The end of the group's sync phase."""
    return DeadlineKey(DeadlineKind.SYNC, group_id)


def session_deadline(group_id: str, member_id: str) -> DeadlineKey:
    """The end of one member's patience."""
    return DeadlineKey(DeadlineKind.SESSION, group_id, member_id)


def revocation_deadline(group_id: str, member_id: str) -> DeadlineKey:
    """Until when a member has to give up partitions."""
    return DeadlineKey(DeadlineKind.REVOCATION, group_id, member_id)


def rejoin_deadline(group_id: str, member_id: str) -> DeadlineKey:
    """Until when a classic member of a consumer group has to join again."""
    return DeadlineKey(DeadlineKind.REJOIN, group_id, member_id)


def member_sync_deadline(group_id: str, member_id: str) -> DeadlineKey:
    """Until when a classic member of a consumer group has to sync."""
    return DeadlineKey(DeadlineKind.MEMBER_SYNC, group_id, member_id)


class Deadlines:
    """All deadlines of one coordinator, in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._when: dict[DeadlineKey, float] = {}
        # Each key with a time has an entry at or before that time; the number breaks ties in the
        # order of setting, so that the same calls always give the same effects.
        self._heap: list[tuple[float, int, DeadlineKey]] = []
        self._entry_when: dict[DeadlineKey, float] = {}
        self._entries_made = 0

    def set(self, key: DeadlineKey, when: float) -> None:
        """Sets or moves a deadline."""
        self._when[key] = when
        entry_when = self._entry_when.get(key)
        if entry_when is None or when < entry_when:
            self._push(key, when)

    def cancel(self, key: DeadlineKey) -> None:
        """Forgets a deadline; harmless without one."""
        self._when.pop(key, None)

    def get(self, key: DeadlineKey) -> float | None:
        """When the deadline is, if it is set."""
        return self._when.get(key)

    def postpone(self, seconds: float, *, but: DeadlineKey) -> None:
        """Moves all deadlines but one later."""
        for key in self._when:
            if key != but:
                self._when[key] += seconds

    def next_deadline(self) -> float | None:
        """When to call `pop_due` next: at or before the earliest deadline; None without one."""
        while self._heap:
            when, _, key = self._heap[0]
            if key in self._when and self._entry_when.get(key) == when:
                return when
            self._pop_entry()
        return None

    def pop_due(self, now: float) -> DeadlineKey | None:
        """Takes out the earliest deadline that is due at `now`; None when there is none."""
        while self._heap and self._heap[0][0] <= now:
            entry_when = self._heap[0][0]
            key = self._pop_entry()
            when = self._when.get(key) if key is not None else None
            if key is None or when is None:
                continue
            if when == entry_when:
                del self._when[key]
                return key
            # It was moved later: others may be due before it.
            self._push(key, when)
        return None

    def _push(self, key: DeadlineKey, when: float) -> None:
        self._entries_made += 1
        self._entry_when[key] = when
        heapq.heappush(self._heap, (when, self._entries_made, key))

    def _pop_entry(self) -> DeadlineKey | None:
        """Takes the top entry off; None when a later `set` has put an earlier one in its place."""
        when, _, key = heapq.heappop(self._heap)
        if self._entry_when.get(key) != when:
            return None
        del self._entry_when[key]
        return key
