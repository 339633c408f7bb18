"""What compaction keeps of a log, and what it must not touch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from asyncbroker.log import checking
from asyncbroker.log.cleaner import (
    CleaningImpossible,
)
from asyncbroker.log.cleaner_plan import plan_cleaning
from asyncbroker.log.errors import CorruptLog
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.cleaner_harness import (
    COMPACTED,
    DAY_MS,
    batches_of,
    clean,
    kept,
    marker,
    offsets,
    put,
    roll,
)
from asyncbroker.log.tests.log_harness import (
    DIRECTORY,
    NOW_MS,
    append,
    crashed,
    flip,
    from_producer,
    names,
    open_log,
)
from asyncbroker.protocol.batches import DELETE_HORIZON_BIT
from asyncbroker.protocol.records import Compression, Record, build_batch

HORIZON_MS = NOW_MS + DAY_MS


def compacted(**changes: object) -> PartitionLog:
    return open_log(config=replace(COMPACTED, **changes))  # type: ignore[arg-type]


def test_the_last_record_of_each_key_stays_at_its_offset() -> None:
    log = compacted()
    put(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    put(log, (b"a", b"2"))
    put(log, (b"b", b"2"), (b"a", b"3"))
    roll(log)
    cleaning = clean(log)
    assert [(each.offset, each.key, each.value) for each in kept(log)] == [
        (2, b"c", b"1"),
        (4, b"b", b"2"),
        (5, b"a", b"3"),
    ]
    assert cleaning.end_offset == 6
    assert log.end_offset == 7


def test_a_batch_of_which_all_stays_is_not_changed_by_a_byte() -> None:
    log = compacted()
    put(log, (b"a", b"1"), (b"b", b"1"), compression=Compression.GZIP)
    put(log, (b"c", b"1"))
    roll(log)
    before = batches_of(log)
    clean(log)
    assert batches_of(log) == before


@pytest.mark.parametrize("codec", Compression)
def test_a_batch_that_loses_records_keeps_its_codec_offsets_and_producer(
    codec: Compression,
) -> None:
    log = compacted()
    records = [Record(0, NOW_MS + at, b"%d" % (at // 2), bytes(50)) for at in range(6)]
    append(
        log,
        build_batch(records, compression=codec, producer_id=5, producer_epoch=2, base_sequence=17),
    )
    roll(log)
    ((before, _), *_) = batches_of(log)
    clean(log)
    ((after, _), *_) = batches_of(log)
    assert (after.record_count, after.compression) == (3, codec)
    assert (after.base_offset, after.last_offset, after.last_sequence) == (0, 5, 22)
    assert (after.producer_id, after.producer_epoch) == (5, 2)
    assert after.partition_leader_epoch == before.partition_leader_epoch
    assert (after.base_timestamp, after.max_timestamp) == (NOW_MS + 1, NOW_MS + 5)
    assert [(each.offset, each.timestamp) for each in kept(log)] == [
        (at, NOW_MS + at) for at in (1, 3, 5)
    ]


def test_records_keep_the_time_of_their_append() -> None:
    log = compacted(is_log_append_time=True)
    put(log, (b"a", b"1"), (b"a", b"2"), time_ms=NOW_MS - 1000)
    roll(log, NOW_MS)
    (first, *_) = batches_of(log)
    clean(log)
    assert [(each.value, each.timestamp) for each in kept(log)] == [(b"2", first[0].max_timestamp)]


def test_a_tombstone_goes_in_two_passes() -> None:
    log = compacted()
    put(log, (b"a", b"1"))
    put(log, (b"a", None), (b"b", b"1"))
    roll(log)
    cleaning = clean(log)
    # The first pass: what it deletes is gone, it stays, and its batch says until when.
    assert [(each.key, each.value, each.timestamp) for each in kept(log)] == [
        (b"a", None, NOW_MS),
        (b"b", b"1", NOW_MS),
    ]
    (header, _) = batches_of(log)[0]
    assert header.attributes & DELETE_HORIZON_BIT
    assert header.base_timestamp == cleaning.next_horizon_ms == HORIZON_MS
    # Before its time nothing changes, not even the horizon.
    before = batches_of(log)
    assert clean(log, now_ms=HORIZON_MS - 1).next_horizon_ms == HORIZON_MS
    assert batches_of(log) == before
    cleaning = clean(log, now_ms=HORIZON_MS)
    assert [(each.key, each.timestamp) for each in kept(log)] == [(b"b", NOW_MS)]
    assert cleaning.next_horizon_ms is None


def test_a_tombstone_that_is_superseded_goes_at_once() -> None:
    log = compacted()
    put(log, (b"a", None))
    put(log, (b"a", b"2"))
    roll(log)
    clean(log)
    assert [each.value for each in kept(log)] == [b"2"]


def test_records_without_keys_go_as_kafka_has_it() -> None:
    log = compacted()
    put(log, (None, b"1"), (b"a", b"1"))
    roll(log)
    clean(log)
    assert offsets(kept(log)) == [1]


def test_the_newest_segment_is_not_touched() -> None:
    log = compacted()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    assert clean(log).end_offset == 0
    assert offsets(kept(log)) == [0, 1]


def test_records_younger_than_the_lag_are_not_touched() -> None:
    log = compacted(min_compaction_lag_ms=1000)
    for at in range(6):
        put(log, (b"a", b"%d" % at), time_ms=NOW_MS + at * 500)
        roll(log, NOW_MS + at * 500)
    clean(log, now_ms=NOW_MS + 2500)
    # The segments with times up to 2500 - 1000.
    assert offsets(kept(log)) == [6, 8, 10]
    clean(log, now_ms=NOW_MS + 3600)
    assert offsets(kept(log)) == [10]


def test_a_plan_is_due_by_the_dirty_share_or_by_age() -> None:
    log = compacted(min_cleanable_dirty_ratio=0.6, max_compaction_lag_ms=5000)
    for _ in range(2):
        put(log, (b"a", b"1"))
        roll(log)
    config = log.config
    everything = plan_cleaning(log, None, log.end_offset, NOW_MS)
    assert (everything.dirty_ratio, everything.end_offset) == (1.0, 3)
    assert everything.is_due(config)
    half = plan_cleaning(log, 2, log.end_offset, NOW_MS)
    assert half.start_offset == 2
    assert half.dirty_ratio < 0.6
    assert not half.is_due(config)
    assert plan_cleaning(log, 2, log.end_offset, NOW_MS + 5001).is_due(config)
    nothing = plan_cleaning(log, 3, log.end_offset, NOW_MS + 5001)
    assert not nothing.is_due(config)
    # Not beyond what is decided.
    assert plan_cleaning(log, None, 2, NOW_MS).end_offset == 1
    # A checkpoint from another life of the log means nothing.
    assert plan_cleaning(log, 1000, log.end_offset, NOW_MS).start_offset == 0


def test_small_segments_become_one_within_the_limits() -> None:
    log = compacted()
    for at in range(12):
        put(log, (b"%d" % at, bytes(60)))
        roll(log)
    before = kept(log)
    sizes = [segment.size for segment in log.segments[:-1]]
    clean(log)
    assert len(sizes) == 12
    assert len(log.segments) == 7
    assert all(segment.size <= 600 for segment in log.segments)
    assert kept(log) == before
    assert log.size == sum(segment.size for segment in log.segments)


def test_a_map_that_is_full_leaves_the_rest_for_later() -> None:
    log = compacted()
    for at in range(40):
        put(log, (b"%d" % (at % 20), b"%d" % at))
    roll(log)
    small = 10 * 200
    first = clean(log, key_bytes_max=small)
    assert 0 < first.end_offset < 40
    assert {each.key: each.value for each in kept(log)} == {
        b"%d" % at: b"%d" % (at + 20) for at in range(20)
    }
    done = first.end_offset
    while done < log.active_base_offset:
        next_cleaning = clean(log, cleaned_offset=done, key_bytes_max=small)
        assert next_cleaning.end_offset > done
        done = next_cleaning.end_offset
    assert offsets(kept(log)) == list(range(20, 40))


def test_a_map_without_room_for_one_batch_is_impossible() -> None:
    log = compacted()
    put(log, *((b"%d" % at, b"1") for at in range(20)))
    roll(log)
    with pytest.raises(CleaningImpossible, match=r"dedupe\.buffer\.size"):
        clean(log, key_bytes_max=1000)
    assert len(kept(log)) == 20


def test_damage_ends_the_cleaning_and_stays() -> None:
    files = MemoryFiles()
    log = open_log(files, config=COMPACTED)
    for at in range(3):
        put(log, (b"a", b"%d" % at))
        roll(log)
    flip(files, log.segments[1].log_path, 70)
    before = names(files), [files.read_whole(each.log_path) for each in log.segments]
    with pytest.raises(CorruptLog, match="CRC"):
        clean(log)
    assert (names(files), [files.read_whole(each.log_path) for each in log.segments]) == before


def test_a_segment_that_is_all_damage_is_told_by_the_plan() -> None:
    """Which asks for the age of its first record."""
    log = compacted()
    put(log, (b"a", bytes(20)))
    roll(log)
    log.flush()
    flip(log.files, log.segments[0].log_path, 70)
    scrubbed = checking.scrub(log, 0, 0, 1 << 20)
    assert scrubbed is not None
    assert scrubbed.damaged_range_count == 1
    with pytest.raises(CorruptLog, match="damaged to its end"):
        plan_cleaning(log, None, log.end_offset, NOW_MS)


# ---- producers and transactions


def test_the_last_batch_of_a_producer_stays_without_records() -> None:
    files = MemoryFiles()
    log = open_log(files, config=COMPACTED)
    append(log, from_producer(0, b"1"))
    append(log, from_producer(1, b"2", b"3"))
    put(log, (b"k", b"4"))
    roll(log)
    clean(log)
    assert [each.value for each in kept(log)] == [b"4"]
    (header, data) = batches_of(log)[0]
    assert (header.base_offset, header.last_offset, header.last_sequence) == (1, 2, 2)
    assert (header.record_count, len(data)) == (0, 61)
    # Also when everything else that knew of the producer is gone.
    log.close(clean=False)
    for name in names(files):
        if name.endswith((".snapshot", ".producers")):
            files.remove(f"{DIRECTORY}/{name}")
    log = open_log(files, config=COMPACTED, is_clean=False, recovery_point=log.end_offset)
    assert append(log, from_producer(1, b"2", b"3")).is_duplicate
    assert not append(log, from_producer(3, b"5")).is_duplicate
    # Then another one is the last.
    roll(log)
    clean(log)
    assert all(header.base_offset != 1 for header, _ in batches_of(log))


def test_all_five_batches_of_a_producer_are_known_after_a_crash() -> None:
    files = MemoryFiles()
    log = open_log(files, config=COMPACTED)
    for at in range(6):
        append(log, from_producer(at, b"%d" % at))
    roll(log)
    clean(log)
    log = crashed(log, files, recovery_point=log.end_offset)
    for at in range(1, 6):
        assert append(log, from_producer(at, b"%d" % at)).is_duplicate


def test_the_end_of_what_is_cleaned_can_be_reached() -> None:
    log = compacted()
    put(log, (b"a", b"1"))
    put(log, (b"a", None))
    roll(log)
    clean(log)
    clean(log, now_ms=HORIZON_MS)
    assert kept(log) == []
    (header, *_) = (header for header, _ in batches_of(log))
    assert (header.last_offset, header.record_count) == (1, 0)


def test_records_of_aborted_transactions_go_and_committed_ones_stay() -> None:
    log = compacted()
    for producer_id, key in ((1, b"a"), (2, b"b")):
        put(log, (key, b"old"))
        put(
            log,
            (key, b"new"),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
    roll(log)
    marker(log, 1, commit=True)
    marker(log, 2, commit=False)
    assert log.last_stable_offset == log.end_offset
    clean(log)
    # The abort is in the part that is not cleaned, and yet the old value of its key stays.
    assert [(each.key, each.value) for each in kept(log)] == [(b"a", b"new"), (b"b", b"old")]


def test_a_marker_goes_after_all_of_its_transaction_and_its_time() -> None:
    log = compacted()
    fields = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True}
    put(log, (b"a", b"1"), base_sequence=0, **fields)  # type: ignore[arg-type]
    marker(log, 1, commit=True)
    roll(log)
    put(log, (b"a", b"2"), base_sequence=1, **fields)  # type: ignore[arg-type]
    marker(log, 1, commit=True)
    roll(log)

    def markers() -> list[int]:
        return [each.base_offset for each, _ in batches_of(log) if each.is_control]

    clean(log)
    assert markers() == [1, 4]  # records of its transaction were met
    clean(log)
    assert markers() == [1, 4]  # now it has a horizon
    clean(log, now_ms=HORIZON_MS)
    assert markers() == [4]


def test_an_open_transaction_is_not_touched() -> None:
    log = compacted()
    put(log, (b"a", b"1"))
    roll(log)
    put(
        log,
        (b"a", b"2"),
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    put(log, (b"a", b"3"))
    roll(log)
    assert clean(log).end_offset == 1
    assert [each.value for each in kept(log)] == [b"1", b"2", b"3"]
