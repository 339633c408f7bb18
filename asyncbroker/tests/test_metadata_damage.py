"""Bits that flip in the metadata's files, which SQLite would not notice, and torn commits."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from asyncbroker.log.errors import DirectoryRefused
from asyncbroker.metadata_store import (
    DeleteTopic,
    ForgetTopic,
    PutTopic,
    SetBrokerConfigs,
    SetGroupConfigs,
    SetValue,
    StoredState,
    StoredTopic,
)
from asyncbroker.sqlite_metadata import FILE_NAME, SqliteMetadataStore

WAL = f"{FILE_NAME}-wal"
TOPICS = 5
HEADER_BYTES, FRAME_BYTES = 32, 24


@pytest.fixture
def kept(tmp_path: Path) -> tuple[StoredState, dict[str, bytes]]:
    """What is stored, and the files of it after a kill."""
    path = tmp_path / "original"
    path.mkdir()
    store = SqliteMetadataStore(path / FILE_NAME)
    store.open()
    for number in range(TOPICS):
        configs = {"retention.ms": "-1", "segment.ms": "5"}
        store.apply([PutTopic(StoredTopic(f"t{number}", bytes([number]) * 16, 3, configs))])
    store.apply([DeleteTopic(bytes(16)), DeleteTopic(bytes([1]) * 16), SetBrokerConfigs("", {})])
    store.apply([ForgetTopic(bytes(16)), ForgetTopic(bytes([2]) * 16)])
    store.apply([SetGroupConfigs("g", {"a": "1"}), SetValue("x", "12")])
    files = {found.name: found.read_bytes() for found in path.iterdir()}
    store.close()
    files["stopped"] = (path / FILE_NAME).read_bytes()
    store = SqliteMetadataStore(path / FILE_NAME)
    state = store.open()
    store.close()
    return state, files


def opened(path: Path, files: dict[str, bytes]) -> StoredState | None:
    """What the store makes of these files; None if it refuses them."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)
    store = SqliteMetadataStore(path / FILE_NAME)
    try:
        return store.open()
    except DirectoryRefused:
        return None
    finally:
        store.close()


def flipped(data: bytes, position: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)


def ends_of_commits(wal: bytes) -> list[int]:
    page_bytes = int.from_bytes(wal[8:12], "big")
    ends = range(HEADER_BYTES, len(wal) + 1, FRAME_BYTES + page_bytes)
    return [end + FRAME_BYTES + page_bytes for end in ends[:-1] if any(wal[end + 4 : end + 8])]


def test_no_flipped_bit_of_a_stopped_store_changes_what_is_in_it(
    tmp_path: Path, kept: tuple[StoredState, dict[str, bytes]]
) -> None:
    state, files = kept
    chance = random.Random(3)
    data = files["stopped"]
    found = [
        opened(
            tmp_path / "copy",
            {FILE_NAME: flipped(data, chance.randrange(len(data)), chance.randrange(8))},
        )
        for _ in range(150)
    ]
    assert all(each in (None, state) for each in found)
    assert None in found


@pytest.mark.parametrize(
    ("what", "begin", "end"),
    [(b"CREATE TABLE group_configs", 0, 125), (b"segment.ms", -24, 0), (b"retention.ms", -24, 0)],
    ids=["columns", "first types", "last types"],
)
def test_what_a_flipped_bit_makes_of_columns_and_types_is_refused(
    tmp_path: Path,
    kept: tuple[StoredState, dict[str, bytes]],
    what: bytes,
    begin: int,
    end: int,
) -> None:
    """More columns than there were, and bytes in place of text."""
    state, files = kept
    data = files["stopped"]
    at = data.index(what)
    for position in range(at + begin, at + end):
        for bit in range(8):
            found = opened(tmp_path / "copy", {FILE_NAME: flipped(data, position, bit)})
            assert found in (None, state), (position, bit)


@pytest.mark.parametrize("part", ["header", "frames", "pages"])
def test_no_flipped_bit_of_a_wal_takes_what_was_durable(
    tmp_path: Path, kept: tuple[StoredState, dict[str, bytes]], part: str
) -> None:
    state, files = kept
    chance = random.Random(4)
    wal = files[WAL]
    last = ends_of_commits(wal)[-2]
    frame_bytes = FRAME_BYTES + int.from_bytes(wal[8:12], "big")
    for _ in range(100):
        frame = HEADER_BYTES + frame_bytes * chance.randrange((last - HEADER_BYTES) // frame_bytes)
        position = {
            "header": chance.randrange(HEADER_BYTES),
            "frames": frame + chance.randrange(FRAME_BYTES),
            "pages": chance.randrange(frame + FRAME_BYTES, frame + frame_bytes),
        }[part]
        damaged = {FILE_NAME: files[FILE_NAME], WAL: flipped(wal, position, chance.randrange(8))}
        assert opened(tmp_path / "copy", damaged) in (None, state), position


def test_a_torn_last_commit_is_forgotten(
    tmp_path: Path, kept: tuple[StoredState, dict[str, bytes]]
) -> None:
    _, files = kept
    wal = files[WAL]
    before, end = ends_of_commits(wal)[-2:]
    holes = bytearray(wal)
    holes[before : before + 600] = bytes(600)
    for torn in (wal[:before], wal[: before + 100], wal[: end - 1], bytes(holes)):
        found = opened(tmp_path / "copy", {FILE_NAME: files[FILE_NAME], WAL: torn})
        assert found is not None
        assert (len(found.topics), "x" in found.values) == (TOPICS - 2, False)


def test_what_a_crash_has_left_is_written_again_before_anything_follows_it(
    tmp_path: Path, kept: tuple[StoredState, dict[str, bytes]]
) -> None:
    state, files = kept
    for name in (FILE_NAME, WAL):
        (tmp_path / name).write_bytes(files[name])
    store = SqliteMetadataStore(tmp_path / FILE_NAME)
    assert store.open() == state
    assert (tmp_path / WAL).read_bytes() == b""
    store.close()
