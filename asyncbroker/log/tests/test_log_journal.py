"""The journal's bytes, what replay makes of them, and how the ring goes round.

A round is on the disk or it is not: every end and every flipped bit of its bytes is tried. That a
journal keeps its word over crashes is `test_log_crashes.py`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from random import Random

import pytest

from asyncbroker.log.checkpoints import CLEAN_SHUTDOWN, encode_clean_shutdown
from asyncbroker.log.config import LogConfig
from asyncbroker.log.journal import FILE_BYTES_MIN, JOURNAL, newest, read_heads
from asyncbroker.log.journal_frames import (
    BLOCK_BYTES,
    HEAD_BLOCKS,
    RING_BEGIN,
    CorruptJournal,
    Head,
    decode_head,
    decode_round,
    encode_frame,
    encode_head,
    encode_round,
    is_frame_whole,
)
from asyncbroker.log.journal_replay import live_rounds
from asyncbroker.log.log_directory import LogDirectory
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.segment import LOG_SUFFIX, segment_name
from asyncbroker.log.tests.cleaner_harness import batches_of, clean, kept, offsets, put, roll
from asyncbroker.log.tests.crash_disk import Choose, everything, synced_only
from asyncbroker.log.tests.crash_files import CrashFiles, Died
from asyncbroker.log.tests.log_harness import append, batch, from_producer, read_all

JOURNAL_ID = bytes(range(16))
TOPIC_IDS = [bytes([1]) * 16, bytes([2]) * 16]
CONFIG = LogConfig()
NOBODY_KNOWS: Mapping[str, bytes] = {}


class Disk:
    """A data directory with two partitions and a journal, on a disk that can lose power."""

    def __init__(self, journal_bytes: int = FILE_BYTES_MIN) -> None:
        self.files = CrashFiles()
        # One for all lives: their journals have different ids.
        self.random = Random(1)
        self.journal_bytes = journal_bytes
        self.open()

    def open(
        self, topic_ids: Sequence[bytes] = TOPIC_IDS, *, known: Mapping[str, bytes] = NOBODY_KNOWS
    ) -> None:
        self.directory = LogDirectory.open(
            self.files,
            "data",
            cluster_id="cluster",
            journal_bytes=self.journal_bytes,
            random_bytes=self.random.randbytes,
            topic_ids=lambda: known,
        )
        self.logs = [
            self.directory.open_partition(
                "flights", index, topic_id=topic_id, config=CONFIG, leader_epoch=0, now_ms=0
            )
            for index, topic_id in enumerate(topic_ids)
        ]

    def prepare(self) -> None:
        """From here on everything may go to the journal."""
        for log in self.logs:
            append(log, batch(b"first"))
            log.flush()
        assert self.directory.journal is not None
        self.directory.journal.prepare()

    def commit(self) -> bool:
        """A round of all partitions; whether there was room."""
        journal = self.directory.journal
        assert journal is not None
        stretches = [
            stretch
            for index, log in enumerate(self.logs)
            if (stretch := log.stretch_for_journal(index, 100_000)) is not None
        ]
        return journal.append(stretches) == stretches

    def lose_power(self) -> None:
        """All that was not synced is gone."""
        self.files = self.files.crashed(synced_only)
        self.open()


def values(log: PartitionLog) -> list[bytes | None]:
    return [value for _, value in read_all(log)]


# ---- the bytes


def test_a_head_and_a_round_have_these_bytes() -> None:
    head = encode_head(Head(3, JOURNAL_ID, FILE_BYTES_MIN))
    assert len(head) == BLOCK_BYTES
    assert not any(head[44:])
    assert head[:44].hex(" ", 4) == (
        "41424a4f 55524e31 bb136371 00000000 00000003 00010203 04050607 08090a0b 0c0d0e0f "
        "00000000 00010000"
    )
    frame = encode_frame(TOPIC_IDS[0], 1, 14, 200, 17, b"bytes")
    found = encode_round(JOURNAL_ID, 8192, 4096, 0, [frame], [b"bytes"])
    assert len(found) == BLOCK_BYTES
    assert not any(found[121:])
    assert found[:121].hex(" ", -4) == (
        "4142524f 554e4431 f6d2f7a7 00010203 04050607 08090a0b 0c0d0e0f 00000000 00002000 "
        "00000000 00001000 00000000 00000000 00000000 00001000 00000001 01010101 01010101 "
        "01010101 01010101 00000001 d06e9c92 00000000 0000000e 00000000 000000c8 00000000 "
        "00000011 00000005 62797465 73"
    )


def test_a_flipped_bit_of_a_head_or_a_round_is_noticed() -> None:
    head = encode_head(Head(3, JOURNAL_ID, FILE_BYTES_MIN))
    for at in range(len(head)):
        with pytest.raises(CorruptJournal):
            decode_head(flipped(head, at))
    frame = encode_frame(TOPIC_IDS[0], 1, 14, 200, 17, b"bytes")
    data = encode_round(JOURNAL_ID, 8192, 4096, 0, [frame], [b"bytes"])
    good = decode_round(data, len(data))
    (read,) = good.frames
    begin = good.frames_at
    for at in range(8, begin):
        with pytest.raises(CorruptJournal):
            decode_round(flipped(data, at), len(data))
    for at in range(begin, begin + read.size):
        assert not is_frame_whole(read, flipped(data, at)[begin : begin + read.size])
    for size in range(64, begin):
        with pytest.raises(CorruptJournal):
            decode_round(data[:size], len(data))


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


# ---- replay


def test_what_only_the_journal_has_comes_back() -> None:
    disk = Disk()
    disk.prepare()
    for number in range(5):
        append(disk.logs[number % 2], batch(b"%d" % number))
        assert disk.commit()
    assert [log.durable_end_offset for log in disk.logs] == [4, 3]
    assert [log.flushed_end_offset for log in disk.logs] == [1, 1]
    disk.lose_power()
    assert values(disk.logs[0]) == [b"first", b"0", b"2", b"4"]
    assert values(disk.logs[1]) == [b"first", b"1", b"3"]
    # It is in the files now, and the journal empty.
    assert [log.flushed_end_offset for log in disk.logs] == [4, 3]
    assert live(disk) == 0


@pytest.mark.parametrize("damage", [b"", b"version: 0\ntopic_id: AQEBAQEBAQEBAQEBAQEBAg", b"?"])
def test_a_damaged_topic_id_keeps_nothing_in_the_journal(damage: bytes) -> None:
    disk = Disk()
    disk.prepare()
    append(disk.logs[0], batch(b"new"))
    assert disk.commit()
    path = "data/flights-0/partition.metadata"
    disk.files.write_whole(path, damage)
    disk.files.open(path).datasync()
    disk.files = disk.files.crashed(synced_only)
    disk.open(known={"flights": TOPIC_IDS[0]})
    assert values(disk.logs[0]) == [b"first", b"new"]


def test_a_copy_of_a_directory_takes_nothing_from_the_original() -> None:
    """It has the same topic id in it, and a name that comes before or after."""
    disk = Disk()
    disk.prepare()
    for name in ("an-old-copy", "the-other-copy"):
        disk.directory.open_partition(
            name, 0, topic_id=TOPIC_IDS[0], config=CONFIG, leader_epoch=0, now_ms=0
        ).flush()
    append(disk.logs[0], batch(b"new"))
    assert disk.commit()
    disk.lose_power()
    assert values(disk.logs[0]) == [b"first", b"new"]


@pytest.mark.parametrize("is_last", [True, False])
def test_a_damaged_round_takes_nothing_else_with_it(
    is_last: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk()
    disk.prepare()
    for number, log in enumerate(disk.logs):
        append(log, batch(b"%d" % number))
        assert disk.commit()
    file = disk.files.open(f"data/{JOURNAL}")
    at = RING_BEGIN + BLOCK_BYTES * is_last + 70
    file.pwrite(flipped(file.pread(1, at), 0), at)
    file.datasync()
    disk.lose_power()
    assert values(disk.logs[is_last]) == [b"first"]
    assert values(disk.logs[not is_last]) == [b"first", b"%d" % (not is_last)]
    # Of the last one nobody was told that it is durable.
    assert ("is damaged" in caplog.text) is not is_last


@pytest.mark.parametrize("kept_count", [0, 1])
def test_what_was_deleted_behind_a_start_leaves_no_hole_and_its_producers_known(
    kept_count: int,
) -> None:
    disk = Disk()
    disk.prepare()
    sent = [from_producer(0, b"deleted"), from_producer(1, b"behind")]
    for each in sent:
        append(disk.logs[0], each.copy())
        assert disk.commit()
    start = disk.logs[0].end_offset - kept_count
    disk.logs[0].advance_log_start(start)
    disk.directory.record_log_starts([("flights", 0)])
    disk.lose_power()
    log = disk.logs[0]
    assert (log.log_start_offset, log.damaged_range_count) == (start, 0)
    assert values(log) == [b"behind"][:kept_count]
    assert [append(log, each).is_duplicate for each in sent] == [True, True]


def test_a_topic_that_was_deleted_or_made_anew_stays_as_it_is() -> None:
    disk = Disk()
    disk.prepare()
    for log in disk.logs:
        append(log, batch(b"old"))
    assert disk.commit()
    disk.directory.delete_partitions([("flights", 0)])
    disk.directory.open_partition(
        "flights", 0, topic_id=bytes([3]) * 16, config=CONFIG, leader_epoch=0, now_ms=0
    ).flush()
    disk.files = disk.files.crashed(synced_only)
    disk.open([bytes([3]) * 16, TOPIC_IDS[1]])
    assert values(disk.logs[0]) == []
    assert values(disk.logs[1]) == [b"first", b"old"]


def test_a_clean_stop_leaves_nothing_to_replay() -> None:
    disk = Disk()
    disk.prepare()
    append(disk.logs[0], batch(b"second"))
    assert disk.commit()
    assert live(disk) == 1
    disk.directory.close()
    assert live(disk) == 0


@pytest.mark.parametrize("choose", [synced_only, everything])
def test_what_kafka_has_left_in_order_is_not_written_over_by_any_later_start(
    choose: Choose,
) -> None:
    disk = Disk()
    disk.prepare()
    append(disk.logs[0], batch(b"second"))
    assert disk.commit()
    left = disk.files.crashed(synced_only)
    # Kafka, to which the journal is nothing, has started on what a loss of power left, and stopped.
    left.write_atomically(f"data/{CLEAN_SHUTDOWN}", encode_clean_shutdown())
    is_killed, at = True, 0
    while is_killed:
        disk.files = left.killed()
        disk.files.die_in = at
        with suppress(Died):
            disk.open()
        is_killed = disk.files.is_dead
        disk.files = disk.files.crashed(choose)
        disk.open()
        assert values(disk.logs[0]) == [b"first"]
        at += 1
    assert at > 1


def test_a_journal_that_is_not_wanted_any_more_is_replayed_and_removed() -> None:
    disk = Disk()
    disk.prepare()
    append(disk.logs[0], batch(b"second"))
    assert disk.commit()
    disk.journal_bytes = 0
    disk.lose_power()
    assert values(disk.logs[0]) == [b"first", b"second"]
    assert not disk.files.exists(f"data/{JOURNAL}")


def test_a_compacted_segment_is_not_written_over_where_the_recovery_points_are_damaged() -> None:
    disk = Disk()
    disk.prepare()
    log = disk.logs[0]
    for number in range(4):
        put(log, (b"key", b"%d" % number))
        assert disk.commit()
    roll(log)
    assert disk.directory.checkpoint_partition("flights", 0) == log.end_offset
    clean(log)
    compacted = batches_of(log)
    assert offsets(kept(log)) == [0, 4]
    path = "data/recovery-point-offset-checkpoint"
    disk.files.write_whole(path, flipped(disk.files.read_whole(path), -2))
    disk.files.open(path).datasync()
    disk.lose_power()
    assert batches_of(disk.logs[0]) == compacted


def test_a_round_leaves_out_what_was_synced_while_it_waited() -> None:
    disk = Disk()
    disk.prepare()
    append(disk.logs[0], batch(b"second"))
    stretch = disk.logs[0].stretch_for_journal(0, 100_000)
    assert stretch is not None
    disk.directory.checkpoint_partition("flights", 0)
    journal = disk.directory.journal
    assert journal is not None
    before = journal.head
    assert journal.append([stretch]) == [stretch]
    assert journal.head == before


# ---- the ring


def test_without_room_a_round_is_refused_and_nothing_written_over() -> None:
    disk = Disk()
    disk.prepare()
    count = 0
    while append(disk.logs[0], batch(b"%d" % count)) and disk.commit():
        count += 1
    # One block is kept for the next release.
    assert count == FILE_BYTES_MIN // BLOCK_BYTES - HEAD_BLOCKS - 1
    assert disk.logs[0].durable_end_offset == count + 1
    disk.lose_power()
    assert values(disk.logs[0]) == [b"first", *(b"%d" % number for number in range(count))]


def test_the_ring_goes_round_and_round() -> None:
    disk = Disk()
    disk.prepare()
    random = Random(1)
    expected = [b"first"]
    for _ in range(100):
        expected.append(random.randbytes(random.randrange(1, 9000)))
        append(disk.logs[0], batch(expected[-1]))
        if not disk.commit():
            disk.directory.free_journal()
            assert disk.commit() or disk.logs[0].durable_end_offset == len(expected)
        if random.random() < 0.1:
            disk.lose_power()
            assert values(disk.logs[0]) == expected
            disk.logs[0].flush()
            assert disk.directory.journal is not None
            disk.directory.journal.prepare()
    disk.lose_power()
    assert values(disk.logs[0]) == expected


def test_a_file_that_cannot_be_read_is_left_out_of_its_round() -> None:
    disk = Disk()
    disk.prepare()
    for log in disk.logs:
        append(log, batch(b"second"))
    broken = f"{disk.logs[0].directory}/{segment_name(0)}{LOG_SUFFIX}"

    def fail(operation: str, path: str) -> None:
        if operation == "pread" and path == broken:
            raise OSError(5, "Input/output error")

    disk.files.on_call = fail
    assert not disk.commit()
    disk.files.on_call = None
    assert [log.durable_end_offset for log in disk.logs] == [1, 2]
    disk.lose_power()
    assert [values(log) for log in disk.logs] == [[b"first"], [b"first", b"second"]]


def live(disk: Disk) -> int:
    """How many rounds a start would look at."""
    file = disk.files.open(f"data/{JOURNAL}")
    head = newest(read_heads(file))
    assert head is not None
    return len(live_rounds(file, head))
