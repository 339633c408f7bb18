"""Appending: offsets, limits, timestamps, rolling, and a disk that refuses."""

from __future__ import annotations

import errno

import pytest

from asyncbroker.log.config import INT64_MAX, LogConfig
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.log_harness import (
    DIRECTORY,
    NOW_MS,
    append,
    append_each,
    batch,
    fill_up,
    names,
    open_log,
    read_all,
    reopened,
    values_of,
    with_config,
)
from asyncbroker.protocol.batches import ATTRIBUTES_AT, stamp_max_timestamp
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.records import (
    Compression,
    batches,
    check_batch,
    read_header,
    records_of,
    verify_crc,
)

HOUR_MS = 3_600_000


def refused(log: PartitionLog, data: bytearray) -> ErrorCode:
    end_offset, size = log.end_offset, log.size
    with pytest.raises(KafkaError) as caught:
        append(log, data)
    assert (log.end_offset, log.size) == (end_offset, size)
    return caught.value.code


def logs_of(files: MemoryFiles) -> list[int]:
    """The base offsets of the segments."""
    return [int(name[:20]) for name in names(files) if name.endswith(".log")]


def test_offset_and_leader_epoch_are_written_into_the_batch_and_nothing_else() -> None:
    files = MemoryFiles()
    log = open_log(files, leader_epoch=6)
    append(log, batch(b"a", b"b", b"c"))
    data = batch(b"d", compression=Compression.ZSTD)
    before = bytes(data)
    appended = append(log, data)
    assert (appended.base_offset, appended.last_offset) == (3, 3)
    assert appended.log_append_time_ms == -1
    assert data[12:16] == (6).to_bytes(4, "big")
    assert data[:8] == (3).to_bytes(8, "big")
    assert data[8:12] + data[16:] == before[8:12] + before[16:]
    assert files.read_whole(f"{DIRECTORY}/{0:020d}.log")[-len(data) :] == data
    assert verify_crc(data, read_header(data))


def test_the_header_given_in_tells_the_offset_afterwards() -> None:
    log = open_log(leader_epoch=2)
    append(log)
    data = batch(b"a", b"b")
    header = check_batch(data)
    log.append(memoryview(data), header, leader_epoch=2, now_ms=NOW_MS)
    assert (header.base_offset, header.next_offset, header.partition_leader_epoch) == (1, 3, 2)


# ---- limits


def test_a_batch_above_the_topics_limit_is_refused_and_one_at_it_is_not() -> None:
    data = batch(b"x" * 100)
    log = open_log(config=with_config(max_message_bytes=len(data) - 1))
    assert refused(log, bytearray(data)) is ErrorCode.MESSAGE_TOO_LARGE
    log.set_config(with_config(max_message_bytes=len(data)))
    append(log, data)


def test_the_limit_counts_the_compressed_batch() -> None:
    log = open_log(config=with_config(max_message_bytes=300))
    assert refused(log, batch(b"x" * 3000)) is ErrorCode.MESSAGE_TOO_LARGE
    append(log, batch(b"x" * 3000, compression=Compression.GZIP))


def test_a_batch_that_no_segment_holds_is_refused() -> None:
    log = open_log(config=with_config(segment_bytes=200))
    assert refused(log, batch(b"x" * 200)) is ErrorCode.RECORD_LIST_TOO_LARGE


# ---- timestamps


def test_create_time_is_kept_when_it_is_plausible() -> None:
    log = open_log()
    for timestamp in (0, NOW_MS - 10 * HOUR_MS, NOW_MS + HOUR_MS, -1):
        assert append(log, batch(b"a", timestamps=[timestamp])).log_append_time_ms == -1
    assert log.end_offset == 4


def test_a_timestamp_too_far_ahead_is_refused() -> None:
    log = open_log()
    ahead = batch(b"a", b"b", timestamps=[NOW_MS, NOW_MS + HOUR_MS + 1])
    assert refused(log, ahead) is ErrorCode.INVALID_TIMESTAMP
    log.set_config(with_config(message_timestamp_after_max_ms=INT64_MAX))
    append(log, batch(b"a", timestamps=[NOW_MS + 1000 * HOUR_MS]))


