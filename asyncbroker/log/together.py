"""Several batches of clients, appended to one log with one write.

What it comes to is what `PartitionLog.append` of each, in order, comes to: the same offsets, bytes,
index entries and producers. It is for batches about which nothing is unusual, so that all is known
to fit before anything is changed. All of the others are left to `append`: what begins a segment or
a leader epoch, what is refused, repeated or looked at closely.

By whoever appends. Not known here: who waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from asyncbroker.log.append_checks import is_index_full
from asyncbroker.log.appended import Sent
from asyncbroker.log.batch_place import RELATIVE_OFFSET_MAX
from asyncbroker.log.config import INT64_MAX, LogConfig
from asyncbroker.protocol.batches import stamp
from asyncbroker.protocol.errors import KafkaError

if TYPE_CHECKING:
    from asyncbroker.log.damage import DamagedRanges
    from asyncbroker.log.persistence import Persistence
    from asyncbroker.log.producers import ProducerState


def write_together(
    log: Persistence,
    sent: Sequence[Sent],
    config: LogConfig,
    leader_epoch: int,
    now_ms: int,
    bytes_max: int,
) -> bytes | None:
    """Writes batches to the end of the log, in the current leader epoch and at most `bytes_max`,
    stamps them, and gives what was written. None, and nothing is changed, if they are for `append`.
    Raises OSError when it could not be written, and then nothing was."""
    segments, durability, producers = log.segments, log.durability, log.producers
    end_offset, segment, begin, recent = segments.end
    size_max = min(config.max_message_bytes, config.segment_bytes)
    timestamp_max = min(now_ms + config.message_timestamp_after_max_ms, segments.roll_timestamp)
    offset, size = end_offset, 0
    for each in sent:
        header = each.header
        if header.size > size_max or header.max_timestamp > timestamp_max or header.attributes:
            return None
        size += header.size
        offset += header.last_offset_delta + 1
    if (
        begin == 0
        or begin + size > segments.roll_size
        or size > bytes_max
        or offset - segment.base_offset > RELATIVE_OFFSET_MAX
        or durability.failure is not None
        or config.is_log_append_time
        or config.message_timestamp_before_max_ms != INT64_MAX
        or is_index_full(segment, config, len(sent))
        or not _are_new(producers, log.damaged, sent)
    ):
        return None
    offset = end_offset
    for each in sent:
        header = each.header
        stamp(each.batch, offset, leader_epoch)
        header.base_offset = offset
        header.partition_leader_epoch = leader_epoch
        offset += header.last_offset_delta + 1
    written = b"".join([each.batch for each in sent])
    file = segment.file or segment.open_file()
    try:
        file.pwrite(written, begin)
    except OSError:
        segments.take_back(file, begin)
        durability.cut_back(segment)
        raise
    # It is in the log: nothing from here on may fail. Readers go by `end`, which is set last.
    segment.size = begin + size
    position = begin
    for each in sent:
        header = each.header
        base_offset = header.base_offset
        if header.producer_id >= 0:
            producers.add(header, each.batch)
        last_offset = base_offset + header.last_offset_delta
        if segment.note(position, last_offset, header.max_timestamp):
            producers.end_offset = last_offset + 1
            log.after_index_entry(segment, position, config)
        recent.append(base_offset, position)
        position += header.size
    producers.end_offset = offset
    segments.size += size
    segments.end = (offset, segment, position, recent)
    return written


def _are_new(producers: ProducerState, damaged: DamagedRanges, sent: Sequence[Sent]) -> bool:
    """Whether each batch of a producer may follow its last one; of none are there two, since what
    may come second is known when the first is there."""
    seen: set[int] = set()
    for each in sent:
        producer_id = each.header.producer_id
        if producer_id < 0:
            continue
        if producer_id in seen:
            return False
        seen.add(producer_id)
        try:
            if producers.check(each.header, damaged, is_client=True) is not None:
                return False
        except KafkaError:
            return False
    return True
