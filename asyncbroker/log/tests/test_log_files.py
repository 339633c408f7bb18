"""The file seam: the three kinds of files behave alike, as far as a log can see."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from asyncbroker.log import system_calls as calls_of_the_system
from asyncbroker.log.files import Files, RealFiles
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.system_calls import resident_by_mincore, system_calls


@pytest.fixture(params=["best", "portable", "memory"])
def files(request: pytest.FixtureRequest) -> Files:
    if request.param == "memory":
        return MemoryFiles()
    return RealFiles(portable=request.param == "portable")


@pytest.fixture
def root(files: Files, tmp_path: Path) -> str:
    path = "root" if isinstance(files, MemoryFiles) else str(tmp_path / "root")
    files.make_directory(path)
    return path


def test_bytes_are_read_where_they_were_written(files: Files, root: str) -> None:
    file = files.open(f"{root}/a", create=True)
    file.pwrite(b"hello", 0)
    file.pwrite(memoryview(b"world"), 5)
    file.pwrite(bytearray(b"H"), 0)
    assert file.pread(10, 0) == b"Helloworld"
    assert file.pread(3, 4) == b"owo"
    assert file.pread(10, 8) == b"ld"
    assert file.pread(10, 10) == b""
    assert file.pread_nowait(4, 6) == b"orld"
    assert file.size() == 10
    file.close()


def test_a_gap_reads_as_zeros_and_truncation_cuts(files: Files, root: str) -> None:
    file = files.open(f"{root}/a", create=True)
    file.pwrite(b"x", 4)
    assert file.pread(5, 0) == b"\0\0\0\0x"
    file.truncate(2)
    assert file.size() == 2
    file.truncate(4)
    assert file.pread(10, 0) == b"\0\0\0\0"
    file.close()


def test_syncing_and_writeback_change_nothing(files: Files, root: str) -> None:
    file = files.open(f"{root}/a", create=True)
    file.pwrite(b"x" * 10_000, 0)
    file.start_writeback(0, 10_000)
    file.datasync()
    files.sync_directory(root)
    assert file.pread(10_000, 0) == b"x" * 10_000
    file.close()


def test_opening_what_is_not_there_fails_unless_it_is_to_be_made(files: Files, root: str) -> None:
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/nowhere/a", create=True)
    with pytest.raises(FileNotFoundError):
        files.read_whole(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        files.list_files(f"{root}/nowhere")
    assert not files.exists(f"{root}/a")


def test_opening_again_keeps_the_contents(files: Files, root: str) -> None:
    files.write_whole(f"{root}/a", b"abc")
    file = files.open(f"{root}/a", create=True)
    assert file.pread(3, 0) == b"abc"
    file.close()


def test_directories_list_files_with_sizes_and_directories_apart(files: Files, root: str) -> None:
    files.write_whole(f"{root}/a", b"abc")
    files.write_atomically(f"{root}/b", b"")
    files.make_directory(f"{root}/d/e")
    files.write_whole(f"{root}/d/inner", b"x")
    assert files.list_files(root) == {"a": 3, "b": 0}
    assert files.list_directories(root) == ["d"]
    assert files.list_directories(f"{root}/d") == ["e"]


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="there are no links")
def test_of_a_directory_that_is_elsewhere_the_link_is_removed(tmp_path: Path) -> None:
    files = RealFiles()
    files.make_directory(f"{tmp_path}/elsewhere")
    files.write_whole(f"{tmp_path}/elsewhere/theirs", b"x")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    files.remove_tree(f"{tmp_path}/link")
    assert files.list_directories(str(tmp_path)) == ["elsewhere"]
    assert files.list_files(f"{tmp_path}/elsewhere") == {"theirs": 1}


def test_renaming_replaces_a_file_and_moves_a_directory(files: Files, root: str) -> None:
    files.write_whole(f"{root}/a", b"new")
    files.write_whole(f"{root}/b", b"old")
    files.rename(f"{root}/a", f"{root}/b")
    assert files.read_whole(f"{root}/b") == b"new"
    files.make_directory(f"{root}/d")
    files.write_whole(f"{root}/d/inner", b"x")
    files.rename(f"{root}/d", f"{root}/moved")
    assert files.read_whole(f"{root}/moved/inner") == b"x"
    assert not files.exists(f"{root}/d")
    with pytest.raises(FileNotFoundError):
        files.rename(f"{root}/d", f"{root}/again")


def test_removing_what_is_not_there_is_no_error(files: Files, root: str) -> None:
    files.write_whole(f"{root}/a", b"x")
    files.make_directory(f"{root}/d/e")
    files.write_whole(f"{root}/d/e/f", b"x")
    for _ in range(2):
        files.remove(f"{root}/a")
        files.remove_tree(f"{root}/d")
    assert files.list_files(root) == {}
    assert files.list_directories(root) == []


def test_an_open_file_outlives_its_name(files: Files, root: str) -> None:
    file = files.open(f"{root}/a", create=True)
    file.pwrite(b"abc", 0)
    files.remove(f"{root}/a")
    assert file.pread(3, 0) == b"abc"
    file.close()


def test_a_written_file_is_replaced_whole(files: Files, root: str) -> None:
    files.write_atomically(f"{root}/a", b"a longer text")
    files.write_atomically(f"{root}/a", memoryview(b"short"))
    assert files.read_whole(f"{root}/a") == b"short"
    assert files.list_files(root) == {"a": 5}


def test_a_file_that_a_failed_replacement_has_left_is_not_used_again(tmp_path: Path) -> None:
    """Its fsync may have failed, and the next one of the same file would not tell."""
    left = tmp_path / "a.tmp"
    left.write_bytes(b"left")
    with left.open("rb") as same:
        RealFiles().write_atomically(str(tmp_path / "a"), b"new")
        assert same.read() == b"left"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_a_lock_is_held_by_one_at_a_time(files: Files, root: str) -> None:
    lock = files.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        files.lock(f"{root}/.lock")
    lock.release()
    files.lock(f"{root}/.lock").release()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process has one lock for all")
def test_a_second_broker_that_is_refused_does_not_let_kafka_in(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = RealFiles().lock(path)
    with pytest.raises(BlockingIOError):
        RealFiles().lock(path)
    # What Java's FileChannel.tryLock does.
    try_lock = (
        "import fcntl, sys\n"
        "with open(sys.argv[1], 'r+') as file:\n"
        "    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
    )
    command = [sys.executable, "-c", try_lock, path]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "BlockingIOError" in refused.stderr
    lock.release()
    subprocess.run(command, check=True)


def test_a_real_file_is_closed_when_the_last_reference_goes(tmp_path: Path) -> None:
    file = RealFiles().open(str(tmp_path / "a"), create=True)
    fd = file.fileno()
    assert fd is not None
    os.fstat(fd)
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_the_environment_chooses_portable_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNCBROKER_PORTABLE", "1")
    portable = RealFiles()
    monkeypatch.setenv("ASYNCBROKER_PORTABLE", "0")
    best = RealFiles()
    assert portable._calls.datasync is not best._calls.datasync


def test_portable_files_never_claim_to_be_in_memory(tmp_path: Path) -> None:
    file = RealFiles(portable=True).open(str(tmp_path / "a"), create=True)
    file.pwrite(b"x" * 5000, 0)
    assert not file.is_resident(0, 5000)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is in memory")
def test_fresh_bytes_are_in_memory_and_evicted_ones_are_not(tmp_path: Path) -> None:
    file = RealFiles(portable=False).open(str(tmp_path / "a"), create=True)
    size = 1 << 20
    file.pwrite(b"x" * size, 0)
    assert file.is_resident(100, size - 100)
    assert file.pread_nowait(size, 0) == b"x" * size
    file.datasync()
    fd = file.fileno()
    assert fd is not None
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if file.is_resident(0, 4096):
        pytest.skip("this file system keeps its pages")
    assert not file.is_resident(0, size)
    assert not resident_by_mincore(ctypes.CDLL(None), fd, 5, size - 5)
    # A small one may start readahead, and a fast disk may answer at once.
    assert file.pread_nowait(size, 0) is None
    assert file.pread_nowait(100, 0) in (None, b"x" * 100)
    assert file.pread(size, 0) == b"x" * size
    assert resident_by_mincore(ctypes.CDLL(None), fd, 5, size - 5)
    assert file.pread_nowait(100, 5000) == b"x" * 100


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is in memory")
def test_what_is_still_being_read_is_not_in_memory_yet(tmp_path: Path) -> None:
    """Somebody's read, or the readahead that follows it, has its pages in the cache before they
    are there; who then reads the same with `sendfile` waits for the disk."""
    file = RealFiles(portable=False).open(str(tmp_path / "a"), create=True)
    size, piece = 16 << 20, 64 << 10
    file.pwrite(os.urandom(size), 0)
    file.datasync()
    fd = file.fileno()
    assert fd is not None
    for _ in range(4):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if file.is_resident(0, size):
            pytest.skip("this file system keeps its pages")
        for position in range(0, size, piece):
            if position % (1 << 20) == 0:
                os.posix_fadvise(fd, position, 1 << 20, os.POSIX_FADV_WILLNEED)
            if file.is_resident(position, piece):
                assert file.pread_nowait(piece, position) is not None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is in memory")
def test_who_reads_an_old_log_leaves_those_of_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a range that is not there its file is looked at closely for a while, and no other."""
    asked: list[int] = []

    def refusing(libc: Any, fd: int, position: int, size: int) -> bool:
        asked.append(fd)
        return False

    monkeypatch.setattr(calls_of_the_system, "resident_by_mincore", refusing)
    files = [RealFiles(portable=False).open(str(tmp_path / name), create=True) for name in "ab"]
    for file in files:
        file.pwrite(b"x" * 8192, 0)
    old, other = (file.fileno() for file in files)
    assert old is not None
    assert other is not None
    is_resident = calls_of_the_system._is_resident(ctypes.CDLL(None, use_errno=True))
    if not is_resident(old, 0, 8192):
        pytest.skip("the system has no cachestat")
    assert not is_resident(old, 0, 1 << 20)  # there is not so much of it
    assert not is_resident(old, 0, 8192)
    assert is_resident(other, 0, 8192)
    assert asked == [old, old]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is in memory")
