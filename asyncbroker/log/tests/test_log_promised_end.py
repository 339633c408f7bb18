"""Damage of the newest batch that was promised, where a crash has torn or taken what came next."""

from __future__ import annotations

import pytest

from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.log_harness import (
    DIRECTORY,
    append,
    copied,
    crashed,
    names,
    overwrite,
    reopened,
    truncate,
)
from asyncbroker.log.tests.test_log_damage import (
    BATCH_BYTES,
    COUNT,
    DAMAGES,
    offsets,
    opened,
    path_of,
    position_of,
    refused,
    written,
)


def check_ends_at_the_promise(log: PartitionLog, files: MemoryFiles, promised: int) -> None:
    """Only the batch before is a hole, and what is not there is given anew; for good."""
    assert log.end_offset == promised
    for _ in range(2):
        assert list(offsets(log)) == list(range(promised - 1))
        assert refused(log, promised - 1)
        log = crashed(log, files, recovery_point=promised)
        assert log.end_offset == promised
    assert append(log).base_offset == promised
    log = reopened(log, files)
    assert list(offsets(log)) == [*range(promised - 1), promised]
    assert refused(log, promised - 1)


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("torn_bytes", [0, 7, BATCH_BYTES - 1])
@pytest.mark.parametrize("promised", [1, 2, 4, 5, 8])
def test_of_what_was_not_promised_nothing_is_a_hole_where_only_later_segments_are_left(
    how: str, torn_bytes: int, promised: int
) -> None:
    files = written()
    DAMAGES[how](files, path_of(promised), position_of(promised - 1))
    truncate(files, path_of(promised), position_of(promised) + torn_bytes)
    log = opened(files, recovery_point=promised)
    assert [name for name in names(files) if name.endswith(".log.quarantined")]
    check_ends_at_the_promise(log, files, promised)


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("promised", [1, 4, 10])
def test_nor_is_it_where_later_batches_of_the_same_segment_are_left(
    how: str, promised: int
) -> None:
    files = written()
    log = opened(files)
    append(log)
    log.close()
    DAMAGES[how](files, path_of(promised), position_of(promised - 1))
    overwrite(files, path_of(promised), position_of(promised), bytes(BATCH_BYTES))
    log = opened(files, recovery_point=promised)
    check_ends_at_the_promise(log, files, promised)


def test_whatever_bit_is_damaged() -> None:
    torn = written()
    truncate(torn, path_of(2), position_of(2))
    for position in range(position_of(1), position_of(2)):
        for bit in range(8):
            files = copied(torn)
            byte = files.read_whole(path_of(2))[position]
            overwrite(files, path_of(2), position, bytes([byte ^ 1 << bit]))
            log = opened(files, recovery_point=2)
            if list(offsets(log)) == [0, 1]:
                assert position in range(position_of(1) + 12, position_of(1) + 16)  # the epoch
                continue
            assert log.end_offset == 2, (position, bit, log.end_offset)
            check_ends_at_the_promise(log, files, 2)


def test_a_later_segment_that_was_promised_stays() -> None:
    files = written()
    DAMAGES["payload"](files, path_of(1), position_of(1))
    truncate(files, path_of(2), position_of(2))
    log = opened(files, recovery_point=4)
    assert list(offsets(log)) == [0, *range(3, COUNT)]
    assert refused(log, 1)
    assert refused(log, 2)


@pytest.mark.parametrize("bit", range(4))
def test_a_damaged_offset_that_leads_to_where_the_next_segment_begins_cuts_nothing_off(
    bit: int,
) -> None:
    """For want of snapshots a start reads below the promise too, and there headers only."""
    for offset in range(COUNT):
        files = written()
        for name in names(files):
            if name.endswith((".snapshot", ".producers")):
                files.remove(f"{DIRECTORY}/{name}")
        path, position = path_of(offset), position_of(offset) + 7
        (byte,) = files.open(path).pread(1, position)
        overwrite(files, path, position, bytes([byte ^ 1 << bit]))
        log = opened(files)
        assert list(offsets(log)) == [other for other in range(COUNT) if other != offset]
        assert refused(log, offset)


@pytest.mark.parametrize("bit", range(4, 62))
def test_of_what_was_not_promised_a_damaged_offset_makes_no_hole(bit: int) -> None:
    """It would be as wide as the damage says, and readers would stand before it."""
    for offset in range(4, 9):
        files = written()
        path, position = path_of(offset), position_of(offset) + 7 - bit // 8
        (byte,) = files.open(path).pread(1, position)
        overwrite(files, path, position, bytes([byte ^ 1 << bit % 8]))
        log = opened(files, recovery_point=3)
        assert log.end_offset == offset
        assert list(offsets(log)) == list(range(offset))
        assert append(log).base_offset == offset


def test_nor_does_one_that_leads_to_where_the_next_segment_begins_take_what_is_behind_it() -> None:
    files = written()
    overwrite(files, path_of(4), position_of(4) + 7, b"\5")
    behind = files.read_whole(path_of(4))[position_of(4) :]
    log = opened(files, recovery_point=3)
    assert log.end_offset == 4
    assert list(offsets(log)) == [0, 1, 2, 3]
    assert files.read_whole(f"{path_of(4)[:-4]}.{position_of(4)}.quarantined") == behind
