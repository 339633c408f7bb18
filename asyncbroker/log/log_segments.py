"""The segments of one log: the newest one, which grows, older ones, and those on their way out.

One thread at a time appends and calls what changes the list; others read meanwhile. They go by
`all`, which is replaced and never changed, and by `end`, which is set last, as one tuple, so that
an offset and the position that belongs to it are seen together.

Not known here: producers, leader epochs, where the log starts for readers, what is durable.
"""

from __future__ import annotations

import logging

from asyncbroker.log.append_checks import roll_limits
from asyncbroker.log.config import LogConfig
from asyncbroker.log.file_range import LogEnd, segment_at
from asyncbroker.log.files import File, Files
from asyncbroker.log.index import RecentBatches
from asyncbroker.log.open_segments import OpenSegments
from asyncbroker.log.retention import Expired, find_expired
from asyncbroker.log.segment import Segment

logger = logging.getLogger(__name__)


class LogSegments:
    """See the head of this file. `PartitionLog` appends to the newest one itself."""

    __slots__ = (
        "_directory",
        "_files",
        "_has_surplus",
        "_open_segments",
        "all",
        "end",
        "freed_bytes",
        "leaving",
        "roll_size",
        "roll_timestamp",
        "size",
    )

    def __init__(
        self,
        files: Files,
        open_segments: OpenSegments,
        directory: str,
        segments: list[Segment],
        end_offset: int,
        config: LogConfig,
    ) -> None:
        """`segments` are those of a log that ends at `end_offset`; there is always one."""
        self._files = files
        self._open_segments = open_segments
        self._directory = directory
        active = segments[-1]
        self.all = segments
        # Oldest first: no part of the log any more, but their files may be, after a crash.
        self.leaving: list[Segment] = []
        self.end: LogEnd = (end_offset, active, active.size, RecentBatches())
        self.size = sum(segment.size for segment in segments)
        # How much left the log, by deletion or compaction: with `size` all that was ever written.
        self.freed_bytes = 0
        # Beyond these `is_roll_due` must be asked before an append.
        self.roll_size, self.roll_timestamp = roll_limits(active, config)
        # Behind the end there may be a part of a batch that could not be taken back.
        self._has_surplus = False

    @property
    def written_bytes(self) -> int:
        """Grows with every append, and never shrinks."""
        return self.size + self.freed_bytes

    # ---- by whoever appends

    def configure(self, config: LogConfig) -> None:
        """Takes over new settings, from the next append on."""
        active = self.all[-1]
        active.index_interval_bytes = config.index_interval_bytes
        self.roll_size, self.roll_timestamp = roll_limits(active, config)

    def roll(self, config: LogConfig, now_ms: int) -> LogEnd:
        """Begins a new segment at the end of the log. OSError if it cannot be made, and then
        nothing has changed."""
        end_offset, full, size, _ = self.end
        if self._has_surplus:
            full.open_file().truncate(size)
            self._has_surplus = False
        segment = Segment(
            self._files,
            self._open_segments,
            self._directory,
            end_offset,
            sizes={},
            index_interval_bytes=config.index_interval_bytes,
            created_ms=now_ms,
        )
        segment.open_file(create=True)
        full.finish()
        self.all = [*self.all, segment]
        self.roll_size, self.roll_timestamp = roll_limits(segment, config)
        self.end = (end_offset, segment, 0, RecentBatches())
        return self.end

    def take_back(self, file: File, position: int) -> None:
        """Takes back the part of a batch that was written before the disk refused the rest."""
        try:
            file.truncate(position)
        except OSError as error:
            # Harmless at the end of the log: the next append writes over it, recovery would cut it.
            logger.warning("%s: a partial batch at %d stays: %s", file.path, position, error)
            self._has_surplus = True

    def drop_before(self, offset: int) -> list[Segment]:
        """Ends the segments that are wholly below an offset, and gives them. Until somebody calls
        `left` a crash brings them back."""
        segments = self.all
        count = segment_at(segments, offset)
        dropped = segments[:count]
        self.leaving = [*self.leaving, *dropped]
        self.all = segments[count:]
        self._free(sum(segment.size for segment in dropped))
        return dropped

    def left(self, segments: list[Segment]) -> None:
        """Segments that `drop_before` gave have lost the names of their files."""
        self.leaving = [each for each in self.leaving if each not in segments]

    def replace(self, replaced: list[Segment], cleaned: Segment) -> bool:
        """Puts one segment in the place of others that follow each other; False, and nothing is
        changed, if these are no longer all part of the log."""
        segments = self.all
        at = segment_at(segments, replaced[0].base_offset)
        if segments[at : at + len(replaced)] != replaced:
            return False
        self.all = [*segments[:at], cleaned, *segments[at + len(replaced) :]]
        self._free(sum(segment.size for segment in replaced) - cleaned.size)
        return True

    def _free(self, size: int) -> None:
        self.size -= size
        self.freed_bytes += size

    # ---- by anybody

    def expired(
        self, config: LogConfig, *, log_start_offset: int, high_watermark: int, now_ms: int
    ) -> Expired | None:
        """What retention lets go of; see `find_expired` of `retention.py`. Blocking."""
        end_offset = self.end[0]
        segments = self.all
        try:
            return find_expired(
                segments,
                config,
                log_start_offset=log_start_offset,
                end_offset=end_offset,
                high_watermark=high_watermark,
                now_ms=now_ms,
            )
        except FileNotFoundError:
            # Segments may be deleted meanwhile by somebody else.
            if self.all is segments:
                raise
            return None
