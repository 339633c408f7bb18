"""Compaction beside readers, restarts, and others who change the log."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from asyncbroker.log import checking
from asyncbroker.log.cleaner import (
    Cleaning,
    CleaningAborted,
    Replacement,
)
from asyncbroker.log.cleaner_plan import plan_cleaning
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.cleaner_harness import (
    COMPACTED,
    clean,
    kept,
    offsets,
    put,
    roll,
)
from asyncbroker.log.tests.log_harness import (
    NOW_MS,
    crashed,
    names,
    open_log,
    reopened,
)
from asyncbroker.protocol.records import read_header


def test_offsets_that_are_gone_lead_to_the_next_batch() -> None:
    files = MemoryFiles()
    log = open_log(files, config=COMPACTED)
    for at in range(30):
        put(log, (b"%d" % (at % 25), bytes(30)), time_ms=NOW_MS + at)
    roll(log, NOW_MS + 30)
    clean(log)

    def check(log: PartitionLog) -> None:
        for offset in range(30):
            located = log.locate(offset, 1, end_offset=log.end_offset)
            assert located is not None
            assert read_header(located.read()).last_offset == max(offset, 5)
        found = log.offset_for_timestamp(NOW_MS + 2, log.end_offset)
        assert found is not None
        assert found[:2] == (5, NOW_MS + 5)

    check(log)
    check(reopened(log, files))
    check(crashed(log, files, recovery_point=log.end_offset))


def test_a_reader_keeps_the_old_bytes() -> None:
    log = open_log(config=COMPACTED)
    for at in range(20):
        put(log, (b"a", b"%d" % at))
    roll(log)
    located = log.locate(0, 300, end_offset=log.end_offset)
    old = log.segments[0]
    assert located is not None
    before = located.read()
    clean(log)
    assert located.read() == before
    # And whoever has only the segment finds its own bytes, not those of the same name.
    assert old.position_of(3, old.size) == next(
        at for header, at, _ in old.walk(0, old.size) if header.base_offset == 3
    )


def test_a_range_is_held_against_the_file_that_it_is_of() -> None:
    log = open_log(config=COMPACTED)
    for at in range(20):
        put(log, (b"%d" % (at % 3), b"%d" % at))
    roll(log)
    before = log.locate(0, 200, end_offset=log.end_offset)
    clean(log)
    after = log.locate(0, 200, end_offset=log.end_offset)
    assert before is not None
    assert after is not None
    # Whoever is about to send old bytes that nobody has checked asks again.
    assert checking.checked(log, before, 0) is None
    checked = checking.checked(log, after, 0)
    assert checked is not None
    assert checked.read() == after.read()


def test_reading_while_segments_are_swapped() -> None:
    log = open_log(config=COMPACTED)
    for at in range(200):
        put(log, (b"%d" % (at % 7), b"%d" % at))
    roll(log)
    is_over = threading.Event()
    errors: list[BaseException] = []

    def read() -> None:
        try:
            while not is_over.is_set():
                found = kept(log)
                assert {each.key for each in found} == {b"%d" % at for at in range(7)}
                assert offsets(found) == sorted(offsets(found))
        except BaseException as error:
            errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for at in range(15):
        clean(log, now_ms=NOW_MS + at)
    is_over.set()
    for reader in readers:
        reader.join()
    assert errors == []


def in_the_middle(log: PartitionLog, change: Callable[[], object]) -> Cleaning:
    """Cleans, with `change` before the first segment is shown."""
    plan = plan_cleaning(log, None, log.end_offset, NOW_MS)
    cleaning = Cleaning(log, plan, NOW_MS, 1 << 20)
    is_changed = False
    for step in cleaning.steps():
        if isinstance(step, Replacement):
            if not is_changed:
                change()
                is_changed = True
            step.is_shown = log.replace_segments(step.replaced, step.cleaned)
    return cleaning


def test_a_segment_that_was_deleted_meanwhile_does_not_come_back() -> None:
    files = MemoryFiles()
    log = open_log(files, config=COMPACTED)
    for at in range(30):
        put(log, (b"%d" % at, bytes(20)))
    roll(log)

    def delete() -> None:
        log.delete_segments(log.advance_log_start(8))

    with pytest.raises(CleaningAborted):
        in_the_middle(log, delete)
    assert offsets(kept(log))[-1] == 29
    assert log.segments[0].base_offset > 0
    deleted = [name for name in names(files) if name.startswith("0" * 20 + ".log")]
    assert deleted in ([], ["0" * 20 + ".log.deleted"])


def test_what_is_appended_meanwhile_stays() -> None:
    log = open_log(config=COMPACTED)
    for at in range(30):
        put(log, (b"a", b"%d" % at))
    roll(log)

    def go_on() -> None:
        for at in range(30, 60):
            put(log, (b"a", b"%d" % at))

    in_the_middle(log, go_on)
    assert [each.value for each in kept(log)] == [b"%d" % at for at in range(29, 60)]


def test_closing_the_steps_leaves_nothing_behind() -> None:
    files = MemoryFiles()
    log = open_log(files, config=COMPACTED)
    for at in range(30):
        put(log, (b"a", b"%d" % at))
    roll(log)
    with log.rewriting(log.segments[-1].base_offset):
        pass  # writes what knows the producers, which is good without a cleaning too
    before = names(files), kept(log)
    steps = Cleaning(log, plan_cleaning(log, None, 30, NOW_MS), NOW_MS, 1 << 20).steps()
    while not isinstance(next(steps), Replacement):
        pass
    steps.close()
    assert (names(files), kept(log)) == before
