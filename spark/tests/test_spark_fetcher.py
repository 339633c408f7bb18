"""Fetching a range: what is hidden, what ends it, and what happens when offsets are gone."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.errors import BrokerError, RequestTimedOut
from asyncbroker.client.reader import Fetched
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.fetch import AbortedTransaction
from asyncbroker.protocol.records import CorruptBatch, Record, build_batch, read_header, stamp
from asyncbroker.spark import fetcher, range_reader, reader
from asyncbroker.spark.columns import full_schema
from asyncbroker.spark.options import ReadOptions
from asyncbroker.spark.planner import DataLost, OffsetRange
from asyncbroker.spark.reader import BatchReader
from asyncbroker.spark.transactions import AbortedTransactions

PARTITION = TopicPartition("t", 0)
ABORT, COMMIT = 0, 1


def data(base_offset: int, count: int, producer_id: int = -1) -> bytes:
    return bytes(
        build_batch(
            [Record(0, 1000, None, b"%d" % (base_offset + i)) for i in range(count)],
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            is_transactional=producer_id >= 0,
        )
    )


def marker(offset: int, producer_id: int, kind: int) -> bytes:
    return bytes(
        build_batch(
            [Record(0, 1000, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 7))],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )
    )


# ---- transactions


def seen(batches: list[bytes], aborted: list[tuple[int, int]]) -> list[int]:
    """The base offsets of the batches that are not hidden."""
    transactions = AbortedTransactions([AbortedTransaction(p, o) for p, o in aborted])
    return [
        read_header(batch).base_offset
        for batch in batches
        if not transactions.hides(read_header(batch), batch)
    ]


def test_markers_are_hidden_from_everybody() -> None:
    log = [data(0, 2), data(2, 2, 9), marker(4, 9, COMMIT), data(5, 1, 9), marker(6, 9, ABORT)]
    assert seen(log, []) == [0, 2, 5]


def test_an_aborted_transaction_is_hidden_until_its_marker() -> None:
    log = [
        data(0, 1, 9),
        marker(1, 9, COMMIT),
        data(2, 1, 9),
        data(3, 1, 8),
        data(4, 1),
        data(5, 1, 9),
        marker(6, 9, ABORT),
        data(7, 1, 9),
        marker(8, 9, COMMIT),
    ]
    assert seen(log, [(9, 2)]) == [0, 3, 4, 7]


def test_transactions_are_aborted_one_after_the_other() -> None:
    log = [
        data(0, 1, 9),
        marker(1, 9, ABORT),
        data(2, 1, 9),
        marker(3, 9, COMMIT),
        data(4, 1, 9),
        marker(5, 9, ABORT),
    ]
    assert seen(log, [(9, 4), (9, 0)]) == [2]


def test_an_aborted_transaction_may_have_begun_in_an_earlier_response() -> None:
    assert seen([data(5, 1, 9), marker(6, 9, ABORT), data(7, 1, 9)], [(9, 2)]) == [7]


def test_a_marker_without_a_type_is_corrupt() -> None:
    broken = build_batch(
        [Record(0, 1, b"\x00", None)], producer_id=9, is_transactional=True, is_control=True
    )
    with pytest.raises(CorruptBatch, match="without a type"):
        seen([bytes(broken)], [(9, 0)])


# ---- ranges

OUT_OF_RANGE = BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, api="Fetch")


class StandInLog:
    """A partition behind the client's functions: batches, where they begin and end, errors."""

    def __init__(self, batches: list[bytes], earliest: int = 0, latest: int | None = None) -> None:
        self.batches = batches
        self.earliest = earliest
        headers = [read_header(batch) for batch in batches]
        self.latest = headers[-1].next_offset if latest is None and headers else (latest or 0)
        # Aborted transactions, with the offsets of their markers.
        self.aborted: list[tuple[AbortedTransaction, int]] = []
        self.error: BrokerError | None = None
        self.empty_polls = 0

    def reader(
        self,
        cluster: object,
        positions: Mapping[TopicPartition, int],
        *,
        end_offsets: Mapping[TopicPartition, int],
        **_: object,
    ) -> StandInReader:
        return StandInReader(self, positions[PARTITION], end_offsets[PARTITION])


