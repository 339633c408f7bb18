"""The crash file system forgets all that a disk may forget, and nothing that was synced."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from asyncbroker.log.files import Files, RealFiles
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.tests.crash_disk import everything, sampled, synced_only
from asyncbroker.log.tests.crash_files import CrashFile, CrashFiles, Died, PartialWrite

SECTOR = 4


def made(contents: bytes = b"", path: str = "a") -> CrashFiles:
    """Files with one that is durable, and its name as well."""
    files = CrashFiles(sector_bytes=SECTOR)
    file = files.open(path, create=True)
    if contents:
        file.pwrite(contents, 0)
    file.datasync()
    files.sync_directory("")
    return files


def every_state(files: CrashFiles, path: str = "a") -> set[bytes | None]:
    """All that a file may hold after a loss of power."""
    states = files.states(10_000, Random(1))
    assert len(states) < 10_000
    return {state.contents().get(path) for state in states}


def use(files: Files) -> list[object]:
    """What is asked of a file system, and what it answers."""
    said: list[object] = []
    files.make_directory("x/y")
    file = files.open("x/y/f", create=True)
    file.pwrite(b"hello world", 2)
    file.pwrite(b"HE", 2)
    said += [
        file.size(),
        file.pread(5, 0),
        file.pread(100, 8),
        bytes(file.pread_nowait(3, 2) or b""),
    ]
    file.truncate(6)
    file.truncate(9)
    said += [file.pread(100, 0), files.list_files("x/y"), files.list_directories("x")]
    files.write_whole("x/w", b"whole")
    files.write_whole("x/w", b"new")
    files.write_atomically("x/v", b"atomic")
    files.rename("x/v", "x/u")
    files.rename("x/y", "x/z")
    said += [files.read_whole("x/u"), files.list_files("x"), files.list_directories("x/")]
    files.rename("x/w", "x/u")
    said += [files.read_whole("x/u"), files.exists("x/w"), files.exists("x/z/f")]
    files.remove("x/u")
    files.remove("x/u")
    files.remove_tree("x/z")
    files.remove_tree("x/z")
    said += [files.list_files("x"), files.list_directories("x"), file.pread(3, 2)]
    for wrong in (
        lambda: files.open("x/none"),
        lambda: files.open("none/f", create=True),
        lambda: files.read_whole("x/none"),
        lambda: files.list_files("none"),
        lambda: files.rename("x/none", "x/some"),
    ):
        with pytest.raises(FileNotFoundError):
            wrong()
    lock = files.lock("x/.lock")
    with pytest.raises(BlockingIOError):
        files.lock("x/.lock")
    lock.release()
    files.lock("x/.lock").release()
    return said


def no_sync(operation: str, path: str) -> None:
    """A disk that fails to write."""
    if operation == "datasync":
        raise OSError(errno.EIO, "no")


def fail_to_sync(files: CrashFiles, file: CrashFile) -> None:
    files.on_call = no_sync
    with pytest.raises(OSError, match="no"):
        file.datasync()
    files.on_call = None


def test_without_a_crash_it_is_a_file_system_like_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert use(CrashFiles()) == use(MemoryFiles()) == use(RealFiles(portable=True))


# ---- contents


def test_what_was_synced_stays_and_what_was_not_may_go() -> None:
    files = made(b"old")
    files.open("a").pwrite(b"new", 0)
    assert every_state(files) == {b"old", b"new"}
    files.open("a").datasync()
    assert every_state(files) == {b"new"}


def test_the_size_may_be_there_without_the_bytes() -> None:
    files = made()
    files.open("a").pwrite(b"abcdef", 0)
    assert every_state(files) == {
        b"", b"\0\0\0\0", b"abcd", b"\0\0\0\0\0\0", b"abcd\0\0", b"\0\0\0\0ef", b"abcdef",
    }  # fmt: skip


def test_each_sector_may_show_any_of_its_contents_since_the_sync() -> None:
    files = made(b"....----")
    file = files.open("a")
    file.pwrite(b"1", 1)
    file.pwrite(b"2222", 2)
    assert every_state(files) == {
        first + second for first in (b"....", b".1..", b".122") for second in (b"----", b"22--")
    }


def test_a_truncation_may_not_have_come_to_the_disk_yet() -> None:
    files = made(b"abcdef")
    files.open("a").truncate(1)
    assert b"abcdef" in every_state(files)
    assert b"a" in every_state(files)
    files.open("a").pwrite(b"X", 1)
    # The size of before with the bytes of after.
    assert b"aX\0\0ef" in every_state(files)


def test_starting_writeback_promises_nothing() -> None:
    files = made(b"old")
    file = files.open("a")
    file.pwrite(b"new", 0)
    file.start_writeback(0, 3)
    assert every_state(files) == {b"old", b"new"}


def test_after_a_failed_sync_nothing_is_durable_whatever_the_next_one_says() -> None:
    files = made(b"old")
    file = files.open("a")
    file.pwrite(b"new", 0)
    fail_to_sync(files, file)
    file.datasync()
    assert every_state(files) == {b"old", b"new"}
    assert files.killed(synced_only).contents() == {"a": b"old"}
    killed = files.killed()
    assert killed.contents() == {"a": b"new"}
    killed.open("a").datasync()
    assert every_state(killed) == {b"old", b"new"}
    killed.open("a").pwrite(b"new", 0)
    killed.open("a").datasync()
    assert every_state(killed) == {b"new"}


def test_what_was_cut_off_before_a_failed_sync_keeps_nothing_from_the_disk() -> None:
    files = made(b"old")
    file = files.open("a")
    file.pwrite(bytes(5 * SECTOR), 3)
    file.truncate(3)
    file.pwrite(b"new", 3)
    fail_to_sync(files, file)
    killed = files.killed()
    killed.open("a").pwrite(b"oldnew", 0)
    killed.open("a").datasync()
    assert every_state(killed) == {b"oldnew"}


def test_what_is_written_after_a_failed_sync_is_there_after_the_next_one_that_succeeds() -> None:
    files = made(b"old")
    file = files.open("a")
    file.pwrite(b"..new..later..", 3)
    fail_to_sync(files, file)
    killed = files.killed()
    killed.open("a").pwrite(b"..new.", 3)
    killed.open("a").datasync()
    states = [state or b"" for state in every_state(killed)]
    # The size is there as far as it was written again; what is behind may be anything.
    assert min(map(len, states)) == 9
    assert all(state[4:8] == b".new" for state in states)


# ---- names


def test_a_new_name_is_not_durable_before_its_directory_is() -> None:
    files = CrashFiles()
    file = files.open("a", create=True)
    file.pwrite(b"x", 0)
    file.datasync()
    assert every_state(files) == {None, b"x"}
    files.sync_directory("")
    assert every_state(files) == {b"x"}


def test_a_removed_file_may_come_back() -> None:
    files = made(b"x")
    files.remove("a")
    assert every_state(files) == {None, b"x"}


def test_a_rename_happens_or_does_not() -> None:
    files = made(b"x")
    files.rename("a", "b")
    states = [state.contents() for state in files.states(10, Random(1))]
    assert states == [{"a": b"x"}, {"b": b"x"}]


def test_a_rename_may_come_before_the_contents() -> None:
    files = made(b"old")
    files.write_whole("t", b"new")
    files.rename("t", "a")
    assert every_state(files) == {b"old", b"", b"\0\0\0", b"new"}


def test_an_atomic_write_shows_the_old_or_the_new_at_every_change() -> None:
    change_count = made(b"old").change_count
    for die_in in range(6):
        files = made(b"old")
        files.die_in = die_in
        try:
            files.write_atomically("a", b"new")
        except Died:
            assert every_state(files) <= {b"old", b"new"}
        else:
            assert every_state(files) == {b"new"}
    assert files.change_count - change_count == 5  # create, write, sync, rename, sync


def test_an_atomic_write_whose_sync_failed_is_durable_when_it_is_made_again() -> None:
    files = made(b"old")
    files.on_call = no_sync
    with pytest.raises(OSError, match="no"):
        files.write_atomically("a", b"new")
    files.on_call = None
    files.write_atomically("a", b"new")
    assert every_state(files) == {b"new"}


def test_changes_of_names_come_in_any_order() -> None:
    files = made()
    for name in "bcd":
        files.open(name, create=True)
    names = {"".join(state.contents()) for state in files.states(100, Random(1))}
    assert names == {"a", "ab", "ac", "ad", "abc", "abd", "acd", "abcd"}


def test_a_directory_is_made_renamed_and_removed_with_what_is_in_it() -> None:
    files = CrashFiles()
    files.make_directory("d")
    files.write_whole("d/f", b"")
    files.sync_directory("d")
    assert every_state(files, "d/f") == {None, b""}
    files.sync_directory("")
    assert every_state(files, "d/f") == {b""}
    files.rename("d", "e")
    assert every_state(files, "e/f") == {None, b""}
    files.sync_directory("")
    files.remove_tree("e")
    assert every_state(files, "e/f") == {None, b""}
    files.sync_directory("")
    assert every_state(files, "e/f") == {None}


# ---- death and after


def test_the_process_dies_before_the_change_and_does_nothing_more() -> None:
    files = made(b"old")
    file = files.open("a")
    files.die_in = 1
    file.pwrite(b"N", 0)
    assert file.pread(9, 0) == b"Nld"
    for _ in range(2):
        with pytest.raises(Died):
            file.pwrite(b"new", 0)
    with pytest.raises(Died):
        file.pread(9, 0)
    assert files.killed().contents() == {"a": b"Nld"}
    assert every_state(files) == {b"old", b"Nld"}


def test_a_part_of_the_last_write_may_come_through() -> None:
    files = made(b"old")
    files.die_in, files.dying_part = 0, 0.7
    for _ in range(2):
        with pytest.raises(Died):
            files.open("a").pwrite(b"new", 0)
        assert files.killed().contents() == {"a": b"ned"}


def test_a_write_that_fails_may_have_written_a_part() -> None:
    def fail(operation: str, path: str) -> None:
        if operation == "pwrite":
            raise PartialWrite(errno.ENOSPC, 0.5)

    files = made()
    files.on_call = fail
    with pytest.raises(OSError, match="space") as raised:
        files.open("a").pwrite(b"abcd", 0)
    assert raised.value.errno == errno.ENOSPC
    assert files.contents() == {"a": b"ab"}


def test_a_killed_process_leaves_its_unsynced_bytes_as_undurable_as_they_were() -> None:
    files = made(b"old")
    files.open("a").pwrite(b"new", 0)
    files.open("b", create=True)
    files.lock("l")
    killed = files.killed()
    killed.lock("l")
    assert killed.contents() == {"a": b"new", "b": b""}
    assert every_state(killed) == every_state(files) == {b"old", b"new"}
    killed.open("a").datasync()
    assert every_state(killed) == {b"new"}
    assert every_state(files) == {b"old", b"new"}


def test_lives_after_a_crash_do_not_see_each_other() -> None:
    files = made(b"abc")
    first, second = files.crashed(everything), files.crashed(everything)
    first.open("a").pwrite(b"1", 0)
    second.open("a").truncate(1)
    files.open("a").pwrite(b"3", 2)
    assert first.contents() == {"a": b"1bc"}
    assert second.contents() == {"a": b"a"}
    assert files.contents() == {"a": b"ab3"}
    # What was on the disk after the crash is durable.
    assert first.crashed(synced_only).contents() == {"a": b"abc"}


def test_too_many_states_are_sampled_with_the_two_extremes() -> None:
    files = made()
    files.open("a").pwrite(bytes(range(1, 200)), 0)
    states = [state.contents()["a"] for state in files.states(20, Random(3))]
    assert len(states) == 20
    assert states[:2] == [b"", bytes(range(1, 200))]
    assert len(set(states)) > 10
    assert states == [state.contents()["a"] for state in files.states(20, Random(3))]


def test_samples_are_of_what_can_be() -> None:
    files = made(b"....----")
    files.open("a").pwrite(b"12345", 2)
    possible = every_state(files)
    random = Random(5)
    found = {files.crashed(sampled(random)).contents()["a"] for _ in range(200)}
    assert found == possible
