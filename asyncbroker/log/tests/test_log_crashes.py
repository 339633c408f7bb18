"""What was promised survives every crash: at any call, of the process or of the machine.

Lives of a data directory with two partitions: appends, flushes, commit rounds in the journal (small
enough to be full now and then), checkpoints, truncations and stops at random, each ended by a stop,
by `kill -9` or by a loss of power, also while a log is being recovered. After each, what was
durable must be there, nothing may be there that was never appended, and the last five batches of an
idempotent producer must be known as duplicates.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from random import Random

import pytest

from asyncbroker.log.journal import FILE_BYTES_MIN
from asyncbroker.log.log_directory import LogDirectory
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.crash_disk import everything, sampled, synced_only
from asyncbroker.log.tests.crash_files import CrashFiles, Died
from asyncbroker.log.tests.log_harness import (
    NOW_MS,
    TOPIC_ID,
    append,
    batch,
    from_producer,
    read_all,
    with_config,
)

LIVES = 6


class Promised:
    """What is known of one partition from outside."""

    def __init__(self) -> None:
        self.values: dict[int, bytes | None] = {}
        self.durable_end_offset = 0
        # First sequence, base offset and count of each batch of the producer.
        self.batches: list[tuple[int, int, int]] = []
        # Where batches begin.
        self.bases: list[int] = []

    def append(self, log: PartitionLog, random: Random) -> None:
        offset = log.end_offset
        values = [
            f"{offset + at} {random.random()} ".encode().ljust(random.choice([20, 90, 200]), b"x")
            for at in range(random.randint(1, 3))
        ]
        if random.random() < 0.5:
            sequence = sum(self.batches[-1][::2]) if self.batches else 0
            appended = append(log, from_producer(sequence, *values))
            self.batches.append((sequence, offset, len(values)))
        else:
            appended = append(log, batch(*values))
        assert (appended.base_offset, appended.is_duplicate) == (offset, False)
        self.values.update(enumerate(values, offset))
        self.bases.append(offset)

    def truncate(self, log: PartitionLog, lower: Callable[[int], None], random: Random) -> None:
        """Takes back a part, promised records too, as a follower does for its leader. If that is
        interrupted, more or less may be left."""
        offset = random.randint(log.log_start_offset, log.end_offset)
        begin = max((base for base in self.bases if base <= offset), default=0)
        self.durable_end_offset = min(self.durable_end_offset, begin)
        lower(begin)
        log.truncate_to(offset, NOW_MS)
        assert log.end_offset in (begin, offset)
        self.keep({at: value for at, value in self.values.items() if at < log.end_offset})

    def keep(self, values: dict[int, bytes | None]) -> None:
        self.values = values
        self.bases = [base for base in self.bases if base in values]
        self.batches = [known for known in self.batches if known[1] in values]

    def check(self, log: PartitionLog) -> None:
        found = dict(read_all(log))
        assert log.durable_end_offset <= log.end_offset
        assert all(self.values[offset] == value for offset, value in found.items())
        lost = self.values.keys() - found.keys()
        assert all(offset >= self.durable_end_offset for offset in lost)
        self.keep(found)
        for sequence, offset, count in self.batches[-5:]:
            repeated = append(log, from_producer(sequence, *[b"again"] * count))
            assert (repeated.base_offset, repeated.is_duplicate) == (offset, True)


class Machine:
    """The disk, and what its user was promised."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.files = CrashFiles(sector_bytes=128)
        self.promised = [Promised(), Promised()]
        self.config = with_config(segment_bytes=self.random.choice([1000, 2000, 5000]))
        self.leader_epoch = 0

    def live(self) -> None:
        """One life of a broker: recovery, work, and the end."""
        random = self.random
        for _ in range(random.choice([0, 0, 1, 2])):
            self.files.die_in = random.randrange(40)
            try:
                directory, _ = self.open()
                directory.checkpoint()
            except Died:
                pass
            self.end()
        directory, logs = self.open()
        for promised, log in zip(self.promised, logs, strict=True):
            promised.check(log)
        try:
            self.files.die_in = random.choice([-1, random.randrange(300)])
            for _ in range(random.randrange(60)):
                self.work(directory, logs)
            if random.random() < 0.4:
                directory.close()
                for promised, log in zip(self.promised, logs, strict=True):
                    promised.durable_end_offset = log.end_offset
        except Died:
            pass
        self.end()

    def open(self) -> tuple[LogDirectory, list[PartitionLog]]:
        directory = LogDirectory.open(
            self.files,
            "data",
            cluster_id="cluster",
            journal_bytes=FILE_BYTES_MIN,
            random_bytes=self.random.randbytes,
        )
        self.leader_epoch += not directory.was_clean
        logs = [
            directory.open_partition(
                "flights",
                index,
                topic_id=TOPIC_ID,
                config=self.config,
                leader_epoch=self.leader_epoch,
                now_ms=NOW_MS,
            )
            for index in range(len(self.promised))
        ]
        return directory, logs

    def work(self, directory: LogDirectory, logs: list[PartitionLog]) -> None:
        index = self.random.randrange(len(logs))
        log, promised = logs[index], self.promised[index]
        chance = self.random.random()
        if chance < 0.65:
            promised.append(log, self.random)
        elif chance < 0.8:
            self.commit(directory, logs)
        elif chance < 0.85:
            promised.durable_end_offset = log.flush()
        elif chance < 0.94:
            directory.checkpoint()
        elif chance < 0.97:
            promised.truncate(
                log, partial(directory.lower_recovery_point, "flights", index), self.random
            )
        else:
            log.start_writeback()

    def commit(self, directory: LogDirectory, logs: list[PartitionLog]) -> None:
        """A round: what the journal can hold goes there, the rest is flushed."""
        journal = directory.journal
        assert journal is not None
        if not journal.is_ready:
            journal.prepare()
        stretches = [
            stretch
            for index, log in enumerate(logs)
            if (stretch := log.stretch_for_journal(index, 4000)) is not None
        ]
        if not journal.append(stretches):
            directory.free_journal()
            assert journal.append(stretches) == stretches
        for stretch in stretches:
            self.promised[stretch.partition].durable_end_offset = stretch.end_offset
        for promised, log in zip(self.promised, logs, strict=True):
            if log.durable_end_offset < log.end_offset:
                promised.durable_end_offset = log.flush()

    def end(self) -> None:
        if self.random.random() < 0.3:
            self.files = self.files.killed()
        else:
            self.files = self.files.crashed(sampled(self.random))


