"""The data directory: who may use it, and whether it was left in order."""

from __future__ import annotations

import contextlib
import errno
import json
import re
from pathlib import Path
from typing import Any

import pytest

from asyncbroker.log.config import LogConfig
from asyncbroker.log.errors import CorruptLog, DirectoryRefused
from asyncbroker.log.files import RealFiles
from asyncbroker.log.log_directory import LogDirectory
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.tests.crash_disk import synced_only
from asyncbroker.log.tests.crash_files import CrashFiles, Died
from asyncbroker.log.tests.directory_harness import (
    LOG_STARTS,
    PATH,
    RECOVERY_POINTS,
    killed,
    partition,
)
from asyncbroker.log.tests.log_harness import (
    NOW_MS,
    append,
    append_each,
    batch,
    overwrite,
    read_all,
    with_config,
)


def test_the_name_of_a_new_directory_is_durable_before_it_is_used() -> None:
    calls: list[tuple[str, str]] = []
    files = MemoryFiles(lambda operation, path: calls.append((operation, path)))
    LogDirectory.open(files, "a/b")
    assert calls[:4] == [
        ("make_directory", "a"),
        ("sync_directory", "."),
        ("make_directory", "a/b"),
        ("sync_directory", "a"),
    ]


def test_a_directory_is_made_with_its_parents_and_found_again(tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "b")
    for _ in range(2):
        LogDirectory.open(RealFiles(), path).close()


def test_a_data_directory_is_durable_although_the_first_start_was_killed() -> None:
    for die_in in range(6):
        files = CrashFiles()
        files.die_in = die_in
        with contextlib.suppress(Died):
            LogDirectory.open(files, "a/b/data")
        files = files.killed()
        LogDirectory.open(files, "a/b/data")
        assert "a/b/data/.asyncbroker_format" in files.crashed(synced_only).contents()


def test_a_data_directory_may_lie_in_one_that_is_closed_to_us() -> None:
    def fail(operation: str, path: str) -> None:
        if (operation, path) == ("sync_directory", "a"):
            raise PermissionError(errno.EACCES, "no")

    files = MemoryFiles()
    files.make_directory("a/data")
    files.on_call = fail
    LogDirectory.open(files, "a/data").close()


# ---- whose it is


def test_a_new_directory_says_whose_it_is() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH, cluster_id="q1Sh-9_ySV2ihnY7mGfHhw", node_id=3)
    assert directory.was_clean
    assert (directory.cluster_id, directory.node_id) == ("q1Sh-9_ySV2ihnY7mGfHhw", 3)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", directory.properties["directory.id"])
    text = files.read_whole(f"{PATH}/meta.properties").decode()
    assert text == (
        "version=1\ncluster.id=q1Sh-9_ySV2ihnY7mGfHhw\nnode.id=3\n"
        f"directory.id={directory.properties['directory.id']}\n"
    )
    directory.close()
    again = LogDirectory.open(files, PATH)
    assert again.properties == directory.properties


@pytest.mark.parametrize("other", [{"cluster_id": "another"}, {"node_id": 4}])
def test_the_directory_of_another_broker_is_refused(other: dict[str, Any]) -> None:
    files = MemoryFiles()
    LogDirectory.open(files, PATH, cluster_id="mine", node_id=3).close()
    with pytest.raises(DirectoryRefused, match="belongs to"):
        LogDirectory.open(files, PATH, **other)
    LogDirectory.open(files, PATH, cluster_id="mine", node_id=3).close()


def test_kafkas_own_properties_are_understood() -> None:
    files = MemoryFiles()
    files.make_directory(PATH)
    files.write_whole(
        f"{PATH}/meta.properties",
        b"#\n#Sat Nov 28 00:09:12 UTC 2026\nbroker.id=1\nversion=0\ncluster.id=abc\n",
    )
    directory = LogDirectory.open(files, PATH)
    assert (directory.cluster_id, directory.node_id) == ("abc", 1)


@pytest.mark.parametrize("portable", [False, True])
def test_a_second_broker_on_a_directory_is_refused(tmp_path: Path, portable: bool) -> None:
    files = RealFiles(portable=portable)
    directory = LogDirectory.open(files, str(tmp_path))
    with pytest.raises(DirectoryRefused, match="in use by another broker"):
        LogDirectory.open(RealFiles(), str(tmp_path))
    directory.close()
    LogDirectory.open(files, str(tmp_path)).close()


