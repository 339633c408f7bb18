"""Holds stored batches against their CRCs: those that are about to be sent, those that a reader
stumbled upon, and all of them now and then.

What is found to be damaged becomes a hole of the log (`damage.py`), and what is found to be right
is trusted from then on (`trusted.py`). On the way it shows whether there are batches of
transactions, and then readers of committed records are to be told which were aborted.

All of this blocks, and is for worker threads; the log may roll, shrink and be compacted meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncbroker.log.cleaner_transactions import Aborted, Decided, find_aborted
from asyncbroker.log.damage import good_until
from asyncbroker.log.damage_search import find_damage
from asyncbroker.log.errors import CorruptLog, Unchecked
from asyncbroker.log.file_range import FileRange, segment_at
from asyncbroker.log.system_calls import drop_cached
from asyncbroker.protocol.batches import TRANSACTIONAL_BIT, BatchHeader
from asyncbroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from asyncbroker.log.damage import DamagedRange
    from asyncbroker.log.partition_log import PartitionLog
    from asyncbroker.log.segment import Segment


class Committed(NamedTuple):
    """What a reader of committed records gets, and which aborted transactions it must know of to
    make sense of it."""

    located: FileRange
    aborted: list[Aborted]


class Scrubbed(NamedTuple):
    """A stretch of a segment that `scrub` has read, or could not."""

    base_offset: int
    end: int
    size: int
    damaged_range_count: int
    error: OSError | None


def checked(log: PartitionLog, located: FileRange, offset: int) -> FileRange | None:
    """Holds a range that was found for an offset against its CRCs and brings it into memory; gives
    what is good of it. Raises KafkaError(CORRUPT_MESSAGE) if the offset is damaged. None if another
    look will find another range: the segment is no part of the log any more, or a damaged header
    had claimed the offset, which lies elsewhere."""
    begin, end = located.position, located.position + located.size
    segment = _segment_of(log, located.file.path)
    # A compacted segment has the name of another that was read here.
    if segment is None or segment.file not in (None, located.file):
        return None
    if _check(log, segment, begin, end) is None:
        return None
    good_end = good_until(segment.holes, begin, end)
    if good_end == begin:
        if log.damaged.at(offset) is None:
            return None
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{located.file.path}: damaged at {begin}")
    segment.trusted.add(begin, good_end)
    return FileRange(located.file, begin, good_end - begin)


def scrub(log: PartitionLog, base_offset: int, position: int, size: int) -> Scrubbed | None:
    """Holds about `size` durable bytes against their CRCs, from a position in the segment at
    `base_offset` on, or from the next one that there is; None at the end."""
    segments = log.segments
    for segment in segments[segment_at(segments, base_offset) :]:
        begin = position if segment.base_offset == base_offset else 0
        end = min(begin + size, segment.flushed_size)
        if segment.base_offset < base_offset or end <= begin:
            continue
        try:
            file = segment.open_file()
            was_resident = file.is_resident(begin, end - begin)
            found = _check(log, segment, begin, end)
        except FileNotFoundError:
            continue  # deleted, or compacted away, meanwhile
        except OSError as error:
            return Scrubbed(segment.base_offset, end, end - begin, 0, error)
        if found is None:
            continue  # likewise
        if not was_resident:
            drop_cached(file.fileno(), begin, end - begin)
        return Scrubbed(segment.base_offset, end, end - begin, len(found), None)
    return None


def find_what_was_seen(log: PartitionLog, seen: CorruptLog) -> bool:
    """Looks into what a reader stumbled upon; whether there is damage that was not known, or
    something else in that place by now."""
    segment = _segment_of(log, seen.path)
    if segment is None or seen.position is None:
        return False
    end = seen.position + 1
    found = _check(log, segment, seen.position, end)
    if found == []:
        # A wrong length may have led there, over batches that the index vouches for.
        found = _check(log, segment, 0, end)
    return found is None or bool(found)


def check_before_a_gap(log: PartitionLog, unchecked: Unchecked) -> None:
    """Checks the batch before offsets that seem to be missing: it is trusted then, or known to be
    damaged, unless its segment is no part of the log any more."""
    segment = _segment_of(log, unchecked.path)
    if segment is not None and _check(log, segment, unchecked.begin, unchecked.end) == []:
        segment.trusted.add(unchecked.begin, unchecked.end)


def committed_in(log: PartitionLog, located: FileRange, offset: int) -> Committed:
    """What of a range, from `offset` on, a reader of committed records may have. Only if the log
    `has_transactions`. Where damage may have been the end of a transaction the range ends before
    that transaction; KafkaError(CORRUPT_MESSAGE) if nothing is left."""
    decided = log.decided
    if decided is None:
        decided = log.decided = _find_decided(log)
    segment = _segment_of(log, located.file.path)
    end_offset = log.end_offset
    begin, end = located.position, located.position + located.size
    if segment is not None and end < segment.size:
        hole = segment.holes.get(end)
        end_offset = segment.header_at(end).base_offset if hole is None else hole.first_offset
    for doubt in decided.in_doubt:
        if doubt.first_offset < end_offset and offset <= doubt.last_offset:
            doubtful: int | None = begin
            if segment is not None and offset < doubt.first_offset:
                doubtful = segment.position_of(doubt.first_offset, end)
            if doubtful is None:
                continue  # it begins behind the range
            # The first batch of the range may have a later offset than was asked for.
            if doubtful <= begin:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE, f"nobody knows how a transaction ended: {doubt}"
                )
            end, end_offset = doubtful, doubt.first_offset
    aborted = [
        aborted
        for aborted in decided.aborted
        if aborted.last_offset >= offset and aborted.first_offset < end_offset
    ]
    return Committed(FileRange(located.file, begin, end - begin), aborted)


def _find_decided(log: PartitionLog) -> Decided:
    """The first time all headers of the log are read, since an index of what was aborted that lies
    would make aborted records committed."""
    while True:
        try:
            return find_aborted(log.segments, log.log_start_offset, log.end_offset)
        except CorruptLog as damage:
            if not find_what_was_seen(log, damage):
                raise


def _segment_of(log: PartitionLog, path: str) -> Segment | None:
    return next((held for held in log.segments if held.log_path == path), None)


def _check(log: PartitionLog, segment: Segment, begin: int, end: int) -> list[DamagedRange] | None:
    """What is damaged there and was not known; None if the segment is no part of the log any more,
    and nobody has looked."""
    # In this order: the newest segment may become an older one meanwhile, and is in the list then.
    log_end = log.end
    segments = log.segments
    if segment not in segments:
        return None

    def note_good(header: BatchHeader) -> None:
        if header.attributes & TRANSACTIONAL_BIT:
            log.has_transactions = True

    found = find_damage(
        segment,
        (begin, end),
        segments,
        log_end,
        batch_bytes_max=log.config.max_message_bytes,
        on_good=note_good,
    )
    return log.damaged.add_to(segment, found)
