"""A look into a log from an offset on: what `PartitionLog.locate` gives.

`file_range.py` finds the place; here is what may come in between: the log's ends, damage that is
known, damage that is met on the way, and segments that are deleted meanwhile.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from asyncbroker.log.checking import check_before_a_gap, find_what_was_seen
from asyncbroker.log.errors import CorruptLog, Unchecked, WouldBlock
from asyncbroker.log.file_range import FileRange, find_range
from asyncbroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from asyncbroker.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)


def find_in_log(
    log: PartitionLog,
    offset: int,
    bytes_max: int,
    *,
    end_offset: int,
    always_one: bool,
    may_block: bool,
) -> FileRange | None:
    """See `PartitionLog.locate`."""
    end = log.end
    if not log.log_start_offset <= offset <= end[0]:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset}; the log is {log.log_start_offset} to {end[0]}",
        )
    if offset >= end_offset or offset == end[0]:
        return None
    if log.damaged.ranges and (damaged := log.damaged.at(offset)) is not None:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{log.directory}: damaged: {damaged}")
    try:
        return find_range(
            log.segments,
            end,
            offset,
            bytes_max,
            end_offset=end_offset,
            always_one=always_one,
            may_block=may_block,
            on_gap=None if log.config.is_compacted else functools.partial(_tell_gap, log, offset),
        )
    except FileNotFoundError as error:
        if offset >= log.log_start_offset:
            raise
        # The segment was deleted while it was looked into.
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is gone") from error
    except CorruptLog as damage:
        if not may_block:
            raise WouldBlock(damage.path) from damage
        if not find_what_was_seen(log, damage):
            raise
    except Unchecked as unchecked:
        if not may_block:
            raise WouldBlock(unchecked.path) from unchecked
        check_before_a_gap(log, unchecked)
    # It is known now, and may lie elsewhere than at this offset.
    return find_in_log(
        log, offset, bytes_max, end_offset=end_offset, always_one=always_one, may_block=may_block
    )


def _tell_gap(log: PartitionLog, offset: int, next_offset: int) -> None:
    """Who opens a log after a stop in order does not look for what is missing of older segments."""
    logger.error(
        "%s: offsets %d to %d are in no segment, and a reader passes over them: they were "
        "compacted away once, or are lost",
        log.directory,
        offset,
        next_offset - 1,
    )
