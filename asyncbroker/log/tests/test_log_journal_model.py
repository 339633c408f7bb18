"""The journal and the logs that share it, against lists: what Hypothesis makes of any order of
appends, commit rounds, rolls, checkpoints, truncations, deletions and ends.

The model of a partition is its values by offset, where it begins, and up to where it was promised.
The ring is as small as can be, so that it is full and goes round all the time. A disk keeps what
was synced, everything, or any part of the rest. `test_log_crashes.py` dies in the middle of calls;
here they come to their end, and a failure is shrunk to the few that matter.
"""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from asyncbroker.log.journal import FILE_BYTES_MIN, JOURNAL, newest, read_heads
from asyncbroker.log.journal_frames import RING_BEGIN
from asyncbroker.log.journal_replay import live_rounds
from asyncbroker.log.log_directory import LogDirectory
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.crash_disk import everything, sampled, synced_only
from asyncbroker.log.tests.crash_files import CrashFiles
from asyncbroker.log.tests.log_harness import NOW_MS, append, batch, read_all, with_config
from asyncbroker.tests.long import IS_LONG

PARTITIONS = 2
# Larger stretches go past the journal.
STRETCH_BYTES_MAX = 12_000
CONFIG = with_config(segment_bytes=30_000)

partitions = st.integers(0, PARTITIONS - 1)
sizes = st.sampled_from([1, 300, 3_000, 9_000, 20_000])
shares = st.floats(0, 1)
seeds = st.integers(0, 1 << 16)


class Promised:
    """The model of one partition."""

    def __init__(self, number: int) -> None:
        self.topic_id = number.to_bytes(16, "big")
        self.values: list[bytes] = []
        self.start_offset = 0
        self.durable_end_offset = 0