def test_a_timestamp_too_far_back_is_refused_where_the_topic_says_so() -> None:
    log = open_log(config=with_config(message_timestamp_before_max_ms=1000))
    late = batch(b"a", b"b", b"c", timestamps=[NOW_MS, NOW_MS - 1001, NOW_MS])
    assert refused(log, late) is ErrorCode.INVALID_TIMESTAMP
    append(log, batch(b"a", b"b", timestamps=[NOW_MS - 1000, NOW_MS]))


def test_a_client_may_not_claim_log_append_time() -> None:
    data = batch()
    data[22] |= 0x08
    header = read_header(data)
    log = open_log()
    with pytest.raises(KafkaError) as caught:
        log.append(data, header, leader_epoch=1, now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


def test_records_without_timestamps_are_not_decoded_for_them() -> None:
    """Appends run on the event loop, and a few kilobytes may hold a hundred megabytes."""
    log = open_log()
    data = batch(b"x" * 50, timestamps=[NOW_MS], compression=Compression.ZSTD)
    data[-9:] = bytes(9)
    stamp_max_timestamp(data, -1)
    before = bytes(data[ATTRIBUTES_AT:])
    log.append(data, read_header(data), leader_epoch=1, now_ms=NOW_MS)
    assert bytes(data[ATTRIBUTES_AT:]) == before


def test_log_append_time_is_written_under_a_new_crc() -> None:
    log = open_log(config=with_config(is_log_append_time=True))
    data = batch(b"a", b"b", timestamps=[5, NOW_MS + 100 * HOUR_MS])
    assert append(log, data).log_append_time_ms == NOW_MS
    header = read_header(data)
    assert verify_crc(data, header)
    assert [record.timestamp for record in records_of(data)] == [NOW_MS, NOW_MS]
    assert header.max_timestamp == NOW_MS


# ---- rolling


def test_a_segment_rolls_before_it_would_be_too_large() -> None:
    files = MemoryFiles()
    size = len(batch(b"x" * 20))
    log = open_log(files, config=with_config(segment_bytes=3 * size))
    append_each(log, 8)
    assert logs_of(files) == [0, 3, 6]
    assert [files.list_files(DIRECTORY)[f"{base:020d}.log"] for base in (0, 3)] == [3 * size] * 2
    assert log.size == 8 * size
    assert log.active_base_offset == 6


def test_a_segment_rolls_by_the_timestamps_of_its_records() -> None:
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_ms=1000))
    for timestamp in (500, 1500, 0, 1501, 2000, 1000, 2502):
        append(log, batch(b"a", timestamps=[timestamp]))
    # 1501 is more than a second after the first batch, 500; 2502 after 1501.
    assert logs_of(files) == [0, 3, 6]


def test_records_without_timestamps_roll_by_the_clock() -> None:
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_ms=1000))
    for now_ms in (NOW_MS, NOW_MS + 1000, NOW_MS + 1001, NOW_MS + 1500):
        append(log, batch(b"a", timestamps=[-1]), now_ms=now_ms)
    assert logs_of(files) == [0, 2]


def test_the_age_of_a_segment_survives_a_restart() -> None:
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_ms=1000))
    append(log, batch(b"a", timestamps=[500]))
    log = reopened(log, files)
    append(log, batch(b"a", timestamps=[1500]))
    append(log, batch(b"a", timestamps=[1501]))
    assert logs_of(files) == [0, 2]


def test_jitter_makes_segments_roll_earlier_and_always_at_the_same_time() -> None:
    ages = set()
    for partition in range(5):
        config = with_config(segment_ms=10_000, segment_jitter_ms=5000, segment_bytes=1 << 20)
        found = []
        for _ in range(2):
            files = MemoryFiles()
            log = open_log(files, directory=f"data/a-{partition}", config=config)
            append(log, batch(b"a", timestamps=[0]))
            age = 0
            while log.segment_count == 1:
                age += 50
                append(log, batch(b"a", timestamps=[age]))
            found.append(age)
        assert found[0] == found[1]
        assert 5000 <= found[0] <= 10_050
        ages.add(found[0])
    assert len(ages) > 1


