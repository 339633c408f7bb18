"""A crash at every call of a compaction: no log without its last values, none that does not open.

Exhaustive: the process dies at each change of a cleaning that makes groups of segments and drops
whole ones, and the disk comes back in many states of that moment; the recovery dies too. And every
call of a cleaning fails once.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest

from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.cleaner_harness import COMPACTED, Kept, clean, kept, put, roll
from asyncbroker.log.tests.crash_disk import sampled
from asyncbroker.log.tests.crash_files import CrashFiles, Died
from asyncbroker.log.tests.log_harness import DIRECTORY, append, from_producer, open_log

STATES_PER_CRASH = 3


def prepare() -> tuple[CrashFiles, PartitionLog]:
    """A durable log of which compaction drops all of some segments, and groups others."""
    files = CrashFiles(sector_bytes=128)
    files.make_directory("data")
    files.sync_directory("")
    log = open_log(files, config=COMPACTED)
    append(log, from_producer(0, b"1"))
    for at in range(3):
        put(log, (b"a", b"%d" % at), (b"b%d" % at, bytes(20)))
        roll(log)
    for at in range(24):
        put(log, (b"c%d" % (at % 5), b"%d" % at))
    put(log, (b"a", None))
    roll(log)
    log.flush()
    log.checkpoint()
    return files, log


def reopen(files: CrashFiles, point: int) -> PartitionLog:
    return open_log(files, config=COMPACTED, is_clean=False, recovery_point=point)


def last_values(records: list[Kept]) -> dict[bytes | None, Kept]:
    return {each.key: each for each in records}


def check(log: PartitionLog, before: list[Kept], end_offset: int) -> None:
    """Every record is one that was there, and the last of each key is."""
    found = kept(log)
    assert set(found) <= set(before)
    assert [each.offset for each in found] == sorted({each.offset for each in found})
    assert last_values(found) == last_values(before)
    assert log.end_offset == end_offset
    assert append(log, from_producer(0, b"1")).is_duplicate


def change_count() -> int:
    files, log = prepare()
    before = files.change_count
    clean(log)
    return files.change_count - before


def test_a_crash_at_every_change_of_a_cleaning() -> None:
    random = Random(7)
    count = change_count()
    assert count > 30
    for die_in in range(count):
        files, log = prepare()
        before, end_offset = kept(log), log.end_offset
        files.die_in = die_in
        with pytest.raises(Died):
            clean(log)
        for state in [*files.states(STATES_PER_CRASH, random), files.killed()]:
            # The recovery crashes too, wherever it likes.
            state.die_in = random.randrange(20)
            with suppress(Died):
                reopen(state, end_offset)
            again = state.crashed(sampled(random)) if random.random() < 0.7 else state.killed()
            recovered = reopen(again, end_offset)
            check(recovered, before, end_offset)
            clean(recovered)
            check(recovered, before, end_offset)


def test_producers_are_known_by_a_durable_snapshot_before_their_batches_go() -> None:
    files = CrashFiles()
    files.make_directory("data")
    files.sync_directory("")
    log = open_log(files, config=COMPACTED)
    for at in range(6):
        append(log, from_producer(at, b"%d" % at))
    roll(log)
    log.flush()
    log.checkpoint()
    end_offset = log.end_offset
    clean(log)
    for state in files.states(STATES_PER_CRASH, Random(7)):
        recovered = reopen(state, end_offset)
        for at in range(1, 6):
            assert append(recovered, from_producer(at, b"%d" % at)).is_duplicate


def after_each_error(code: int) -> Iterator[tuple[CrashFiles, PartitionLog, list[Kept], int]]:
    """A log of whose cleaning one call has failed, for each call; what it had, and its end."""
    for at in itertools.count():
        files, log = prepare()
        before, end_offset = kept(log), log.end_offset
        calls = itertools.count()

        def fail(operation: str, path: str, at: int = at, calls: Iterator[int] = calls) -> None:
            if next(calls) == at:
                raise OSError(code, operation, path)

        files.on_call = fail
        with suppress(OSError):
            clean(log)
        files.on_call = None
        if next(calls) <= at:
            return
        yield files, log, before, end_offset


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_an_error_of_every_call_of_a_cleaning(code: int) -> None:
    count = 0
    for files, log, before, end_offset in after_each_error(code):
        check(log, before, end_offset)
        log.close(clean=False)
        check(reopen(files.killed(), end_offset), before, end_offset)
        count += 1
    assert count > 50


@pytest.mark.parametrize("way", ["cleaned", "deleted", "crashed", "closed"])
def test_what_an_error_of_any_call_has_left_undone_is_done_later(way: str) -> None:
    """No descriptors are left for one call: the log is read and appended to, and whoever changes
    its files next, or the next start, gives them their names."""
    random = Random(7)
    unfinished = 0
    for files, log, before, end_offset in after_each_error(errno.EMFILE):
        check(log, before, end_offset)
        unfinished += has_leftovers(files)
        put(log, (b"z", b"new"))
        log.flush()
        kept_now, end_now = [*before, kept(log)[-1]], log.end_offset
        if way == "cleaned":
            clean(log)
            assert not has_leftovers(files)
        elif way == "deleted":
            log.delete_segments(log.advance_log_start(log.segments[1].base_offset))
            assert not has_leftovers(files)
            kept_now = [each for each in kept_now if each.offset >= log.log_start_offset]
        elif way == "closed":
            log.close()
        for state in [*files.states(STATES_PER_CRASH, random), files.killed()]:
            is_clean = way == "closed"
            again = open_log(
                state,
                config=COMPACTED,
                is_clean=is_clean,
                recovery_point=end_now,
                log_start_offset=log.log_start_offset,
            )
            check(again, kept_now, end_now)
            assert not has_leftovers(state)
    assert unfinished > 5


def has_leftovers(files: CrashFiles) -> bool:
    return any(name.endswith((".cleaned", ".swap")) for name in files.list_files(DIRECTORY))


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_names_that_could_not_be_synced_are_not_synced_again_before_the_others_go(
    code: int,
) -> None:
    files, log = prepare()
    before, end_offset = kept(log), log.end_offset

    def fail(operation: str, path: str) -> None:
        if operation == "sync_directory" and any(
            name.endswith(".log.swap") for name in files.contents()
        ):
            raise OSError(code, operation, path)

    files.on_call = fail
    with pytest.raises(OSError, match="names may not be durable"):
        clean(log)
    files.on_call = None
    for _ in range(2):
        with pytest.raises(OSError, match="names may not be durable") as caught:
            clean(log)
        assert caught.value.errno == errno.EIO
    check(log, before, end_offset)
    for state in [*files.states(STATES_PER_CRASH, Random(7)), files.killed()]:
        check(reopen(state, end_offset), before, end_offset)
