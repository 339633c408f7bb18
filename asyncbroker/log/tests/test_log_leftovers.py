"""What an open finds of interrupted work: removed, named, or finished."""

from __future__ import annotations

import pytest

from asyncbroker.log.config import LogConfig
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.tests.log_harness import (
    DIRECTORY,
    append_each,
    batch,
    copied,
    names,
    open_log,
    read_all,
    with_config,
)
from asyncbroker.log.tests.test_log_damage import offsets

FIRST = f"{DIRECTORY}/{0:020d}"


def test_files_that_were_being_made_are_removed_and_deleted_ones_named() -> None:
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_bytes=300))
    append_each(log, 9)
    log.close()
    deleted = [f"{0:020d}.log.deleted", f"{0:020d}.index.deleted"]
    expected = {*names(files), *deleted}
    for name in (
        *deleted,
        f"{3:020d}.log.cleaned",
        f"{3:020d}.timeindex.cleaned",
        "leader-epoch-checkpoint.tmp",
        f"{77:020d}.index",
        f"{77:020d}.txnindex",
    ):
        files.write_whole(f"{DIRECTORY}/{name}", b"left over")
    log = open_log(files, config=log.config, recovery_point=9)
    assert set(names(files)) == expected
    assert log.half_deleted == [f"{DIRECTORY}/{name}" for name in deleted]
    assert len(read_all(log)) == 9


def swap_of(files: MemoryFiles, config: LogConfig) -> tuple[bytes, set[int]]:
    """Segments 0, 3, 6 and 9, and a replacement for the first three with a part of the records."""
    log = open_log(files, config=config)
    append_each(log, 12)
    log.close()
    data = b"".join(
        files.read_whole(f"{DIRECTORY}/{base:020d}.log")[: len(batch(b"x" * 20))]
        for base in (0, 3, 6)
    )
    return data, {0, 3, 6}


def test_a_finished_replacement_takes_the_place_of_its_segments() -> None:
    files = MemoryFiles()
    config = with_config(segment_bytes=300)
    data, kept = swap_of(files, config)
    files.write_whole(f"{FIRST}.log.swap", data)
    log = open_log(files, config=config, recovery_point=12)
    assert {offset for offset, _ in read_all(log)} == kept | {9, 10, 11}
    logs = [name for name in names(files) if name.endswith(".log")]
    assert logs == [f"{0:020d}.log", f"{9:020d}.log"]
    assert not [name for name in names(files) if name.endswith(".swap")]


def test_a_crash_in_the_middle_of_a_replacement_is_finished_by_the_next_start() -> None:
    files = MemoryFiles()
    config = with_config(segment_bytes=300)
    data, kept = swap_of(files, config)
    files.write_whole(f"{FIRST}.log.swap", data)
    files.write_whole(f"{FIRST}.index.swap", b"")
    count = 0

    def interrupt(operation: str, path: str) -> None:
        nonlocal count
        if operation in ("remove", "rename"):
            count += 1
            if count == stop_at:
                raise InterruptedError("crash")

    for stop_at in range(1, 30):
        crashed_files = copied(files)
        count = 0
        crashed_files.on_call = interrupt
        try:
            log = open_log(crashed_files, config=config, recovery_point=12)
        except InterruptedError:
            crashed_files.on_call = None
            log = open_log(crashed_files, config=config, is_clean=False, recovery_point=12)
        crashed_files.on_call = None
        assert {offset for offset, _ in read_all(log)} == kept | {9, 10, 11}, stop_at
    assert count < stop_at


@pytest.mark.parametrize("bits", [0x01, 0x10, 0xFF])
def test_damage_in_a_replacement_takes_no_other_segment_with_it(bits: int) -> None:
    """Its last offset says which segments it replaces, and a damaged one might say all."""
    files = MemoryFiles()
    config = with_config(segment_bytes=300)
    data, kept = swap_of(files, config)
    size = len(data) // len(kept)
    for at in range(len(data)):
        damaged = copied(files)
        lying = data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]
        damaged.write_whole(f"{FIRST}.log.swap", lying)
        log = open_log(damaged, config=config, recovery_point=12)
        found = set(offsets(log))
        assert {9, 10, 11} <= found, at
        if at % size >= 8:  # a base offset may lie inside a gap
            assert kept - {at // size * 3} <= found, at


def test_replacements_of_an_unfinished_split_are_dropped() -> None:
    files = MemoryFiles()
    config = with_config(segment_bytes=300)
    swap_of(files, config)
    files.write_whole(f"{DIRECTORY}/{3:020d}.log.cleaned", b"")
    files.write_whole(f"{DIRECTORY}/{6:020d}.log.swap", b"nonsense")
    log = open_log(files, config=config, recovery_point=12)
    assert len(read_all(log)) == 12