def test_a_segment_rolls_when_its_index_is_full() -> None:
    files = MemoryFiles()
    config = LogConfig(index_interval_bytes=1, segment_index_bytes=5 * 8)
    log = open_log(files, config=config)
    append_each(log, 20)
    # The first batch has no entry, and the fifth entry makes the index full.
    assert logs_of(files) == [0, 6, 12, 18]


def test_a_segment_rolls_when_a_relative_offset_would_not_fit() -> None:
    files = MemoryFiles()
    log = open_log(files, config=LogConfig())
    append(log)
    for _ in range(3):
        # As it may come from another broker's log; a client's batch cannot be so sparse.
        data = batch(b"a")
        data[23:27] = ((1 << 31) - 2).to_bytes(4, "big")
        append(log, data, is_client=False)
    assert logs_of(files) == [0, 1 << 31, (1 << 32) - 1]


def test_settings_take_hold_with_the_next_append() -> None:
    files = MemoryFiles()
    log = open_log(files, config=LogConfig())
    append_each(log, 5)
    log.set_config(with_config(segment_bytes=150))
    append_each(log, 2)
    assert logs_of(files) == [0, 5, 6]


# ---- a disk that refuses


def test_a_full_disk_fails_one_append_and_leaves_nothing_of_it() -> None:
    files = MemoryFiles()
    log = open_log(files)
    append_each(log, 2)
    size = log.size
    fill_up(files)
    with pytest.raises(OSError, match="full"):
        append(log)
    assert files.list_files(DIRECTORY)[f"{0:020d}.log"] == size
    assert log.end_offset == 2
    append_each(log, 2)
    assert [offset for offset, _ in read_all(log)] == [0, 1, 2, 3]


def test_a_roll_that_fails_leaves_the_log_as_it_was() -> None:
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_bytes=150))
    append_each(log, 1)

    def no_new_files(operation: str, path: str) -> None:
        if operation == "open" and not files.exists(path):
            raise OSError(errno.EMFILE, "too many open files")

    files.on_call = no_new_files
    for _ in range(2):
        with pytest.raises(OSError, match="too many"):
            append_each(log, 1)
    files.on_call = None
    append_each(log, 2)
    assert [offset for offset, _ in read_all(log)] == [0, 1, 2]


def test_a_failed_fsync_is_never_tried_again() -> None:
    files = MemoryFiles()
    log = open_log(files)
    append_each(log, 2)
    log.flush()
    append_each(log, 2)
    syncs = 0

    def fail(operation: str, path: str) -> None:
        nonlocal syncs
        if operation == "datasync":
            syncs += 1
            if syncs == 1:
                raise OSError(errno.EIO, "bad disk")

    files.on_call = fail
    with pytest.raises(OSError, match="bad disk"):
        log.flush()
    for _ in range(2):
        with pytest.raises(OSError, match="offline"):
            log.flush()
        with pytest.raises(OSError, match="offline"):
            append(log)
        with pytest.raises(OSError, match="offline"):
            log.checkpoint()
    assert syncs == 1
    assert log.durable_end_offset == 2
    assert log.failure is not None
    assert len(read_all(log)) == 4
    with pytest.raises(OSError, match="offline"):
        log.close()
    assert syncs == 1


def test_a_closed_log_takes_nothing() -> None:
    log = open_log()
    append(log)
    log.close()
    with pytest.raises(OSError, match="closed"):
        append(log)


# ---- durability


