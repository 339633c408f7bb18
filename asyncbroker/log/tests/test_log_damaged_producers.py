"""Producers whose newest batches are damaged: what follows comes in, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from asyncbroker.log.config import LogConfig
from asyncbroker.log.damage import DAMAGED_RANGES
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.log_harness import (
    DIRECTORY,
    NOW_MS,
    append,
    append_each,
    batch,
    crashed,
    flip,
    from_producer,
    names,
    open_log,
    overwrite,
    reopened,
    values_of,
)
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.records import Record, build_batch, stamp

PATH = f"{DIRECTORY}/{0:020d}.log"
BATCH_BYTES = len(from_producer(0, b"x"))
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

Reopen = Callable[..., PartitionLog]


def outcome(log: PartitionLog, data: bytearray) -> int | ErrorCode:
    """The offset that it got, or why it was refused."""
    try:
        return append(log, data).base_offset
    except KafkaError as error:
        return error.code


def after_damage(*damaged: int, at: int = 65) -> tuple[PartitionLog, MemoryFiles]:
    """A log of six batches of one producer, of which some were damaged before an unclean start."""
    files = MemoryFiles()
    log = open_log(files)
    for sequence in range(6):
        append(log, from_producer(sequence, b"x"))
    log.close(clean=False)
    for offset in damaged:
        flip(files, PATH, offset * BATCH_BYTES + at)
    return open_log(files, is_clean=False, recovery_point=6), files


def test_what_follows_a_damaged_batch_of_its_producer_comes_in() -> None:
    log, _ = after_damage(5)
    assert outcome(log, from_producer(6, b"x")) == 6
    assert outcome(log, from_producer(6, b"x")) == 6  # a repeat of it
    assert outcome(log, from_producer(8, b"x")) is OUT_OF_ORDER
    assert outcome(log, from_producer(7, b"x")) == 7


@pytest.mark.parametrize("at", range(BATCH_BYTES))
def test_whichever_byte_is_damaged_the_producer_goes_on(at: int) -> None:
    log, _ = after_damage(5, at=at)
    assert outcome(log, from_producer(6, b"x")) == 6


def test_no_more_may_be_missing_than_was_damaged() -> None:
    log, _ = after_damage(4, 5)
    assert outcome(log, from_producer(7, b"x")) is OUT_OF_ORDER
    assert outcome(log, from_producer(2, b"y", b"z")) is OUT_OF_ORDER
    assert outcome(log, from_producer(6, b"x")) == 6


def test_a_damaged_batch_that_was_never_answered_can_be_sent_again() -> None:
    log, _ = after_damage(4, 5)
    assert [outcome(log, from_producer(sequence, b"x")) for sequence in (4, 5, 6)] == [6, 7, 8]


def test_a_damaged_batch_with_a_good_one_behind_it_is_refused_when_it_comes_again() -> None:
    """It is lost, and would come in behind its successor: who sent it must hear of that."""
    log, _ = after_damage(4)
    assert outcome(log, from_producer(4, b"x")) is OUT_OF_ORDER
    assert outcome(log, from_producer(5, b"x")) == 5
    assert outcome(log, from_producer(6, b"x")) == 6


def test_damage_before_a_producers_last_batch_allows_nothing() -> None:
    log, _ = after_damage(2, 3)
    assert outcome(log, from_producer(7, b"x")) is OUT_OF_ORDER
    assert outcome(log, from_producer(6, b"x")) == 6


def test_the_batch_that_began_an_epoch_may_be_the_damaged_one() -> None:
    files = MemoryFiles()
    log = open_log(files)
    append(log, from_producer(0, b"x"))
    append(log, from_producer(0, b"x", epoch=1))
    log.close(clean=False)
    flip(files, PATH, BATCH_BYTES + 65)
    log = open_log(files, is_clean=False, recovery_point=2)
    assert outcome(log, from_producer(2, b"x", epoch=1)) is OUT_OF_ORDER
    assert outcome(log, from_producer(1, b"x", epoch=1)) == 2


def test_a_promised_end_that_is_gone_may_have_been_the_producers() -> None:
    log, files = after_damage()
    log.close(clean=False)
    file = files.open(PATH)
    file.truncate(4 * BATCH_BYTES)
    file.close()
    log = open_log(files, is_clean=False, recovery_point=6)
    assert outcome(log, from_producer(7, b"x")) is OUT_OF_ORDER
    assert outcome(log, from_producer(6, b"x")) == 6


@pytest.mark.parametrize("reopen", [crashed, reopened])
def test_it_is_so_after_more_starts(reopen: Reopen) -> None:
    log, files = after_damage(5)
    append(log, batch(b"somebody else"))
    log = reopen(log, files, recovery_point=7)
    assert outcome(log, from_producer(7, b"x")) is OUT_OF_ORDER
    assert outcome(log, from_producer(6, b"x")) == 7
    log = reopen(log, files, recovery_point=8)
    assert outcome(log, from_producer(8, b"x")) is OUT_OF_ORDER
    assert outcome(log, from_producer(7, b"x")) == 8


def test_it_is_so_when_the_damage_has_been_deleted_and_until_the_producer_is_beyond_it() -> None:
    log, files = after_damage(4, 5)
    append(log, from_producer(0, b"x", producer_id=8))
    log.roll(NOW_MS)
    append(log, batch(b"newest"))
    log.delete_segments(log.advance_log_start(7))
    for _ in range(2):
        assert outcome(log, from_producer(7, b"x")) is OUT_OF_ORDER
        log = crashed(log, files, recovery_point=8, log_start_offset=7)
    assert outcome(log, from_producer(6, b"x")) == 8
    log = reopened(log, files, log_start_offset=7)
    assert DAMAGED_RANGES not in names(files)
    assert outcome(log, from_producer(8, b"x")) is OUT_OF_ORDER


def test_zeros_over_the_newest_batch_are_no_different() -> None:
    log, files = after_damage()
    log.close(clean=False)
    overwrite(files, PATH, 5 * BATCH_BYTES, bytes(BATCH_BYTES))
    log = open_log(files, is_clean=False, recovery_point=6)
    assert outcome(log, from_producer(6, b"x")) == 6


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(("key", "value"), [(None, b"x"), (b"", b"x"), (b"\0\0\0\1", b"x")])
def test_a_marker_that_makes_no_sense_takes_nothing_with_it(
    key: bytes | None, value: bytes, is_clean: bool
) -> None:
    """It has moved in: nobody can write one here."""
    files = MemoryFiles()
    log = open_log(files, config=LogConfig())
    values = append_each(log, 2)
    log.close()
    bad = build_batch(
        [Record(0, NOW_MS, key, value)],
        producer_id=7,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    for offset, data in ((2, bad), (3, batch(b"behind"))):
        stamp(data, offset, 1)
        overwrite(files, PATH, len(files.read_whole(PATH)), bytes(data))
    log = open_log(files, config=LogConfig(), is_clean=is_clean, recovery_point=4)
    assert log.end_offset == 4
    assert values_of(log) == [*values, value, b"behind"]
    assert "quarantined" not in "".join(names(files))
