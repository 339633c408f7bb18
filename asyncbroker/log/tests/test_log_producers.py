"""What a log remembers of its producers: repeats, gaps, epochs, snapshots."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c

from asyncbroker.log.config import LogConfig
from asyncbroker.log.damage import DamagedRanges
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.producers import CorruptSnapshot, ProducerState
from asyncbroker.log.tests.log_harness import (
    DIRECTORY,
    NOW_MS,
    SMALL,
    append,
    append_each,
    batch,
    crashed,
    flip,
    from_producer,
    names,
    open_log,
    reopened,
    with_config,
)
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.records import Record, build_batch, check_batch, read_header

NO_DAMAGE = DamagedRanges(MemoryFiles(), DIRECTORY)
LARGE = LogConfig()
Restart = Callable[..., PartitionLog]
DAY_MS = 86_400_000


def refused(log: PartitionLog, data: bytearray) -> ErrorCode:
    end_offset = log.end_offset
    with pytest.raises(KafkaError) as caught:
        append(log, data)
    assert log.end_offset == end_offset
    return caught.value.code


def marker(producer_id: int, epoch: int, *, commits: bool, coordinator_epoch: int = 3) -> bytearray:
    """The end of a transaction, as the coordinator writes it."""
    record = Record(
        0, NOW_MS, struct.pack(">hh", 0, int(commits)), struct.pack(">hi", 0, coordinator_epoch)
    )
    return build_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=epoch,
        is_transactional=True,
        is_control=True,
    )


def transactional(sequence: int, producer_id: int = 7, epoch: int = 0) -> bytearray:
    return batch(
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


# ---- repeats


def test_a_repeated_batch_gets_its_first_offsets_and_is_not_written_again() -> None:
    log = open_log()
    append(log)
    first = append(log, from_producer(0, b"a", b"b", b"c"))
    second = append(log, from_producer(3, b"d"))
    again = append(log, from_producer(0, b"a", b"b", b"c"))
    assert (first.base_offset, first.last_offset, first.is_duplicate) == (1, 3, False)
    assert (again.base_offset, again.last_offset, again.is_duplicate) == (1, 3, True)
    assert second.base_offset == 4
    assert log.end_offset == 5


def test_the_last_five_batches_are_remembered_and_no_more() -> None:
    log = open_log(config=LARGE)
    for sequence in range(6):
        append(log, from_producer(sequence))
    for sequence in range(1, 6):
        assert append(log, from_producer(sequence)).base_offset == sequence
    assert refused(log, from_producer(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 6


def test_a_repeat_must_match_exactly() -> None:
    log = open_log()
    append(log, from_producer(0, b"a", b"b"))
    for data in (
        from_producer(0, b"a"),
        from_producer(1, b"b"),
        from_producer(0, b"a", b"b", b"c"),
    ):
        assert refused(log, data) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repeat_to_a_topic_with_log_append_time_gets_the_first_time() -> None:
    log = open_log(config=with_config(is_log_append_time=True))
    assert append(log, from_producer(0)).log_append_time_ms == NOW_MS
    again = append(log, from_producer(0), now_ms=NOW_MS + 5000)
    assert again.log_append_time_ms == NOW_MS


# ---- sequences and epochs


def test_a_gap_in_the_sequence_is_refused() -> None:
    log = open_log()
    append(log, from_producer(0, b"a", b"b"))
    for sequence in (1, 3, 100):
        assert refused(log, from_producer(sequence)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, from_producer(2))


def test_sequences_wrap_to_zero_after_the_largest() -> None:
    log = open_log()
    largest = (1 << 31) - 1
    append(log, from_producer(largest - 1, b"a"))
    append(log, from_producer(largest, b"b", b"c"))  # the second one has sequence 0
    assert refused(log, from_producer(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, from_producer(1, b"d")).base_offset == 3
    assert append(log, from_producer(largest, b"b", b"c")).is_duplicate


def test_an_unknown_producer_may_begin_anywhere() -> None:
    log = open_log()
    assert append(log, from_producer(41)).base_offset == 0
    assert refused(log, from_producer(43)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero() -> None:
    log = open_log()
    append(log, from_producer(0, epoch=3))
    assert refused(log, from_producer(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, from_producer(1, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, from_producer(0, epoch=4))
    # The same sequences in the older epoch are not a repeat of it.
    assert refused(log, from_producer(0, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert append(log, from_producer(0, epoch=4)).is_duplicate


def test_producers_do_not_disturb_each_other() -> None:
    log = open_log()
    for sequence in range(3):
        for producer_id in (7, 8):
            append(log, from_producer(sequence, producer_id=producer_id))
    assert log.end_offset == 6


def test_a_refused_write_leaves_the_history_as_it_was() -> None:
    files = MemoryFiles()
    log = open_log(files)
    append(log, from_producer(0))

    def full(operation: str, path: str) -> None:
        if operation == "pwrite":
            raise OSError(28, "full")

    files.on_call = full
    with pytest.raises(OSError, match="full"):
        append(log, from_producer(1))
    files.on_call = None
    appended = append(log, from_producer(1))
    assert (appended.base_offset, appended.is_duplicate) == (1, False)


# ---- over a restart


@pytest.mark.parametrize("restart", [reopened, crashed])
def test_all_five_batches_survive_a_restart_clean_or_not(restart: Restart) -> None:
    files = MemoryFiles()
    log = open_log(files)
    for sequence in range(7):
        append(log, from_producer(sequence))
        append_each(log, 2, size=100)  # rolls in between
    assert log.segment_count > 2
    log.checkpoint()
    append(log, from_producer(7))
    log = restart(log, files)
    for sequence in range(3, 8):
        assert append(log, from_producer(sequence)).base_offset == sequence * 3
    assert refused(log, from_producer(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, from_producer(8))


def test_a_clean_restart_reads_the_snapshot_and_not_the_log() -> None:
    files = MemoryFiles()
    log = open_log(files, config=LARGE)
    for sequence in range(1000):
        append(log, from_producer(sequence))
    log.close()
    bytes_read = 0

    def count(operation: str, path: str) -> None:
        nonlocal bytes_read
        bytes_read += operation == "pread" and path.endswith(".log")

    files.on_call = count
    log = open_log(files, config=LARGE, recovery_point=1000)
    assert bytes_read < 10
    assert append(log, from_producer(995)).is_duplicate


@pytest.mark.parametrize("suffix", [".snapshot", ".producers"])
@pytest.mark.parametrize("position", [0, 4, 10, -1])
def test_a_damaged_snapshot_costs_at_most_the_older_batches(suffix: str, position: int) -> None:
    files = MemoryFiles()
    log = open_log(files, config=LARGE)
    for sequence in range(7):
        append(log, from_producer(sequence))
    log.close()
    path = f"{DIRECTORY}/{7:020d}{suffix}"
    size = len(files.read_whole(path))
    flip(files, path, position % size)
    log = open_log(files, config=LARGE, recovery_point=7)
    assert append(log, from_producer(6)).is_duplicate
    if suffix == ".snapshot":  # the log was replayed
        assert append(log, from_producer(3)).is_duplicate
    append(log, from_producer(7))


def test_without_any_snapshot_the_log_is_replayed() -> None:
    files = MemoryFiles()
    log = open_log(files)
    for sequence in range(30):
        append(log, from_producer(sequence))
    log.close()
    for name in names(files):
        if name.endswith((".snapshot", ".producers")):
            files.remove(f"{DIRECTORY}/{name}")
    log = open_log(files, recovery_point=30)
    assert append(log, from_producer(25)).base_offset == 25
    append(log, from_producer(30))


def test_a_snapshot_that_kafka_wrote_alone_is_used_with_its_last_batches() -> None:
    files = MemoryFiles()
    log = open_log(files, config=LARGE)
    for sequence in range(7):
        append(log, from_producer(sequence))
    log.close()
    files.remove(f"{DIRECTORY}/{7:020d}.producers")
    log = open_log(files, config=LARGE, recovery_point=7)
    assert append(log, from_producer(6)).is_duplicate
    assert refused(log, from_producer(5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, from_producer(7))


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("stops", [1, 2])
def test_a_sidecar_that_a_crash_has_taken_costs_replay_and_no_batch(
    is_clean: bool, stops: int
) -> None:
    """The window of five batches survives, from an older snapshot or from the log itself."""
    files = MemoryFiles()
    log = open_log(files)
    sequence = 0
    for _ in range(stops):
        for _ in range(6):
            append(log, from_producer(sequence, b"value"))
            sequence += 1
        log = reopened(log, files)
    newest = f"{DIRECTORY}/{sequence:020d}.producers"
    assert files.exists(newest)
    if is_clean and stops == 1:
        files.write_whole(newest, b"")
    else:
        files.remove(newest)
    log = open_log(files, is_clean=is_clean)
    for retried in range(sequence - 5, sequence):
        assert append(log, from_producer(retried, b"value")).is_duplicate
    assert append(log, from_producer(sequence, b"value")).base_offset == sequence


def test_the_snapshot_of_a_clean_stop_is_durable() -> None:
    durable: list[str] = []
    files = MemoryFiles(
        lambda operation, path: durable.append(path) if operation == "write_atomically" else None
    )
    log = open_log(files)
    append(log, from_producer(0, b"value"))
    log.close()
    for suffix in (".producers", ".snapshot"):
        assert f"{DIRECTORY}/{1:020d}{suffix}" in durable


def test_a_sidecar_of_another_snapshot_is_not_used() -> None:
    state = ProducerState()
    for sequence in range(3):
        state.add(check_batch(from_producer(sequence)))
    older = state.snapshot()
    state.add(check_batch(from_producer(3)))
    newer = state.snapshot()
    loaded = ProducerState.load(4, newer.kafka, older.sidecar)
    assert loaded.check(check_batch(from_producer(3)), NO_DAMAGE, is_client=True) is not None
    with pytest.raises(KafkaError):
        loaded.check(check_batch(from_producer(2)), NO_DAMAGE, is_client=True)


def test_snapshots_of_a_longer_log_are_removed() -> None:
    files = MemoryFiles()
    log = open_log(files, config=LARGE)
    for sequence in range(5):
        append(log, from_producer(sequence))
    log.close()
    log = open_log(files, config=LARGE, recovery_point=0)
    log.truncate_to(3, NOW_MS)
    log.close(clean=False)
    assert f"{5:020d}.snapshot" not in names(files)
    log = open_log(files, config=LARGE, is_clean=False)
    append(log, from_producer(3))


def test_few_snapshots_are_kept_beside_those_of_segments() -> None:
    files = MemoryFiles()
    log = open_log(files, config=LARGE)
    for sequence in range(6):
        append(log, from_producer(sequence))
        log = reopened(log, files)
    kept = [name for name in names(files) if name.endswith(".snapshot")]
    assert kept == [f"{offset:020d}.snapshot" for offset in (5, 6)]


# ---- Kafka's format


def test_the_snapshot_has_kafkas_bytes() -> None:
    state = ProducerState()
    header = check_batch(from_producer(0, b"a", b"b", producer_id=2**40, epoch=5))
    header.base_offset = 100
    state.add(header)
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 2**40, 5, 1, 101, 1, NOW_MS, -1, -1)
    assert state.snapshot().kafka == struct.pack(">hI", 1, crc32c(body)) + body
    assert state.snapshot().offset == 102


def test_an_empty_snapshot_is_what_kafka_writes() -> None:
    assert ProducerState().snapshot().kafka == bytes.fromhex("0001 48674bc7 00000000")


@pytest.mark.parametrize("data", [b"", b"\0\1", bytes.fromhex("0002 48674bc7 00000000")])
def test_what_is_no_snapshot_is_told(data: bytes) -> None:
    with pytest.raises(CorruptSnapshot):
        ProducerState.load(0, data, None)


def test_every_truncation_of_a_snapshot_is_told() -> None:
    state = ProducerState()
    for producer_id in range(3):
        state.add(check_batch(from_producer(0, producer_id=producer_id)))
    snapshot = state.snapshot()
    for size in range(len(snapshot.kafka)):
        with pytest.raises(CorruptSnapshot):
            ProducerState.load(3, snapshot.kafka[:size], None)
    for size in range(len(snapshot.sidecar)):
        state = ProducerState.load(3, snapshot.kafka, snapshot.sidecar[:size])
        assert len(state) == 3


# ---- expiry


def test_a_silent_producer_is_forgotten_after_its_time() -> None:
    log = open_log()
    append(log, from_producer(0))
    log.expire_producers(NOW_MS)
    append(log, from_producer(0, producer_id=8))
    log.expire_producers(NOW_MS + DAY_MS - 1)
    assert append(log, from_producer(0), now_ms=NOW_MS + DAY_MS - 1).is_duplicate
    log.expire_producers(NOW_MS + DAY_MS)
    assert len(log.producers) == 1
    assert not append(log, from_producer(0)).is_duplicate


def test_where_the_wall_clock_was_when_a_batch_came_makes_no_producer_silent() -> None:
    log = open_log()
    then_ms = NOW_MS - 400 * DAY_MS
    sent = batch(b"x", timestamps=[then_ms], producer_id=7, producer_epoch=0, base_sequence=0)
    append(log, bytearray(sent), now_ms=then_ms)
    log.expire_producers(NOW_MS)
    assert append(log, bytearray(sent)).is_duplicate


def test_a_producer_of_old_records_is_not_taken_for_an_old_producer() -> None:
    files = MemoryFiles()
    log = open_log(files)
    old = batch(
        b"2013", timestamps=[1_357_000_000_000], producer_id=7, producer_epoch=0, base_sequence=0
    )
    append(log, bytearray(old))
    log.expire_producers(NOW_MS + 1)
    assert append(log, bytearray(old)).is_duplicate
    log = reopened(log, files)
    log.expire_producers(NOW_MS + 1)
    assert append(log, bytearray(old)).is_duplicate


# ---- transactions, as far as the log must know


def test_an_open_transaction_holds_the_last_stable_offset() -> None:
    log = open_log(config=LARGE)
    append(log)
    append(log, transactional(0), is_client=False)
    append(log, transactional(0, producer_id=8), is_client=False)
    append(log)
    assert log.last_stable_offset == 1
    append(log, marker(7, 0, commits=True), is_client=False)
    assert log.last_stable_offset == 2
    append(log, marker(8, 0, commits=False), is_client=False)
    assert log.last_stable_offset == log.end_offset == 6


@pytest.mark.parametrize("restart", [reopened, crashed])
def test_an_open_transaction_survives_a_restart(restart: Restart) -> None:
    files = MemoryFiles()
    log = open_log(files, config=LARGE)
    append(log, transactional(0), is_client=False)
    append(log, marker(7, 0, commits=True), is_client=False)
    append(log, transactional(1), is_client=False)
    append(log)
    log = restart(log, files)
    assert log.last_stable_offset == 2
    append(log, marker(7, 1, commits=True), is_client=False)
    assert log.last_stable_offset == log.end_offset


def test_outside_its_transaction_a_producer_may_not_write() -> None:
    log = open_log(config=LARGE)
    append(log, transactional(0), is_client=False)
    assert refused(log, from_producer(1)) is ErrorCode.INVALID_TXN_STATE


def test_after_a_marker_with_a_newer_epoch_sequences_begin_at_zero() -> None:
    log = open_log(config=LARGE)
    append(log, transactional(0), is_client=False)
    append(log, marker(7, 1, commits=False), is_client=False)
    assert refused(log, from_producer(1, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, from_producer(5, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, from_producer(0, epoch=1))


def test_a_producer_with_an_open_transaction_does_not_expire() -> None:
    log = open_log(config=LARGE)
    append(log, transactional(0), is_client=False)
    log.expire_producers(NOW_MS + 10 * DAY_MS)
    assert len(log.producers) == 1


def test_the_snapshot_tells_the_open_transaction() -> None:
    state = ProducerState()
    header = read_header(transactional(0))
    header.base_offset = 50
    state.add(header)
    snapshot = state.snapshot()
    assert struct.unpack(">q", snapshot.kafka[-8:]) == (50,)
    for sidecar in (snapshot.sidecar, None):
        loaded = ProducerState.load(51, snapshot.kafka, sidecar)
        assert loaded.first_undecided_offset == 50


def test_the_coordinators_own_batches_need_no_sequence() -> None:
    log = open_log(config=SMALL)
    for _ in range(3):
        data = batch(producer_id=9, producer_epoch=1, base_sequence=-1)
        assert not append(log, data, is_client=False).is_duplicate
    assert log.end_offset == 3
