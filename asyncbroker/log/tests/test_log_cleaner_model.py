"""Compaction against a naive model: rounds of produce, clean and reopen at random.

The model is a list of all records ever appended. After every step what can be read must be some of
them, at their offsets, in order and byte for byte; what had to stay must be there, and what had to
go must be gone. A failure prints its seed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from asyncbroker.log.cleaner_plan import plan_cleaning
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.cleaner_harness import COMPACTED, Kept, batches_of, clean, kept
from asyncbroker.log.tests.log_harness import NOW_MS, append, crashed, open_log, reopened
from asyncbroker.protocol.records import Compression, Record, build_batch

STEPS = 60
RETENTION_MS = 5000


@dataclass(slots=True)
class LastBatch:
    """What an idempotent producer sent last."""

    batch: bytearray
    base_offset: int
    next_sequence: int


class Machine:
    """One log and all that is known of it."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.files = MemoryFiles()
        self.config = replace(
            COMPACTED,
            segment_bytes=random.choice([1500, 2500, 5000]),
            min_compaction_lag_ms=random.choice([0, 0, 800]),
            delete_retention_ms=RETENTION_MS,
        )
        self.now_ms = NOW_MS
        self.log = open_log(self.files, config=self.config)
        self.appended: dict[int, Kept] = {}
        self.present: dict[int, Kept] = {}
        self.producers: dict[int, LastBatch] = {}
        # When the horizon of a tombstone was set, at the latest.
        self.seen_by_cleaner_ms: dict[int, int] = {}
        self.cleaned_offset: int | None = None

    def step(self) -> None:
        self.now_ms += self.random.choice([0, 10, 300, 3000])
        chance = self.random.random()
        if chance < 0.7:
            self.produce()
        elif chance < 0.9:
            self.clean()
        else:
            self.reopen()

    def produce(self) -> None:
        random, log = self.random, self.log
        base_offset = log.end_offset
        records = [
            Record(
                base_offset + at,
                self.now_ms - random.randrange(200),
                b"%d" % random.randrange(12) + b"-" * random.choice([0, 0, 60]),
                None if random.random() < 0.2 else random.randbytes(random.choice([1, 40, 150])),
                [("header", random.choice([None, b"x" * 70]))] if random.random() < 0.3 else [],
            )
            for at in range(random.choice([1, 1, 2, 5]))
        ]
        fields: dict[str, Any] = {}
        producer_id = random.choice([-1, 1, 2, 3])
        if producer_id > 0:
            last = self.producers.get(producer_id)
            sequence = last.next_sequence if last is not None else 0
            fields = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sequence,
            }
        batch = build_batch(records, compression=random.choice(list(Compression)), **fields)
        if producer_id > 0:
            self.producers[producer_id] = LastBatch(
                bytearray(batch), base_offset, sequence + len(records)
            )
        assert append(log, batch, now_ms=self.now_ms).base_offset == base_offset
        for each in records:
            found = Kept(each.offset, each.key, each.value, each.timestamp)
            self.appended[each.offset] = self.present[each.offset] = found
        self.check()

    def clean(self) -> None:
        cleaned_offset = self.cleaned_offset if self.random.random() < 0.8 else None
        key_bytes_max = self.random.choice([5000, 1 << 20])
        before = kept(self.log)
        plan = plan_cleaning(self.log, cleaned_offset, self.log.end_offset, self.now_ms)
        cleaning = clean(
            self.log,
            now_ms=self.now_ms,
            cleaned_offset=cleaned_offset,
            key_bytes_max=key_bytes_max,
        )
        assert plan.start_offset <= cleaning.end_offset <= plan.end_offset
        self.cleaned_offset = cleaning.end_offset
        after = kept(self.log)
        self.check_cleaned(
            before,
            after,
            cleaning.end_offset,
            plan.end_offset,
            keys_are_few=cleaning.end_offset < plan.end_offset,
        )
        self.present = {each.offset: each for each in after}
        self.check()

    def check_cleaned(
        self,
        before: list[Kept],
        after: list[Kept],
        end_offset: int,
        limit_offset: int,
        *,
        keys_are_few: bool,
    ) -> None:
        last = {each.key: each.offset for each in self.appended.values()}
        last_below = {
            each.key: each.offset for each in self.appended.values() if each.offset < end_offset
        }
        left = {each.offset for each in after}
        for each in before:
            if each.offset >= limit_offset:
                assert each.offset in left, f"{each} was not to be touched"
            elif each.offset < end_offset and last_below[each.key] > each.offset:
                assert each.offset not in left, f"{each} is superseded"
            elif each.value is None:
                # A later one, in a batch of which the map has a part only, may have its place.
                is_replaced = keys_are_few and last[each.key] > each.offset
                self.check_tombstone(each, is_replaced or each.offset in left)
            elif last[each.key] == each.offset:
                assert each.offset in left, f"{each} is the last of its key"
        lag_ms = self.config.min_compaction_lag_ms
        if lag_ms:
            assert all(
                each.offset in left or each.timestamp <= self.now_ms - lag_ms for each in before
            )

    def check_tombstone(self, tombstone: Kept, is_left: bool) -> None:
        seen_ms = self.seen_by_cleaner_ms.setdefault(tombstone.offset, self.now_ms)
        if not is_left:
            assert self.now_ms - seen_ms >= RETENTION_MS, f"{tombstone} went too early"

    def reopen(self) -> None:
        if self.random.random() < 0.5:
            self.log = reopened(self.log, self.files, now_ms=self.now_ms)
        else:
            point = self.random.choice([self.log.active_base_offset, self.log.end_offset])
            self.log = crashed(self.log, self.files, now_ms=self.now_ms, recovery_point=point)
        for producer_id, last in self.producers.items():
            again = append(self.log, bytearray(last.batch), now_ms=self.now_ms)
            assert again.is_duplicate, f"producer {producer_id} was forgotten"
            assert again.base_offset == last.base_offset
        self.check()

    def check(self) -> None:
        found = kept(self.log)
        assert found == [self.present[offset] for offset in sorted(self.present)]
        assert all(self.appended[each.offset] == each for each in found)
        ends = [(header.base_offset, header.last_offset) for header, _ in batches_of(self.log)]
        assert all(end < begin for (_, end), (begin, _) in pairwise(ends))
        assert self.log.size == sum(segment.size for segment in self.log.segments)
        self.check_lookups(self.log)

    def check_lookups(self, log: PartitionLog) -> None:
        """From any offset on, the first record is the same as when reading all."""
        offset = self.random.randrange(log.end_offset + 1)
        expected = next((each for each in sorted(self.present) if each >= offset), None)
        if expected is not None:
            at = offset
            while (located := log.locate(at, 1, end_offset=log.end_offset)) is not None:
                header = next(held for held, _ in batches_of(log) if held.last_offset >= at)
                assert located.read()[:8] == header.base_offset.to_bytes(8, "big")
                if header.record_count and header.last_offset >= expected:
                    break
                at = header.next_offset


@pytest.mark.parametrize("seed", range(40))
def test_compaction_does_what_the_model_says(seed: int) -> None:
    machine = Machine(seed)
    for _ in range(STEPS):
        machine.step()
    machine.clean()
    # In the end everything that may go has gone.
    machine.now_ms += 10 * RETENTION_MS
    machine.clean()
