"""The leader epochs of a log: at which offset each began (KIP-101, KIP-279).

From it a client or a follower that knows the epoch of its last record learns where that epoch ended
here, and so whether its log and this one parted. Epochs and offsets both ascend; an epoch without a
record is replaced by the next one.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

UNDEFINED: Final = -1


class EpochStart(NamedTuple):
    """An epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The epochs of one log. `entries` is replaced, never changed, so that it can be written in one
    thread while another assigns; `is_dirty` says that the checkpoint is out of date."""

    __slots__ = ("entries", "is_dirty")

    def __init__(self, entries: list[EpochStart] | None = None) -> None:
        self.entries = entries or []
        self.is_dirty = entries is None

    @property
    def latest(self) -> int:
        return self.entries[-1].epoch if self.entries else UNDEFINED

    def assign(self, epoch: int, start_offset: int) -> None:
        """Records that `epoch` begins at `start_offset`, unless it or a later one has begun."""
        if epoch > self.latest:
            self.truncate_to(start_offset)
            self._replace([*self.entries, EpochStart(epoch, start_offset)])

    def truncate_to(self, end_offset: int) -> None:
        """Forgets the epochs that begin at or after `end_offset`."""
        kept = [entry for entry in self.entries if entry.start_offset < end_offset]
        if len(kept) < len(self.entries):
            self._replace(kept)

    def advance_start(self, log_start_offset: int) -> None:
        """Forgets the epochs that ended by the log's new start; the one around it begins there."""
        later = [entry for entry in self.entries if entry.start_offset > log_start_offset]
        before = self.entries[: len(self.entries) - len(later)]
        if before and before != [EpochStart(before[-1].epoch, log_start_offset)]:
            self._replace([EpochStart(before[-1].epoch, log_start_offset), *later])

    def reach_back(self, log_start_offset: int) -> None:
        """Has the first epoch begin where the log does, if it is said to begin later: a crash can
        take back a start that this knew of already. Who asks for an older epoch is then sent back
        too far, and not past records that it has not seen."""
        if self.entries and self.entries[0].start_offset > log_start_offset:
            first, *later = self.entries
            self._replace([first._replace(start_offset=log_start_offset), *later])

    def end_offset_of(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch that is at most `epoch`, and the offset after its last record.

        (-1, -1) for an epoch that this log has not come to; for one before all that it knows, the
        epoch itself and where the first known one begins, as Kafka answers.
        """
        entries = self.entries
        if epoch < 0 or epoch > self.latest:
            return UNDEFINED, UNDEFINED
        after = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        end_offset = entries[after].start_offset if after < len(entries) else log_end_offset
        return (entries[after - 1].epoch if after else epoch), end_offset

    def _replace(self, entries: list[EpochStart]) -> None:
        self.entries = entries
        self.is_dirty = True
