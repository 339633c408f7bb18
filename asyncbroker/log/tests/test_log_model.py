"""A log against a list: whatever is done to it, it holds what a list would hold."""

from __future__ import annotations

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from asyncbroker.log.config import LogConfig
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.log_harness import (
    NOW_MS,
    append,
    batch,
    from_producer,
    open_log,
    read_all,
    truncate,
)
from asyncbroker.protocol.errors import KafkaError
from asyncbroker.protocol.records import Compression


class LogModel(RuleBasedStateMachine):
    """`records` is the log: a list of (value, timestamp) from offset 0 on. `ends` are the offsets
    at which batches end, since a log is cut between batches only."""

    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.records: list[tuple[bytes, int]] = []
        self.ends = [0]
        self.start = 0
        self.durable = 0
        self.epoch = 1
        # (first sequence, last sequence, base offset) of what the producer wrote.
        self.produced: list[tuple[int, int, int]] = []
        self.written = 0

    @initialize(
        segment_bytes=st.integers(500, 3000),
        interval=st.sampled_from([0, 100, 500]),
        index_bytes=st.sampled_from([60, 1 << 20]),
    )
    def start_up(self, segment_bytes: int, interval: int, index_bytes: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
            segment_ms=50,
        )
        self.log: PartitionLog = open_log(self.files, config=self.config)

    def values(self, count: int, size: int) -> list[bytes]:
        self.written += 1
        return [f"{self.written}.{at}.".encode().ljust(size, b"x") for at in range(count)]

    def took(self, values: list[bytes], timestamps: list[int]) -> None:
        self.records += zip(values, timestamps, strict=True)
        self.ends.append(len(self.records))

    # ---- what is done

    @rule(
        timestamps=st.lists(st.integers(0, 100), min_size=1, max_size=5),
        size=st.integers(0, 60),
        compression=st.sampled_from([Compression.NONE, Compression.GZIP]),
    )
    def append_batch(self, timestamps: list[int], size: int, compression: Compression) -> None:
        values = self.values(len(timestamps), size)
        data = batch(*values, timestamps=timestamps, compression=compression)
        assert append(self.log, data).base_offset == len(self.records)
        self.took(values, timestamps)

    @rule(count=st.integers(1, 4))
    def produce(self, count: int) -> None:
        first = self.produced[-1][1] + 1 if self.produced else 0
        values = self.values(count, 10)
        appended = append(self.log, from_producer(first, *values))
        assert (appended.base_offset, appended.is_duplicate) == (len(self.records), False)
        self.produced.append((first, first + count - 1, len(self.records)))
        self.took(values, [NOW_MS] * count)

    @precondition(lambda self: self.produced)
    @rule(back=st.integers(1, 7))
    def repeat(self, back: int) -> None:
        first, last, base_offset = self.produced[max(-back, -len(self.produced))]
        data = from_producer(first, *self.values(last - first + 1, 10))
        try:
            appended = append(self.log, data)
        except KafkaError:
            assert back > 5
        else:
            assert (appended.base_offset, appended.is_duplicate) == (base_offset, True)

    @precondition(lambda self: self.produced)
    @rule(gap=st.integers(1, 5))
    def skip_a_sequence(self, gap: int) -> None:
        try:
            append(self.log, from_producer(self.produced[-1][1] + 1 + gap))
        except KafkaError:
            return
        raise AssertionError("a gap was accepted")

    @rule()
    def flush(self) -> None:
        self.durable = self.log.flush()
        assert self.durable == len(self.records)

    @rule()
    def checkpoint(self) -> None:
        self.durable = self.log.checkpoint()

    @rule(part=st.floats(0, 1))
    def advance_start(self, part: float) -> None:
        self.start = max(self.start, int(part * len(self.records)))
        self.log.delete_segments(self.log.advance_log_start(self.start))

    @rule(part=st.floats(0, 1))
    def truncate_log(self, part: float) -> None:
        offset = self.start + int(part * (len(self.records) - self.start))
        # Down to the end of the last batch that lies below, but not below where the log begins.
        end = max(end for end in self.ends if end <= offset)
        if end < self.start or offset == len(self.records):
            return
        self.log.truncate_to(offset, NOW_MS)
        self.forget_after(end)
        self.durable = min(self.durable, end)

    def forget_after(self, end: int) -> None:
        del self.records[end:]
        self.ends = [held for held in self.ends if held <= end]
        self.produced = [held for held in self.produced if held[2] < end]

    @rule(is_new_epoch=st.booleans())
    def reopen(self, is_new_epoch: bool) -> None:
        self.log.close()
        self.durable = len(self.records)
        self.epoch += is_new_epoch
        self.open(is_clean=True)

    @rule()
    def kill(self) -> None:
        self.log.close(clean=False)
        self.open(is_clean=False)

    @rule(part=st.floats(0, 1))
    def lose_power(self, part: float) -> None:
        """The newest segment loses a part of what was not durable, at any byte."""
        segment = self.log.segments[-1]
        size = segment.flushed_size + int(part * (segment.size - segment.flushed_size))
        left = [
            header.next_offset
            for header, position, _ in segment.walk(0, segment.size)
            if position + header.size <= size
        ]
        end = max([segment.base_offset, *left])
        self.log.close(clean=False)
        truncate(self.files, segment.log_path, size)
        self.open(is_clean=False)
        if end < self.start:
            # The log's new beginning was known, and the records up to it were not durable.
            end = self.start
            self.ends.append(end)
            self.produced.clear()
        assert self.log.end_offset == end
        assert end >= self.durable
        self.forget_after(end)

    def open(self, *, is_clean: bool) -> None:
        self.log = open_log(
            self.files,
            config=self.config,
            leader_epoch=self.epoch,
            is_clean=is_clean,
            recovery_point=self.durable,
            log_start_offset=self.start,
        )

    # ---- what must hold

    @invariant()
    def the_log_holds_what_the_list_holds(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.end_offset == len(self.records)
        assert self.log.log_start_offset == self.start
        assert self.log.durable_end_offset >= self.durable
        expected = [(offset, value) for offset, (value, _) in enumerate(self.records)]
        assert read_all(self.log) == expected[self.start :]

    @invariant()
    def times_are_found(self) -> None:
        if not hasattr(self, "log"):
            return
        for timestamp in (0, 30, 70, 100, NOW_MS):
            expected = next(
                (
                    (offset, time)
                    for offset, (_, time) in enumerate(self.records)
                    if offset >= self.start and time >= timestamp
                ),
                None,
            )
            found = self.log.offset_for_timestamp(timestamp, self.log.end_offset)
            assert (None if found is None else (found.offset, found.timestamp)) == expected


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    print_blob=False,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