def test_a_flush_syncs_what_is_dirty_and_the_directory_when_names_changed() -> None:
    calls: list[tuple[str, str]] = []
    files = MemoryFiles(lambda *call: calls.append(call))
    log = open_log(files, config=with_config(segment_bytes=300))

    def synced() -> list[str]:
        found = [path for operation, path in calls if "sync" in operation]
        calls.clear()
        return [path.removeprefix(DIRECTORY).removeprefix("/") for path in found]

    synced()
    append_each(log, 7)
    assert log.durable_end_offset == 0
    assert log.flush() == 7
    bases = [f"{base:020d}.log" for base in logs_of(files)]
    assert len(bases) > 2
    # Also the topic id and the directory that holds this one, since they are new.
    synced_first = synced()
    assert synced_first == [*bases, "partition.metadata", "", "data"]
    assert log.durable_end_offset == 7
    assert log.flush() == 7
    assert synced() == []
    append_each(log, 1)
    log.flush()
    assert synced()[0] == bases[-1]


def test_writeback_is_asked_for_once_of_what_is_new() -> None:
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_bytes=300))
    asked: list[str] = []
    files.on_call = lambda operation, path: (
        asked.append(path) if operation == "start_writeback" else None
    )
    append_each(log, 5)
    log.start_writeback()
    assert asked == [segment.log_path for segment in log.segments]
    log.start_writeback()
    assert len(asked) == len(log.segments)
    append_each(log, 1)
    log.start_writeback()
    assert asked.count(log.segments[-1].log_path) == 2
    assert len(asked) == len(set(asked)) + 1
    log.flush()
    log.start_writeback()
    assert len(asked) == len(set(asked)) + 1


def test_closing_writes_nothing_when_nothing_happened() -> None:
    files = MemoryFiles()
    log = reopened(open_log(files), files)
    append_each(log, 30)
    log = reopened(log, files)
    calls: list[str] = []
    files.on_call = lambda operation, path: calls.append(operation)
    log.close()
    assert "pwrite" not in calls
    assert "datasync" not in calls


# ---- the beginning of the log


def test_advancing_the_start_drops_whole_segments_only() -> None:
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_bytes=300))
    append_each(log, 9)
    bases = logs_of(files)
    assert bases[:3] == [0, 3, 6]
    reader = log.locate(0, 1000, end_offset=9)
    assert reader is not None
    dropped = log.advance_log_start(4)
    assert log.log_start_offset == 4
    log.delete_segments(dropped)
    assert logs_of(files) == [3, 6]
    assert log.size == sum(len(batch(b"x" * 20)) for _ in range(6))
    assert [offset for offset, _ in read_all(log)] == [4, 5, 6, 7, 8]
    assert [header.base_offset for header, _ in batches(reader.read())] == [0, 1, 2]
    assert log.advance_log_start(2) == []
    assert log.log_start_offset == 4
    with pytest.raises(KafkaError) as caught:
        log.advance_log_start(10)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_log_emptied_from_the_front_goes_on_where_it_was() -> None:
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_bytes=300))
    append_each(log, 7)
    log.delete_segments(log.advance_log_start(7))
    log = reopened(log, files, log_start_offset=7)
    assert (log.log_start_offset, log.end_offset) == (7, 7)
    append_each(log, 1)
    assert [offset for offset, _ in read_all(log)] == [7]


def test_truncation_takes_the_batch_that_holds_the_offset() -> None:
    files = MemoryFiles()
    log = open_log(files, config=with_config(segment_bytes=300))
    for _ in range(6):
        append(log, batch(b"a", b"b"))
    log.flush()
    log.truncate_to(7, NOW_MS)
    assert log.end_offset == 6
    assert log.durable_end_offset == 6
    assert len(values_of(log)) == 6
    append(log, batch(b"new"))
    log = reopened(log, files)
    assert read_all(log)[-1] == (6, b"new")
    assert log.size == sum(
        size for name, size in files.list_files(DIRECTORY).items() if name.endswith(".log")
    )


def test_truncation_below_the_start_or_beyond_the_end() -> None:
    log = open_log()
    append_each(log, 5)
    log.advance_log_start(3)
    log.truncate_to(5, NOW_MS)
    log.truncate_to(9, NOW_MS)
    assert log.end_offset == 5
    with pytest.raises(KafkaError):
        log.truncate_to(2, NOW_MS)