def test_a_directory_of_a_newer_version_is_refused_and_not_touched() -> None:
    files = MemoryFiles()
    LogDirectory.open(files, PATH).close()
    files.write_whole(f"{PATH}/.asyncbroker_format", b"version: 3\n")
    before = files.list_files(PATH)
    with pytest.raises(DirectoryRefused, match="newer asyncbroker"):
        LogDirectory.open(files, PATH)
    assert files.list_files(PATH) == before
    files.write_whole(f"{PATH}/.asyncbroker_format", b"?")
    with pytest.raises(DirectoryRefused, match="not a version"):
        LogDirectory.open(files, PATH)
    files.write_whole(f"{PATH}/.asyncbroker_format", b"version: 1\n")
    LogDirectory.open(files, PATH).close()
    # What is older would not know the journal.
    assert files.read_whole(f"{PATH}/.asyncbroker_format") == b"version: 2\n"


# ---- clean and unclean


def test_a_clean_stop_leaves_kafkas_mark_until_the_next_start() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    append_each(partition(directory), 10)
    mark = f"{PATH}/.kafka_cleanshutdown"
    assert not files.exists(mark)
    directory.close()
    assert json.loads(files.read_whole(mark)) == {"version": 0, "brokerEpoch": -1}
    assert files.read_whole(RECOVERY_POINTS) == b"0\n1\nflights 0 10\n"
    directory = LogDirectory.open(files, PATH)
    assert directory.was_clean
    assert not files.exists(mark)
    assert len(read_all(partition(directory))) == 10


def test_without_the_mark_the_start_is_unclean() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    append_each(partition(directory), 10)
    directory = killed(files)
    assert not directory.was_clean
    log = partition(directory, leader_epoch=2)
    assert len(read_all(log)) == 10
    assert log.durable_end_offset == 0
    directory.close(clean=False)
    assert not LogDirectory.open(files, PATH).was_clean


def test_a_partition_that_cannot_be_closed_in_order_makes_the_stop_unclean() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    append_each(partition(directory, "bad"), 3)
    append_each(partition(directory, "good"), 3)

    def fail(operation: str, path: str) -> None:
        if operation == "datasync" and "bad-0" in path:
            raise OSError(errno.EIO, "bad disk")

    files.on_call = fail
    with pytest.raises(OSError, match="bad disk"):
        directory.close()
    files.on_call = None
    directory = LogDirectory.open(files, PATH)
    assert not directory.was_clean
    for topic in ("bad", "good"):
        assert len(read_all(partition(directory, topic))) == 3


def test_a_partition_that_could_not_be_opened_is_still_recovered_after_the_next_stop() -> None:
    """Nobody has looked at what the crash left of it, so it must not pass for one in order."""
    files = MemoryFiles()
    log = partition(LogDirectory.open(files, PATH))
    append_each(log, 3)
    path = f"{log.directory}/{0:020d}.log"
    overwrite(files, path, log.size - 5, b"torn!")

    def fail(operation: str, path: str) -> None:
        if operation == "open" and path.endswith(".log"):
            raise OSError(errno.EMFILE, "too many open files")

    directory = killed(files)
    files.on_call = fail
    with pytest.raises(OSError, match="too many"):
        partition(directory)
    files.on_call = None
    directory.close()
    directory = LogDirectory.open(files, PATH)
    assert not directory.was_clean
    assert len(read_all(partition(directory))) == 2
    directory.close()
    assert LogDirectory.open(files, PATH).was_clean


def test_a_crash_is_seen_although_it_took_the_names_of_all_partitions() -> None:
    files = MemoryFiles()
    assert LogDirectory.open(files, PATH).was_clean
    assert not killed(files).was_clean


# ---- recovery points


def test_a_checkpoint_records_what_is_durable() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    a, b = partition(directory, "a"), partition(directory, "b", 7)
    append_each(a, 5)
    append_each(b, 3)
    a.flush()
    append_each(a, 2)
    directory.checkpoint()
    assert files.read_whole(RECOVERY_POINTS) == b"0\n1\na 0 5\n"
    directory = killed(files)
    a = partition(directory, "a")
    assert (a.durable_end_offset, a.end_offset) == (5, 7)