def test_a_count_that_is_too_low_is_held_against_the_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of what is in memory must not be sent to a thread, and nobody has to be asked twice
    from then on."""
    asked: list[int] = []

    def counting(libc: Any, fd: int, position: int, size: int) -> bool:
        asked.append(position)
        return resident_by_mincore(libc, fd, position, size)

    class Miscounting:
        """The C library, whose cachestat finds nothing in the first page."""

        def __init__(self) -> None:
            self._libc = ctypes.CDLL(None, use_errno=True)

        def syscall(self, number: int, fd: int, wanted: Any, found: Any, flags: int) -> int:
            position, size = struct.unpack("@QQ", bytes(wanted._obj))
            found._obj.cached = 0 if position == 0 else -(-size // 4096)
            return 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._libc, name)

    monkeypatch.setattr(calls_of_the_system, "resident_by_mincore", counting)
    is_resident = calls_of_the_system._is_resident(Miscounting())  # type: ignore[arg-type]
    file = RealFiles(portable=False).open(str(tmp_path / "a"), create=True)
    file.pwrite(b"x" * 16384, 0)
    fd = file.fileno()
    assert fd is not None
    assert is_resident(fd, 0, 8192)
    assert is_resident(fd, 8192, 8192)
    assert is_resident(fd, 0, 100)
    assert asked == [0, 0]


def test_short_writes_and_reads_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = RealFiles()
    calls = system_calls(portable=True)

    class OneByteAtATime:
        pread = staticmethod(lambda fd, size, position: calls.pread(fd, min(size, 1), position))
        pwrite = staticmethod(
            lambda fd, data, position: calls.pwrite(fd, memoryview(data)[:1], position)
        )

    monkeypatch.setattr(files, "_calls", OneByteAtATime)
    file = files.open(str(tmp_path / "a"), create=True)
    file.pwrite(b"abcdef", 0)
    assert file.pread(10, 0) == b"abcdef"
    assert file.size() == 6


@pytest.mark.parametrize("last", [OSError(errno.ENOSPC, "full"), 0])
def test_a_write_of_which_the_rest_is_refused_fails(
    last: OSError | int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = RealFiles()
    calls = system_calls(portable=True)
    answers = [2, last]

    class TwoBytesAndNoMore:
        @staticmethod
        def pwrite(fd: int, data: bytes, position: int) -> int:
            answer = answers.pop(0)
            if isinstance(answer, OSError):
                raise answer
            return calls.pwrite(fd, memoryview(data)[:answer], position)

    monkeypatch.setattr(files, "_calls", TwoBytesAndNoMore)
    file = files.open(str(tmp_path / "a"), create=True)
    with pytest.raises(OSError, match=r"full|names no error"):
        file.pwrite(b"abcdef", 0)
    assert file.size() == 2


def test_a_test_can_fail_a_call_in_memory() -> None:
    def fail(operation: str, path: str) -> None:
        if operation == "pwrite" and path == "d/a":
            raise OSError(28, "full")

    files = MemoryFiles(fail)
    files.make_directory("d")
    file = files.open("d/a", create=True)
    with pytest.raises(OSError, match="full"):
        file.pwrite(b"x", 0)
    assert file.size() == 0