class StandInReader:
    """One batch a poll, as `asyncbroker.client.reader.Reader` would hand it over."""

    def __init__(self, log: StandInLog, position: int, end: int) -> None:
        self._log, self._position, self._end = log, position, end

    def __enter__(self) -> StandInReader:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def is_done(self) -> bool:
        return self._position >= self._end

    def poll(self) -> list[Fetched]:
        log = self._log
        if log.empty_polls:
            log.empty_polls -= 1
            return []
        if log.error is not None:
            raise log.error
        if self._position < log.earliest or self._position > log.latest:
            raise OUT_OF_RANGE
        for batch in log.batches:
            if read_header(batch).last_offset >= self._position:
                position, self._position = self._position, read_header(batch).next_offset
                return [
                    Fetched(
                        partition=PARTITION,
                        records=memoryview(batch),
                        position=position,
                        next_offset=self._position,
                        high_watermark=log.latest,
                        last_stable_offset=log.latest,
                        log_start_offset=log.earliest,
                        # Those that had ended before are not in a real response either.
                        aborted_transactions=[t for t, last in log.aborted if last >= position],
                    )
                ]
        return []


def values(
    monkeypatch: pytest.MonkeyPatch, log: StandInLog, start: int, end: int, **options: str
) -> list[int]:
    """What a task reads of a range."""
    monkeypatch.setattr(Cluster, "wait_for_broker", lambda *_: None)
    monkeypatch.setattr(fetcher, "Reader", log.reader)
    monkeypatch.setattr(fetcher, "earliest_offsets", lambda *_: {PARTITION: log.earliest})
    monkeypatch.setattr(
        fetcher, "latest_offsets", lambda *_, isolation_level: {PARTITION: log.latest}
    )
    parsed = ReadOptions.parse(
        {"kafka.bootstrap.servers": "b", "subscribe": "t"}
        | {name.replace("__", "."): value for name, value in options.items()}
    )
    task = BatchReader(parsed, full_schema(include_headers=False))
    found: Iterator[Any] = task.read(InputPartition(OffsetRange(PARTITION, start, end)))
    return [int(value) for records in found for value in records.column("value").to_pylist()]


def test_a_range_is_cut_out_of_the_batches_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    log = StandInLog([data(0, 10), data(10, 10), data(20, 10)])
    assert values(monkeypatch, log, 5, 22) == list(range(5, 22))
    assert values(monkeypatch, log, 12, 13) == [12]
    assert values(monkeypatch, log, 0, 30) == list(range(30))


def test_a_partition_without_a_value_has_no_records() -> None:
    options = ReadOptions.parse({"kafka.bootstrap.servers": "b", "subscribe": "t"})
    task = BatchReader(options, full_schema(include_headers=False))
    assert list(task.read(InputPartition(None))) == []


def test_holes_that_compaction_left_are_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    log = StandInLog([data(3, 2), data(40, 2)])
    assert values(monkeypatch, log, 0, 42) == [3, 4, 40, 41]
    # The range ends inside a hole: the batch after it says so, and is not read.
    assert values(monkeypatch, log, 0, 20) == [3, 4]


def test_markers_and_aborted_records_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    log = StandInLog([data(0, 2, 9), marker(2, 9, ABORT), data(3, 1, 9), marker(4, 9, COMMIT)])
    log.aborted = [(AbortedTransaction(9, 0), 2)]
    assert values(monkeypatch, log, 0, 5) == [3]