def test_a_checkpoint_that_says_nothing_new_is_not_written() -> None:
    writes: list[str] = []
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    log = partition(directory)
    append_each(log, 3)
    log.flush()
    directory.checkpoint()
    files.on_call = lambda operation, path: writes.append(operation)
    directory.checkpoint()
    assert writes == []


def test_much_unflushed_data_is_made_durable_by_a_checkpoint() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    log = partition(directory, config=LogConfig())
    for _ in range(17):
        append(log, batch(b"x" * 1_000_000))
    directory.checkpoint()
    assert log.durable_end_offset == 17
    assert files.list_files(log.directory)[f"{0:020d}.index"] > 0


def test_promised_records_that_are_gone_are_an_error_of_that_partition_only() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    for topic in ("a", "b"):
        append_each(partition(directory, topic), 5)
    directory.close()
    files.remove_tree(f"{PATH}/a-0")
    directory = LogDirectory.open(files, PATH)
    with pytest.raises(CorruptLog):
        partition(directory, "a")
    assert len(read_all(partition(directory, "b"))) == 5
    directory.close()
    assert b"a 0 5" in files.read_whole(RECOVERY_POINTS)


@pytest.mark.parametrize("name", [RECOVERY_POINTS, LOG_STARTS])
def test_a_damaged_checkpoint_costs_time_but_no_record(name: str) -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    log = partition(directory, config=with_config(segment_bytes=300))
    append_each(log, 9)
    log.advance_log_start(4)
    directory.close()
    overwrite(files, name, 2, b"9")
    directory = LogDirectory.open(files, PATH)
    log = partition(directory)
    assert log.end_offset == 9
    assert [offset for offset, _ in read_all(log)][-5:] == [4, 5, 6, 7, 8]
    log.advance_log_start(5)
    directory.close()
    assert files.read_whole(name).startswith(b"0\n1\n")


def test_the_log_start_survives_restarts() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    log = partition(directory)
    append_each(log, 9)
    log.advance_log_start(4)
    log.flush()
    directory.checkpoint()
    assert files.read_whole(LOG_STARTS) == b"0\n1\nflights 0 4\n"
    directory = killed(files)
    assert partition(directory).log_start_offset == 4
    directory.close()
    directory = LogDirectory.open(files, PATH)
    assert [offset for offset, _ in read_all(partition(directory))] == [4, 5, 6, 7, 8]


def test_a_lowered_recovery_point_allows_truncation() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    log = partition(directory)
    append_each(log, 9)
    log.flush()
    directory.checkpoint()
    directory.lower_recovery_point("flights", 0, 4)
    assert files.read_whole(RECOVERY_POINTS) == b"0\n1\nflights 0 4\n"
    log.truncate_to(4, NOW_MS)
    directory = killed(files)
    assert partition(directory).end_offset == 4


@pytest.mark.parametrize("is_checkpoint", [False, True])
def test_no_beginning_is_recorded_that_a_crash_could_leave_beyond_the_end(
    is_checkpoint: bool,
) -> None:
    directory = LogDirectory.open(MemoryFiles(), PATH)
    log = partition(directory)
    append_each(log, 5)
    log.advance_log_start(3)
    assert log.durable_end_offset == 0
    if is_checkpoint:
        directory.checkpoint()
    else:
        directory.record_log_starts([("flights", 0)])
    assert log.durable_end_offset == 5


def test_a_checkpoint_takes_nothing_back_that_was_recorded_meanwhile() -> None:
    files = MemoryFiles()
    directory = LogDirectory.open(files, PATH)
    log, other = partition(directory), partition(directory, index=1)
    append_each(log, 5)
    append(other)

    def while_the_other_is_looked_at(operation: str, path: str) -> None:
        if path.startswith(f"{PATH}/flights-1"):
            files.on_call = None
            log.advance_log_start(3)
            directory.record_log_starts([("flights", 0)])
            directory.checkpoint_partition("flights", 0)

    files.on_call = while_the_other_is_looked_at
    directory.checkpoint()
    assert files.on_call is None
    assert files.read_whole(LOG_STARTS) == b"0\n1\nflights 0 3\n"
    assert files.read_whole(RECOVERY_POINTS) == b"0\n1\nflights 0 5\n"
    assert [offset for offset, _ in read_all(partition(killed(files)))] == [3, 4]