def cut_back(machine: Machine) -> None:
    """A log of some segments is cut back twice, within what was promised and within what was not,
    and goes on from there."""
    directory, (log, _) = machine.open()
    promised, random = machine.promised[0], machine.random
    lower = partial(directory.lower_recovery_point, "flights", 0)
    for batch_count in (6, 2):
        for _ in range(batch_count):
            promised.append(log, random)
        promised.durable_end_offset = log.flush()
        directory.checkpoint()
        for _ in range(4):
            promised.append(log, random)
        promised.truncate(log, lower, random)
    promised.append(log, random)
    promised.durable_end_offset = log.flush()


def test_a_log_that_is_cut_back_survives_a_crash_at_every_call() -> None:
    states = (synced_only, everything, sampled(Random(1)), sampled(Random(2)))
    for at in itertools.count(1):
        machine = Machine(3)
        machine.files.die_in = at
        try:
            cut_back(machine)
        except Died:
            is_over = False
        else:
            is_over = True
        files, promised = machine.files, machine.promised
        for after in (files.killed(), *(files.crashed(state) for state in states)):
            machine.files, machine.promised = after, deepcopy(promised)
            _, logs = machine.open()
            for known, log in zip(machine.promised, logs, strict=True):
                known.check(log)
        if is_over:
            break
    assert at > 100


@pytest.mark.parametrize("seed", range(40))
def test_what_was_promised_survives_every_crash(seed: int) -> None:
    machine = Machine(seed)
    for _ in range(LIVES):
        machine.live()
