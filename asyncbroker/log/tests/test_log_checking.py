"""A range is checked before it is sent, and the log changes at that very moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from asyncbroker.log.checking import checked
from asyncbroker.log.file_range import FileRange
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.log_harness import (
    NOW_MS,
    append_each,
    flip,
    open_log,
    reopened,
    with_config,
)
from asyncbroker.protocol.errors import ErrorCode, KafkaError

CONFIG = with_config(segment_bytes=300)


class Changing:
    """A log that changes when it is asked for its segments the n-th time, after the answer."""

    def __init__(self, log: PartitionLog, count: int, change: Callable[[], object]) -> None:
        self._log = log
        self._count = count
        self._change = change

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._log, name)
        if name == "segments":
            self._count -= 1
            if not self._count:
                self._change()
        return found


def damaged_log(count: int) -> tuple[MemoryFiles, PartitionLog]:
    """A log that was opened again, with a bit flipped in its first batch."""
    files = MemoryFiles()
    log = open_log(files, config=CONFIG)
    append_each(log, count)
    log = reopened(log, files)
    flip(files, log.segments[0].log_path, 70)
    return files, log


def is_refused(log: Any, located: FileRange) -> bool:
    """Whether the range is told to be damaged; if not, it has to be looked for again."""
    try:
        assert checked(log, located, 0) is None
    except KafkaError as error:
        return error.code is ErrorCode.CORRUPT_MESSAGE
    return False


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_range_of_a_segment_that_ends_meanwhile_is_looked_at(count: int) -> None:
    _, log = damaged_log(1)
    located = log.locate(0, 1000, end_offset=log.end_offset)
    assert located is not None
    changing: Any = Changing(log, count, lambda: log.roll(NOW_MS))
    assert is_refused(changing, located) or is_refused(log, located)
    assert not log.segments[0].trusted.covers(0, 1)


@pytest.mark.parametrize("count", [1, 2])
def test_a_range_of_a_segment_that_goes_meanwhile_is_not_sent_unseen(count: int) -> None:
    _, log = damaged_log(9)
    segment = log.segments[0]
    located = log.locate(0, 1000, end_offset=log.end_offset)
    assert located is not None
    changing: Any = Changing(log, count, lambda: log.advance_log_start(log.active_base_offset))
    is_refused(changing, located)
    assert not segment.trusted.covers(0, 1)