def test_a_batch_with_a_wrong_crc_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = bytearray(data(10, 2))
    damaged[-2] ^= 1
    log = StandInLog([data(0, 10), bytes(damaged)])
    with pytest.raises(CorruptBatch, match="t-0, offset 10: the CRC"):
        values(monkeypatch, log, 0, 12)
    unchecked = values(monkeypatch, log, 0, 12, kafka__check__crcs="false")
    assert len(unchecked) == 12


def test_a_start_deleted_after_planning_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    log = StandInLog([data(50, 50)], earliest=60)
    with pytest.raises(DataLost, match=r"offset \[10, 70\) for topic partition t-0"):
        values(monkeypatch, log, 10, 70)


def test_what_is_left_is_read_if_loss_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # The batch begins below the start of the log: deleted records in it stay deleted.
    log = StandInLog([data(50, 50)], earliest=60)
    assert values(monkeypatch, log, 10, 70, failOnDataLoss="false") == list(range(60, 70))
    assert values(monkeypatch, log, 10, 40, failOnDataLoss="false") == []


def test_a_log_that_ends_before_the_range_is_an_error_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = StandInLog([data(0, 10)])
    with pytest.raises(DataLost, match=r"\[10, 20\)"):
        values(monkeypatch, log, 0, 20)
    assert values(monkeypatch, log, 0, 20, failOnDataLoss="false") == list(range(10))
    with pytest.raises(DataLost, match=r"\[15, 20\)"):
        values(monkeypatch, log, 15, 20)


def test_empty_answers_are_waited_out_up_to_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    log = StandInLog([data(0, 10)])
    log.empty_polls = 3
    assert values(monkeypatch, log, 0, 10) == list(range(10))
    log.empty_polls = 1 << 60
    with pytest.raises(RequestTimedOut, match="Cannot fetch record for offset 0 of t-0 in 1 milli"):
        values(monkeypatch, log, 0, 10, kafkaConsumer__pollTimeoutMs="1")


def test_other_errors_of_the_broker_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    log = StandInLog([data(0, 10)])
    log.error = BrokerError(ErrorCode.CORRUPT_MESSAGE, api="Fetch")
    with pytest.raises(BrokerError, match="CORRUPT_MESSAGE"):
        values(monkeypatch, log, 0, 10, failOnDataLoss="false")


def test_the_reader_travels_to_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    options = ReadOptions.parse({"kafka.bootstrap.servers": "b", "subscribe": "t"})
    task = BatchReader(options, full_schema(include_headers=False))
    planned = [OffsetRange(PARTITION, 1, 5)]
    monkeypatch.setattr(reader, "plan", lambda *_: planned)
    partitions = pickle.loads(pickle.dumps(task)).partitions()
    assert [pickle.loads(pickle.dumps(partition)).value for partition in partitions] == planned


def test_a_large_partition_streams_through_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a gigabyte in responses of a megabyte, of which a few are in memory at any time."""
    count, responses = 1000, 500
    batch = build_batch([Record(0, 1000, None, bytes(1000))] * count)

    def fetch(*_: object) -> Iterator[Fetched]:
        for number in range(responses):
            records = bytearray(batch)
            stamp(records, number * count, 0)
            yield Fetched(PARTITION, memoryview(records), 0, 0, 0, 0, 0, [])

    monkeypatch.setattr(Cluster, "wait_for_broker", lambda *_: None)
    monkeypatch.setattr(range_reader, "fetch", fetch)
    options = ReadOptions.parse({"kafka.bootstrap.servers": "b", "subscribe": "t"})
    task = BatchReader(options, full_schema(include_headers=False))
    found: Iterator[Any] = task.read(InputPartition(OffsetRange(PARTITION, 0, count * responses)))
    size = arrow_peak = 0
    tracemalloc.start()
    try:
        for records in found:
            size += records.nbytes
            arrow_peak = max(arrow_peak, pa.total_allocated_bytes())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 500_000_000
    assert peak + arrow_peak < 100_000_000