class JournalAndLogs(RuleBasedStateMachine):
    """One data directory. See the head of this file."""

    directory: LogDirectory
    logs: list[PartitionLog]

    @initialize()
    def begin(self) -> None:
        self.files = CrashFiles(sector_bytes=512)
        self.random = Random(1)
        self.leader_epoch = 0
        self.topic_count = PARTITIONS
        self.models = [Promised(number + 1) for number in range(PARTITIONS)]
        self.open()

    def open(self) -> None:
        self.directory = LogDirectory.open(
            self.files,
            "data",
            cluster_id="cluster",
            journal_bytes=FILE_BYTES_MIN,
            random_bytes=self.random.randbytes,
        )
        self.leader_epoch += not self.directory.was_clean
        self.logs = [self.open_partition(index) for index in range(PARTITIONS)]
        assert self.directory.journal is not None
        self.directory.journal.prepare()

    def open_partition(self, index: int) -> PartitionLog:
        return self.directory.open_partition(
            "flights",
            index,
            topic_id=self.models[index].topic_id,
            config=CONFIG,
            leader_epoch=self.leader_epoch,
            now_ms=NOW_MS,
        )

    # ---- what a broker does

    @rule(index=partitions, size=sizes)
    def append(self, index: int, size: int) -> None:
        value = self.random.randbytes(size)
        self.models[index].values.append(value)
        append(self.logs[index], batch(value))

    @rule()
    def commit(self) -> None:
        """A round: the journal takes what it may, and the rest is flushed."""
        journal = self.directory.journal
        assert journal is not None
        wanted = [
            stretch
            for index, log in enumerate(self.logs)
            if (stretch := log.stretch_for_journal(index, STRETCH_BYTES_MAX)) is not None
        ]
        done = journal.append(wanted)
        assert done in ([], wanted)
        for log in self.logs:
            if log.durable_end_offset < log.end_offset:
                log.flush()
        self.promise()

    def promise(self) -> None:
        for model, log in zip(self.models, self.logs, strict=True):
            assert log.durable_end_offset == len(model.values)
            model.durable_end_offset = len(model.values)

    @rule(index=partitions)
    def flush(self, index: int) -> None:
        self.models[index].durable_end_offset = self.logs[index].flush()

    @rule(index=partitions)
    def roll(self, index: int) -> None:
        self.logs[index].roll(NOW_MS)

    @rule(frees_only=st.booleans())
    def checkpoint(self, frees_only: bool) -> None:
        if frees_only:
            self.directory.free_journal()
        else:
            self.directory.checkpoint()
        assert self.directory.journal is not None
        # What it still has nobody needs: the block that says so.
        assert not any(log.is_journal_needed for log in self.logs)
        assert live_count(self.files) == 0

    @rule(index=partitions, share=shares)
    def delete_records(self, index: int, share: float) -> None:
        log, model = self.logs[index], self.models[index]
        offset = model.start_offset + int(share * (len(model.values) - model.start_offset))
        segments = log.advance_log_start(offset)
        self.directory.record_log_starts([("flights", index)])
        for path in self.directory.delete_segments(log, segments):
            self.directory.remove_some(path)
        model.start_offset = offset
        # All before the new beginning was made durable, and the rest may be.
        model.durable_end_offset = max(model.durable_end_offset, offset)

    @rule(index=partitions, share=shares)
    def truncate(self, index: int, share: float) -> None:
        log, model = self.logs[index], self.models[index]
        offset = model.start_offset + int(share * (len(model.values) - model.start_offset))
        self.directory.lower_recovery_point("flights", index, offset)
        log.truncate_to(offset, NOW_MS)
        del model.values[offset:]
        model.durable_end_offset = min(model.durable_end_offset, offset)

    @rule(index=partitions)
    def delete_and_make_anew(self, index: int) -> None:
        """The topic goes, and another one of its name comes."""
        for path in self.directory.delete_partitions([("flights", index)]):
            while self.directory.remove_some(path):
                pass
        self.topic_count += 1
        self.models[index] = Promised(self.topic_count)
        self.logs[index] = self.open_partition(index)

    # ---- how it ends

    @rule()
    def stop(self) -> None:
        self.directory.close()
        assert live_count(self.files) == 0
        for model in self.models:
            model.durable_end_offset = len(model.values)
        self.reopen(self.files.killed())

    @rule()
    def kill(self) -> None:
        counts = [len(model.values) for model in self.models]
        self.reopen(self.files.killed())
        assert [len(model.values) for model in self.models] == counts

    @rule(seed=seeds, kept=st.sampled_from(["synced", "all", "some"]))
    def lose_power(self, seed: int, kept: str) -> None:
        choose = {"synced": synced_only, "all": everything, "some": sampled(Random(seed))}[kept]
        self.reopen(self.files.crashed(choose))

    def reopen(self, files: CrashFiles) -> None:
        """What is there now is what the model goes on with; nothing promised may lack."""
        self.files = files
        self.open()
        for model, log in zip(self.models, self.logs, strict=True):
            assert model.durable_end_offset <= log.end_offset <= len(model.values)
            del model.values[log.end_offset :]

    @invariant()
    def every_log_is_its_model(self) -> None:
        for model, log in zip(self.models, self.logs, strict=True):
            assert (log.log_start_offset, log.end_offset) == (
                model.start_offset,
                len(model.values),
            )
            expected = list(enumerate(model.values))[model.start_offset :]
            assert read_all(log, bytes_max=50_000) == expected
            assert log.durable_end_offset <= log.end_offset
            assert log.size >= sum(len(value) for _, value in expected)

    @invariant()
    def the_ring_is_within_its_file(self) -> None:
        journal = self.directory.journal
        assert journal is not None
        assert 0 <= journal.used_bytes <= FILE_BYTES_MIN - RING_BEGIN
        assert self.files.list_files("data")[JOURNAL] == FILE_BYTES_MIN


def live_count(files: CrashFiles) -> int:
    """How many rounds with frames a start would replay."""
    file = files.open(f"data/{JOURNAL}")
    head = newest(read_heads(file))
    assert head is not None
    return sum(bool(found.frames) for found in live_rounds(file, head))


TestJournalAndLogs = JournalAndLogs.TestCase
TestJournalAndLogs.settings = settings(
    max_examples=400 if IS_LONG else 30,
    stateful_step_count=40,
    deadline=None,
    print_blob=False,
)
