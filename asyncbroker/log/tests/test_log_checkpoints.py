"""The small files, in Kafka's own words, and the leader epochs."""

from __future__ import annotations

import pytest

from asyncbroker.log.checkpoints import (
    CorruptCheckpoint,
    decode_epochs,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    decode_uuid,
    encode_epochs,
    encode_offsets,
    encode_partition_metadata,
    encode_properties,
    encode_uuid,
)
from asyncbroker.log.errors import CorruptLog
from asyncbroker.log.leader_epochs import EpochStart, LeaderEpochs
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.tests.log_harness import (
    DIRECTORY,
    NOW_MS,
    append,
    append_each,
    crashed,
    names,
    open_log,
    read_all,
    reopened,
)


def test_an_offset_checkpoint_reads_as_kafkas() -> None:
    text = b"0\n2\nflights 0 1500\na.b-c_d 12 7\n"
    offsets = {("flights", 0): 1500, ("a.b-c_d", 12): 7}
    assert encode_offsets(offsets) == text
    assert decode_offsets(text) == offsets
    assert decode_offsets(b"0\n0\n") == {}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"0\n",
        b"1\n0\n",
        b"0\n1\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 -1\n",
        b"0\n1\na x 1\n",
        b"0\n1\na 0 1 2\n",
        b"0\n1\na 0 1\nb 0 1\n",
        b"\0\0\0\0",
        b"\xff\xfe",
    ],
)
def test_a_damaged_offset_checkpoint_is_refused_as_a_whole(text: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_offsets(text)


def test_an_epoch_checkpoint_reads_as_kafkas() -> None:
    text = b"0\n2\n0 0\n5 1200\n"
    entries = [EpochStart(0, 0), EpochStart(5, 1200)]
    assert encode_epochs(entries) == text
    assert decode_epochs(text) == entries


@pytest.mark.parametrize("text", [b"0\n2\n5 0\n4 9\n", b"0\n2\n1 9\n2 9\n", b"0\n1\n1\n"])
def test_epochs_that_do_not_ascend_are_refused(text: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_epochs(text)


def test_partition_metadata_reads_as_kafkas() -> None:
    topic_id = bytes.fromhex("8d0f1a2b3c4d4e5f90a1b2c3d4e5f607")
    text = encode_partition_metadata(topic_id)
    assert text == b"version: 0\ntopic_id: jQ8aKzxNTl-QobLD1OX2Bw"
    assert decode_partition_metadata(text + b"\n") == topic_id
    for damaged in (b"", b"version: 1\ntopic_id: jQ8aKzxNTl-QobLD1OX2Bw", text[:-1], b"\0" * 40):
        with pytest.raises(CorruptCheckpoint):
            decode_partition_metadata(damaged)


def test_a_uuid_is_22_characters() -> None:
    assert encode_uuid(bytes(16)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert decode_uuid("AAAAAAAAAAAAAAAAAAAAAA") == bytes(16)


def test_properties_are_read_past_comments_and_escapes() -> None:
    text = b"#\n#Sat Nov 28\nversion=1\n! more\n node.id = 3\ncluster.id=a\\:b\n\n"
    assert decode_properties(text) == {"version": "1", "node.id": "3", "cluster.id": "a:b"}
    properties = {"version": "1", "node.id": "3"}
    assert decode_properties(encode_properties(properties)) == properties


# ---- leader epochs


def test_an_epoch_ends_where_the_next_one_begins() -> None:
    epochs = LeaderEpochs([EpochStart(2, 10), EpochStart(5, 30)])
    assert epochs.end_offset_of(5, 44) == (5, 44)
    assert epochs.end_offset_of(2, 44) == (2, 30)
    assert epochs.end_offset_of(4, 44) == (2, 30)
    assert epochs.end_offset_of(1, 44) == (1, 10)
    assert epochs.end_offset_of(6, 44) == (-1, -1)
    assert epochs.end_offset_of(-1, 44) == (-1, -1)
    assert LeaderEpochs([]).end_offset_of(0, 44) == (-1, -1)


def test_an_epoch_without_records_gives_way_to_the_next() -> None:
    epochs = LeaderEpochs([])
    epochs.assign(1, 0)
    epochs.assign(2, 10)
    epochs.assign(3, 10)
    epochs.assign(3, 15)
    epochs.assign(2, 20)
    assert epochs.entries == [EpochStart(1, 0), EpochStart(3, 10)]


def test_truncation_forgets_epochs_at_either_end() -> None:
    entries = [EpochStart(1, 0), EpochStart(3, 10), EpochStart(4, 20)]
    epochs = LeaderEpochs(list(entries))
    epochs.truncate_to(20)
    assert epochs.entries == entries[:2]
    epochs = LeaderEpochs(list(entries))
    assert not epochs.is_dirty
    epochs.advance_start(0)
    assert not epochs.is_dirty
    epochs.advance_start(15)
    assert epochs.entries == [EpochStart(3, 15), EpochStart(4, 20)]
    epochs.advance_start(20)
    assert epochs.entries == [EpochStart(4, 20)]


def test_a_log_remembers_its_epochs_over_restarts() -> None:
    files = MemoryFiles()
    log = open_log(files, leader_epoch=1)
    append_each(log, 10)
    log = reopened(log, files, leader_epoch=2)
    log = reopened(log, files, leader_epoch=3)
    append_each(log, 5)
    log = crashed(log, files, leader_epoch=4)
    assert log.leader_epoch == 4
    assert log.end_offset_for_epoch(1) == (1, 10)
    assert log.end_offset_for_epoch(2) == (1, 10)
    assert log.end_offset_for_epoch(3) == (3, 15)
    assert log.end_offset_for_epoch(4) == (4, 15)
    assert log.end_offset_for_epoch(5) == (-1, -1)


def test_an_epoch_may_change_while_the_log_is_open() -> None:
    log = open_log(leader_epoch=1)
    append(log)
    append(log, leader_epoch=2)
    assert log.leader_epoch == 2
    assert log.end_offset_for_epoch(1) == (1, 1)


@pytest.mark.parametrize("damage", [None, b"", b"0\n1\n9 x\n", b"nonsense"])
def test_a_lost_epoch_file_is_rebuilt_from_the_log(damage: bytes | None) -> None:
    files = MemoryFiles()
    log = open_log(files, leader_epoch=1)
    append_each(log, 20)
    log = reopened(log, files, leader_epoch=3)
    append_each(log, 5)
    log.close()
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    assert files.read_whole(path) == b"0\n2\n1 0\n3 20\n"
    if damage is None:
        files.remove(path)
    else:
        files.write_whole(path, damage)
    log = open_log(files, leader_epoch=4, recovery_point=25)
    assert log.epochs.entries == [EpochStart(1, 0), EpochStart(3, 20), EpochStart(4, 25)]


def test_epochs_beyond_the_end_are_forgotten() -> None:
    files = MemoryFiles()
    log = open_log(files, leader_epoch=1)
    append_each(log, 3)
    log.close()
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    files.write_whole(path, b"0\n2\n1 0\n2 3\n")
    log = open_log(files, leader_epoch=5, recovery_point=3)
    assert log.epochs.entries == [EpochStart(1, 0), EpochStart(5, 3)]


# ---- topic id


def test_a_directory_keeps_its_topic_id() -> None:
    files = MemoryFiles()
    log = open_log(files)
    append(log)
    log.close()
    with pytest.raises(CorruptLog, match="another topic"):
        open_log(files, topic_id=bytes(16), recovery_point=1)
    assert read_all(open_log(files, recovery_point=1))


def test_a_topic_id_that_a_crash_emptied_is_written_again() -> None:
    files = MemoryFiles()
    open_log(files).close()
    files.write_whole(f"{DIRECTORY}/partition.metadata", b"")
    open_log(files, now_ms=NOW_MS).close()
    assert "partition.metadata" in names(files)
    with pytest.raises(CorruptLog):
        open_log(files, topic_id=bytes(16))
